/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A function's body as a block `{ ... }` that stands where a call of it would: ptxas calls even
 * small functions (and always does when it compiles relocatable code, as nvJitLink does), and a
 * call at a kernel's entry costs a memory-bound kernel a third of its time.
 */

#include <stdio.h>

#include "ptx-module.h"

enum {
	_PTX_INLINE_E_SUCCESS,
	/* what the body does with its parameter, result, labels or variables takes a call */
	PTX_INLINE_E_CANNOT,
};

/*
 * Writes the body of a function with 8-byte parameters and one result. Parameter n is replaced by arguments[n] (a register or
 * a number), the result is dropped, labels get `suffix` appended. On PTX_INLINE_E_CANNOT what was written so far is of no use.
 * Returns as the enum says, or -ENOMEM.
 */
int ptx_inline_write(FILE *stream, const struct ptx_module *module, const struct ptx_function *function,
		     const char *const *arguments, const char *suffix);
