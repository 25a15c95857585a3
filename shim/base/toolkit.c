/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds and loads a library of NVIDIA's toolkit for the sanitizer engine or for CUPTI (toolkit.h).
 * It looks beside the toolkit that the process has loaded (installed, or in wheels of Python); then
 * where $CUDA_HOME and $CUDA_PATH say; then where packages install it, the newest first; then where
 * the loader looks. The environment is the application's, so it is read by secure_getenv().
 */

#include "toolkit.h"

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

/* The folders of libraries of the toolkit that are loaded: what lies beside belongs to them. */
struct loaded {
	char folders[TOOLKITS_MAX][PATH_MAX];
	unsigned count;
};

/* What is looked for, and what became of it. */
struct search {
	const struct toolkit_library *library;
	char *line;
	size_t size;
	bool failed; /* one was there: line says why it cannot be loaded */
};

static int add_loaded(struct dl_phdr_info *info, size_t size, void *data) {
	static const char *const names[] = { "libcudart.so", "libnvrtc.so", "libcublas.so",
					     "libnvJitLink.so" };
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

static void *open_file(struct search *search, const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(search->line, search->size, "%s cannot be loaded: %.400s",
			 search->library->what, dlerror());
		search->failed = true;
	}
	return library;
}

/* Opens the library in folder/below, if it is there. */
static void *open_in(struct search *search, const char *folder, const char *below) {
	char path[PATH_MAX];
	void *library = NULL;

	for (const char *const *name = search->library->names; !library && *name; name++)
		if (snprintf(path, sizeof(path), "%s%s/%s", folder, below, *name) <
			    (int)sizeof(path) &&
		    !access(path, R_OK))
			library = open_file(search, path);
	return library;
}

static void *open_beside_loaded(struct search *search) {
	struct loaded *loaded = calloc(1, sizeof(*loaded));
	void *library = NULL;

	if (!loaded)
		return NULL;
	dl_iterate_phdr(add_loaded, loaded);
	for (unsigned n = 0; !library && n < loaded->count; n++)
		for (const char *const *below = search->library->beside; !library && *below;
		     below++)
			library = open_in(search, loaded->folders[n], *below);
	free(loaded);
	return library;
}

static void *open_below(struct search *search, const char *toolkit) {
	void *library = NULL;

	for (const char *const *below = search->library->below; !library && *below; below++)
		library = open_in(search, toolkit, *below);
	return library;
}

static int newer_first(const void *a, const void *b) {
	return strverscmp(*(char *const *)b, *(char *const *)a);
}

static void *open_installed(struct search *search) {
	static const char *const variables[] = { "CUDA_HOME", "CUDA_PATH" };
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
			library = open_below(search, folder);
	}
	for (size_t n = 0; !library && n < sizeof(patterns) / sizeof(patterns[0]); n++) {
		glob_t found = { 0 };

		if (!glob(patterns[n], GLOB_NOSORT, NULL, &found)) {
			qsort(found.gl_pathv, found.gl_pathc, sizeof(found.gl_pathv[0]),
			      newer_first);
			for (size_t k = 0; !library && k < found.gl_pathc; k++)
				library = open_below(search, found.gl_pathv[k]);
		}
		globfree(&found);
	}
	return library;
}

void *toolkit_open(const struct toolkit_library *wanted, const char *path, char *line,
		   size_t size) {
	struct search search = { .library = wanted, .line = line, .size = size };
	void *library;

	if (path && path[0]) {
		if (path[0] == '/')
			return open_file(&search, path);
		snprintf(line, size, "%s cannot be loaded: its path is not absolute", wanted->what);
		return NULL;
	}
	library = open_beside_loaded(&search);
	if (!library)
		library = open_installed(&search);
	for (const char *const *name = wanted->names; !library && *name; name++)
		library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
	if (!library && !search.failed)
		snprintf(line, size, "%s", wanted->missing);
	return library;
}
