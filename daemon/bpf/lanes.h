/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "linked.h"

struct btf;

/*
 * Where the integers of a value of a BTF type are, in order of offset, without overlap, none beyond
 * `size` bytes. Returns their number (at most LINKED_LANES_MAX). Booleans, enums, char arrays,
 * floats, pointers, bit fields are no integers here: to add them makes no sense. Of a union the
 * first member counts.
 */
size_t lanes_find(const struct btf *btf, uint32_t type, uint32_t size, struct linked_lane *lanes);
