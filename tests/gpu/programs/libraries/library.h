// SPDX-License-Identifier: Apache-2.0
// Libraries that may be missing, and whose headers are not in every toolkit: opened while the
// program runs.
#pragma once
#include <dlfcn.h>
#include "../result.h"

inline void *open_library(const char *name) {
	void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		skip(name);
	return library;
}

template <class Function> Function *function_of(void *library, const char *name) {
	void *address = dlsym(library, name);

	if (!address)
		skip(name);
	return (Function *)address;
}
