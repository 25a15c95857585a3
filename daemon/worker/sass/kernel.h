/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A kernel of a cubin, as far as code can be inserted into it: where it begins and ends, and what
 * its instructions use. All that is found is checked; the first thing that is not understood
 * refuses it.
 */

#include "cubin-edit.h"
#include "instruction.h"

/* What a section of code uses. */
struct sass_usage {
	uint16_t uniform_quads; /* a bit for each four uniform registers */
	uint16_t barriers; /* convergence barriers */
	uint8_t busy[32]; /* a bit for each register that may be read or written late (registers.h)
			   */
	uint8_t late_predicates; /* that may be written late, likewise */
	uint8_t uniform_predicates;
	uint32_t least_registers; /* that USETMAXREG leaves; 0: it has none */
	bool calls_out; /* functions in other sections */
};

#define SASS_PARAMETERS_MAX 4096

struct sass_parameter {
	uint32_t offset, size; /* bytes; size 0: not said */
};

struct sass_kernel {
	const struct sass_arch *arch;
	uint64_t symbol; /* index */
	size_t text, info, constants; /* sections: code, attributes, constant bank 0 */
	uint8_t *relocated; /* while a section is read: a bit for each instruction */
	uint32_t *exits; /* owned: offsets of all its ways out, in order */
	size_t n_exits, exits_room;
	struct sass_usage usage; /* of it and of all that it may call */
	uint32_t registers; /* the count, likewise */
	uint32_t max_threads; /* of a block, as the kernel was compiled for; 0: not said */
	uint32_t parameters; /* bytes, */
	uint32_t parameters_n; /* and how many */
	struct sass_parameter *parameter; /* owned: of each */
	bool parameters_v2; /* SASS_KPARAM_INFO_V2 */
};

/* 0; SASS_REFUSED; -ENOMEM. On success: sass_kernel_deinit(). */
int sass_kernel_init(struct sass_kernel *kernel, const struct sass_cubin *cubin, const char *name,
		     struct sass_refusal *refusal);
void sass_kernel_deinit(struct sass_kernel *kernel);

/* The count of registers of a function, as .nv.info says; 0: it does not. */
uint32_t sass_registers_of(const struct sass_cubin *cubin, uint64_t symbol);
