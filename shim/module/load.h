/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the daemon answers about modules, and the connection to it. A struct load is the image of a
 * twin (twin.h), from the answer until after the driver's unload, or a plan of the sanitizer
 * engine.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/interest/wire-client.h"
#include "shim/driver/driver.h"
#include "shim/interest/interest-page.h"

enum load_kind {
	LOAD_LIBRARY, /* a twin; handle is a CUlibrary, used in one context */
	LOAD_MODULE, /* a twin; handle is a CUmodule: of one context */
	LOAD_PLAN, /* no image for the driver: what the sanitizer engine does (patch.h); kept by
		    * patch.c
		    */
};

enum load_answer {
	LOAD_ANSWER_PLAN, /* *plan is the caller's, for load_end_plan() */
	LOAD_ANSWER_OWN, /* nothing is to be patched */
	LOAD_ANSWER_LATER, /* there is no plan or twin now; what is in place stays */
	LOAD_ANSWER_REMOVE, /* there is no plan or twin now; what is in place is removed */
	LOAD_ANSWER_NONE, /* no daemon, or it failed us now or just before */
};

/* A variable of the module that arming fills in or takes over; see wire_slot. */
struct load_slot {
	uint64_t map_id;
	enum wire_slot_kind kind;
	uint32_t offset; /* of a plan: in struct patch_data */
	char symbol[WIRE_SYMBOL_MAX];
};

struct load {
	struct load *next;
	uint64_t module_id;
	uint64_t epoch; /* of which daemon the id is */
	uint64_t deadline_ms; /* till when the load may wait for it */
	void *image; /* mapped read-only */
	size_t size; /* of the mapping: at least a page of zeros follows the image */
	uint64_t length; /* of the image */
	enum load_kind kind;
	driver_handle handle; /* NULL until the driver has taken the image */
	driver_handle context; /* of a module or twin, */
	uint64_t context_id; /* and driver_context_id() of it */
	uint64_t born; /* arm_born() */
	struct load_slot *slots;
	uint32_t slot_count;
	uint64_t *attachments; /* that it was made for: their ids */
	uint32_t attachment_count;
	uint32_t start; /* of the daemon that knows it (wire.h, WELCOME) */
	struct armed *armed; /* where: arm.c's */
	uint64_t
		armed_devices; /* of a plan: bit i: the daemon knows that it is armed on device i */
};

/*
 * Asks for the image of a twin (proto/twin.h) of a module that is loaded. NULL: there is none, and
 * *answer says why: it may come later. awaited: it may wait for a compiler.
 */
struct image;
struct load *load_twin(const struct interest *found, const struct image *image, bool awaited,
		       enum load_answer *answer);

/* The driver took it: it is kept from now on, and armed if a context is current. */
void load_commit(struct load *load, enum load_kind kind, driver_handle handle);

/* The driver did not take it, or it is not needed: forgets it, and tells the daemon. */
void load_refused(struct load *load, driver_result result);
void load_unused(struct load *load);

/* A twin's image is not used: the original lacks that variable, or (NULL) its table is malformed.
 */
void load_twin_refused(struct load *load, const char *missing);

/* The module is about to be unloaded: it is not armed any more. NULL: it is no twin. */
struct load *load_begin_unload(enum load_kind kind, driver_handle handle);

/* Forgets what was unloaded while its thread could not have the lock, if there is any. */
void load_settle(void);

/* It is unloaded, or the driver says why not: the image can go if it is. */
void load_end_unload(struct load *load, driver_result result);

/*
 * For arm.c, with the loader's lock held: the loads that the driver has taken, and the connection
 * to the daemon.
 */
struct load *load_first(void);
/* False: the lock was not free in time, the thread has it already, or this is a forked child. */
bool load_lock(void);
bool load_lock_until(uint64_t until_ms);
/*
 * For the end of a context or a module: what waits then for the driver would find it gone, so this
 * may take long.
 */
bool load_lock_for_end(void);
/* Waits for the lock till the first, and then for the daemon till the second at most. */
bool load_lock_twice(uint64_t until_ms, uint64_t daemon_until_ms);
/*
 * Whether the thread that has the lock waits for the daemon, and for nothing else. Any thread may
 * ask.
 */
bool load_is_asking(void);
/* False in a forked child. */
bool load_is_owner(void);
void load_unlock(void);
/* Is it of the daemon that we are connected with? */
bool load_is_current(const struct load *load);
/* The modules of a context that is gone went with it. now, until: arm_outlives(). */
void load_forget_context(driver_handle context, uint64_t now, uint64_t until);
/* The open connection, or NULL; *deadline_ms: until when an answer may be waited for. */
struct wire_client *load_client(uint64_t *deadline_ms);
/* The daemon that the loads came from, and how long it may be waited for. */
const char *load_folder(void);
uint32_t load_deadline_ms(void);
/* Of the driver; it is asked once. Any thread may ask. */
uint32_t load_driver_version(void);
/* What programs may know about this process, as the daemon sees it. */
void load_process(int device, struct gpuprobe_process *process);
/* Tells the daemon a reason, for `gpuprobectl why`. */
void load_report(uint64_t module_id, const char *reason);
void load_report_map(uint64_t module_id, uint64_t map_id,
		     const char *reason); /* its users are without it */
/*
 * Reports a kernel (its name may be cut) that had to be launched without probes, `launches` times
 * by now. Takes the lock.
 */
enum handles_why;
void load_report_own(uint64_t module_id, uint64_t epoch, const char *kernel, enum handles_why why,
		     unsigned launches);

/*
 * Reports a reason that is about no module, as load_report() does. Opens a connection for it if
 * there is none. False: it could not be sent.
 */
bool load_report_to(const struct interest *found, const char *reason);

/*
 * Sends names (patch.h), and takes the plan, not checked but for its seals and size. may_connect:
 * else only over a connection that is there.
 */
enum load_answer load_ask_plan(const struct interest *found, const void *names, size_t size,
			       bool may_connect, struct load **plan);
/* What was answered makes no sense: the connection is closed. Forgets the plan. */
void load_refuse_plan(struct load *plan);
/* Of a plan that is not read any more: lets its bytes go. */
void load_drop_image(struct load *plan);
/* Tells the daemon that a plan is used no more, and forgets it. */
void load_end_plan(struct load *plan);

/* Is this what the daemon said that we are connected with? Takes the lock; what cannot be known is
 * true. */
bool load_is_welcome(const struct wire_welcome *other);

enum load_resumed {
	LOAD_RESUMED, /* we are connected; what it does not know is forgotten */
	LOAD_RESUME_LATER, /* there is no daemon yet */
	LOAD_RESUME_NEVER, /* it has ended for good */
};

/* The daemon does not answer any more: goes on with the one that comes next, if it is there. For
 * the mirror's thread. */
enum load_resumed load_resume(void);

/* Closes the connection after a failure; no daemon is asked again for a while. */
void load_give_up(void);
