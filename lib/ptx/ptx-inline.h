/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A function's body as a block `{ ... }` that stands where a call of it would: ptxas calls even
 * small functions (and always does when it compiles relocatable code, as nvJitLink does), and a
 * call at a kernel's entry costs a memory-bound kernel a third of its time.
 */

#include <stdbool.h>
#include <stdio.h>

#include "ptx-module.h"

enum {
	_PTX_INLINE_E_SUCCESS,
	/* what the body does with its parameter, result, labels or variables takes a call */
	PTX_INLINE_E_CANNOT,
};

/*
 * Around code in which lanes may part: those that come together leave together. Kernels rely on
 * that, in barriers and in what they ask of the lanes that are active. ptxas makes lanes meet again
 * at the end of a branch or a loop, but a lane that yields, as ptxas has it do in loops, is not
 * waited for there: on an H100, a grid-wide barrier behind such a probe failed. Without a loop
 * ptxas does what is needed, and a register less is taken. The mask is made so that ptxas cannot
 * know it (daemon/translator/device/device-lib.h, part_mask()).
 */
#define PTX_LANES_BEGIN                                                                \
	"\t.reg .b32 %gpuprobe_lanes, %gpuprobe_lane;\n"                               \
	"\tactivemask.b32 %gpuprobe_lanes;\n\tmov.u32 %gpuprobe_lane, %lanemask_eq;\n" \
	"\tor.b32 %gpuprobe_lanes, %gpuprobe_lanes, %gpuprobe_lane;\n"
#define PTX_LANES_END "\tbar.warp.sync %gpuprobe_lanes;\n"

/*
 * A load of a map's value that is done once, in programs for sm_52 to sm_62: all targets have it.
 * With .b64 and the like, which LLVM does not print. From sm_70 on there is one that the L1 cache
 * serves.
 */
#define PTX_LOAD_VOLATILE "ld.volatile.global"
#define PTX_LOAD_RELAXED "ld.relaxed.cta.global"

/* Whether a function of the module has a loop, or may have one. */
bool ptx_inline_has_loop(const struct ptx_module *module);

/*
 * Writes the body of a function with 8-byte parameters and one result, of 8 bytes and result_count
 * words more. Parameter n is replaced by arguments[n] (a register or a number), the result is
 * dropped but for word n behind the first 8 bytes, which goes to the register results[n]. A word
 * may be written before a parameter is read: arguments are other registers. Labels get `suffix`
 * appended. On
 * PTX_INLINE_E_CANNOT what was written so far is of no use. Returns as the enum says, or -ENOMEM.
 */
int ptx_inline_write(FILE *stream, const struct ptx_module *module,
		     const struct ptx_function *function, const char *const *arguments,
		     const char *const *results, size_t result_count, const char *suffix);
