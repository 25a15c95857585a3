/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The driver functions that the shim stands in front of, and nothing else: each wrapper is a few lines, and the work is
 * behind them (load.c, arm.c). While no probe is in the process a launch costs one relaxed load.
 *
 * A call of the driver made by ourselves never comes by here: driver.h's table holds the driver's own addresses.
 */

#include <errno.h>
#include <string.h>

#include "arm.h"
#include "driver.h"
#include "load.h"
#include "symbols.h"

#define EXPORT __attribute__((visibility("default")))

/*
 * Declares WRAPPER and real_WRAPPER, a function pointer that is found when it is first used, for programs that
 * link libcuda.so.1. If the driver has no such function the wrapper answers CUDA_ERROR_NOT_FOUND.
 */
#define WRAP(name, ...)                                                    \
	EXPORT driver_result name(__VA_ARGS__);                            \
	static driver_result (*real_##name)(__VA_ARGS__);                  \
	static inline __attribute__((always_inline)) int have_##name(void) \
	{                                                                  \
		if (__builtin_expect(!real_##name, 0))                     \
			find_real((void **)&real_##name, #name);           \
		return real_##name != NULL;                                \
	}                                                                  \
	EXPORT driver_result name(__VA_ARGS__)

static __attribute__((noinline, cold)) void find_real(void **real, const char *name)
{
	int saved = errno;

	*real = driver_symbol(name);
	errno = saved;
}

/* ---- looking functions up ------------------------------------------------------------------------------------ */

WRAP(cuGetProcAddress, const char *symbol, void **function, int version, uint64_t flags)
{
	driver_result result;

	if (!have_cuGetProcAddress())
		return DRIVER_ERROR_NOT_FOUND;
	result = real_cuGetProcAddress(symbol, function, version, flags);
	if (!result)
		symbols_swap(symbol, function, flags);
	return result;
}

WRAP(cuGetProcAddress_v2, const char *symbol, void **function, int version, uint64_t flags, void *status)
{
	driver_result result;

	if (!have_cuGetProcAddress_v2())
		return DRIVER_ERROR_NOT_FOUND;
	result = real_cuGetProcAddress_v2(symbol, function, version, flags, status);
	if (!result)
		symbols_swap(symbol, function, flags);
	return result;
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

/*
 * The common way of every load: TRY(image) is the driver's function with that image. If there is a replacement and the
 * driver takes it, it is kept until the module is unloaded; whatever else happens, the application's own image is loaded.
 */
#define LOAD(image, kind, out, TRY)                                                \
	do {                                                                       \
		int saved_ = errno;                                                \
		struct load *load_ = load_replace(image);                          \
		driver_result result_;                                             \
                                                                                   \
		if (!load_) {                                                      \
			errno = saved_;                                            \
			return TRY(image);                                         \
		}                                                                  \
		errno = saved_;                                                    \
		result_ = TRY(load_image(load_));                                  \
		saved_ = errno;                                                    \
		if (!result_) {                                                    \
			load_commit(load_, kind, *(out));                          \
			errno = saved_;                                            \
			return 0;                                                  \
		}                                                                  \
		load_refused(load_, result_);                                      \
		errno = saved_;                                                    \
		return TRY(image);                                                 \
	} while (0)

WRAP(cuLibraryLoadData, driver_handle *library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
     void *options, void *values, unsigned count)
{
	if (!have_cuLibraryLoadData())
		return DRIVER_ERROR_NOT_FOUND;
#define TRY(image) real_cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options, values, count)
	LOAD(code, LOAD_LIBRARY, library, TRY);
#undef TRY
}

WRAP(cuLibraryLoadFromFile, driver_handle *library, const char *path, void *jit_options, void *jit_values, unsigned jit_count,
     void *options, void *values, unsigned count)
{
	struct load_file file;

	if (!have_cuLibraryLoadFromFile())
		return DRIVER_ERROR_NOT_FOUND;
	if (load_file_open(&file, path) && have_cuLibraryLoadData()) {
		struct load *load = load_replace(file.data);
		driver_result result = DRIVER_ERROR_NOT_FOUND;

		load_file_close(&file);
		if (load) {
			result = real_cuLibraryLoadData(library, load_image(load), jit_options, jit_values, jit_count, options,
							values, count);
			if (!result) {
				load_commit(load, LOAD_LIBRARY, *library);
				return 0;
			}
			load_refused(load, result);
		}
	}
	return real_cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options, values, count);
}

WRAP(cuModuleLoadData, driver_handle *module, const void *image)
{
	if (!have_cuModuleLoadData())
		return DRIVER_ERROR_NOT_FOUND;
#define TRY(image) real_cuModuleLoadData(module, image)
	LOAD(image, LOAD_MODULE, module, TRY);
#undef TRY
}

WRAP(cuModuleLoadDataEx, driver_handle *module, const void *image, unsigned count, void *options, void *values)
{
	if (!have_cuModuleLoadDataEx())
		return DRIVER_ERROR_NOT_FOUND;
#define TRY(image) real_cuModuleLoadDataEx(module, image, count, options, values)
	LOAD(image, LOAD_MODULE, module, TRY);
#undef TRY
}

WRAP(cuModuleLoadFatBinary, driver_handle *module, const void *image)
{
	if (!have_cuModuleLoadFatBinary())
		return DRIVER_ERROR_NOT_FOUND;
#define TRY(image) real_cuModuleLoadFatBinary(module, image)
	LOAD(image, LOAD_MODULE, module, TRY);
#undef TRY
}

WRAP(cuModuleLoad, driver_handle *module, const char *path)
{
	struct load_file file;

	if (!have_cuModuleLoad())
		return DRIVER_ERROR_NOT_FOUND;
	if (load_file_open(&file, path) && have_cuModuleLoadData()) {
		struct load *load = load_replace(file.data);
		driver_result result;

		load_file_close(&file);
		if (load) {
			result = real_cuModuleLoadData(module, load_image(load));
			if (!result) {
				load_commit(load, LOAD_MODULE, *module);
				return 0;
			}
			load_refused(load, result);
		}
	}
	return real_cuModuleLoad(module, path);
}

WRAP(cuLibraryUnload, driver_handle library)
{
	struct load *load;
	driver_result result;

	if (!have_cuLibraryUnload())
		return DRIVER_ERROR_NOT_FOUND;
	load = load_begin_unload(LOAD_LIBRARY, library);
	result = real_cuLibraryUnload(library);
	if (load)
		load_end_unload(load);
	return result;
}

WRAP(cuModuleUnload, driver_handle module)
{
	struct load *load;
	driver_result result;

	if (!have_cuModuleUnload())
		return DRIVER_ERROR_NOT_FOUND;
	load = load_begin_unload(LOAD_MODULE, module);
	result = real_cuModuleUnload(module);
	if (load)
		load_end_unload(load);
	return result;
}

/* ---- launching: probed modules are armed in the current context before their first kernel runs there --------- */

#define LAUNCH(name, arguments, ...)                                \
	WRAP(name, __VA_ARGS__)                                     \
	{                                                           \
		if (__builtin_expect(!have_##name(), 0))            \
			return DRIVER_ERROR_NOT_FOUND;              \
		if (__builtin_expect(arm_needed(), 0))              \
			arm_current();                              \
		return real_##name arguments;                       \
	}

#define LAUNCH_KERNEL(name)                                                                                            \
	LAUNCH(name, (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), driver_handle function,    \
	       unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,          \
	       driver_handle stream, void **parameters, void **extra)
#define LAUNCH_KERNEL_EX(name)                                                                                     \
	LAUNCH(name, (configuration, function, parameters, extra), const void *configuration, driver_handle function, \
	       void **parameters, void **extra)
#define LAUNCH_COOPERATIVE(name)                                                                                       \
	LAUNCH(name, (function, gx, gy, gz, bx, by, bz, shared, stream, parameters), driver_handle function, unsigned gx, \
	       unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, driver_handle stream, \
	       void **parameters)
#define LAUNCH_GRAPH(name) LAUNCH(name, (graph, stream), driver_handle graph, driver_handle stream)

LAUNCH_KERNEL(cuLaunchKernel)
LAUNCH_KERNEL(cuLaunchKernel_ptsz)
LAUNCH_KERNEL_EX(cuLaunchKernelEx)
LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)
LAUNCH_GRAPH(cuGraphLaunch)
LAUNCH_GRAPH(cuGraphLaunch_ptsz)

/* ---- the end of a context: what its instances hold is copied out first --------------------------------------- */

#define DESTROY_CONTEXT(name)                         \
	WRAP(name, driver_handle context)             \
	{                                             \
		if (!have_##name())                   \
			return DRIVER_ERROR_NOT_FOUND; \
		arm_context_ends(context);            \
		return real_##name(context);          \
	}
DESTROY_CONTEXT(cuCtxDestroy)
DESTROY_CONTEXT(cuCtxDestroy_v2)

#define RELEASE_PRIMARY(name)                         \
	WRAP(name, int device)                        \
	{                                             \
		driver_result result;                 \
                                                      \
		if (!have_##name())                   \
			return DRIVER_ERROR_NOT_FOUND; \
		arm_primary_may_end(device);          \
		result = real_##name(device);         \
		arm_primary_ended(device);            \
		return result;                        \
	}
RELEASE_PRIMARY(cuDevicePrimaryCtxRelease)
RELEASE_PRIMARY(cuDevicePrimaryCtxRelease_v2)
RELEASE_PRIMARY(cuDevicePrimaryCtxReset)
RELEASE_PRIMARY(cuDevicePrimaryCtxReset_v2)

#define ENTRY(name) { #name, (void *)name, (void **)&real_##name }

const struct wrapper wrappers[] = {
	ENTRY(cuCtxDestroy),
	ENTRY(cuCtxDestroy_v2),
	ENTRY(cuDevicePrimaryCtxRelease),
	ENTRY(cuDevicePrimaryCtxRelease_v2),
	ENTRY(cuDevicePrimaryCtxReset),
	ENTRY(cuDevicePrimaryCtxReset_v2),
	ENTRY(cuGetProcAddress),
	ENTRY(cuGetProcAddress_v2),
	ENTRY(cuGraphLaunch),
	ENTRY(cuGraphLaunch_ptsz),
	ENTRY(cuLaunchCooperativeKernel),
	ENTRY(cuLaunchCooperativeKernel_ptsz),
	ENTRY(cuLaunchKernel),
	ENTRY(cuLaunchKernelEx),
	ENTRY(cuLaunchKernelEx_ptsz),
	ENTRY(cuLaunchKernel_ptsz),
	ENTRY(cuLibraryLoadData),
	ENTRY(cuLibraryLoadFromFile),
	ENTRY(cuLibraryUnload),
	ENTRY(cuModuleLoad),
	ENTRY(cuModuleLoadData),
	ENTRY(cuModuleLoadDataEx),
	ENTRY(cuModuleLoadFatBinary),
	ENTRY(cuModuleUnload),
};
const size_t wrapper_count = sizeof(wrappers) / sizeof(wrappers[0]);
