/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test. Compares sanitizer-abi.h and patch.h with NVIDIA's own headers: it compiles, or they
 * differ. Built only where those are.
 */

#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"

#include <sanitizer.h>
#include <stdio.h>

#include "sanitizer-abi.h"
#include "proto/patch.h"

#define SAME(ours, theirs) \
	_Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
#define SAME_AT(ours, member, theirs, other)                          \
	SAME(offsetof(struct ours, member), offsetof(theirs, other)); \
	SAME(sizeof(((struct ours *)0)->member), sizeof(((theirs *)0)->other))

SAME(sizeof(sanitizer_result), sizeof(SanitizerResult));
SAME(SANITIZER_OK, SANITIZER_SUCCESS);
SAME(SANITIZER_INVALID_PARAMETER, SANITIZER_ERROR_INVALID_PARAMETER);
SAME(SANITIZER_INVALID_CONTEXT, SANITIZER_ERROR_INVALID_CONTEXT);
SAME(SANITIZER_OUT_OF_MEMORY, SANITIZER_ERROR_OUT_OF_MEMORY);
SAME(SANITIZER_LIMIT_REACHED, SANITIZER_ERROR_MAX_LIMIT_REACHED);
SAME(SANITIZER_NO_CONNECTION, SANITIZER_ERROR_NOT_INITIALIZED);
SAME(SANITIZER_UNKNOWN, SANITIZER_ERROR_UNKNOWN);
SAME(SANITIZER_DOMAIN_RESOURCE, SANITIZER_CB_DOMAIN_RESOURCE);
SAME(SANITIZER_CONTEXT_DESTROY_STARTING, SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
SAME(SANITIZER_MODULE_LOADED, SANITIZER_CBID_RESOURCE_MODULE_LOADED);
SAME(SANITIZER_MODULE_UNLOAD_STARTING, SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING);
SAME(SANITIZER_FUNCTIONS_LAZY_LOADED, SANITIZER_CBID_RESOURCE_FUNCTIONS_LAZY_LOADED);
SAME(SANITIZER_FUNCTIONS_LAZY_PATCHED, SANITIZER_CBID_RESOURCE_FUNCTIONS_LAZY_PATCHED);

SAME_AT(sanitizer_context, context, Sanitizer_ResourceContextData, context);
SAME_AT(sanitizer_module, context, Sanitizer_ResourceModuleData, context);
SAME_AT(sanitizer_module, module, Sanitizer_ResourceModuleData, module);
SAME_AT(sanitizer_module, cubin_size, Sanitizer_ResourceModuleData, cubinSize);
SAME_AT(sanitizer_module, cubin, Sanitizer_ResourceModuleData, pCubin);
SAME_AT(sanitizer_module, library, Sanitizer_ResourceModuleData, library);
SAME_AT(sanitizer_functions, context, Sanitizer_ResourceFunctionsLazyLoadedData, context);
SAME_AT(sanitizer_functions, module, Sanitizer_ResourceFunctionsLazyLoadedData, module);
SAME_AT(sanitizer_functions, functions, Sanitizer_ResourceFunctionsLazyLoadedData, functions);
SAME_AT(sanitizer_functions, count, Sanitizer_ResourceFunctionsLazyLoadedData, numFunctions);

SAME(PATCH_BLOCK_ENTER, SANITIZER_INSTRUCTION_BLOCK_ENTER);
SAME(PATCH_BLOCK_EXIT, SANITIZER_INSTRUCTION_BLOCK_EXIT);
SAME(PATCH_GLOBAL_MEMORY, SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS);
SAME(PATCH_SHARED_MEMORY, SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS);
SAME(PATCH_LOCAL_MEMORY, SANITIZER_INSTRUCTION_LOCAL_MEMORY_ACCESS);
SAME(PATCH_BARRIER, SANITIZER_INSTRUCTION_BARRIER);
SAME(PATCH_SYNCWARP, SANITIZER_INSTRUCTION_SYNCWARP);
SAME(PATCH_SHFL, SANITIZER_INSTRUCTION_SHFL);
SAME(PATCH_CALL, SANITIZER_INSTRUCTION_CALL);
SAME(PATCH_RET, SANITIZER_INSTRUCTION_RET);
SAME(PATCH_MALLOC, SANITIZER_INSTRUCTION_DEVICE_SIDE_MALLOC);
SAME(PATCH_FREE, SANITIZER_INSTRUCTION_DEVICE_SIDE_FREE);
SAME(PATCH_REMOTE_SHARED_MEMORY, SANITIZER_INSTRUCTION_REMOTE_SHARED_MEMORY_ACCESS);

/* What the patches of each class are called with: (data, pc, ...). */
#define PATCH(type, ...)                                                                        \
	_Static_assert(__builtin_types_compatible_p(                                            \
			       type, SanitizerPatchResult(*)(void *, uint64_t, ##__VA_ARGS__)), \
		       #type)
PATCH(SanitizerCallbackBlockEnter);
PATCH(SanitizerCallbackBlockExit);
PATCH(SanitizerCallbackMemoryAccess, void *, uint32_t, uint32_t, const void *);
PATCH(SanitizerCallbackBarrier, uint32_t, uint32_t, uint32_t);
PATCH(SanitizerCallbackSyncwarp, uint32_t);
PATCH(SanitizerCallbackShfl);
PATCH(SanitizerCallbackCall, uint64_t, uint32_t);
PATCH(SanitizerCallbackRet);
PATCH(SanitizerCallbackDeviceSideMalloc, void *, uint64_t);
PATCH(SanitizerCallbackDeviceSideFree, void *);

/* Each function with handles as opaque pointers: number, order and sizes of the arguments. */
#define FUNCTION(name, ...)                                                        \
	_Static_assert(__builtin_types_compatible_p(__typeof__(name),              \
						    SanitizerResult(__VA_ARGS__)), \
		       #name)
FUNCTION(sanitizerGetResultString, SanitizerResult, const char **);
FUNCTION(sanitizerSubscribe, Sanitizer_SubscriberHandle *, Sanitizer_CallbackFunc, void *);
FUNCTION(sanitizerUnsubscribe, Sanitizer_SubscriberHandle);
FUNCTION(sanitizerEnableCallback, uint32_t, Sanitizer_SubscriberHandle, Sanitizer_CallbackDomain,
	 Sanitizer_CallbackId);
FUNCTION(sanitizerAddPatches, const void *, CUcontext);
FUNCTION(sanitizerPatchInstructions, Sanitizer_InstructionId, CUmodule, const char *);
FUNCTION(sanitizerPatchModule, CUmodule);
FUNCTION(sanitizerUnpatchModule, CUmodule);
FUNCTION(sanitizerSetCallbackData, CUfunction, const void *);
FUNCTION(sanitizerAlloc, CUcontext, void **, size_t);
FUNCTION(sanitizerFree, CUcontext, void *);
FUNCTION(sanitizerGetStreamHandle, CUcontext, CUstream, Sanitizer_StreamHandle *);
FUNCTION(sanitizerMemcpyHostToDeviceAsync, void *, void *, size_t, Sanitizer_StreamHandle);
FUNCTION(sanitizerStreamSynchronize, Sanitizer_StreamHandle);
_Static_assert(sizeof(Sanitizer_CallbackDomain) == sizeof(int) &&
		       sizeof(Sanitizer_InstructionId) == sizeof(int) &&
		       __builtin_types_compatible_p(Sanitizer_CallbackId, uint32_t) &&
		       sizeof(SanitizerPatchResult) == 4,
	       "enums are ints");
_Static_assert(__builtin_types_compatible_p(Sanitizer_CallbackFunc,
					    void (*)(void *, Sanitizer_CallbackDomain,
						     Sanitizer_CallbackId, const void *)),
	       "callbacks");

int main(void) {
	puts("the declarations agree");
	return 0;
}
