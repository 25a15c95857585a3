/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for NVIDIA's libsanitizer-public.so, on top of the CPU driver (sim-patching.h): what
 * is used of it (shim/sanitizer/sanitizer-abi.h). In a folder of its own: who is to use it says
 * where it is. Where it differs from the real one: images need PTX (a bare cubin is refused), and a
 * program counter is a number of the instruction in its module.
 *
 * GPUPROBE_SANITIZER_FAIL makes things fail, a word for each: subscribe (another tool), old (it is
 * of CUDA 12.2), image (sanitizerAddPatches), mark (sanitizerPatchInstructions), patch
 * (sanitizerPatchModule), unpatch (sanitizerUnpatchModule), data (sanitizerSetCallbackData), alloc,
 * write, cubin (what a module is said to be ends too early); with GPUPROBE_SANITIZER_WHILE only
 * while there is a file of that name. With GPUPROBE_SANITIZER_SLOW it takes a third of a second to
 * subscribe.
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/sanitizer/sanitizer-abi.h"
#include "tests/sim/sim-patching.h"

#define CALLBACKS 64
#define EXPORT __attribute__((visibility("default")))

static const struct sim_patching *sim;
static sanitizer_callback callback;
static void *callback_data;
static bool enabled[CALLBACKS];

static bool fails(const char *what) {
	const char *wanted = getenv("GPUPROBE_SANITIZER_FAIL"),
		   *file = getenv("GPUPROBE_SANITIZER_WHILE");
	char words[64];

	if (!wanted || (file && access(file, F_OK)))
		return false;
	snprintf(words, sizeof(words), "%s", wanted);
	for (char *rest = words, *word; (word = strsep(&rest, " ")) != NULL;)
		if (!strcmp(word, what))
			return true;
	return false;
}

static sanitizer_result result_of(CUresult result) {
	switch (result) {
	case CUDA_SUCCESS:
		return SANITIZER_OK;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return SANITIZER_OUT_OF_MEMORY;
	case CUDA_ERROR_UNKNOWN:
		return SANITIZER_UNKNOWN;
	default:
		return SANITIZER_INVALID_PARAMETER;
	}
}

/* --- events --- */

static void tell(uint32_t id, const void *data) {
	if (callback && enabled[id])
		callback(callback_data, SANITIZER_DOMAIN_RESOURCE, id, data);
}

static void module_loaded(CUcontext context, CUmodule module, CUlibrary library, const void *elf,
			  size_t size) {
	struct sanitizer_module data = { context, module, fails("cubin") ? size / 2 : size, elf,
					 library };

	tell(SANITIZER_MODULE_LOADED, &data);
}

static void module_unloading(CUcontext context, CUmodule module) {
	struct sanitizer_module data = { .context = context, .module = module };

	tell(SANITIZER_MODULE_UNLOAD_STARTING, &data);
}

static void function_loaded(CUcontext context, CUmodule module, CUfunction function, bool patched) {
	driver_handle functions[] = { function };
	struct sanitizer_functions data = { context, module, functions, 1 };

	tell(patched ? SANITIZER_FUNCTIONS_LAZY_PATCHED : SANITIZER_FUNCTIONS_LAZY_LOADED, &data);
}

static void context_ending(CUcontext context) {
	struct sanitizer_context data = { context };

	tell(SANITIZER_CONTEXT_DESTROY_STARTING, &data);
}

/* --- the API; no header declares it to us: its users look the names up --- */

#define API(name, ...)                             \
	EXPORT sanitizer_result name(__VA_ARGS__); \
	EXPORT sanitizer_result name(__VA_ARGS__)

API(sanitizerGetResultString, sanitizer_result result, const char **text) {
	switch (result) {
	case SANITIZER_OK:
		*text = "No error";
		return SANITIZER_OK;
	case SANITIZER_INVALID_PARAMETER:
		*text = "One or more of the parameters is invalid";
		return SANITIZER_OK;
	case SANITIZER_OUT_OF_MEMORY:
		*text = "Out of memory";
		return SANITIZER_OK;
	case SANITIZER_LIMIT_REACHED:
		*text = "There is a subscriber";
		return SANITIZER_OK;
	case SANITIZER_NO_CONNECTION:
		*text = "Not the CPU driver";
		return SANITIZER_OK;
	case SANITIZER_UNKNOWN:
		*text = "Unknown error";
		return SANITIZER_OK;
	}
	return SANITIZER_INVALID_PARAMETER;
}

API(sanitizerSubscribe, driver_handle *subscriber, sanitizer_callback function, void *userdata) {
	static const struct sim_patching_events events = { module_loaded, module_unloading,
							   function_loaded, context_ending };
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	const struct sim_patching *(*entry)(void);

	if (getenv("GPUPROBE_SANITIZER_SLOW"))
		nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	if (callback || fails("subscribe"))
		return SANITIZER_LIMIT_REACHED;
	entry = driver ? (__typeof__(entry))dlsym(driver, SIM_PATCHING_ENTRY) : NULL;
	if (!entry)
		return SANITIZER_NO_CONNECTION;
	sim = entry();
	callback = function;
	callback_data = userdata;
	*subscriber = &callback;
	sim->subscribe(&events);
	return SANITIZER_OK;
}

API(sanitizerUnsubscribe, driver_handle subscriber) {
	if (!callback || subscriber != &callback)
		return SANITIZER_INVALID_PARAMETER;
	sim->subscribe(NULL);
	callback = NULL;
	memset(enabled, 0, sizeof(enabled));
	return SANITIZER_OK;
}

API(sanitizerEnableCallback, uint32_t enable, driver_handle subscriber, int domain, uint32_t id) {
	if (subscriber != &callback || domain != SANITIZER_DOMAIN_RESOURCE || id >= CALLBACKS ||
	    (fails("old") && id == SANITIZER_FUNCTIONS_LAZY_PATCHED))
		return SANITIZER_INVALID_PARAMETER;
	enabled[id] = enable;
	return SANITIZER_OK;
}

API(sanitizerAddPatches, const void *image, driver_handle context) {
	return fails("image") ? SANITIZER_INVALID_PARAMETER
			      : result_of(sim->add_image(context, image));
}

API(sanitizerPatchInstructions, int instruction, driver_handle module, const char *symbol) {
	return fails("mark") || instruction < 0
		       ? SANITIZER_INVALID_PARAMETER
		       : result_of(sim->mark(module, (uint32_t)instruction, symbol));
}

API(sanitizerPatchModule, driver_handle module) {
	return fails("patch") ? SANITIZER_UNKNOWN : result_of(sim->patch(module));
}

API(sanitizerUnpatchModule, driver_handle module) {
	return fails("unpatch") ? SANITIZER_UNKNOWN : result_of(sim->unpatch(module));
}

API(sanitizerSetCallbackData, driver_handle function, const void *data) {
	return fails("data") ? SANITIZER_INVALID_PARAMETER
			     : result_of(sim->set_data(function, (uintptr_t)data));
}

API(sanitizerAlloc, driver_handle context, void **address, size_t size) {
	CUdeviceptr memory = 0;
	sanitizer_result result = fails("alloc") ? SANITIZER_OUT_OF_MEMORY
						 : result_of(sim->alloc(context, &memory, size));

	if (result == SANITIZER_OK)
		*address = (void *)(uintptr_t)memory;
	return result;
}

API(sanitizerFree, driver_handle context, void *address) {
	return result_of(sim->free(context, (uintptr_t)address));
}

/* Handles of streams mean nothing here: copies are done when they return. */
API(sanitizerGetStreamHandle, driver_handle context, driver_handle stream, driver_handle *handle) {
	*handle = stream ? stream : context;
	return SANITIZER_OK;
}

API(sanitizerMemcpyHostToDeviceAsync, void *to, void *from, size_t size, driver_handle stream) {
	return fails("write") ? SANITIZER_INVALID_PARAMETER
			      : result_of(sim->write((uintptr_t)to, from, size));
}

API(sanitizerStreamSynchronize, driver_handle stream) {
	return SANITIZER_OK;
}
