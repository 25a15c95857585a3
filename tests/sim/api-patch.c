/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Patching, for the stand-in for NVIDIA's library. As on
 * a GPU [H200]: a module of a library appears when it is first used; patching a module while
 * another thread launches it is fatal; a graph runs what its kernels were, with the data that they
 * had, when it was instantiated, and if that was patched code it is fatal once the module is
 * unpatched or patched anew.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "sim-patching.h"

struct image {
	struct image *next;
	CUcontext context;
	struct sim_program *program;
};

static struct image *images; /* never unloaded */
static const struct sim_patching_events *subscriber;
/* Recursive: a module's event may look at its functions. */
static pthread_mutex_t tell_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static const struct sim_patching_events *listener(void) {
	return __atomic_load_n(&subscriber, __ATOMIC_ACQUIRE);
}

/* --- events --- */

bool api_patchable(void) {
	return listener();
}

void api_module_loaded(CUmodule module) {
	const struct sim_patching_events *to = listener();
	size_t size;
	void *elf;

	if (__atomic_load_n(&module->told, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&tell_lock);
	if (!module->told && !module->telling) {
		module->telling = true;
		module->context = api_current();
		elf = to ? api_module_elf(module->program, &size) : NULL;
		if (elf)
			to->module_loaded(module->context, module, module->library, elf, size);
		free(elf);
		__atomic_store_n(&module->told, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&tell_lock);
}

void api_module_unloading(CUmodule module) {
	const struct sim_patching_events *to = listener();

	if (!to || !__atomic_load_n(&module->told, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&tell_lock);
	to->module_unloading(module->context, module);
	pthread_mutex_unlock(&tell_lock);
}

void api_function_used(CUfunction function) {
	const struct sim_patching_events *to = listener();
	CUmodule module = function->module;

	api_module_loaded(module);
	if (__atomic_load_n(&function->loaded, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&tell_lock);
	if (!function->loaded) {
		__atomic_store_n(&function->loaded, true, __ATOMIC_RELEASE);
		if (to)
			to->function_loaded(module->context, module, function, false);
		if (to && module->patched)
			to->function_loaded(module->context, module, function, true);
	}
	pthread_mutex_unlock(&tell_lock);
}

void api_context_ending(CUcontext context) {
	const struct sim_patching_events *to = listener();

	if (to)
		to->context_ending(context);
}

/* --- what kernels of graphs run with --- */

#define DATA_OF_NOBODY UINT64_C(0x5a5a5a5a5a5a5a59) /* no address */

/* On a GPU a function that came into a graph before its module was patched, and that nobody gave
 * data, has what is none. */
static void forget_data(struct CUfunc_st *function) {
	if (!function->module->patched && !function->patch_data_said)
		function->patch_data = DATA_OF_NOBODY;
}

bool api_freeze(struct CUgraphNode_st *node) {
	forget_data(node->function);
	node->frozen = calloc(1, sizeof(*node->frozen));
	if (!node->frozen)
		return false;
	memcpy(node->frozen->patches, node->function->function->program->patches,
	       sizeof(node->frozen->patches));
	node->frozen->data = node->function->patch_data;
	node->frozen->changes =
		node->function->module->patched ? node->function->module->changes : 0;
	return true;
}

CUresult api_patched_run(const struct CUgraphNode_st *node, struct sim_launch *launch) {
	const struct sim_function *now[SIM_PATCHES];
	struct sim_program *program = launch->function->program;
	CUresult r;

	launch->patch_data = __atomic_load_n(&node->function->patch_data, __ATOMIC_RELAXED);
	if (!node->frozen)
		return sim_run(launch);
	launch->patch_data = node->frozen->data;
	if (node->frozen->changes && node->frozen->changes != node->function->module->changes) {
		fprintf(stderr,
			"gpuprobe CPU driver: a graph has the code of patches that are gone\n");
		return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	}
	memcpy(now, program->patches, sizeof(now));
	if (!memcmp(now, node->frozen->patches, sizeof(now)))
		return sim_run(launch);
	r = sim_patch(program, node->frozen->patches);
	if (r == CUDA_SUCCESS)
		r = sim_run(launch);
	if (sim_patch(program, now) != CUDA_SUCCESS)
		r = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return r;
}

bool api_launch_begin(CUmodule module) {
	__atomic_fetch_add(&module->launching, 1, __ATOMIC_SEQ_CST);
	return !__atomic_load_n(&module->changing, __ATOMIC_SEQ_CST);
}

void api_launch_end(CUmodule module) {
	__atomic_fetch_sub(&module->launching, 1, __ATOMIC_SEQ_CST);
}

/* --- the table; handles are checked under the lock --- */

static void subscribe(const struct sim_patching_events *events) {
	__atomic_store_n(&subscriber, events, __ATOMIC_RELEASE);
}

static bool check(const void *handle, enum api_kind kind) {
	bool good;

	api_lock();
	good = api_live(handle, kind);
	api_unlock();
	return good;
}

static CUresult add_image(CUcontext context, const void *image) {
	struct image *loaded;
	char *text = NULL, message[512] = "";
	unsigned int count = 0;
	size_t length;
	CUresult r;

	if (!context)
		context = api_current();
	if (!check(context, API_CONTEXT) || !context->patchable)
		return CUDA_ERROR_INVALID_CONTEXT;
	loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		return CUDA_ERROR_OUT_OF_MEMORY;
	loaded->context = context;
	r = api_image_texts(image, 0, &text, &length, 1, &count);
	if (r == CUDA_SUCCESS)
		r = sim_program_new(&loaded->program, (const char *const *)&text, &length, 1, NULL,
				    message, sizeof(message));
	free(text);
	if (r == CUDA_SUCCESS && loaded->program->shared_size) {
		snprintf(message, sizeof(message), "it has shared memory");
		r = CUDA_ERROR_INVALID_IMAGE;
	}
	if (r != CUDA_SUCCESS) {
		fprintf(stderr, "gpuprobe CPU driver: a patch image: %s\n",
			message[0] ? message : "there is no PTX for this device in it");
		free(loaded);
		return r;
	}
	api_lock();
	loaded->next = images;
	images = loaded;
	api_unlock();
	return CUDA_SUCCESS;
}

static CUresult mark(CUmodule module, uint32_t patch, const char *symbol) {
	const struct sim_function *function = NULL;
	CUresult r = CUDA_SUCCESS;

	api_lock();
	if (!api_live(module, API_MODULE))
		r = CUDA_ERROR_INVALID_HANDLE;
	for (const struct image *image = images; r == CUDA_SUCCESS && image && !function;
	     image = image->next)
		if (image->context == module->context)
			function =
				sim_program_function(image->program, NULL, symbol, strlen(symbol));
	if (r == CUDA_SUCCESS && !function)
		r = CUDA_ERROR_NOT_FOUND;
	if (r == CUDA_SUCCESS && !sim_patch_fits(patch, function))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && module->patched) { /* on a GPU the patches add up */
		fprintf(stderr,
			"gpuprobe CPU driver: a module is to be patched that is patched already\n");
		r = CUDA_ERROR_NOT_PERMITTED;
	}
	if (r == CUDA_SUCCESS)
		module->marks[patch] = function;
	api_unlock();
	if (r == CUDA_ERROR_INVALID_VALUE)
		fprintf(stderr, "gpuprobe CPU driver: %s is no function for patches of class %u\n",
			symbol, patch);
	return r;
}

/* What a module is patched with from now on; under sim_run_lock(). */
static CUresult apply(CUmodule module, bool patched) {
	CUresult r = CUDA_SUCCESS;

	module->changes++;
	if (patched) {
		r = sim_patch(module->program, module->marks);
	} else {
		memset(module->marks, 0, sizeof(module->marks));
		sim_unpatch(module->program);
	}
	module->patched = patched && r == CUDA_SUCCESS;
	return r;
}

static CUresult change(CUmodule module, bool patched) {
	CUresult r;

	if (!check(module, API_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	__atomic_fetch_add(&module->changing, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&module->launching, __ATOMIC_SEQ_CST)) {
		fprintf(stderr, "gpuprobe CPU driver: a module is patched while another thread "
				"launches it\n");
		module->context->error = CUDA_ERROR_ILLEGAL_INSTRUCTION;
		r = CUDA_ERROR_UNKNOWN;
	} else {
		sim_run_lock();
		r = apply(module, patched);
		sim_run_unlock();
	}
	__atomic_fetch_sub(&module->changing, 1, __ATOMIC_SEQ_CST);
	return r;
}

static CUresult patch(CUmodule module) {
	return change(module, true);
}

static CUresult unpatch(CUmodule module) {
	return change(module, false);
}

/* Waits for events that go on in other threads: who is told of one must not wait for who comes
 * here. */
static CUresult set_data(CUfunction function, uint64_t data) {
	pthread_mutex_lock(&tell_lock);
	pthread_mutex_unlock(&tell_lock);
	if (!check(function, API_FUNCTION)) {
		fprintf(stderr, "gpuprobe CPU driver: callback data for what is no CUfunction: "
				"NVIDIA's library crashes\n");
		abort();
	}
	__atomic_store_n(&function->patch_data, data, __ATOMIC_RELAXED);
	function->patch_data_said = true;
	return CUDA_SUCCESS;
}

static CUresult alloc(CUcontext context, CUdeviceptr *address, size_t size) {
	void *memory;
	CUresult r;

	if (!check(context ? context : api_current(), API_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	r = api_memory_map(&memory, size, SIM_REGION_TOOL, 0);
	if (r == CUDA_SUCCESS)
		*address = (uintptr_t)memory;
	return r;
}

static CUresult release(CUcontext context, CUdeviceptr address) {
	if (!check(context ? context : api_current(), API_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return api_memory_unmap(address, SIM_REGION_TOOL);
}

static CUresult write_memory(CUdeviceptr address, const void *bytes, size_t size) {
	if (!sim_memory_holds(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)(uintptr_t)address, bytes, size);
	return CUDA_SUCCESS;
}

API_EXPORT const struct sim_patching *gpuprobe_sim_patching(void) {
	static const struct sim_patching table = {
		.subscribe = subscribe,
		.add_image = add_image,
		.mark = mark,
		.patch = patch,
		.unpatch = unpatch,
		.set_data = set_data,
		.alloc = alloc,
		.free = release,
		.write = write_memory,
	};

	return &table;
}
