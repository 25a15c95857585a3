/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Loading and unloading of modules: which image the driver gets. A struct load is one replaced
 * image, from the daemon's answer until after the driver's unload; it exists only when there is a
 * replacement.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client.h"
#include "driver.h"

enum load_kind {
	LOAD_LIBRARY, /* handle is a CUlibrary: good in every context */
	LOAD_MODULE, /* handle is a CUmodule: of one context */
};

/* A variable of the module that arming fills in or takes over; see wire_slot. */
struct load_slot {
	uint64_t map_id;
	enum wire_slot_kind kind;
	char symbol[WIRE_SYMBOL_MAX];
};

struct load {
	struct load *next;
	uint64_t module_id;
	uint64_t epoch; /* of which daemon the id is */
	uint64_t deadline_ms; /* till when the load may wait for it */
	void *image; /* mapped read-only */
	size_t size; /* of the mapping */
	enum load_kind kind;
	driver_handle handle; /* NULL until the driver has taken the image */
	driver_handle context; /* of a module */
	struct load_slot *slots;
	uint32_t slot_count;
	void **options, **kept_options; /* the caller's, and what was in it */
	unsigned option_count;
};

/*
 * Asks the daemon for a replacement of an image, if it is interested in this process: NULL means to
 * use the application's own. Waits at most the daemon's deadline.
 */
struct load *load_replace(const void *code);

/* The same for a file. */
struct load *load_replace_file(const char *path);

/*
 * The values of options go into the driver and come out of it: keeps them for a second try, and
 * puts them back for it.
 */
void load_keep_options(struct load *load, void **values, unsigned count);
void load_restore_options(struct load *load);

/* The image to hand to the driver. */
const void *load_image(const struct load *load);

/* The driver took it: it is kept from now on, and armed if a context is current. */
void load_commit(struct load *load, enum load_kind kind, driver_handle handle);

/*
 * The driver did not take it, and then took the application's own or not: forgets it, and tells the
 * daemon.
 */
void load_refused(struct load *load, driver_result result, driver_result own_result);

/* The module is about to be unloaded: it is armed no more. NULL if it is none of ours. */
struct load *load_begin_unload(enum load_kind kind, driver_handle handle);

/* It is unloaded, or the driver says why not: the image can go if it is. */
void load_end_unload(struct load *load, driver_result result);

/*
 * For arm.c, with the loader's lock held: the loads that the driver has taken, and the connection
 * to the daemon.
 */
struct load *load_first(void);
/* False: it could not be had in time, the thread has it already, or this is a forked child. */
bool load_lock(void);
bool load_lock_until(uint64_t until_ms);
void load_unlock(void);
/* Is it of the daemon that we are connected with? */
bool load_is_current(const struct load *load);
/* The modules of a context that is gone went with it. */
void load_forget_context(driver_handle context);
/* The open connection, or NULL; *deadline_ms: until when an answer may be waited for. */
struct client *load_client(uint64_t *deadline_ms);
/* The daemon that the loads came from, and how long it may be waited for. */
const char *load_folder(void);
uint32_t load_deadline_ms(void);
/* What programs may know about this process, as the daemon sees it. */
void load_process(int device, struct gpuprobe_process *process);
/* Tells the daemon a reason, for `gpuprobectl why`. */
void load_report(uint64_t module_id, const char *reason);
/* Closes the connection after a failure; no daemon is asked again for a while. */
void load_give_up(void);
