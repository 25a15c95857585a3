/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Programs are put into a module: where a thread enters a function, on every way out of it, at its
 * memory instructions, at a source line, at a basic block. Either their bodies stand there
 * (inlined, which is faster: ptx-inline.h), or they are called through a function with a name that
 * a reader of the PTX finds: __probe_func__<function>, __retprobe_func__<function>,
 * __memcapture__N.
 */

#include "lib/ptx/ptx-edit.h"
#include "proto/point.h"

enum {
	_PROBE_E_SUCCESS,
	/* a program's text is not understood, or does not define its symbol as promised */
	PROBE_E_PROGRAM,
	/* the module has one of the names that we would add already */
	PROBE_E_TAKEN,
	/* the module is for an architecture or address size that a program cannot run on */
	PROBE_E_TARGET,
	/* the body of a function that gets programs is not understood */
	PROBE_E_FUNCTION,
};

/*
 * Points (proto/point.h) in PTX:
 *
 * ENTRY   Before the first statement that is no declaration. If the body calls one of
 *         options.stubs, there instead: each such call is replaced.
 * RETURN  Before every `ret` and `exit` of the body, under its predicate, and at its end if that
 * can
 *         be reached.
 * MEMORY  Before every memory instruction, under its predicate: ld ldu st atom red, ldmatrix
 *         stmatrix, cp.async and cp.reduce.async (not what waits or commits), multimem. Not
 *         st.param and the ld.param of a call's result.
 * LINE    Before the first instruction of each run of instructions whose .loc names that line (not
 *         only in its inlined_at).
 * BLOCK   At the start of the n-th basic block of the body, counted from 0 in the order of the
 * text:
 *         blocks begin at labels that something branches to, and behind bra, brx, ret, exit and
 *         trap.
 */

/*
 * At one instruction, entries come before blocks, lines, memory accesses and returns; programs of
 * one point in calling order. Between the passing of arguments and their call, and between st.param
 * of a result and its ret, lines, blocks and returns stand before the first of these. Between a
 * call and the ld.param of its result, where nothing may be called, programs stand themselves
 * whatever options.call says; if they cannot (probe_use.sites does not count it), there is no such
 * place. A field that a program reads is computed there, from registers that are only read:
 * - a function's parameters in registers (.reg) have at its return what the function has left in
 * them; those in .param space
 *   are always as passed;
 * - the address of a parameter is 0 before PTX 7.7 or sm_70 (no cvta.param), and in functions that
 * are no kernels;
 * - a parameter is 0 where its name means something else, as in a scope that declares it;
 * - fields beyond the end of a memory context are 0;
 * - the launch is 0 in functions that are no kernels, and without options.launch.
 */

/*
 * A program's PTX, laid out as daemon/worker/job.md says, without .version/.target/.address_size.
 * It defines .func (.param .b64 r) SYMBOL(.param .b64 c0, ...), one parameter for each field of the
 * context that it reads. Borrowed.
 *
 * Words of a thread's variables (POINT_THREAD of proto/point.h) are parameters, too, and then the
 * result is .param .align 8 .b8 r[8 * (1 + words)]: what the program leaves in each stands behind
 * the first 8 bytes. In a kernel such a word is a register, 0 where the thread begins, of all
 * programs of one object, whose symbols differ behind the last '_' alone. Device functions cannot
 * have such programs: PROBE_E_FUNCTION.
 */
struct probe_program {
	const char *symbol; /* NUL-terminated */
	const char *label; /* what its author calls it, for messages; NULL: as `symbol` */
	const char *text;
	size_t length;
	uint32_t isa; /* least PTX ISA, 63 is 6.3: the module's .version is raised to it */
	uint32_t target; /* least architecture, 52 is sm_52: the module's .target is raised to it if
			    both are of sm_20 to sm_69, or both of sm_70 and newer */
	const uint16_t *context; /* offsets in the context (proto/gpuprobe.bpf.h), multiples of 8,
				    in the order of the parameters */
	uint32_t context_count;
};

static inline const char *probe_program_label(const struct probe_program *program) {
	return program->label ? program->label : program->symbol;
}

/* One program at one kind of point of a function. */
struct probe_use {
	uint32_t program; /* index */
	enum point_kind point;
	uint32_t spaces; /* MEMORY: which; bits of 1 << enum gpuprobe_space */
	const char *file; /* LINE: matches the end of the path in .file, at a '/' or whole */
	uint32_t line; /* LINE */
	uint32_t block; /* BLOCK */
	bool ptx; /* it is for twins from PTX alone (the caller's) */
	uint32_t sites; /* out: places where it stands now; 0: there is no such point */
};

/* A function of the module (kernel or device function), with what is to be put into it; in calling
 * order at each point. */
struct probe_function {
	const struct ptx_function *function;
	struct probe_use *uses;
	uint32_t use_count;
	/* a variable in .const, of the module, that has the id of the kernel that programs see;
	 * NULL: it is this one */
	const char *kernel_variable;
};

/* An instruction that got a memory probe. */
struct probe_instruction {
	uint32_t index; /* lower half of its id: counted over the module, in order of text */
	const struct ptx_function *function;
	struct ptx_range text; /* in the module's text */
	struct ptx_range
		file; /* in the module's text, without quotes; length 0: no line information */
	uint32_t line; /* 0: unknown */
};

struct probe_options {
	/* names of functions, mangled, demangled without parameters or plain; see POINT_ENTRY */
	const char *const *stubs;
	size_t n_stubs;
	uint32_t image; /* upper half of instruction ids */
	bool call; /* call programs even where they could be inlined */
	bool inlined; /* inline them however large they are */
	uint32_t capability; /* of the device, 90 is sm_90; 0: not known */
	/*
	 * Whoever launches the kernels gives them the block of a launch (proto/launch.h) behind
	 * their parameters. A kernel gets that parameter only if one of its programs reads the
	 * launch, and if there is room; else programs read 0.
	 */
	bool launch;
};

struct probe_result {
	struct probe_instruction *instructions; /* owned by the caller: free() */
	size_t n_instructions;
};

/*
 * Adds the edits. Each program that is used is put into the module once; a global line (.visible
 * .global|.const .align 8 .u64 X;) that another program brought already is dropped. `.const` lines
 * of programs become `.global` (and the loads that name them, ld.global) if the module's constant
 * bank would be more than full (64 KiB, alignment counted). Returns 0, one of the enum above
 * (*error is filled in, its place is in the module's text), or -ENOMEM, -EINVAL. What edits were
 * added on failure is of no use.
 */
int probe_apply(struct ptx_edit *edit, const struct ptx_module *module,
		const struct probe_options *options, const struct probe_program *programs,
		size_t program_count, struct probe_function *functions, size_t function_count,
		struct probe_result *result, struct ptx_error *error);
