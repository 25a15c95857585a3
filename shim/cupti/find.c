/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Chooses the libcupti.so to use (find.h). The one that the process has loaded, as PyTorch does,
 * goes first, because two of them do not know of each other.
 */

#include "find.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "shim/base/toolkit.h"

static char line[512];

static const struct toolkit_library profiling = {
	.what = "CUPTI",
	.missing = "libcupti.so is not installed (CUDA toolkit: extras/CUPTI; wheels: "
		   "nvidia-cuda-cupti)",
	.names = (const char *const[]){ "libcupti.so.13", "libcupti.so.12", "libcupti.so", NULL },
	.beside =
		(const char *const[]){
			"", /* wheels for 13, packages of toolkits */
			"/../extras/CUPTI/lib64", /* <toolkit>/lib64 */
			"/../../../extras/CUPTI/lib64", /* <toolkit>/targets/<machine>/lib */
			"/../../cuda_cupti/lib", /* wheels for 12 */
			NULL,
		},
	.below = (const char *const[]){ "/extras/CUPTI/lib64", "/lib64", NULL },
};

static int find_loaded(struct dl_phdr_info *info, size_t size, void *data) {
	const char *base = strrchr(info->dlpi_name, '/');
	char *path = data;

	if (!base || strncmp(base + 1, "libcupti.so", strlen("libcupti.so")) != 0 ||
	    strlen(info->dlpi_name) >= PATH_MAX)
		return 0;
	strcpy(path, info->dlpi_name);
	return 1;
}

const char *find_cupti(const char *path, struct cupti *table) {
	char loaded[PATH_MAX] = "";
	struct cupti found;
	const char *missing = NULL;
	void *library = NULL;

	if (dl_iterate_phdr(find_loaded, loaded))
		library = dlopen(loaded, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (!library)
		library = toolkit_open(&profiling, path, line, sizeof(line));
	if (!library)
		return line;
#define X(field, name, arguments)                                    \
	found.field = (__typeof__(found.field))dlsym(library, name); \
	if (!found.field && !missing)                                \
		missing = name;
	CUPTI_FUNCTIONS(X)
#undef X
	if (missing) {
		snprintf(line, sizeof(line),
			 "CUPTI has no %s: CUDA 11.6 is the oldest that will do", missing);
		return line;
	}
	found.subscribe_named =
		(__typeof__(found.subscribe_named))dlsym(library, "cuptiSubscribe_v2");
	*table = found;
	return NULL;
}
