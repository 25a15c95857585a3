/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Answers cuGetProcAddress, which gives pointers that the dynamic linker does not see (libcuda.c):
 * the driver's is called first, and only what it found is replaced, by a trampoline.
 *
 * Nothing here takes a lock of ours. dlerror() says after us what it would say without us: glibc
 * forgets an error at the next dl* call that succeeds.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "dlsym.h"
#include "shim/entry/entry.h"
#include "trampoline.h"

#define NAME_MAX_LENGTH 64
#define CUDA_12 12000

/* Is it a name of the same function, of another version or for other streams? */
static int is_version(const char *suffix) {
	return !*suffix || !strncmp(suffix, "_v", 2) || !strncmp(suffix, "_pt", 3);
}

/* The trampoline of a version of `name` that stands for what was found. */
static int find_version(const char *name, const void *found, bool per_thread) {
	size_t length = strlen(name);
	int first = driver_function_lower_bound(name), last = first;

	while (last < FUNCTION_COUNT && !strncmp(driver_function_name(last), name, length))
		last++;
	while (--last >= first) {
		const char *suffix = driver_function_name(last) + length;

		if (is_version(suffix) && (strstr(suffix, "_pt") != NULL) == per_thread &&
		    driver_function_own(last) == found)
			return last;
	}
	return DRIVER_FUNCTION_NONE;
}

/* The trampoline of name + suffix, if that is a function with a wrapper. */
static int find_suffixed(const char *name, const char *suffix) {
	char full[NAME_MAX_LENGTH + 8];
	size_t length = strlen(name);
	int index;

	if (length > NAME_MAX_LENGTH)
		return DRIVER_FUNCTION_NONE;
	memcpy(full, name, length);
	strcpy(full + length, suffix);
	index = driver_function_find(full);
	return index != DRIVER_FUNCTION_NONE && trampoline_has_wrapper(index)
		       ? index
		       : DRIVER_FUNCTION_NONE;
}

/* The driver exports it under no name at all: which function it is say the rules of the driver. */
static int find_by_rules(const char *name, int version, bool per_thread) {
	int index = DRIVER_FUNCTION_NONE;

	/* the one function that has another name there */
	if (version >= CUDA_12 && !strcmp(name, "cuGraphInstantiate"))
		return FUNCTION_cuGraphInstantiateWithFlags;
	if (per_thread)
		index = find_suffixed(name, "_ptsz");
	if (index == DRIVER_FUNCTION_NONE &&
	    (strcmp(name, "cuGetProcAddress") != 0 || version >= CUDA_12))
		index = find_suffixed(name, "_v2");
	return index == DRIVER_FUNCTION_NONE ? find_suffixed(name, "") : index;
}

/*
 * cuGetProcAddress gives many versions of a function under one name. Which one was found tells its
 * address.
 */
static int find_found(const char *name, void *found, int version, bool per_thread) {
	int index = per_thread ? find_version(name, found, true) : DRIVER_FUNCTION_NONE;

	if (index == DRIVER_FUNCTION_NONE)
		index = find_version(name, found, false);
	if (index == DRIVER_FUNCTION_NONE)
		index = driver_function_index(found);
	return index != DRIVER_FUNCTION_NONE ? index : find_by_rules(name, version, per_thread);
}

/* After a cuGetProcAddress, which had these arguments and found a function. */
static void swap(const char *name, void **found, int version, uint64_t flags) {
	int index, saved = errno;

	if (!name || !found || !*found || !dlsym_is_of_interest(name) || trampoline_is_ours(*found))
		return; /* a driver that refers to its own exported functions finds ours */
	index = find_found(name, *found, version, !!(flags & DRIVER_PROC_ADDRESS_PER_THREAD));
	if (index != DRIVER_FUNCTION_NONE) {
		if (!driver_function_own(index))
			trampoline_set(index, *found);
		*found = trampoline_function(index);
	}
	errno = saved;
}

WRAP(cuGetProcAddress, const char *symbol, void **function, int version, uint64_t flags) {
	driver_result result;

	result = REAL(cuGetProcAddress)(symbol, function, version, flags);
	if (!result)
		swap(symbol, function, version, flags);
	return result;
}

WRAP(cuGetProcAddress_v2, const char *symbol, void **function, int version, uint64_t flags,
     void *status) {
	driver_result result;

	result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
	if (!result)
		swap(symbol, function, version, flags);
	return result;
}
