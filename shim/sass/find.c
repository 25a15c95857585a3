/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where NVIDIA's library is: beside the toolkit that the process has loaded (an installed one, or
 * the wheels of a Python environment), else where $CUDA_HOME and $CUDA_PATH say, else in the places
 * of packages, the newest first, else where the loader looks. The environment is the application's:
 * secure_getenv().
 */

#include "find.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOLKITS_MAX 8

static char line[512];

/* The folders of libraries of the toolkit that are loaded: what lies beside belongs to them. */
struct loaded {
	char folders[TOOLKITS_MAX][PATH_MAX];
	unsigned count;
};

static int add_loaded(struct dl_phdr_info *info, size_t size, void *data)
{
	static const char *const names[] = {"libcudart.so", "libnvrtc.so", "libcublas.so",
					    "libnvJitLink.so"};
	struct loaded *loaded = data;
	const char *base = strrchr(info->dlpi_name, '/');
	size_t length = base ? (size_t)(base - info->dlpi_name) : 0;

	if (!length || length >= PATH_MAX)
		return 0;
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		if (!strncmp(base + 1, names[n], strlen(names[n])) &&
		    loaded->count < TOOLKITS_MAX) {
			memcpy(loaded->folders[loaded->count], info->dlpi_name, length);
			loaded->folders[loaded->count++][length] = '\0';
			return 0;
		}
	return 0;
}

/* Opens folder/below/library if it is there; *failed: why one cannot be loaded. */
static void *open_in(const char *folder, const char *below, bool *failed)
{
	char path[PATH_MAX];
	void *library;

	if (snprintf(path, sizeof(path), "%s%s/" SANITIZER_LIBRARY, folder, below) >=
		    (int)sizeof(path) ||
	    access(path, R_OK))
		return NULL;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(line, sizeof(line), "NVIDIA's patching library cannot be loaded: %.400s",
			 dlerror());
		*failed = true;
	}
	return library;
}

static void *open_beside_loaded(bool *failed)
{
	static const char *const below[] = {
		"/../compute-sanitizer", /* <toolkit>/lib64, and wheels since 13.1 */
		"/../../../compute-sanitizer", /* <toolkit>/targets/<machine>/lib */
		"", /* wheels for 13.0 */
		"/../../cuda_sanitizer_api/lib", /* wheels for 12 */
	};
	struct loaded *loaded = calloc(1, sizeof(*loaded));
	void *library = NULL;

	if (!loaded)
		return NULL;
	dl_iterate_phdr(add_loaded, loaded);
	for (unsigned n = 0; !library && n < loaded->count; n++)
		for (size_t k = 0; !library && k < sizeof(below) / sizeof(below[0]); k++)
			library = open_in(loaded->folders[n], below[k], failed);
	free(loaded);
	return library;
}

static int newer_first(const void *a, const void *b)
{
	return strverscmp(*(char *const *)b, *(char *const *)a);
}

static void *open_installed(bool *failed)
{
	static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
	static const char *const patterns[] = {
		"/usr/local/cuda",
		"/usr/local/cuda-[0-9]*",
		"/opt/cuda",
		"/opt/nvidia/hpc_sdk/Linux_*/*/cuda/[0-9]*",
		"/usr/lib/nvidia-cuda-toolkit",
	};
	void *library = NULL;

	for (size_t n = 0; !library && n < sizeof(variables) / sizeof(variables[0]); n++) {
		const char *folder = secure_getenv(variables[n]);

		if (folder && folder[0] == '/')
			library = open_in(folder, "/compute-sanitizer", failed);
	}
	for (size_t n = 0; !library && n < sizeof(patterns) / sizeof(patterns[0]); n++) {
		glob_t found = {0};

		if (!glob(patterns[n], GLOB_NOSORT, NULL, &found)) {
			qsort(found.gl_pathv, found.gl_pathc, sizeof(found.gl_pathv[0]),
			      newer_first);
			for (size_t k = 0; !library && k < found.gl_pathc; k++)
				library = open_in(found.gl_pathv[k], "/compute-sanitizer", failed);
		}
		globfree(&found);
	}
	return library;
}

static void *open_library(const char *path)
{
	bool failed = false;
	void *library;

	if (path && path[0]) {
		library = path[0] == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
		if (!library)
			snprintf(line, sizeof(line),
				 "NVIDIA's patching library cannot be loaded: %.400s",
				 path[0] == '/' ? dlerror() : "its path is not absolute");
		return library;
	}
	library = open_beside_loaded(&failed);
	if (!library)
		library = open_installed(&failed);
	if (!library)
		library = dlopen(SANITIZER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!library && !failed)
		snprintf(line, sizeof(line),
			 SANITIZER_LIBRARY " is not installed (CUDA toolkit: compute-sanitizer)");
	return library;
}

const char *find_sanitizer(const char *path, struct sanitizer *table)
{
	void *library = open_library(path);
	struct sanitizer found;
	const char *missing = NULL;

	if (!library)
		return line;
#define X(field, name, arguments)                                                                  \
	found.field = (__typeof__(found.field))dlsym(library, name);                               \
	if (!found.field && !missing)                                                              \
		missing = name;
	SANITIZER_FUNCTIONS(X)
#undef X
	if (missing) {
		snprintf(line, sizeof(line),
			 "NVIDIA's patching library has no %s: CUDA 12.3 is the oldest that will do",
			 missing);
		return line;
	}
	*table = found;
	return NULL;
}

static int find_tool(struct dl_phdr_info *info, size_t size, void *data)
{
	static const struct {
		const char *library, *tool;
	} tools[] = {
		{"/libsanitizer-collection.so", "compute-sanitizer"},
		{"/libInterceptorInjectionTarget.so", "compute-sanitizer or Nsight"},
		{"/libcuda-injection.so", "Nsight Compute"},
		{"/libToolsInjection64.so", "Nsight Systems"},
	};
	const char **tool = data;

	for (size_t n = 0; n < sizeof(tools) / sizeof(tools[0]); n++)
		if (strstr(info->dlpi_name, tools[n].library)) {
			*tool = tools[n].tool;
			return 1;
		}
	return 0;
}

const char *find_other_tool(void)
{
	const char *injected = secure_getenv("CUDA_INJECTION64_PATH"), *tool = NULL;

	dl_iterate_phdr(find_tool, &tool);
	if (!tool && injected && injected[0])
		tool = "a library in CUDA_INJECTION64_PATH";
	return tool;
}
