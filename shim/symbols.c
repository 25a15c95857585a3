/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who gets our wrapper instead of a driver function: callers of dlsym and of cuGetProcAddress. Both call the real one first and
 * swap only what it found. (Programs that link libcuda.so.1 bind to our exported wrappers without being asked.)
 *
 * Nothing here makes a syscall or takes a lock of ours; what is written are pointers that every writer would set to the same.
 */

#include "symbols.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>

#include "driver.h"

void *shim_dlsym(void *handle, const char *name);

/* Read by dlsym.S after shim_dlsym has returned NULL. */
void *(*shim_real_dlsym)(void *, const char *) __attribute__((visibility("hidden")));

static void *real_dlsym(void *handle, const char *name)
{
	if (!shim_real_dlsym) {
		void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
		shim_real_dlsym = (void *(*)(void *, const char *))found;
	}
	return shim_real_dlsym ? shim_real_dlsym(handle, name) : NULL;
}

/* The wrapper with exactly this name, or NULL. The table is sorted by name. */
static const struct wrapper *find(const char *name)
{
	size_t low = 0, high = wrapper_count;

	if (name[0] != 'c' || name[1] != 'u')
		return NULL;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, wrappers[middle].name);

		if (!order)
			return &wrappers[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* What dlsym returns, or NULL: then dlsym.S goes on with the real one, which is resolved by now. */
void *shim_dlsym(void *handle, const char *name)
{
	const struct wrapper *wrapper;
	void *real;

	if (!shim_real_dlsym)
		real_dlsym(RTLD_DEFAULT, "dlsym");
	if (!name || handle == RTLD_NEXT)
		return NULL;
	wrapper = find(name);
	if (!wrapper || getauxval(AT_SECURE))
		return NULL;
	real = real_dlsym(handle, name);
	if (!real)
		return NULL; /* asked again by the jump, so that dlerror() speaks of the caller's lookup */
	if (real != wrapper->function)
		*wrapper->real = real;
	return wrapper->function;
}

void *driver_symbol(const char *name)
{
	static void *driver;

	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	return driver ? real_dlsym(driver, name) : NULL;
}

/* The wrapper for what cuGetProcAddress has found under a name without version suffix. */
static const struct wrapper *find_found(const char *name, void *found, int per_thread)
{
	char suffixed[64];
	size_t length = strlen(name);

	if (!strcmp(name, "cuGetProcAddress")) /* versions with different arguments: which one was found? */
		return find(found == driver_symbol("cuGetProcAddress_v2") ? "cuGetProcAddress_v2" : name);
	if (per_thread && length < sizeof(suffixed) - 6) {
		memcpy(suffixed, name, length);
		memcpy(suffixed + length, "_ptsz", 6);
		if (find(suffixed))
			return find(suffixed);
	}
	return find(name);
}

void symbols_swap(const char *name, void **found, uint64_t flags)
{
	const struct wrapper *wrapper;

	if (!name || name[0] != 'c' || name[1] != 'u' || !found || !*found || getauxval(AT_SECURE))
		return;
	wrapper = find_found(name, *found, !!(flags & DRIVER_PROC_ADDRESS_PER_THREAD));
	if (!wrapper || *found == wrapper->function)
		return;
	*wrapper->real = *found;
	*found = wrapper->function;
}
