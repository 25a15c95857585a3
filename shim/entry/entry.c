/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wrappers of the driver functions that the shim stands in front of, and nothing else. Each is a
 * few lines; load.c, arm.c and others do the work. Graphs and their nodes: entry-graph.c,
 * entry-node.c.
 *
 * While no probe is in the process a launch costs one relaxed load. The shim's own calls of the
 * driver never come here: the table of driver.h holds the driver's own addresses.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/module/arm.h"
#include "shim/module/handles.h"
#include "shim/module/capture.h"
#include "entry.h"
#include "shim/base/gate.h"
#include "shim/module/launch-block.h"
#include "shim/graph/graph-source.h"
#include "shim/module/load.h"
#include "shim/module/mirror.h"
#include "shim/module/twin.h"
#include "shim/patch/patch-kernel.h"
#include "shim/patch/patching.h"
#include "shim/trace/trace-event.h"
#include "shim/trace/tracing.h"

/* ---- the beginning: the last moment for the sanitizer engine to come into the process -------- */

WRAP(cuInit, unsigned flags) {
	driver_result result;
	int saved;

	patch_start();
	twin_start();
	result = REAL(cuInit)(flags);
	saved = errno;
	if (!result)
		driver_keep();
	errno = saved;
	return result;
}

/* ---- loading ------------------------------------------------------------------------ */

/* The driver gets every image as the application gives it; LOADED: what is done then. */
#define LOAD(name, arguments, LOADED, ...)     \
	WRAP(name, __VA_ARGS__) {              \
		driver_result result;          \
                                               \
		result = REAL(name) arguments; \
		if (!result)                   \
			LOADED;                \
		return result;                 \
	}

LOAD(cuLibraryLoadData, (library, code, jit_options, jit_values, jit_count, options, values, count),
     twin_loaded(LOAD_LIBRARY, *library, code, twin_is_preserved(options, values, count)),
     driver_handle *library, const void *code, void *jit_options, void **jit_values,
     unsigned jit_count, void *options, void **values, unsigned count)
LOAD(cuLibraryLoadFromFile,
     (library, path, jit_options, jit_values, jit_count, options, values, count),
     twin_loaded_file(LOAD_LIBRARY, *library, path), driver_handle *library, const char *path,
     void *jit_options, void **jit_values, unsigned jit_count, void *options, void **values,
     unsigned count)
LOAD(cuModuleLoadData, (module, image), twin_loaded(LOAD_MODULE, *module, image, false),
     driver_handle *module, const void *image)
LOAD(cuModuleLoadDataEx, (module, image, count, options, values),
     twin_loaded(LOAD_MODULE, *module, image, false), driver_handle *module, const void *image,
     unsigned count, void *options, void **values)
LOAD(cuModuleLoadFatBinary, (module, image), twin_loaded(LOAD_MODULE, *module, image, false),
     driver_handle *module, const void *image)
LOAD(cuModuleLoad, (module, path), twin_loaded_file(LOAD_MODULE, *module, path),
     driver_handle *module, const char *path)

#define UNLOAD(name, kind)                              \
	WRAP(name, driver_handle handle) {              \
		int saved = errno;                      \
		driver_result result;                   \
                                                        \
		twin_unloading(kind, handle);           \
		patch_unload_begin(kind, handle);       \
		errno = saved;                          \
		result = REAL(name)(handle);            \
		saved = errno;                          \
		patch_unload_end(kind, handle, result); \
		errno = saved;                          \
		return result;                          \
	}
UNLOAD(cuLibraryUnload, LOAD_LIBRARY)
UNLOAD(cuModuleUnload, LOAD_MODULE)

/*
 * ---- launching: probed modules are armed in the current context before their first kernel runs
 * there ---------
 */

/* What traces call a stream that is given to that function. */
static inline uint64_t stream_name(driver_handle stream, const char *function) {
	if (stream)
		return (uintptr_t)stream;
	return strstr(function, "_ptsz") ? LAUNCH_STREAM_OWN : LAUNCH_STREAM_LEGACY;
}

/* Adds the block of a launch to the arguments, if the twin takes one. Returns what is launched. */
static inline driver_handle add_block(struct launch_frame *frame, const struct launch_form *form,
				      driver_handle twin, driver_handle own, uint64_t stream,
				      void ***parameters, void ***extra) {
	return !form->has_block || launch_block_begin(frame, form, stream, parameters, extra) ? twin
											      : own;
}

/* The same inside of LAUNCH, which follows. */
#define ADD_BLOCK(name, stream, extra) \
	add_block(&frame_, &form_, function, own_, stream_name(stream, #name), &parameters, extra)

/*
 * In a process with the sanitizer engine, or with modules that may get twins, a launch passes the
 * gate, when patches and twins are as they should be. A twin that cannot be launched leaves it to
 * the application's own kernel. Without any work it is a jump, which has nothing to save: what is
 * more is in a function of its own.
 */
#define LAUNCH(name, SHAPE, EXTRA, arguments, ...)                                           \
	static driver_result work_##name(__VA_ARGS__);                                       \
	WRAP(name, __VA_ARGS__) {                                                            \
		if (__builtin_expect(!arm_work(), 1))                                        \
			return REAL(name) arguments;                                         \
		return work_##name arguments;                                                \
	}                                                                                    \
	static __attribute__((noinline)) driver_result work_##name(__VA_ARGS__) {            \
		unsigned work_ = arm_work();                                                 \
		const driver_handle own_ = function;                                         \
		struct twin_shape shape_ = { 0 };                                            \
		struct launch_frame frame_;                                                  \
		struct launch_form form_ = { 0 };                                            \
		driver_result result_;                                                       \
                                                                                             \
		if ((work_ & ARM_ENGINE) && patch_needed())                                  \
			patch_launch();                                                      \
		if (work_ & ARM_ENGINE)                                                      \
			patch_first_launch(function);                                        \
		if (work_ & ARM_TWINS) {                                                     \
			shape_ = SHAPE;                                                      \
			twin_prepare(&shape_);                                               \
			work_ = arm_work();                                                  \
		}                                                                            \
		if (work_ & ARM_LOADS)                                                       \
			arm_current(0);                                                      \
		frame_.used = false;                                                         \
		if (work_ & ~ARM_LOADS)                                                      \
			gate_enter();                                                        \
		if (work_ & ARM_TWINS)                                                       \
			function = twin_choose(&shape_, &form_);                             \
		if (function != own_)                                                        \
			function = ADD_BLOCK(name, shape_.stream, EXTRA);                    \
		result_ = REAL(name) arguments;                                              \
		launch_block_end(&frame_);                                                   \
		if (__builtin_expect(result_ && function != own_, 0)) {                      \
			function = own_;                                                     \
			result_ = REAL(name) arguments;                                      \
		}                                                                            \
		if (work_ & ~ARM_LOADS)                                                      \
			gate_leave();                                                        \
		if (__builtin_expect(__atomic_load_n(&handles_unsaid, __ATOMIC_RELAXED), 0)) \
			handles_say();                                                       \
		return result_;                                                              \
	}

#define SHAPE_OF(is_cooperative)                       \
	((struct twin_shape){ .function = function,    \
			      .stream = stream,        \
			      .grid = { gx, gy, gz },  \
			      .block = { bx, by, bz }, \
			      .shared = shared,        \
			      .cooperative = (is_cooperative) })
#define LAUNCH_KERNEL(name)                                                                        \
	LAUNCH(name, SHAPE_OF(false), &extra,                                                      \
	       (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra),              \
	       driver_handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,         \
	       unsigned by, unsigned bz, unsigned shared, driver_handle stream, void **parameters, \
	       void **extra)
#define LAUNCH_KERNEL_EX(name)                                                          \
	LAUNCH(name, fit_shape(function, configuration), &extra,                        \
	       (configuration, function, parameters, extra), const void *configuration, \
	       driver_handle function, void **parameters, void **extra)
#define LAUNCH_COOPERATIVE(name)                                                           \
	LAUNCH(name, SHAPE_OF(true), NULL,                                                 \
	       (function, gx, gy, gz, bx, by, bz, shared, stream, parameters),             \
	       driver_handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
	       unsigned by, unsigned bz, unsigned shared, driver_handle stream, void **parameters)

LAUNCH_KERNEL(cuLaunchKernel)
LAUNCH_KERNEL(cuLaunchKernel_ptsz)
LAUNCH_KERNEL_EX(cuLaunchKernelEx)
LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)

/* ---- waiting: what kernels had written to before is free then -------------------------- */

#define SYNCHRONIZE(name, arguments, context, ...)                           \
	WRAP(name, __VA_ARGS__) {                                            \
		driver_result result;                                        \
		uint64_t before;                                             \
                                                                             \
		before = arm_now();                                          \
		result = REAL(name) arguments;                               \
		if (!result && __builtin_expect(mirror_awaits_kernels(), 0)) \
			arm_synchronized(context, before);                   \
		twin_synchronized();                                         \
		return result;                                               \
	}
SYNCHRONIZE(cuCtxSynchronize, (), NULL, void)
SYNCHRONIZE(cuCtxSynchronize_v2, (handle), handle, driver_handle handle)

/* The context may be idle now: the next launch tries to load twins that wait for that. */
#define WAIT(name, arguments, ...)             \
	WRAP(name, __VA_ARGS__) {              \
		driver_result result;          \
                                               \
		result = REAL(name) arguments; \
		twin_synchronized();           \
		return result;                 \
	}
WAIT(cuStreamSynchronize, (stream), driver_handle stream)
WAIT(cuStreamSynchronize_ptsz, (stream), driver_handle stream)
WAIT(cuEventSynchronize, (event), driver_handle event)

/*
 * ---- captures: a graph keeps the patches that its kernels have when it is instantiated, so they
 * are brought up to date before; while there is a capture nothing is patched ---------
 */

/* A graph is about to get more nodes; nobody instantiates it till they are there. */
static void capture_to(driver_handle graph) {
	graph_source_change(graph);
	graph_source_change_end();
}

#define BEGIN_CAPTURE(name, arguments, ...) BEGIN_CAPTURE_NOTED(name, , arguments, __VA_ARGS__)
#define BEGIN_CAPTURE_NOTED(name, NOTE, arguments, ...)    \
	WRAP(name, __VA_ARGS__) {                          \
		driver_result result;                      \
                                                           \
		unsigned work;                             \
                                                           \
		work = arm_work();                         \
		if (!(work & ~ARM_LOADS))                  \
			return REAL(name) arguments;       \
		if ((work & ARM_ENGINE) && patch_needed()) \
			patch_launch();                    \
		NOTE;                                      \
		gate_enter();                              \
		capture_begin(stream);                     \
		result = REAL(name) arguments;             \
		if (result)                                \
			capture_end(stream);               \
		gate_leave();                              \
		return result;                             \
	}
#define BEGIN_CAPTURE_TO(name)                                                                   \
	BEGIN_CAPTURE_NOTED(name, capture_to(graph), (stream, graph, nodes, edges, count, mode), \
			    driver_handle stream, driver_handle graph, const void *nodes,        \
			    const void *edges, size_t count, int mode)
BEGIN_CAPTURE(cuStreamBeginCapture, (stream), driver_handle stream)
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, (stream), driver_handle stream)
BEGIN_CAPTURE(cuStreamBeginCapture_v2, (stream, mode), driver_handle stream, int mode)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, (stream, mode), driver_handle stream, int mode)
BEGIN_CAPTURE_TO(cuStreamBeginCaptureToGraph)
BEGIN_CAPTURE_TO(cuStreamBeginCaptureToGraph_ptsz)

/* A capture ends with an error, too, but not in a wrong thread. */
#define END_CAPTURE(name)                                                                     \
	WRAP(name, driver_handle stream, driver_handle *graph) {                              \
		driver_result result;                                                         \
                                                                                              \
		result = REAL(name)(stream, graph);                                           \
		if ((arm_work() & ~ARM_LOADS) && result != DRIVER_ERROR_CAPTURE_WRONG_THREAD) \
			capture_end(stream);                                                  \
		return result;                                                                \
	}
END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)

/* Before, because another stream may get the handle as soon as it is free. */
#define DESTROY_STREAM(name)                     \
	WRAP(name, driver_handle stream) {       \
		if (arm_work() & ~ARM_LOADS)     \
			capture_abandon(stream); \
		return REAL(name)(stream);       \
	}
DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)

/* ---- handles of kernels, and what is changed about them: for launches of twins ---- */

/*
 * A call that is nothing to us until it has succeeded in a process with probed modules. DONE has
 * its own errno.
 */
#define FOLLOW(name, arguments, DONE, ...)     \
	WRAP(name, __VA_ARGS__) {              \
		driver_result result;          \
                                               \
		result = REAL(name) arguments; \
		if (!result && arm_needed()) { \
			int saved = errno;     \
                                               \
			DONE;                  \
			errno = saved;         \
		}                              \
		return result;                 \
	}

static void got_kernel(driver_handle library, driver_handle kernel, const char *name) {
	handles_got_kernel(library, kernel, name);
	if (arm_work() & ARM_ENGINE)
		patch_kernel_got(library, kernel);
}

FOLLOW(cuModuleGetFunction, (function, module, name), handles_got_function(module, *function, name),
       driver_handle *function, driver_handle module, const char *name)
FOLLOW(cuLibraryGetKernel, (kernel, library, name), got_kernel(library, *kernel, name),
       driver_handle *kernel, driver_handle library, const char *name)
FOLLOW(cuLibraryGetModule, (module, library), handles_got_module(library, *module),
       driver_handle *module, driver_handle library)
FOLLOW(cuKernelGetFunction, (function, kernel), handles_got_function_of(kernel, *function),
       driver_handle *function, driver_handle kernel)
/* Inside of the gate: the twin stays. */
static void changed(enum handles_setting setting, driver_handle handle, int attribute, int value,
		    int device) {
	const bool twins = arm_work() & ARM_TWINS;

	if (twins)
		gate_enter();
	handles_changed(setting, handle, attribute, value, device);
	if (twins)
		gate_leave();
}

FOLLOW(cuFuncSetAttribute, (function, attribute, value),
       changed(HANDLES_FUNCTION_ATTRIBUTE, function, attribute, value, 0), driver_handle function,
       int attribute, int value)
FOLLOW(cuFuncSetCacheConfig, (function, value),
       changed(HANDLES_FUNCTION_CACHE, function, 0, value, 0), driver_handle function, int value)
FOLLOW(cuFuncSetSharedMemConfig, (function, value),
       changed(HANDLES_FUNCTION_BANKS, function, 0, value, 0), driver_handle function, int value)
FOLLOW(cuKernelSetAttribute, (attribute, value, kernel, device),
       changed(HANDLES_KERNEL_ATTRIBUTE, kernel, attribute, value, device), int attribute,
       int value, driver_handle kernel, int device)
FOLLOW(cuKernelSetCacheConfig, (kernel, value, device),
       changed(HANDLES_KERNEL_CACHE, kernel, 0, value, device), driver_handle kernel, int value,
       int device)

/* The program has a list of handles of a library's kernels. */
static void listed_kernels(driver_handle library) {
	const struct driver *driver = driver_own();
	driver_handle *kernels = NULL;
	int saved = errno;
	unsigned count = 0;

	if (driver && driver->library_get_kernel_count && driver->library_enumerate_kernels &&
	    driver->library_get_kernel_count(&count, library) == 0)
		kernels = calloc((size_t)count + 1, sizeof(*kernels));
	if (kernels && count && driver->library_enumerate_kernels(kernels, count, library) == 0)
		for (unsigned i = 0; i < count; i++)
			patch_kernel_got(library, kernels[i]);
	free(kernels);
	errno = saved;
}

#define LIST(name, library)                                                        \
	WRAP(name, driver_handle *list, unsigned limit, driver_handle container) { \
		driver_result result;                                              \
		int saved;                                                         \
                                                                                   \
		result = REAL(name)(list, limit, container);                       \
		saved = errno;                                                     \
		if (!result && list && (arm_work() & ARM_TWINS))                   \
			handles_listed(library, container, list, limit);           \
		errno = saved;                                                     \
		if (library && !result && (arm_work() & ARM_ENGINE))               \
			listed_kernels(container);                                 \
		return result;                                                     \
	}
LIST(cuLibraryEnumerateKernels, true)
LIST(cuModuleEnumerateFunctions, false)

/* ---- the end of a context: what its instances hold is copied out first -------------- */

#define DESTROY_CONTEXT(name, find_context, surely)                                 \
	WRAP(name, driver_handle handle) {                                          \
		struct mirror_context *ending;                                      \
		driver_handle context;                                              \
		driver_result result;                                               \
		int saved = errno;                                                  \
		uint64_t before;                                                    \
                                                                                    \
		context = find_context(handle);                                     \
		trace_event_context_ending(context);                                \
		ending = arm_context_ending(context, surely);                       \
		before = arm_now();                                                 \
		errno = saved;                                                      \
		result = REAL(name)(handle);                                        \
		saved = errno;                                                      \
		arm_context_ended(ending, context, before,                          \
				  !result && (surely || !arm_is_current(context))); \
		errno = saved;                                                      \
		return result;                                                      \
	}

static driver_handle itself(driver_handle context) {
	return context;
}

/* A green context is destroyed under a handle of its own. */
static driver_handle of_green(driver_handle green) {
	driver_result (*find)(driver_handle *, driver_handle) = (driver_result(*)(
		driver_handle *, driver_handle))driver_symbol("cuCtxFromGreenCtx");
	driver_handle context = NULL;

	return (mirror_has_contexts() || arm_needed() || trace_event_has_contexts()) && find &&
			       find(&context, green) == 0
		       ? context
		       : NULL;
}

DESTROY_CONTEXT(cuCtxDestroy, itself, true)
DESTROY_CONTEXT(cuCtxDestroy_v2, itself, true)
DESTROY_CONTEXT(cuCtxDetach, itself, false)
DESTROY_CONTEXT(cuGreenCtxDestroy, of_green, true)

/* always: the primary context is gone after a success, even if other code holds it. */
#define RELEASE_PRIMARY(name, always)                                                      \
	WRAP(name, int device) {                                                           \
		struct mirror_context *ending;                                             \
		driver_handle context;                                                     \
		driver_result result;                                                      \
		int saved = errno;                                                         \
		uint64_t id;                                                               \
                                                                                           \
		trace_event_primary_ending(device, always);                                \
		context = arm_primary(device, &id);                                        \
		ending = arm_context_ending(context, always);                              \
		errno = saved;                                                             \
		result = REAL(name)(device);                                               \
		saved = errno;                                                             \
		if (context)                                                               \
			arm_primary_ended(ending, context, device, id, always && !result); \
		errno = saved;                                                             \
		return result;                                                             \
	}
RELEASE_PRIMARY(cuDevicePrimaryCtxRelease, 0)
RELEASE_PRIMARY(cuDevicePrimaryCtxRelease_v2, 0)
RELEASE_PRIMARY(cuDevicePrimaryCtxReset, 1)
RELEASE_PRIMARY(cuDevicePrimaryCtxReset_v2, 1)
