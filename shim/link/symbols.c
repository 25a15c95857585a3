/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Answers cuGetProcAddress and looks up functions of the driver by name (symbols.h).
 *
 * The driver's functions by their names: for ourselves as they are, for callers of cuGetProcAddress
 * as trampolines. It gives pointers that the dynamic linker does not see (libcuda.c); we call the
 * driver's first and swap only what it found.
 *
 * A program may try one driver after another (a stub of a toolkit first, whose cuInit fails) and
 * unload it. So the driver is no more than looked at until it is in use.
 *
 * Nothing here takes a lock of ours. dlerror() says after us what it would say without us: glibc
 * forgets an error at the next dl* call that succeeds.
 */

#include "symbols.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "beside.h"
#include "dlsym.h"
#include "driver.h"
#include "libcuda.h"
#include "trampoline.h"

#define NAME_MAX_LENGTH 64
#define CUDA_12 12000
#define HOLD_LIBRARY "libgpuprobe-hold.so"

static bool kept; /* the driver is in use: from then on it stays */

void *driver_symbol(const char *name) {
	return libcuda_function(trampoline_find(name));
}

/* Without libgpuprobe-hold.so (hold/hold.c) it is held less well: dlclose() never fails. */
static bool hold(const char *driver) {
	void *held = beside_open(HOLD_LIBRARY, 0);

	if (held)
		return true;
	held = dlopen(driver, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	if (held)
		dlclose(held);
	return held;
}

void driver_keep(void) {
	Dl_info info;

	if (!driver_is_kept() && dladdr(driver_symbol("cuInit"), &info) && hold(info.dli_fname))
		__atomic_store_n(&kept, true, __ATOMIC_RELEASE);
}

bool driver_is_kept(void) {
	return __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
}

bool driver_is_in_use(void) {
	driver_result (*get_current)(driver_handle *);
	driver_handle context;

	if (driver_is_kept())
		return true;
	/* who has begun it has gone by us, or it was not kept in time: does it answer? */
	*(void **)&get_current = driver_symbol("cuCtxGetCurrent");
	if (get_current && get_current(&context) == 0)
		driver_keep();
	return driver_is_kept();
}

/* Is it a name of the same function, of another version or for other streams? */
static int is_version(const char *suffix) {
	return !*suffix || !strncmp(suffix, "_v", 2) || !strncmp(suffix, "_pt", 3);
}

/* The trampoline of a version of `name` that stands for what was found. */
static int find_version(const char *name, const void *found, bool per_thread) {
	size_t length = strlen(name);
	int first = trampoline_lower_bound(name), last = first;

	while (last < FUNCTION_COUNT && !strncmp(trampoline_name(last), name, length))
		last++;
	while (--last >= first) {
		const char *suffix = trampoline_name(last) + length;

		if (is_version(suffix) && (strstr(suffix, "_pt") != NULL) == per_thread &&
		    libcuda_function(last) == found)
			return last;
	}
	return TRAMPOLINE_NONE;
}

/* The trampoline of name + suffix, if that is a function with a wrapper. */
static int find_suffixed(const char *name, const char *suffix) {
	char full[NAME_MAX_LENGTH + 8];
	size_t length = strlen(name);
	int index;

	if (length > NAME_MAX_LENGTH)
		return TRAMPOLINE_NONE;
	memcpy(full, name, length);
	strcpy(full + length, suffix);
	index = trampoline_find(full);
	return index != TRAMPOLINE_NONE && trampoline_has_wrapper(index) ? index : TRAMPOLINE_NONE;
}

/* The driver exports it under no name at all: which function it is say the rules of the driver. */
static int find_by_rules(const char *name, int version, bool per_thread) {
	int index = TRAMPOLINE_NONE;

	/* the one function that has another name there */
	if (version >= CUDA_12 && !strcmp(name, "cuGraphInstantiate"))
		return FUNCTION_cuGraphInstantiateWithFlags;
	if (per_thread)
		index = find_suffixed(name, "_ptsz");
	if (index == TRAMPOLINE_NONE &&
	    (strcmp(name, "cuGetProcAddress") != 0 || version >= CUDA_12))
		index = find_suffixed(name, "_v2");
	return index == TRAMPOLINE_NONE ? find_suffixed(name, "") : index;
}

/*
 * cuGetProcAddress gives many versions of a function under one name. Which one was found tells its
 * address.
 */
static int find_found(const char *name, void *found, int version, bool per_thread) {
	int index = per_thread ? find_version(name, found, true) : TRAMPOLINE_NONE;

	if (index == TRAMPOLINE_NONE)
		index = find_version(name, found, false);
	if (index == TRAMPOLINE_NONE)
		index = libcuda_index(found);
	return index != TRAMPOLINE_NONE ? index : find_by_rules(name, version, per_thread);
}

void symbols_swap(const char *name, void **found, int version, uint64_t flags) {
	int index;

	if (!name || !found || !*found || !dlsym_is_of_interest(name) || trampoline_is_ours(*found))
		return; /* a driver that refers to its own exported functions finds ours */
	index = find_found(name, *found, version, !!(flags & DRIVER_PROC_ADDRESS_PER_THREAD));
	if (index == TRAMPOLINE_NONE)
		return;
	if (!libcuda_function(index))
		trampoline_set(index, *found);
	*found = trampoline_function(index);
}
