/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Between libgpuprobe-shim.so and libgpuprobe-sass.so, which lies beside it and which it loads in
 * CUDA processes where the sanitizer engine is wanted: before cuInit() reaches the driver. What is
 * in libgpuprobe-sass.so knows NVIDIA's patching library (libsanitizer-public.so) and nothing of
 * daemons; which kernels are patched, and with what, is the shim's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "proto/patch.h"

#define SASS_LIBRARY "libgpuprobe-sass.so"
#define SASS_ENTRY "gpuprobe_sass"
#define SASS_ABI 2

/* What the library tells; called in the threads of the application, from within the driver. */
struct sass_events {
	/*
	 * A module is loaded into a context; the cubin is readable until the function returns.
	 * Patching it here means its first launch.
	 */
	void (*module_loaded)(driver_handle context, driver_handle module, driver_handle library,
			      const void *cubin, size_t size);
	void (*module_unloading)(driver_handle context, driver_handle module);
	/* Functions of a patched module were loaded lazily, and carry the patches now. */
	void (*functions_loaded)(driver_handle context, driver_handle module,
				 const driver_handle *functions, uint32_t count);
	void (*context_ending)(driver_handle context);
};

/*
 * The table that gpuprobe_sass() returns. Functions return NULL, or why not: one line, static.
 * Calls are serialised by the shim.
 */
struct sass_engine {
	uint32_t abi; /* SASS_ABI */
	/*
	 * Subscribes. path: of NVIDIA's library, or empty: where toolkits put it. Once in a
	 * process.
	 */
	const char *(*start)(const char *path, const struct sass_events *events);
	/* Takes the subscription back; modules stay as they are patched. */
	void (*stop)(void);
	/* Loads a patch image into a context; never unloaded (the API has no way). */
	const char *(*load_image)(driver_handle context, const void *image);
	/* Replaces what the module is patched with; its functions get no data until set_data(). */
	const char *(*patch)(driver_handle module, const struct patch_point *points,
			     uint32_t count);
	const char *(*unpatch)(driver_handle module);
	/* The module is gone for good; module_unloading() does not say so, for the driver may
	 * refuse. */
	void (*forget)(driver_handle module);
	/*
	 * What patches in launches of a function get from now on: the address of a struct
	 * patch_data, or 0.
	 */
	const char *(*set_data)(driver_handle function, driver_pointer data);
	/*
	 * Device memory of a context, and a write to it that is done when it returns. May be called
	 * from within events.
	 */
	const char *(*alloc)(driver_handle context, driver_pointer *address, size_t size);
	const char *(*free)(driver_handle context, driver_pointer address);
	const char *(*write)(driver_handle context, driver_pointer address, const void *bytes,
			     size_t size);
};

typedef const struct sass_engine *(*sass_entry)(void);
