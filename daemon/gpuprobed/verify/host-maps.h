/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which maps the programs on the host of an object use, before libbpf has loaded them. */

#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"

/*
 * Bit i: a relocation in one of the programs, or in a function that any program may call, refers to
 * map i of `linked`. `elf` is an object file, aligned to 8. 0 with *maps, or a positive result with
 * one line in error: it is malformed.
 */
int host_maps_find(const void *elf, size_t size, const struct linked *linked, uint64_t programs,
		   uint64_t *maps, char error[static 192]);
