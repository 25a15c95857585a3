/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the integers in a map's values by their BTF type. The result says which lanes of 4 and 8
 * bytes a reader of the map may add up.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"

struct btf;

enum lanes_result {
	_LANES_SUCCESS,
	LANES_E_LIMIT, /* the type is nested too deeply, or has too many members */
};

/*
 * Where the integers of a value of a BTF type are, in order of offset, without overlap, none beyond
 * `size` bytes. Booleans, enums, char arrays, floats, pointers, bit fields are no integers here: to
 * add them makes no sense. Of a union the first member counts. 0 with *lanesp to free() (NULL:
 * there are none) and their number, LANES_E_LIMIT, or -ENOMEM.
 */
int lanes_find(const struct btf *btf, uint32_t type, uint32_t size, struct linked_lane **lanesp,
	       size_t *np);
