/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Opens a library that lies in the shim's own folder (beside.h), and checks its version. The SASS
 * engine, the CUPTI part and libgpuprobe-hold.so are loaded this way.
 */

#include "beside.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "shim/libc/real-dlsym.h"

#define PATH_SIZE 4096

static bool find(char path[PATH_SIZE], const char *library) {
	const char *slash;
	Dl_info self;

	if (!dladdr((const void *)beside_load, &self) || !self.dli_fname)
		return false;
	slash = strrchr(self.dli_fname, '/');
	return (size_t)snprintf(path, PATH_SIZE, "%.*s%s",
				slash ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname,
				library) < PATH_SIZE;
}

void *beside_open(const char *library, int mode) {
	char path[PATH_SIZE];
	void *handle = find(path, library) ? dlopen(path, RTLD_NOW | RTLD_LOCAL | mode) : NULL;

	if (!handle)
		dlerror();
	return handle;
}

enum beside_result beside_load(const char *library, const char *entry, uint32_t abi,
			       const void **table) {
	const void *(*function)(void);
	const uint32_t *found;
	char path[PATH_SIZE];
	void *handle;

	if (!find(path, library))
		return BESIDE_NO_PLACE;
	handle = beside_open(library, RTLD_NODELETE);
	if (!handle)
		return BESIDE_MISSING;
	function = (const void *(*)(void))dlsym_real(handle, entry);
	found = function ? function() : NULL;
	if (!found || *found != abi) {
		dlerror();
		return BESIDE_OTHER;
	}
	*table = found;
	return BESIDE_OK;
}
