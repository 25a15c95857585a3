/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pass kprobe_entry: programs are called when a thread enters a kernel.
 *
 * For each probed kernel the module gets a function __probe_func__<kernel> that calls the kernel's
 * programs one after the other, and the kernel's body begins with a call of it; or the programs'
 * bodies stand there themselves (inlined).
 */

#include "ptx-edit.h"

enum {
	_KPROBE_ENTRY_E_SUCCESS,
	/* a program's text is not understood, or does not define its symbol as promised */
	KPROBE_ENTRY_E_PROGRAM,
	/* the module has __probe_func__<kernel> or a program's symbol already */
	KPROBE_ENTRY_E_TAKEN,
	/* the module is for an architecture or address size that a program cannot run on */
	KPROBE_ENTRY_E_TARGET,
	/* the kernel's body is not understood */
	KPROBE_ENTRY_E_KERNEL,
};

/*
 * A program's PTX, laid out as daemon/worker/job.md says, without .version/.target/.address_size.
 * It defines .func (.param .b64 r) SYMBOL (.param .b64 ctx). Borrowed during the call.
 */
struct kprobe_entry_program {
	const char *symbol; /* NUL-terminated */
	const char *text;
	size_t length;
	uint32_t isa; /* least PTX ISA, 63 is 6.3: the module's .version is raised to it */
	uint32_t target; /* least architecture, 52 is sm_52 */
};

/* One kernel of the module and what to call in it, in order. */
struct kprobe_entry_kernel {
	const struct ptx_function *kernel;
	const uint32_t *programs; /* indexes into the array of programs */
	uint32_t program_count;
	bool applied; /* out: false if the kernel has no body, or no programs */
	/*
	 * in: put the programs' bodies into the kernel, without function or call, which is faster;
	 * out: whether that was possible. Programs that are large or have functions of their own
	 * are called; so are those of the last kernels of a module with very many.
	 */
	bool inlined;
};

/*
 * Adds the edits for all kernels. Each program that a kernel with a body names is put into the
 * module once; a global line (.visible .global .align 8 .u64 X;) that another program brought
 * already is dropped. Programs that no kernel names are left out. Returns 0, or one of the enum
 * above with error->message set (offsets are those of the module, or 0), or -ENOMEM, -EINVAL (an
 * index out of range, a kernel listed twice or not a kernel). After anything but 0 the edit is no
 * longer usable.
 */
int kprobe_entry_apply(struct ptx_edit *edit, const struct ptx_module *module,
		       const struct kprobe_entry_program *programs, size_t program_count,
		       struct kprobe_entry_kernel *kernels, size_t kernel_count,
		       struct ptx_error *error);
