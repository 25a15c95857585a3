/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A probe: machine code that is inserted into kernels. It is compiled by NVIDIA's compiler as a
 * kernel of its own, whose only parameter is the block behind the parameters of the kernels it is
 * inserted into: what it reads from constant bank 0 behind 0x210 is moved there. So one probe
 * serves kernels of all signatures.
 *
 * A probe may calculate, branch, and use global memory. It has no stack, no shared memory and no
 * barrier, calls nothing, has no relocations and reads no other constants: all that belongs to the
 * kernel.
 */

#include "cubin-edit.h"
#include "instruction.h"

struct sass_probe {
	const struct sass_arch *arch;
	uint8_t *code; /* owned: from the second instruction to its last EXIT */
	size_t size;
	uint32_t registers; /* its count: two more than it may name */
	uint32_t block; /* bytes of its parameter */
	uint64_t pairs[2]; /* a bit for each pair of registers that it names */
	bool mixes; /* its uniform values depend on active threads, and others may run meanwhile */
	bool wide; /* it needs registers in fours: 128 bits are loaded or stored */
	uint16_t uniform_quads, barriers; /* as in struct sass_usage */
	uint8_t predicates, uniform_predicates, scoreboards;
	uint32_t *warp_wide; /* owned: offsets into the code of VOTEU and the like, as ptxas lists
				them */
	size_t n_warp_wide, n_exits;
};

/* The kernel of that name in a cubin becomes a probe. 0; SASS_REFUSED; -ENOMEM. */
int sass_probe_init(struct sass_probe *probe, const void *data, size_t size, const char *name,
		    struct sass_refusal *refusal);
void sass_probe_deinit(struct sass_probe *probe);
