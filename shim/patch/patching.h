/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Patching: puts probes into the machine code of loaded kernels, and takes them out again, while
 * the process runs. Nothing here happens unless the sanitizer engine is in the process (ARM_ENGINE
 * is set in arm_load_count).
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "shim/interest/interest-page.h"
#include "shim/module/load.h"

struct mirror_context;

/* The generations of the interest pages that were last acted upon. */
extern uint64_t patch_seen[2] __attribute__((visibility("hidden")));
/* Something is left to be done before the next launch: bits. */
extern unsigned patch_again __attribute__((visibility("hidden")));
#define PATCH_AGAIN 1u /* it is not begun; */
#define PATCH_WORKING 2u /* a launch is about it: others wait for that one */

static inline void patch_ask_again(void) {
	__atomic_or_fetch(&patch_again, PATCH_AGAIN, __ATOMIC_RELEASE);
}

/* Must this launch come by patch_launch()? */
static inline bool patch_needed(void) {
	return interest_has_changed(patch_seen) || __atomic_load_n(&patch_again, __ATOMIC_RELAXED);
}

/* Before cuInit() reaches the driver. */
void patch_start(void);

/* Patches and unpatches what the daemon wants by now. */
void patch_launch(void);

/*
 * Before a launch by a handle that may be a library's kernel: if it is its first, the module is
 * brought into the context before, and patched outside of the driver.
 */
void patch_first_launch(driver_handle kernel);

/* Around the call that unloads modules. */
void patch_unload_begin(enum load_kind kind, driver_handle handle);
void patch_unload_end(enum load_kind kind, driver_handle handle, driver_result result);

/*
 * With the loader's lock held: a call that ends a context begins, or has not ended it; it is gone.
 * now, until: arm_outlives().
 */
void patch_context_ending(driver_handle handle, bool ending);
void patch_context_gone(driver_handle handle, uint64_t now, uint64_t until);

/*
 * Stops patches of a context, which is current, from using a map, with both locks held. False: some
 * may still use it.
 */
bool patch_disarm(const struct mirror_context *context, uint64_t map_id);
