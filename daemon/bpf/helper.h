/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The helpers that a GPU program may call, and those that it may not call yet. */

#include <stdint.h>

enum helper_kind {
	HELPER_UNKNOWN = 0, /* not a helper of GPU programs */
	HELPER_LATER,       /* known, not in this release */
	HELPER_MAP_LOOKUP,
	HELPER_MAP_UPDATE,
	HELPER_MAP_DELETE,
	HELPER_SCALAR, /* no arguments, a number */
	HELPER_TRIPLE, /* writes three u64 through R1, R2, R3; returns 0 */
	HELPER_MEMBAR,
};

struct helper {
	uint32_t id;
	const char *name;
	enum helper_kind kind;
	const char *device[3]; /* functions of the device library that give the numbers */
};

/* Returns the helper of that number, or NULL. */
const struct helper *helper_find(uint32_t id);
