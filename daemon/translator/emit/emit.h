/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An analysed program becomes a function of an LLVM module that holds the device library. */

#include <llvm-c/Core.h>

#include "daemon/translator/check/analysis.h"

/*
 * Adds `i64 symbol(i64 ...)` to the module, with a parameter for each field of the context that it
 * reads, and the slots that it uses. `target`: 70 is sm_70, the least that it runs on; `patch`: the
 * patch form, which has a parameter in front instead of these. Returns 0 and the function, or
 * -ENOMEM.
 */
int emit_program(LLVMModuleRef module, struct analysis *analysis,
		 const struct translate_program *program,
		 const struct translate_map_result *layouts, unsigned target, bool patch,
		 LLVMValueRef *function);
