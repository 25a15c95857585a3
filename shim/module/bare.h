/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels of replaced modules as they were: probed kernel K has beside it one named K +
 * BARE_SUFFIX, with the original's body (passes/probe.h). When the daemon says that none of the
 * attachments is left that a module was made for, launches of its kernels go to those.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"

#include "launch-block.h"

struct load;

#define BARE_SUFFIX "__gpuprobe_bare" /* PROBE_BARE_SUFFIX of passes/probe.h */

/* How many retired modules the process has. Read by launches of probed processes. */
extern unsigned bare_retired_count __attribute__((visibility("hidden")));

/* Must this launch come by bare_function()? */
static inline bool bare_needed(void) {
	return __atomic_load_n(&bare_retired_count, __ATOMIC_RELAXED) != 0;
}

/* What to launch in place of a function or kernel: itself, or its bare one. */
driver_handle bare_function(driver_handle handle);

/*
 * Probes take registers, of which a block has 64 K: the probed form of a kernel may be impossible
 * to launch where the bare one is possible. Blocks of so many threads always are, at 255 registers.
 */
#define BARE_THREADS_ALWAYS 256

/* What to launch in place of a function or kernel with blocks of so many threads. */
driver_handle bare_for_block(driver_handle handle, uint64_t threads);

/* It could not be launched, with this result: the bare one for another try, or NULL. */
driver_handle bare_instead(driver_handle handle, driver_result result);

/* The bare form of `handle` was launched because the probed one could not be: the daemon is told.
 */
void bare_launched(driver_handle handle);

/*
 * The handle that the application knows for one that the driver tells of, such as a graph's: for a
 * bare kernel's that of the probed one, else itself. Of a function, and of a library's kernel.
 */
driver_handle bare_own_function(driver_handle function);
driver_handle bare_own_kernel(driver_handle kernel);

/* What the driver gave out: of a module that is none of ours, nothing is remembered. */
void bare_got_function(driver_handle module, driver_handle function, const char *name);
void bare_got_kernel(driver_handle library, driver_handle kernel, const char *name);
void bare_got_function_of(driver_handle kernel, driver_handle function);
void bare_got_module(driver_handle library, driver_handle module);

/* A library or module of ours? */
bool bare_is_container(driver_handle handle);

/*
 * The number of kernels of a library or functions of a module, and their handles, without bare
 * ones; of one that is none of ours *count stays as it is, and the list is false.
 */
void bare_count(bool library, driver_handle container, unsigned *count);
bool bare_list(bool library, driver_handle container, driver_handle *list, unsigned limit);

/* The driver has given out these handles, for at most so many, of one that may get a twin. */
bool bare_is_original(driver_handle container);
void bare_listed(bool library, driver_handle container, driver_handle *list, unsigned limit);

enum bare_setting {
	BARE_FUNCTION_ATTRIBUTE,
	BARE_FUNCTION_CACHE, /* attribute and device: 0 */
	BARE_FUNCTION_BANKS,
	BARE_KERNEL_ATTRIBUTE,
	BARE_KERNEL_CACHE,
};

/*
 * The application has changed something about a function or kernel, which the bare one and the
 * twin must get, too. The twin is not unloaded meanwhile.
 */
void bare_changed(enum bare_setting setting, driver_handle handle, int attribute, int value,
		  int device);

/* A replaced module came, or goes; a context is gone (now, until: arm_outlives()). */
void bare_load_added(const struct load *load);
void bare_load_removed(const struct load *load);
void bare_context_ended(driver_handle context, uint64_t now, uint64_t until);

/*
 * A module that is none of ours, and may get a twin (twin.h): a second module of ours with kernels
 * of the same names. Its kernels are found as bare ones are, the other way round: launches go to
 * the twin's while there is one. `original` is the caller's name for it. container: its handle; or
 * NULL: what belongs to it is said by bare_place_add().
 */
struct original;
void bare_original_added(struct original *original, driver_handle container, driver_handle context,
			 uint64_t context_id, uint64_t born);
void bare_original_removed(struct original *original);
/* Changes whenever the twin of a module does, and when twin.c has looked at attachments. */
extern uint64_t bare_twin_version __attribute__((visibility("hidden")));
/* Changes whenever handles have gone with their module or context: others may come in their place.
 */
extern uint64_t bare_gone_version __attribute__((visibility("hidden")));
/* Is it the handle of a library's kernel (else of a function)? Known handles only. */
bool bare_is_kernel(driver_handle handle);
/*
 * Launches of a kernel of a library in that context belong to `original` from now on, which may
 * have a twin there; the handle belongs to another original without a context. False: it has no
 * place there, as a function of another context.
 */
bool bare_place_add(driver_handle handle, struct original *original, driver_handle context,
		    uint64_t context_id);
/* The original of a function or kernel in a context; NULL: none is known. Any thread, no lock. */
struct original *bare_original(driver_handle handle, driver_handle context);
/* Its twin is this one from now on, or there is none (NULL). */
void bare_twin_changed(struct original *original, const struct load *twin);
/* Has the driver not been asked for the twin of a handle, which there is? Any thread, no lock. */
bool bare_twin_is_open(driver_handle handle, driver_handle context);
/* Asks it. The twin is not unloaded meanwhile. */
void bare_twin_resolve(driver_handle handle, driver_handle context);
/* The twin of a function or kernel, of which original, and the block of a launch that it has to be
 * given; itself where there is none. Inside of the gate. */
driver_handle bare_twin(driver_handle handle, driver_handle context, struct original **original,
			struct launch_form *form);

/* Why a kernel is launched without its probes. */
enum bare_why {
	BARE_NO_REGISTERS = 1, /* no block has registers enough with them */
	BARE_NOT_AT_ONCE, /* its blocks may not fit at once with them (fit.h) */
};

/* It is launched without its twin. The daemon is told by the next bare_say(). Inside of the gate.
 */
void bare_twin_refused(driver_handle handle, driver_handle context, enum bare_why why);

/* Outside of the gate, when bare_unsaid is set. */
extern bool bare_unsaid __attribute__((visibility("hidden")));
void bare_say(void);

/* The daemon's word. epoch: of which daemon the id is. */
void bare_retire(uint64_t module_id, uint64_t epoch);

/* The same for all modules of other daemons. */
void bare_retire_others(uint64_t epoch);

/* Is there a module of that daemon that it has not retired? */
bool bare_is_awaited(uint64_t epoch);
