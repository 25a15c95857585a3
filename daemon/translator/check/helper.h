/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The helpers that a GPU program may call. */

#include <stdint.h>

enum helper_kind {
	HELPER_UNKNOWN = 0, /* not a helper of GPU programs */
	HELPER_MAP_LOOKUP,
	HELPER_MAP_UPDATE,
	HELPER_MAP_DELETE,
	HELPER_SCALAR, /* no arguments, a number */
	HELPER_TRIPLE, /* writes three u64 through R1, R2, R3; returns 0 */
	HELPER_MEMBAR,
	HELPER_PID_TGID, /* of the process slot, as the next two */
	HELPER_DEVICE,
	HELPER_COMM,
	HELPER_PERF_OUTPUT, /* rings */
	HELPER_RING_OUTPUT,
	HELPER_RING_RESERVE,
	HELPER_RING_SUBMIT,
	HELPER_RING_DISCARD,
	HELPER_PRINTK, /* the log */
	HELPER_VPRINTK,
	HELPER_PUTS,
	HELPER_EXIT,
	HELPER_LOOP,
};

struct helper {
	uint32_t id;
	const char *name;
	enum helper_kind kind;
	const char *device[3]; /* functions of the device library that give the numbers */
};

/* Returns the helper of that number, or NULL. */
const struct helper *helper_find(uint32_t id);
