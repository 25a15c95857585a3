/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes a machine-code twin: a cubin in which probes run at the entry of a kernel and at its ways
 * out. No instruction of the kernel moves or changes but the one at its entry and its EXITs, which
 * become branches to code behind the kernel's own. The kernel gets one parameter more, the block
 * that probes read.
 */

#include "probe.h"
#include "refusal.h"

struct sass_request {
	const char *kernel;
	const struct sass_probe *entry, *exit; /* NULL: none there */
};

struct sass_twin {
	uint8_t *cubin; /* owned */
	size_t size;
	uint32_t block_at, block; /* where the block lies in the parameters, and its bytes */
	uint32_t registers_before, registers; /* a thread's; what probes cost */
	uint32_t exits; /* ways out with a probe */
};

/* The bytes are a cubin's. 0; SASS_REFUSED: the kernel has no twin; -ENOMEM. */
int sass_rewrite(struct sass_twin *twin, const void *data, size_t size,
		 const struct sass_request *request, struct sass_refusal *refusal);
void sass_twin_deinit(struct sass_twin *twin);
