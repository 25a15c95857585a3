/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The backend of compiler.c that uses nvJitLink.
 *
 * nvJitLink through dlopen. The plain names are aliases of the newest version of each function that
 * a library has, and their types have been the same from 12.0 to 13.x; they are what is looked up.
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler-backend.h"

/* nvJitLink.h's, as far as used. */
enum {
	NVJITLINK_SUCCESS = 0,
	NVJITLINK_ERROR_UNRECOGNIZED_OPTION = 1,
	NVJITLINK_ERROR_PTX_COMPILE = 4,
	NVJITLINK_ERROR_FINALIZE = 9,
	NVJITLINK_ERROR_UNRECOGNIZED_ARCH = 16,
	NVJITLINK_ERROR_UNSUPPORTED_ARCH = 17,
	NVJITLINK_INPUT_PTX = 2,
};

typedef struct nvJitLink *nvjitlink_handle;

struct jitlink {
	int (*create)(nvjitlink_handle *handle, uint32_t n_options, const char **options);
	int (*destroy)(nvjitlink_handle *handle);
	int (*add_data)(nvjitlink_handle handle, int type, const void *data, size_t size,
			const char *name);
	int (*complete)(nvjitlink_handle handle);
	int (*get_cubin_size)(nvjitlink_handle handle, size_t *size);
	int (*get_cubin)(nvjitlink_handle handle, void *cubin);
	int (*get_log_size)(nvjitlink_handle handle, size_t *size);
	int (*get_log)(nvjitlink_handle handle, char *log);
	int (*get_version)(unsigned int *major, unsigned int *minor);
};

static void *open_library(const char *toolkit) {
	static const char *const names[] = { "libnvJitLink.so.13", "libnvJitLink.so.12",
					     "libnvJitLink.so" };
	static const char *const folders[] = { "lib64", "lib" };
	char path[4096];
	void *library;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (library)
			return library;
	}
	for (size_t i = 0; toolkit && i < sizeof(names) / sizeof(*names); i++) {
		for (size_t j = 0; j < sizeof(folders) / sizeof(*folders); j++) {
			snprintf(path, sizeof(path), "%s/%s/%s", toolkit, folders[j], names[i]);
			library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
			if (library)
				return library;
		}
	}
	return NULL;
}

static int find_functions(struct jitlink *jitlink, void *library) {
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {
		{ "nvJitLinkCreate", offsetof(struct jitlink, create) },
		{ "nvJitLinkDestroy", offsetof(struct jitlink, destroy) },
		{ "nvJitLinkAddData", offsetof(struct jitlink, add_data) },
		{ "nvJitLinkComplete", offsetof(struct jitlink, complete) },
		{ "nvJitLinkGetLinkedCubinSize", offsetof(struct jitlink, get_cubin_size) },
		{ "nvJitLinkGetLinkedCubin", offsetof(struct jitlink, get_cubin) },
		{ "nvJitLinkGetErrorLogSize", offsetof(struct jitlink, get_log_size) },
		{ "nvJitLinkGetErrorLog", offsetof(struct jitlink, get_log) },
		{ "nvJitLinkVersion", offsetof(struct jitlink, get_version) },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			return COMPILER_E_NONE;
		memcpy((char *)jitlink + functions[i].offset, &function, sizeof(function));
	}
	return 0;
}

static int load(void **library, void **state, unsigned int *major, unsigned int *minor,
		const char *modules, const char *toolkit) {
	struct jitlink *jitlink;
	void *opened;

	opened = open_library(toolkit);
	if (!opened)
		return COMPILER_E_NONE;
	jitlink = calloc(1, sizeof(*jitlink));
	if (!jitlink || find_functions(jitlink, opened) || jitlink->get_version(major, minor)) {
		dlclose(opened);
		free(jitlink);
		return jitlink ? COMPILER_E_NONE : -ENOMEM;
	}
	*library = opened;
	*state = jitlink;
	return 0;
}

/* The error log, NULL if there is none. The library counts the NUL in the size, or not: both are
 * allowed for. */
static char *read_log(struct jitlink *jitlink, nvjitlink_handle handle) {
	size_t size = 0;
	char *log;

	if (jitlink->get_log_size(handle, &size) || size <= 1 || size > COMPILER_LOG_MAX)
		return NULL;
	log = calloc(1, size + 1);
	if (log && jitlink->get_log(handle, log)) {
		free(log);
		log = NULL;
	}
	return log;
}

static int read_cubin(struct jitlink *jitlink, nvjitlink_handle handle,
		      struct compiler_request *request) {
	uint8_t *cubin;
	size_t size;

	if (jitlink->get_cubin_size(handle, &size) || !size)
		return COMPILER_E_INTERNAL;
	cubin = malloc(size);
	if (!cubin)
		return -ENOMEM;
	if (jitlink->get_cubin(handle, cubin)) {
		free(cubin);
		return COMPILER_E_INTERNAL;
	}
	request->cubin = cubin;
	request->size = size;
	return 0;
}

static int from_result(int result, const char *log) {
	switch (result) {
	case NVJITLINK_SUCCESS:
		return 0;
	case NVJITLINK_ERROR_UNRECOGNIZED_OPTION:
		return COMPILER_E_OPTION;
	case NVJITLINK_ERROR_PTX_COMPILE:
	case NVJITLINK_ERROR_FINALIZE:
		return log && strstr(log, COMPILER_NEWER_PTX) ? COMPILER_E_NEWER
							      : COMPILER_E_SOURCE;
	case NVJITLINK_ERROR_UNRECOGNIZED_ARCH:
	case NVJITLINK_ERROR_UNSUPPORTED_ARCH:
		return COMPILER_E_NEWER;
	}
	return COMPILER_E_INTERNAL;
}

static int compile(void *state, struct compiler_request *request) {
	struct jitlink *jitlink = state;
	char text[COMPILER_OPTIONS_MAX][96];
	const char *options[COMPILER_OPTIONS_MAX];
	nvjitlink_handle handle;
	int r;

	snprintf(text[0], sizeof(text[0]), "-arch=%s", request->arch);
	options[0] = text[0];
	for (size_t i = 0; i < request->n_options; i++) {
		snprintf(text[i + 1], sizeof(text[i + 1]), "-Xptxas=%s", request->options[i]);
		options[i + 1] = text[i + 1];
	}
	r = from_result(jitlink->create(&handle, (uint32_t)request->n_options + 1, options), NULL);
	if (r)
		return r;
	/* The NUL behind the text belongs to it, says the manual. */
	r = jitlink->add_data(handle, NVJITLINK_INPUT_PTX, request->ptx, request->length + 1,
			      "module.ptx");
	if (!r)
		r = jitlink->complete(handle);
	if (r)
		request->log = read_log(jitlink, handle);
	r = from_result(r, request->log);
	if (!r)
		r = read_cubin(jitlink, handle, request);
	jitlink->destroy(&handle);
	return r;
}

const struct compiler_backend compiler_backend_jitlink = {
	.which = "nvjitlink",
	.name = "nvJitLink",
	.load = load,
	.compile = compile,
};
