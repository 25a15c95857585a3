/* SPDX-License-Identifier: Apache-2.0 */

#include "beside.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum beside_result beside_load(const char *library, const char *entry, uint32_t abi,
			       const void **table)
{
	const void *(*function)(void);
	const uint32_t *found;
	const char *slash;
	char path[4096];
	void *handle;
	Dl_info self;

	if (!dladdr((const void *)beside_load, &self) || !self.dli_fname)
		return BESIDE_NO_PLACE;
	slash = strrchr(self.dli_fname, '/');
	if ((size_t)snprintf(path, sizeof(path), "%.*s%s",
			     slash ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname,
			     library) >= sizeof(path))
		return BESIDE_NO_PLACE;
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		dlerror();
		return BESIDE_MISSING;
	}
	function = (const void *(*)(void))dlsym(handle, entry);
	found = function ? function() : NULL;
	if (!found || *found != abi) {
		dlerror();
		return BESIDE_OTHER;
	}
	*table = found;
	return BESIDE_OK;
}
