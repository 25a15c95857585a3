/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Twins: probes for kernels. The application's module stays as it is. A
 * second one, its twin, is loaded beside it: it has the kernels that attachments mean, with probes
 * in them, and uses the variables of the first one. Launches of those kernels go to the twin's.
 *
 * Here are the modules that may get a twin (originals), and when twins are made and unloaded.
 * Which handle is launched in place of which is handles.c's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/interest/interest-page.h"
#include "shim/driver/driver.h"

#include "fit.h"
#include "launch-block.h"
#include "load.h"

struct original;

/* The generations of the interest pages that were last acted upon. */
extern uint64_t twin_seen[2] __attribute__((visibility("hidden")));

/* Must this launch come by twin_look()? */
static inline bool twin_needed(void) {
	return interest_has_changed(twin_seen);
}

/* Before the first call of the driver: begins to count captures, and launches pass the gate. */
void twin_start(void);

/*
 * The driver has taken the application's own image as a module or library. preserved: the image
 * stays where it is until it is unloaded; else it is copied, as far as TWIN_COPIES_MAX goes.
 */
void twin_loaded(enum load_kind kind, driver_handle handle, const void *code, bool preserved);

/* The same of an image in a file. */
void twin_loaded_file(enum load_kind kind, driver_handle handle, const char *path);

/* Is "the image is preserved" among the options of a library's load? */
bool twin_is_preserved(const int *options, void *const *values, unsigned count);

/* It is about to be unloaded: its twin is, too. */
void twin_unloading(enum load_kind kind, driver_handle handle);

/* A context is gone. With the locks of the loader and of the instances held. now, until:
 * arm_outlives(). */
void twin_context_ended(driver_handle context, uint64_t now, uint64_t until);

/*
 * Before a launch, outside of the gate: looks whether attachments have changed, and makes the twin
 * of the kernel's module if one is wanted. What cannot be done now is tried at a later launch.
 */
void twin_prepare(struct twin_shape *shape); /* NULL: it only looks */

/* What is launched in place of shape->function. *form: the block that a twin has to be given.
 * Inside of the gate. */
driver_handle twin_choose(struct twin_shape *shape, struct launch_form *form);
/* How a kernel of the original's twin takes the block of a launch. The twin is not unloaded
 * meanwhile. */
struct launch_form twin_form(struct original *original, const char *kernel);

/*
 * The same for a node of an executable graph that runs in shape->context. *twin: the number of the
 * twin that it is of (twin-hold.h); whoever gives it to a node holds that twin.
 */
driver_handle twin_choose_for_node(struct twin_shape *shape, struct launch_form *form,
				   uint64_t *twin);

/* The daemon is another one, or does not know what it was told of: the next launch looks. */
void twin_look_again(void);
/* The program has waited for kernels: where a twin waits for an idle context, it may be now. */
extern uint64_t twin_syncs __attribute__((visibility("hidden")));
static inline void twin_synchronized(void) {
	__atomic_add_fetch(&twin_syncs, 1, __ATOMIC_RELAXED);
}

/* Does an attachment mean this process, as of the last look? */
bool twin_is_wanted(void);
/* Is there something that twin_prepare() of that shape has not done yet? */
bool twin_is_awaited(struct twin_shape *shape);
/* No graph holds a twin any more that some did: it is unloaded if it is not used and the context is
 * idle, else with the next change. Outside of the gate. */
void twin_released(void);
/* Tells the daemon why kernels of a graph have no twins, for `gpuprobectl why`. False: not now. */
bool twin_report(const char *reason);

/* ---- twin-image.c -------------------------------------------------------------------- */

/*
 * Writes the addresses of the original's variables into a twin's image, which is mapped for
 * reading. False: the table behind it is malformed, or the original lacks a variable: *missing is
 * its name then, or NULL.
 */
bool twin_image_fill(struct load *load, enum load_kind kind, driver_handle original,
		     const char **missing);

/* How a kernel of a twin takes the block of a launch. */
struct launch_form twin_image_form(const struct load *twin, const char *kernel);
