/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes LLVM modules and turns them into PTX text (codegen.h).
 *
 * One context and one module a program. The device library's functions are internal and always
 * inlined, so nothing of it is left but what the program uses. Inlining and the scalar replacement
 * of stacks run first by themselves: what the standard pipeline then sees has no registers and no
 * stack any more, where that is possible.
 */

#include "codegen.h"

#include <errno.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/BitReader.h>
#include <llvm-c/Error.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device-lib-bitcode.h"
#include "device-lib-hash-bitcode.h"
#include "device-lib-helper-bitcode.h"
#include "device-lib-ring-bitcode.h"
#include "daemon/translator/translate.h"

#define TRIPLE "nvptx64-nvidia-cuda"
#define PASSES                                                                                     \
	"always-inline,globaldce,"                                                                 \
	"function(sroa,early-cse,instcombine<no-verify-fixpoint>,adce,sroa,infer-address-spaces)," \
	"default<O2>"

static int internal_error(char **error, const char *what, const char *message) {
	if (asprintf(error, "%s: %s", what, message ? message : "unknown reason") < 0)
		return -ENOMEM;
	return TRANSLATE_E_INTERNAL;
}

/* Functions of the device library: ours alone, and nothing but inlined. */
static void make_internal(LLVMContextRef context, LLVMModuleRef module) {
	unsigned always = LLVMGetEnumAttributeKindForName("alwaysinline", 12);

	for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
		if (LLVMIsDeclaration(f))
			continue;
		LLVMSetLinkage(f, LLVMInternalLinkage);
		/* those of clang's command line: ours come from the target machine */
		LLVMRemoveStringAttributeAtIndex(f, LLVMAttributeFunctionIndex, "target-cpu", 10);
		LLVMRemoveStringAttributeAtIndex(f, LLVMAttributeFunctionIndex, "target-features",
						 15);
		LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
					LLVMCreateEnumAttribute(context, always, 0));
	}
}

/* Adds a part of the device library to the module, which is NULL at first. */
static int add_library(struct codegen *codegen, const unsigned char *bytes, size_t size,
		       char **error) {
	LLVMMemoryBufferRef bitcode = LLVMCreateMemoryBufferWithMemoryRange(
		(const char *)bytes, size, "device-lib", false);
	LLVMModuleRef module;
	LLVMBool failed = LLVMParseBitcodeInContext2(codegen->context, bitcode, &module);

	LLVMDisposeMemoryBuffer(bitcode);
	if (failed)
		return internal_error(error, "device library", "not bitcode that this LLVM reads");
	if (!codegen->module) {
		codegen->module = module;
		return 0;
	}
	if (LLVMLinkModules2(codegen->module, module))
		return internal_error(error, "device library", "its parts do not fit");
	return 0;
}

int codegen_init(struct codegen *codegen, unsigned target, const struct codegen_parts *parts,
		 char **error) {
	int r;

	LLVMInitializeNVPTXTargetInfo();
	LLVMInitializeNVPTXTarget();
	LLVMInitializeNVPTXTargetMC();
	LLVMInitializeNVPTXAsmPrinter();

	*codegen = (struct codegen){ .context = LLVMContextCreate(), .target = target };
	r = add_library(codegen, device_lib_bitcode, sizeof(device_lib_bitcode), error);
	if (!r && parts->rings)
		r = add_library(codegen, device_lib_ring_bitcode, sizeof(device_lib_ring_bitcode),
				error);
	if (!r && parts->hashes)
		r = add_library(codegen, device_lib_hash_bitcode, sizeof(device_lib_hash_bitcode),
				error);
	if (!r && parts->helpers)
		r = add_library(codegen, device_lib_helper_bitcode,
				sizeof(device_lib_helper_bitcode), error);
	if (!r)
		make_internal(codegen->context, codegen->module);
	return r;
}

void codegen_deinit(struct codegen *codegen) {
	if (codegen->module)
		LLVMDisposeModule(codegen->module);
	if (codegen->context)
		LLVMContextDispose(codegen->context);
	*codegen = (struct codegen){ 0 };
}

/* Constants that LLVM made get names that cannot meet another program's. */
static void name_private_symbols(LLVMModuleRef module, LLVMValueRef keep) {
	unsigned n = 0;
	size_t length;
	char name[512];

	for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g)) {
		if (LLVMGetLinkage(g) == LLVMExternalLinkage)
			continue;
		snprintf(name, sizeof(name), "%s_data%u", LLVMGetValueName2(keep, &length), n++);
		LLVMSetValueName2(g, name, strlen(name));
	}
}

static int optimise(struct codegen *codegen, LLVMTargetMachineRef machine, char **error) {
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef failure;
	char *message;
	int r;

	LLVMPassBuilderOptionsSetLoopVectorization(options, false);
	LLVMPassBuilderOptionsSetSLPVectorization(options, false);
	failure = LLVMRunPasses(codegen->module, PASSES, machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (!failure)
		return 0;
	message = LLVMGetErrorMessage(failure);
	r = internal_error(error, "optimiser", message);
	LLVMDisposeErrorMessage(message);
	return r;
}

static int emit_text(struct codegen *codegen, LLVMTargetMachineRef machine, char **ptx,
		     char **error) {
	LLVMMemoryBufferRef buffer = NULL;
	char *message = NULL;
	int r = 0;

	if (LLVMTargetMachineEmitToMemoryBuffer(machine, codegen->module, LLVMAssemblyFile,
						&message, &buffer)) {
		r = internal_error(error, "code generator", message);
		LLVMDisposeMessage(message);
		return r;
	}
	*ptx = strndup(LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
	LLVMDisposeMemoryBuffer(buffer);
	return *ptx ? 0 : -ENOMEM;
}

int codegen_emit(struct codegen *codegen, LLVMValueRef keep, char **ptx, char **error) {
	LLVMTargetMachineRef machine;
	LLVMTargetRef target;
	char *message = NULL;
	char cpu[16], features[16];
	int r;

	if (LLVMVerifyModule(codegen->module, LLVMReturnStatusAction, &message)) {
		r = internal_error(error, "module", message);
		LLVMDisposeMessage(message);
		return r;
	}
	LLVMDisposeMessage(message);
	if (LLVMGetTargetFromTriple(TRIPLE, &target, &message)) {
		r = internal_error(error, "target", message);
		LLVMDisposeMessage(message);
		return r;
	}
	snprintf(cpu, sizeof(cpu), "sm_%u", codegen->target);
	snprintf(features, sizeof(features), "+ptx%u", TRANSLATE_ISA);
	machine = LLVMCreateTargetMachine(target, TRIPLE, cpu, features, LLVMCodeGenLevelAggressive,
					  LLVMRelocDefault, LLVMCodeModelDefault);
	r = optimise(codegen, machine, error);
	if (!r) {
		name_private_symbols(codegen->module, keep);
		r = emit_text(codegen, machine, ptx, error);
	}
	LLVMDisposeTargetMachine(machine);
	return r;
}
