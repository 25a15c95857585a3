/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The part of the Compute Sanitizer API that is used, declared from its documentation: nothing of
 * NVIDIA's is needed to build. test-abi.c compares where the real headers are. These declarations
 * hold from CUDA 12.3 to 13.5 at least. Handles are opaque pointers.
 */

#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"

#define SANITIZER_LIBRARY "libsanitizer-public.so"

typedef int sanitizer_result;

enum {
	SANITIZER_OK = 0,
	SANITIZER_INVALID_PARAMETER = 1,
	SANITIZER_INVALID_CONTEXT = 3,
	SANITIZER_OUT_OF_MEMORY = 7,
	SANITIZER_LIMIT_REACHED = 10, /* on subscribing: another tool has subscribed */
	SANITIZER_NO_CONNECTION = 13, /* with the driver */
	SANITIZER_UNKNOWN = 999,
};

enum {
	SANITIZER_DOMAIN_RESOURCE = 3
};

/* Callbacks of the domain, and what their data is. */
enum {
	SANITIZER_CONTEXT_DESTROY_STARTING = 4, /* struct sanitizer_context */
	SANITIZER_MODULE_LOADED = 9, /* struct sanitizer_module */
	SANITIZER_MODULE_UNLOAD_STARTING = 10, /* struct sanitizer_module */
	SANITIZER_FUNCTIONS_LAZY_LOADED = 24, /* struct sanitizer_functions */
	SANITIZER_FUNCTIONS_LAZY_PATCHED = 25, /* struct sanitizer_functions; since CUDA 12.3 */
};

struct sanitizer_context {
	driver_handle context; /* and more behind it, which differs between releases */
};

struct sanitizer_module {
	driver_handle context, module;
	size_t cubin_size;
	const char *cubin;
	driver_handle library;
};

struct sanitizer_functions {
	driver_handle context, module;
	const driver_handle *functions;
	uint32_t count;
};

typedef void (*sanitizer_callback)(void *userdata, int domain, uint32_t id, const void *data);

#define SANITIZER_FUNCTIONS(X)                                                                  \
	X(get_result_string, "sanitizerGetResultString", (sanitizer_result, const char **))     \
	X(subscribe, "sanitizerSubscribe", (driver_handle *, sanitizer_callback, void *))       \
	X(unsubscribe, "sanitizerUnsubscribe", (driver_handle))                                 \
	X(enable_callback, "sanitizerEnableCallback", (uint32_t, driver_handle, int, uint32_t)) \
	X(add_patches, "sanitizerAddPatches", (const void *, driver_handle))                    \
	X(patch_instructions, "sanitizerPatchInstructions", (int, driver_handle, const char *)) \
	X(patch_module, "sanitizerPatchModule", (driver_handle))                                \
	X(unpatch_module, "sanitizerUnpatchModule", (driver_handle))                            \
	X(set_callback_data, "sanitizerSetCallbackData", (driver_handle, const void *))         \
	X(alloc, "sanitizerAlloc", (driver_handle, void **, size_t))                            \
	X(free, "sanitizerFree", (driver_handle, void *))                                       \
	X(get_stream_handle, "sanitizerGetStreamHandle",                                        \
	  (driver_handle, driver_handle, driver_handle *))                                      \
	X(copy_to_device, "sanitizerMemcpyHostToDeviceAsync",                                   \
	  (void *, void *, size_t, driver_handle))                                              \
	X(stream_synchronize, "sanitizerStreamSynchronize", (driver_handle))

struct sanitizer {
#define X(field, name, arguments) sanitizer_result(*field) arguments;
	SANITIZER_FUNCTIONS(X)
#undef X
};
