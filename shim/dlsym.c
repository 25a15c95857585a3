/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What all calls of dlsym in the process come by, and nothing more: mostly they have nothing to do
 * with the driver. One of them may be the first thing that the runtime of a sanitizer does, so this
 * file is never built with one (meson.build).
 */

#include "dlsym.h"

#include <dlfcn.h>
#include <stddef.h>
#include <sys/auxv.h>

void *shim_dlsym(void *handle, const char *name, const void *caller);

/* Read by dlsym.S after shim_dlsym has returned DLSYM_JUMP. */
void *(*shim_real_dlsym)(void *, const char *)__attribute__((visibility("hidden")));

/* Finds it; every thread that does finds the same. */
static void *(*find_real(void))(void *, const char *)
{
	void *(*real)(void *, const char *) = __atomic_load_n(&shim_real_dlsym, __ATOMIC_RELAXED);
	void *found;

	if (real)
		return real;
	found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!found)
		found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!found)
		found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
	real = (void *(*)(void *, const char *))found;
	__atomic_store_n(&shim_real_dlsym, real, __ATOMIC_RELAXED);
	return real;
}

void *dlsym_real(void *handle, const char *name)
{
	void *(*real)(void *, const char *) = find_real();

	return real ? real(handle, name) : NULL;
}

int dlsym_is_of_interest(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/*
 * What dlsym returns, or DLSYM_JUMP: dlsym.S goes on with the real one, which is known by then.
 * caller: the return address.
 */
void *shim_dlsym(void *handle, const char *name, const void *caller)
{
	find_real();
	if (!name || handle == RTLD_NEXT || !dlsym_is_of_interest(name) || getauxval(AT_SECURE))
		return DLSYM_JUMP;
	return symbols_dlsym(handle, name, caller);
}
