/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A probe: machine code that is inserted into kernels. It is compiled by NVIDIA's compiler as a
 * kernel of its own, in one of two ways:
 *
 * - its only parameter is the block behind the parameters of the kernels it is inserted into: what
 *   it reads from constant bank 0 behind 0x210 is moved there. So one probe serves kernels of all
 *   signatures;
 * - it has the parameters of the kernel that it is for, and perhaps the block behind them. Nothing
 *   is moved then.
 *
 * A probe may calculate, branch, and use global memory. It has no stack, no shared memory and no
 * barrier, calls nothing outside of it, and has no relocations: all that belongs to the kernel.
 * Variables of its own it finds through constant banks 3 and 4, whose content data.h adds to the
 * kernel's module.
 *
 * The compiler takes it that a warp is together where a kernel begins; it is not at an exit. What
 * is in uniform registers is only right as far as no other thread of the warp runs in between
 * (`mixes`). A probe whose body the compiler must take for one that a part of the warp has (a
 * branch that depends on the thread goes around it, and all threads meet behind it) has no such
 * values. PMTRIG stands for what they meet for; it does nothing in a twin.
 */

#include "attribute.h"
#include "cubin-edit.h"
#include "instruction.h"

struct sass_probe {
	const struct sass_arch *arch;
	uint8_t *code; /* owned: from the second instruction on, without what fills up the end */
	size_t size;
	uint32_t registers; /* its count: two more than it may name */
	uint32_t
		parameters; /* bytes of all its parameters; what is behind the kernel's is the block
			     */
	uint64_t pairs[2]; /* a bit for each pair of registers that it names */
	bool mixes; /* it needs uniform values behind a place where other threads may have run, */
	uint64_t mixes_at; /* first here */
	bool wide; /* it needs registers in fours: 128 bits are loaded or stored */
	uint16_t uniform_quads, barriers; /* as in struct sass_usage */
	uint8_t predicates, uniform_predicates, scoreboards;
	uint32_t *lists[_SASS_LISTS]; /* owned: offsets are into the code */
	size_t n_list[_SASS_LISTS];
	size_t n_exits;
};

/* The kernel of that name in a cubin becomes a probe. 0; SASS_REFUSED; -ENOMEM. */
int sass_probe_init(struct sass_probe *probe, const struct sass_cubin *cubin, const char *name,
		    struct sass_refusal *refusal);
void sass_probe_deinit(struct sass_probe *probe);
