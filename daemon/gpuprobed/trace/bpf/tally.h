/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/types.h>

#include "proto/trace.h"

/* The calls of a function of a process since the beginning: what programs of the kernel count, and
 * the daemon. */
struct trace_tally {
	__u64 errors, time;
	__u64 max, least; /* least: the complement of the shortest one, so that 0 is none */
	__u64 bytes, bytes_done;
	__u32 buckets[TRACE_BUCKETS]; /* modulo 2^32 */
};
