/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Private to the pass `probe`: parses programs as modules of their own, and puts them into the
 * probed module.
 */

#include "probe.h"

/* A program, parsed. */
struct parsed_program {
	char *text; /* with a header; NULL: no function lists it */
	struct ptx_module module;
	const struct ptx_function *function;
	bool used; /* it stands somewhere: its variables are needed */
	bool called; /* its functions are needed, too */
	bool simple; /* its one function can be inlined */
	bool loops; /* it has a loop, or may have one */
	size_t block; /* bytes that it takes there, about */
	uint64_t local; /* bytes that this has in local memory */
};

/* A name that is in the new module and was not in the old one. */
struct placed_name {
	char *name;
	bool shared; /* another program may bring it again: it is dropped then */
};

struct program_set {
	struct ptx_edit *edit;
	const struct ptx_module *module;
	const struct probe_program *programs;
	struct parsed_program *parsed; /* by program */
	size_t count;
	struct placed_name *placed;
	size_t placed_count, placed_capacity;
	bool constant_full; /* what would be .const is .global */
	bool needs_process;
	uint32_t capability; /* of the device; 0: not known */
	struct ptx_error *error;
};

/*
 * Parses those of the set's programs that `listed` names. What the caller has filled in (edit,
 * module, programs, count, capability, error) stays borrowed. All return 0, an error of probe.h,
 * -ENOMEM or -EINVAL; deinit is due in any case.
 */
int program_set_parse(struct program_set *set, const bool *listed);
void program_set_deinit(struct program_set *set);

/* Puts the programs that are used into the module, and the process slot if it is needed. */
int program_set_insert(struct program_set *set);

/* Reserves the name of a function of ours; PROBE_E_TAKEN. */
int program_set_place(struct program_set *set, const char *name);
