/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who gets our wrapper instead of a driver function: callers of dlsym and of cuGetProcAddress. Both
 * call the real one first and swap only what it found. (Programs that link libcuda.so.1 bind to our
 * exported wrappers without being asked.)
 *
 * There may be other interposers. Only functions of the driver itself are swapped, and none that
 * somebody else stands in front of; for programs that link the driver a wrapper calls the next
 * library with that symbol. So nobody is bypassed, and whoever looks for the driver behind himself
 * does not find us in front of him.
 *
 * Nothing here makes a syscall or takes a lock of ours; what is written are pointers that every
 * writer would set to the same. dlerror() says after us what it would say without us: glibc forgets
 * an error at the next dl* call that succeeds.
 */

#include "symbols.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>

#include "driver.h"

#define JUMP ((void *)-1)
#define NAME_MAX_LENGTH 64
#define CUDA_12 12000

void *shim_dlsym(void *handle, const char *name, const void *caller);

/* Read by dlsym.S after shim_dlsym has returned JUMP. */
void *(*shim_real_dlsym)(void *, const char *)__attribute__((visibility("hidden")));

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

static const struct wrapper *find_in(const struct wrapper *table, size_t count, const char *name)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, table[middle].name);

		if (!order)
			return &table[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* The wrapper with exactly this name, or NULL. */
static const struct wrapper *find(const char *name)
{
	if (name[0] != 'c' || name[1] != 'u')
		return NULL;
	return strncmp(name, "cuGraph", 7) ? find_in(wrappers, wrapper_count, name)
					   : find_in(graph_wrappers, graph_wrapper_count, name);
}

void *driver_symbol(const char *name)
{
	static void *driver;

	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	return driver ? real_dlsym(driver, name) : NULL;
}

void *symbols_next(const char *name)
{
	void *found = real_dlsym(RTLD_NEXT, name);

	return found ? found : driver_symbol(name);
}

/* Does another interposer have to do with this function? */
static int is_of_others(const struct wrapper *wrapper, const void *found)
{
	const void *own = driver_symbol(wrapper->name),
		   *next = real_dlsym(RTLD_NEXT, wrapper->name);

	return (next && next != own) ||
	       (found != own && found == real_dlsym(RTLD_DEFAULT, wrapper->name));
}

/*
 * What a lookup would find without us that found our export: the next in the global scope; for
 * RTLD_DEFAULT of a library outside of it also what it brought along.
 */
static void *find_without_us(void *handle, const struct wrapper *wrapper, const void *caller)
{
	void *found = real_dlsym(RTLD_NEXT, wrapper->name), *map = NULL;
	Dl_info info;

	if (!found && handle == RTLD_DEFAULT && dladdr1(caller, &info, &map, RTLD_DL_LINKMAP) &&
	    map)
		found = real_dlsym(map, wrapper->name);
	return found == wrapper->function ? NULL : found;
}

/*
 * What dlsym returns, or JUMP: dlsym.S goes on with the real one, which is known by then. caller:
 * the return address.
 */
void *shim_dlsym(void *handle, const char *name, const void *caller)
{
	const struct wrapper *wrapper;
	void *found;

	if (!shim_real_dlsym)
		real_dlsym(RTLD_DEFAULT, "dlsym");
	if (!name || handle == RTLD_NEXT)
		return JUMP;
	wrapper = find(name);
	if (!wrapper || getauxval(AT_SECURE))
		return JUMP;
	found = real_dlsym(handle, name);
	if (!found)
		return NULL;
	if (found == wrapper->function) {
		found = find_without_us(handle, wrapper, caller);
		if (!found)
			return real_dlsym(RTLD_NEXT,
					  name); /* fails, and so dlerror() speaks of it */
	} else if (found != driver_symbol(name) || is_of_others(wrapper, found)) {
		return JUMP;
	}
	if (!*wrapper->real)
		*wrapper->real = found;
	dlerror();
	return wrapper->function;
}

/*
 * The wrapper called name + suffix, if it stands for the function that was found or nothing has to
 * be found.
 */
static const struct wrapper *find_suffixed(const char *name, const char *suffix, const void *found)
{
	char full[NAME_MAX_LENGTH + 8];
	const struct wrapper *wrapper;
	size_t length = strlen(name);

	if (length > NAME_MAX_LENGTH)
		return NULL;
	memcpy(full, name, length);
	strcpy(full + length, suffix);
	wrapper = find(full);
	return wrapper && (!found || driver_symbol(full) == found) ? wrapper : NULL;
}

/*
 * cuGetProcAddress gives many versions of a function under one name. Which one was found tells its
 * address; if the address is none of the driver's (somebody else interposes), then the rules of the
 * driver tell.
 */
static const struct wrapper *find_found(const char *name, const void *found, int version,
					int per_thread)
{
	static const char *const suffixes[] = { "_v2_ptsz", "_ptsz", "_v2", "" };
	const struct wrapper *wrapper = NULL;

	for (size_t i = per_thread ? 0 : 2; !wrapper && i < 4; i++)
		wrapper = find_suffixed(name, suffixes[i], found);
	/* the one function that has another name there */
	if (!wrapper && version >= CUDA_12 && !strcmp(name, "cuGraphInstantiate"))
		return find("cuGraphInstantiateWithFlags");
	if (!wrapper && per_thread)
		wrapper = find_suffixed(name, "_ptsz", NULL);
	if (!wrapper && (strcmp(name, "cuGetProcAddress") != 0 || version >= CUDA_12))
		wrapper = find_suffixed(name, "_v2", NULL);
	return wrapper ? wrapper : find(name);
}

/* A driver that refers to its own exported functions finds ours. */
static int is_ours(const void *function)
{
	for (size_t i = 0; i < wrapper_count; i++)
		if (wrappers[i].function == function)
			return 1;
	for (size_t i = 0; i < graph_wrapper_count; i++)
		if (graph_wrappers[i].function == function)
			return 1;
	return 0;
}

void symbols_swap(const char *name, void **found, int version, uint64_t flags, int by_driver)
{
	const struct wrapper *wrapper;

	if (!name || name[0] != 'c' || name[1] != 'u' || !found || !*found || getauxval(AT_SECURE))
		return;
	wrapper = find_found(name, *found, version, !!(flags & DRIVER_PROC_ADDRESS_PER_THREAD));
	if (!wrapper || !by_driver || is_ours(*found) || is_of_others(wrapper, *found))
		return;
	if (!*wrapper->real)
		*wrapper->real = *found;
	*found = wrapper->function;
}
