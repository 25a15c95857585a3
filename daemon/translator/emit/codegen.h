/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * LLVM as the translator uses it: a module that contains the device library goes in, PTX text comes
 * out.
 */

#include <llvm-c/Core.h>
#include <stdbool.h>
#include <stddef.h>

struct codegen {
	LLVMContextRef context;
	LLVMModuleRef module; /* the device library is in it, internal */
	unsigned target; /* 52: sm_52 */
};

/* Parts of the device library that a program needs, beside the first. */
struct codegen_parts {
	bool rings, hashes;
	bool helpers; /* those of lanes, numbers and atomic changes */
};

/*
 * Returns 0, or
 * TRANSLATE_E_INTERNAL and a message that the caller frees. codegen_deinit() in any case.
 */
int codegen_init(struct codegen *codegen, unsigned target, const struct codegen_parts *parts,
		 char **error);
void codegen_deinit(struct codegen *codegen);

/*
 * Optimises the module and emits PTX. `keep` is the one function that stays visible; private
 * symbols get its name as prefix. Returns 0 and text that the caller frees (LLVM's header and
 * comments included), or as above.
 */
int codegen_emit(struct codegen *codegen, LLVMValueRef keep, char **ptx, char **error);
