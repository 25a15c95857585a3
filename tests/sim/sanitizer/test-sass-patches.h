/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Patches and kernels written by hand. A patch counts in the struct counters that its data points
 * to, or does nothing if that is 0. */

#include <stdint.h>

struct memory_counters {
	uint64_t count, bytes, reads, writes, atomics, values, first_bytes, address;
};

/* The PTX has the offsets. */
struct counters {
	uint64_t enters, exits;
	uint64_t warps; /* first lanes of what is together at an entry */
	uint64_t barriers, barrier_threads;
	uint64_t syncs, sync_masks;
	uint64_t shuffles, calls, call_targets, returns;
	uint64_t padding[5];
	struct memory_counters global, shared, local;
};

extern const char patches[], kernels[];
