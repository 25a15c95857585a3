/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuprobe-sass.so: patches machine code by NVIDIA's patching library, for the shim.
 *
 * struct sass_engine (sass.h) on top of NVIDIA's patching library. The library keeps what a
 * function gets as its callback data when its module is patched anew; what was there belongs to
 * another image then. So we remember which functions have data, and take it from them before the
 * module's patches change.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find.h"
#include "shim/engine/sass.h"

static struct sanitizer sanitizer;
static const struct sass_events *events;
static driver_handle subscriber;
static bool started;
/* cuFuncGetModule; NULL before CUDA 11 */
static driver_result (*function_module)(driver_handle *, driver_handle);
static driver_result (*current_context)(driver_handle *); /* cuCtxGetCurrent */

/* A module that is or was patched. There are thousands of modules and functions, and launches wait
 * for us: they are in trees of libc's. */
struct patched {
	driver_handle module;
	bool now; /* it is patched */
	void *functions; /* tree of the handles that have data */
};

/* Modules are unloaded while the shim's calls are going on. */
static pthread_mutex_t patched_lock = PTHREAD_MUTEX_INITIALIZER;
static void *patched; /* tree of struct patched */

/* NULL if a call was successful, else the line for that. */
static const char *failure(const char *call, sanitizer_result result) {
	static __thread char line[160];
	const char *text = NULL;

	if (!result)
		return NULL;
	if (sanitizer.get_result_string(result, &text) || !text)
		text = "unknown";
	snprintf(line, sizeof(line), "%s failed: %.80s (%d)", call, text, result);
	return line;
}

/* --- what is patched, and which functions have data --- */

static int compare_handles(const void *a, const void *b) {
	return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

static int compare_modules(const void *a, const void *b) {
	return compare_handles(((const struct patched *)a)->module,
			       ((const struct patched *)b)->module);
}

/* With the lock held: the record of a module, or NULL. */
static struct patched *patched_find(driver_handle module) {
	const struct patched wanted = { .module = module };
	struct patched **found = tfind(&wanted, &patched, compare_modules);

	return found ? *found : NULL;
}

/* The same; it is made if there is none. NULL: no memory. */
static struct patched *patched_get(driver_handle module) {
	struct patched *one = patched_find(module);

	if (one)
		return one;
	one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	one->module = module;
	if (tsearch(one, &patched, compare_modules))
		return one;
	free(one);
	return NULL;
}

static bool patched_is(driver_handle module) {
	const struct patched *one;
	bool is;

	pthread_mutex_lock(&patched_lock);
	one = patched_find(module);
	is = one && one->now;
	pthread_mutex_unlock(&patched_lock);
	return is;
}

/* The module is patched from now on, or not. False: no memory. */
static bool patched_set(driver_handle module, bool now) {
	struct patched *one;

	pthread_mutex_lock(&patched_lock);
	one = now ? patched_get(module) : patched_find(module);
	if (one)
		one->now = now;
	pthread_mutex_unlock(&patched_lock);
	return one || !now;
}

/* A function of the module has data. False: no memory. */
static bool patched_add(driver_handle module, driver_handle function) {
	struct patched *one;
	bool added;

	pthread_mutex_lock(&patched_lock);
	one = patched_get(module);
	added = one && tsearch(function, &one->functions, compare_handles);
	pthread_mutex_unlock(&patched_lock);
	return added;
}

/* Takes one of the functions of a module that have data; NULL: there is none. */
static driver_handle patched_take(driver_handle module) {
	driver_handle taken = NULL;
	struct patched *one;

	pthread_mutex_lock(&patched_lock);
	one = patched_find(module);
	if (one && one->functions) {
		taken = *(driver_handle *)one->functions;
		tdelete(taken, &one->functions, compare_handles);
	}
	pthread_mutex_unlock(&patched_lock);
	return taken;
}

/* Forgets a module and its functions. */
static void patched_forget(driver_handle module) {
	struct patched *one;

	pthread_mutex_lock(&patched_lock);
	one = patched_find(module);
	if (one)
		tdelete(one, &patched, compare_modules);
	pthread_mutex_unlock(&patched_lock);
	while (one && one->functions)
		tdelete(*(driver_handle *)one->functions, &one->functions, compare_handles);
	free(one);
}

/*
 * Forgets a module, and takes their data from its functions; from where that fails they stay. The
 * library is called without the lock: it may wait for a thread that tells us of an unloading.
 */
static sanitizer_result patched_clear(driver_handle module) {
	sanitizer_result result = SANITIZER_OK;
	driver_handle function;

	patched_set(module, false);
	while (result == SANITIZER_OK && (function = patched_take(module)) != NULL) {
		result = sanitizer.set_callback_data(function, NULL);
		if (result)
			patched_add(module, function);
	}
	return result;
}

/* --- events --- */

static void on_callback(void *userdata, int domain, uint32_t id, const void *data) {
	const struct sanitizer_functions *functions = data;
	const struct sanitizer_context *context = data;
	const struct sanitizer_module *module = data;

	if (domain != SANITIZER_DOMAIN_RESOURCE)
		return;
	switch (id) {
	case SANITIZER_MODULE_LOADED:
		patched_forget(module->module); /* of another one that had the handle */
		events->module_loaded(module->context, module->module, module->library,
				      module->cubin, module->cubin_size);
		break;
	case SANITIZER_MODULE_UNLOAD_STARTING:
		events->module_unloading(module->context, module->module);
		break;
	case SANITIZER_FUNCTIONS_LAZY_PATCHED:
		events->functions_loaded(functions->context, functions->module,
					 functions->functions, functions->count);
		break;
	case SANITIZER_CONTEXT_DESTROY_STARTING:
		events->context_ending(context->context);
		break;
	}
}

/* --- the table --- */

static const char *start(const char *path, const struct sass_events *wanted) {
	static const uint32_t callbacks[] = {
		SANITIZER_MODULE_LOADED,
		SANITIZER_MODULE_UNLOAD_STARTING,
		SANITIZER_FUNCTIONS_LAZY_PATCHED,
		SANITIZER_CONTEXT_DESTROY_STARTING,
	};
	const char *other = find_other_tool(), *error;
	static char line[160];
	sanitizer_result result;

	if (started)
		return "the sanitizer engine has been started in this process";
	if (other) {
		snprintf(line, sizeof(line), "another tool has the patching interface: %s", other);
		return line;
	}
	error = find_sanitizer(path, &sanitizer);
	if (error)
		return error;
	events = wanted;
	started = true;
	result = sanitizer.subscribe(&subscriber, on_callback, NULL);
	if (result == SANITIZER_LIMIT_REACHED)
		return "another tool (CUPTI, Nsight, compute-sanitizer, cuda-gdb) has the patching "
		       "interface";
	if (result)
		return failure("sanitizerSubscribe", result);
	for (size_t n = 0; n < sizeof(callbacks) / sizeof(callbacks[0]); n++) {
		result = sanitizer.enable_callback(1, subscriber, SANITIZER_DOMAIN_RESOURCE,
						   callbacks[n]);
		if (result) {
			sanitizer.unsubscribe(subscriber);
			subscriber = NULL;
			if (result == SANITIZER_INVALID_PARAMETER) /* of what is newer than it */
				return "NVIDIA's patching library is older than CUDA 12.3";
			return failure("sanitizerEnableCallback", result);
		}
	}
	return NULL;
}

static void stop(void) {
	if (subscriber)
		sanitizer.unsubscribe(subscriber);
	subscriber = NULL;
}

static const char *load_image(driver_handle context, const void *image) {
	return failure("sanitizerAddPatches", sanitizer.add_patches(image, context));
}

static const char *unpatch(driver_handle module) {
	sanitizer_result result =
		patched_is(module) ? sanitizer.unpatch_module(module) : SANITIZER_OK;

	if (result)
		return failure("sanitizerUnpatchModule", result);
	return failure("sanitizerSetCallbackData", patched_clear(module));
}

/* Marks the instructions and patches them. */
static const char *patch_points(driver_handle module, const struct patch_point *points,
				uint32_t count) {
	for (uint32_t n = 0; n < count; n++) {
		sanitizer_result result = sanitizer.patch_instructions((int)points[n].instruction,
								       module, points[n].symbol);

		if (result)
			return failure("sanitizerPatchInstructions", result);
	}
	return failure("sanitizerPatchModule", sanitizer.patch_module(module));
}

static const char *patch(driver_handle module, const struct patch_point *points, uint32_t count) {
	const char *error = unpatch(module); /* or else the patches would add up */

	for (uint32_t n = 0; !error && n < count; n++)
		if (!memchr(points[n].symbol, '\0', sizeof(points[n].symbol)))
			error = "the name of a patch has no end";
	if (error)
		return error;
	if (!patched_set(module, true))
		return "no memory for what is patched";
	error = patch_points(module, points, count);
	if (!error)
		return NULL;
	sanitizer.unpatch_module(module); /* what is marked already */
	patched_forget(module);
	return error;
}

/*
 * Not before there are contexts: the driver that is loaded before cuInit may not be the one that
 * works. Threads that come at a time find the same.
 */
static void look_up(void) {
	static bool done;
	void *driver;

	if (__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		return;
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (driver) {
		*(void **)&function_module = dlsym(driver, "cuFuncGetModule");
		*(void **)&current_context = dlsym(driver, "cuCtxGetCurrent");
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
}

static const char *set_data(driver_handle function, driver_pointer data) {
	driver_handle module = NULL;

	look_up();
	if (data && function_module && !function_module(&module, function) &&
	    !patched_add(module, function))
		return "no memory for what is patched";
	return failure("sanitizerSetCallbackData",
		       sanitizer.set_callback_data(function, (const void *)(uintptr_t)data));
}

static const char *alloc(driver_handle context, driver_pointer *address, size_t size) {
	void *memory = NULL;
	const char *error = failure("sanitizerAlloc", sanitizer.alloc(context, &memory, size));

	if (!error)
		*address = (uintptr_t)memory;
	return error;
}

static const char *release(driver_handle context, driver_pointer address) {
	return failure("sanitizerFree", sanitizer.free(context, (void *)(uintptr_t)address));
}

/* The handle NULL is a stream of the current context; it does not wait for kernels [H200]. */
static const char *write_memory(driver_handle context, driver_pointer address, const void *bytes,
				size_t size) {
	driver_handle stream = NULL, current = NULL;
	sanitizer_result result = SANITIZER_OK;

	look_up();
	if (context && (!current_context || current_context(&current) || current != context))
		result = sanitizer.get_stream_handle(context, NULL, &stream);
	if (result)
		return failure("sanitizerGetStreamHandle", result);
	result = sanitizer.copy_to_device((void *)(uintptr_t)address, (void *)bytes, size, stream);
	if (result)
		return failure("sanitizerMemcpyHostToDeviceAsync", result);
	return failure("sanitizerStreamSynchronize", sanitizer.stream_synchronize(stream));
}

__attribute__((visibility("default"))) const struct sass_engine *gpuprobe_sass(void);
__attribute__((visibility("default"))) const struct sass_engine *gpuprobe_sass(void) {
	static const struct sass_engine engine = {
		.abi = SASS_ABI,
		.start = start,
		.stop = stop,
		.load_image = load_image,
		.patch = patch,
		.unpatch = unpatch,
		.forget = patched_forget,
		.set_data = set_data,
		.alloc = alloc,
		.free = release,
		.write = write_memory,
	};

	return dlopen ? &engine : NULL;
}
