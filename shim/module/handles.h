/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The handles that the driver has given out for kernels of modules that may get a twin (twin.h),
 * and what the application changed about them. Once there is a twin, it says which of the twin's
 * kernels is launched in place of which handle.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

#include "launch-block.h"

struct load;

/* How many modules have a twin. Read by launches. */
extern unsigned handles_twin_count __attribute__((visibility("hidden")));

/* Must this launch come by handles_twin()? */
static inline bool handles_needed(void) {
	return __atomic_load_n(&handles_twin_count, __ATOMIC_RELAXED) != 0;
}

/* What the driver gave out: of a module that gets no twin, nothing is remembered. */
void handles_got_function(driver_handle module, driver_handle function, const char *name);
void handles_got_kernel(driver_handle library, driver_handle kernel, const char *name);
void handles_got_function_of(driver_handle kernel, driver_handle function);
void handles_got_module(driver_handle library, driver_handle module);

/* The driver has given out these handles, for at most so many, of one that may get a twin. */
bool handles_is_original(driver_handle container);
void handles_listed(bool library, driver_handle container, driver_handle *list, unsigned limit);

enum handles_setting {
	HANDLES_FUNCTION_ATTRIBUTE,
	HANDLES_FUNCTION_CACHE, /* attribute and device: 0 */
	HANDLES_FUNCTION_BANKS,
	HANDLES_KERNEL_ATTRIBUTE,
	HANDLES_KERNEL_CACHE,
};

/*
 * The application has changed something about a function or kernel, which the twin must get, too.
 * The twin is not unloaded meanwhile.
 */
void handles_changed(enum handles_setting setting, driver_handle handle, int attribute, int value,
		     int device);

/* A context is gone (now, until: arm_outlives()). */
void handles_context_ended(driver_handle context, uint64_t now, uint64_t until);

/*
 * A module that may get a twin: a second module of ours with kernels of the same names. `original`
 * is the caller's name for it. container: its handle; or NULL: what belongs to it is said by
 * handles_place_add().
 */
struct original;
void handles_original_added(struct original *original, driver_handle container,
			    driver_handle context, uint64_t context_id, uint64_t born);
void handles_original_removed(struct original *original);
/* Changes whenever the twin of a module does, and when twin.c has looked at attachments. */
extern uint64_t handles_twin_version __attribute__((visibility("hidden")));
/* Changes whenever handles have gone with their module or context: others may come in their place.
 */
extern uint64_t handles_gone_version __attribute__((visibility("hidden")));
/* Is it the handle of a library's kernel (else of a function)? Known handles only. */
bool handles_is_kernel(driver_handle handle);
/*
 * Launches of a kernel of a library in that context belong to `original` from now on, which may
 * have a twin there; the handle belongs to another original without a context. False: it has no
 * place there, as a function of another context.
 */
bool handles_place_add(driver_handle handle, struct original *original, driver_handle context,
		       uint64_t context_id);
/* The original of a function or kernel in a context; NULL: none is known. Any thread, no lock. */
struct original *handles_original(driver_handle handle, driver_handle context);
/* Its twin is this one from now on, or there is none (NULL). */
void handles_twin_changed(struct original *original, const struct load *twin);
/* Has the driver not been asked for the twin of a handle, which there is? Any thread, no lock. */
bool handles_twin_is_open(driver_handle handle, driver_handle context);
/* Asks it. The twin is not unloaded meanwhile. */
void handles_twin_resolve(driver_handle handle, driver_handle context);
/* The twin of a function or kernel, of which original, and the block of a launch that it has to be
 * given; itself where there is none. Inside of the gate. */
driver_handle handles_twin(driver_handle handle, driver_handle context, struct original **original,
			   struct launch_form *form);

/* Why a kernel is launched without its probes. */
enum handles_why {
	HANDLES_NO_REGISTERS = 1, /* no block has registers enough with them */
	HANDLES_NOT_AT_ONCE, /* its blocks may not fit at once with them (fit.h) */
};

/* It is launched without its twin. The daemon is told by the next handles_say(). Inside of the
 * gate.
 */
void handles_twin_refused(driver_handle handle, driver_handle context, enum handles_why why);

/* Outside of the gate, when handles_unsaid is set. */
extern bool handles_unsaid __attribute__((visibility("hidden")));
void handles_say(void);
