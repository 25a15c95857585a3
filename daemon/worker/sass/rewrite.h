/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes a machine-code twin: a cubin in which probes run at the entry of a kernel and at its ways
 * out. No instruction of the kernel moves or changes but the one at its entry and its EXITs, which
 * become branches to code behind the kernel's own. The kernel gets one parameter more if a probe
 * reads it, the block.
 */

#include "data.h"
#include "probe.h"
#include "refusal.h"

struct sass_request {
	const char *kernel;
	const struct sass_probe *entry, *exit; /* NULL: none there */
	bool own_parameters; /* probes have the kernel's parameters, and then the block if any */
	struct sass_bases bases; /* where the data of probes was put */
	/* 8 bytes of the probes' constants in whose place this kernel's are read: so many bytes on
	 */
	uint32_t own_at, own_shift;
};

struct sass_twin {
	uint32_t block_at,
		block; /* where the block lies in the parameters, and its bytes; 0: none */
	uint32_t parameters, parameters_n; /* bytes of the kernel's own, and how many */
	uint32_t registers_before, registers; /* a thread's; what probes cost */
	uint32_t exits; /* ways out with a probe */
};

/* 0; SASS_REFUSED: the kernel has no twin, and the cubin is as it was; -ENOMEM. */
int sass_rewrite(struct sass_twin *twin, struct sass_cubin *cubin,
		 const struct sass_request *request, struct sass_refusal *refusal);
