/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which registers a probe gets in a kernel, and what that costs.
 *
 * At the entry nothing is live: a probe keeps its own numbers. What the kernel then uses may still
 * be read or written late by the probe's memory instructions: rewrite.c waits for them there.
 *
 * At an exit the leaving threads need nothing any more. But the kernel's last memory instructions
 * may still read their registers, or write them (busy in kernel.h). So a probe gets the lowest
 * registers that nothing can touch late, then ones above the kernel's own. Uniform registers,
 * uniform predicates and convergence barriers belong to the warp, whose other threads may go on: a
 * probe gets those that no instruction of the kernel names. Where the kernel changes its number of
 * registers, none are added.
 */

#include "kernel.h"
#include "probe.h"

struct sass_map {
	uint8_t pair[128]; /* of registers */
	uint8_t uniform_quad[16];
	uint8_t barrier[16];
	uint8_t predicate[8], uniform_predicate[8];
	uint32_t registers; /* the kernel's count with the probe in it */
};

/* 0 or SASS_REFUSED. */
int sass_map_entry(struct sass_map *map, const struct sass_kernel *kernel,
		   const struct sass_probe *probe, struct sass_refusal *refusal);
int sass_map_exit(struct sass_map *map, const struct sass_kernel *kernel,
		  const struct sass_probe *probe, struct sass_refusal *refusal);

/* Puts the registers of a map into an instruction of a probe. */
struct sass_word sass_map_word(const struct sass_map *map, const struct sass_arch *arch,
			       struct sass_word word);
