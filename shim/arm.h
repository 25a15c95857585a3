/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Arming: giving the probes of replaced modules the memory that they write to, in each context where they run; and
 * bringing what is in it home before the context ends.
 */

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* How many replaced modules the process has; 0 in all but probed processes. Read by every launch. */
extern unsigned arm_load_count __attribute__((visibility("hidden")));

/* Must this launch come by arm_current()? */
static inline bool arm_needed(void)
{
	return __atomic_load_n(&arm_load_count, __ATOMIC_RELAXED) != 0;
}

/* Arms every replaced module in the calling thread's context, where that is not done. Cheap when it is. */
void arm_current(void);

/* A replaced module came, or goes; with the loader's lock held. */
void arm_load_added(void);
void arm_load_removed(uint64_t module_id);

/* Stops all probes of this process from using a map. For the mirror's thread: leaves no context current. */
void arm_disarm(uint64_t map_id);

/* Before a context is destroyed: its instances are copied out a last time, and forgotten. */
void arm_context_ends(driver_handle context);

/* Before and after a primary context is released or reset: copied out; forgotten if it is gone. */
void arm_primary_may_end(int device);
void arm_primary_ended(int device);
