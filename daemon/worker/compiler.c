/* SPDX-License-Identifier: Apache-2.0 */

/*
 * nvJitLink through dlopen. The plain names are aliases of the newest version of each function that a library has, and
 * their types have been the same from 12.0 to 13.x; they are what is looked up.
 */

#include "compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_MAX (1024 * 1024)
#define OPTIONS_MAX 64

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

struct compiler {
	void *library;
	unsigned int version;
	int (*create)(nvjitlink_handle *handle, uint32_t n_options, const char **options);
	int (*destroy)(nvjitlink_handle *handle);
	int (*add_data)(nvjitlink_handle handle, int type, const void *data, size_t size, const char *name);
	int (*complete)(nvjitlink_handle handle);
	int (*get_cubin_size)(nvjitlink_handle handle, size_t *size);
	int (*get_cubin)(nvjitlink_handle handle, void *cubin);
	int (*get_log_size)(nvjitlink_handle handle, size_t *size);
	int (*get_log)(nvjitlink_handle handle, char *log);
	int (*get_version)(unsigned int *major, unsigned int *minor);
};

static void *open_library(const char *toolkit)
{
	static const char *const names[] = { "libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so" };
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

static int find_functions(struct compiler *compiler)
{
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {
		{ "nvJitLinkCreate", offsetof(struct compiler, create) },
		{ "nvJitLinkDestroy", offsetof(struct compiler, destroy) },
		{ "nvJitLinkAddData", offsetof(struct compiler, add_data) },
		{ "nvJitLinkComplete", offsetof(struct compiler, complete) },
		{ "nvJitLinkGetLinkedCubinSize", offsetof(struct compiler, get_cubin_size) },
		{ "nvJitLinkGetLinkedCubin", offsetof(struct compiler, get_cubin) },
		{ "nvJitLinkGetErrorLogSize", offsetof(struct compiler, get_log_size) },
		{ "nvJitLinkGetErrorLog", offsetof(struct compiler, get_log) },
		{ "nvJitLinkVersion", offsetof(struct compiler, get_version) },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(compiler->library, functions[i].name);

		if (!function)
			return COMPILER_E_NONE;
		memcpy((char *)compiler + functions[i].offset, &function, sizeof(function));
	}
	return 0;
}

int compiler_new(struct compiler **out, const char *toolkit, const char **why)
{
	unsigned int major, minor;
	struct compiler *compiler;

	compiler = calloc(1, sizeof(*compiler));
	if (!compiler)
		return -ENOMEM;
	compiler->library = open_library(toolkit);
	if (!compiler->library || find_functions(compiler)) {
		*why = dlerror();
		compiler_free(compiler);
		return COMPILER_E_NONE;
	}
	if (compiler->get_version(&major, &minor)) {
		*why = "nvJitLink does not tell its version";
		compiler_free(compiler);
		return COMPILER_E_NONE;
	}
	compiler->version = major * 100 + minor;
	*out = compiler;
	return 0;
}

struct compiler *compiler_free(struct compiler *compiler)
{
	if (!compiler)
		return NULL;
	if (compiler->library)
		dlclose(compiler->library);
	free(compiler);
	return NULL;
}

unsigned int compiler_version(const struct compiler *compiler)
{
	return compiler->version;
}

/* The error log, NULL if there is none. The compiler counts the NUL in the size, or not: both are allowed for. */
static char *read_log(struct compiler *compiler, nvjitlink_handle handle)
{
	size_t size = 0;
	char *log;

	if (compiler->get_log_size(handle, &size) || size <= 1 || size > LOG_MAX)
		return NULL;
	log = calloc(1, size + 1);
	if (log && compiler->get_log(handle, log)) {
		free(log);
		log = NULL;
	}
	return log;
}

static int read_cubin(struct compiler *compiler, nvjitlink_handle handle, uint8_t **cubin, size_t *size)
{
	uint8_t *bytes;
	size_t n;

	if (compiler->get_cubin_size(handle, &n) || !n)
		return COMPILER_E_INTERNAL;
	bytes = malloc(n);
	if (!bytes)
		return -ENOMEM;
	if (compiler->get_cubin(handle, bytes)) {
		free(bytes);
		return COMPILER_E_INTERNAL;
	}
	*cubin = bytes;
	*size = n;
	return 0;
}

static int from_result(int result)
{
	switch (result) {
	case NVJITLINK_SUCCESS:
		return 0;
	case NVJITLINK_ERROR_UNRECOGNIZED_OPTION:
		return COMPILER_E_OPTION;
	case NVJITLINK_ERROR_PTX_COMPILE:
	case NVJITLINK_ERROR_FINALIZE:
		return COMPILER_E_SOURCE;
	case NVJITLINK_ERROR_UNRECOGNIZED_ARCH:
	case NVJITLINK_ERROR_UNSUPPORTED_ARCH:
		return COMPILER_E_ARCH;
	}
	return COMPILER_E_INTERNAL;
}

int compiler_compile(struct compiler *compiler, const char *ptx, size_t length, const char *arch,
		     const char *const *options, size_t n_options, uint8_t **cubin, size_t *size, char **log)
{
	const char *all[OPTIONS_MAX];
	char arch_option[32];
	nvjitlink_handle handle;
	int r;

	*log = NULL;
	if (n_options >= OPTIONS_MAX)
		return COMPILER_E_OPTION;
	snprintf(arch_option, sizeof(arch_option), "-arch=%s", arch);
	all[0] = arch_option;
	for (size_t i = 0; i < n_options; i++)
		all[i + 1] = options[i];
	r = from_result(compiler->create(&handle, (uint32_t)n_options + 1, all));
	if (r)
		return r;
	/* The NUL behind the text belongs to it, says nvJitLink's manual. */
	r = from_result(compiler->add_data(handle, NVJITLINK_INPUT_PTX, ptx, length + 1, "module.ptx"));
	if (!r)
		r = from_result(compiler->complete(handle));
	if (r)
		*log = read_log(compiler, handle);
	else
		r = read_cubin(compiler, handle, cubin, size);
	compiler->destroy(&handle);
	return r;
}
