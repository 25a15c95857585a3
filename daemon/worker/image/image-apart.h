/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Values that are the same in a whole warp become values of each thread: the compiler keeps the
 * former in uniform registers, which other threads of a warp that is not together may change
 * (daemon/worker/sass/probe.h). To each such value a zero is added that the compiler does not know.
 */

#include "lib/ptx/ptx-edit.h"

/* What a kernel must declare and compute at its beginning: the zeros. */
#define IMAGE_APART_ZEROS                                                \
	"\t.reg .b32 %gpuprobe_zero32;\n\t.reg .b64 %gpuprobe_zero64;\n" \
	"\tmov.u32 %gpuprobe_zero32, %lanemask_lt;\n"                    \
	"\tshr.u32 %gpuprobe_zero32, %gpuprobe_zero32, 31;\n"            \
	"\tcvt.u64.u32 %gpuprobe_zero64, %gpuprobe_zero32;\n"

/* Adds the edits to a kernel. 0, -ENOMEM or -EINVAL. */
int image_apart(struct ptx_edit *edit, const struct ptx_module *module,
		const struct ptx_function *kernel);
