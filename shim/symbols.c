/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who gets our trampoline instead of a driver function: callers of dlsym and of cuGetProcAddress.
 * Both call the real one first and swap only what it found. (Programs that link libcuda.so.1 bind
 * to our exported trampolines without being asked.)
 *
 * There may be other interposers. Only functions of the driver itself are swapped, and none that
 * somebody else stands in front of; for programs that link the driver a trampoline calls the next
 * library with that symbol. So nobody is bypassed, and whoever looks for the driver behind himself
 * does not find us in front of him.
 *
 * A program may try one driver after another (a stub of a toolkit first, whose cuInit fails) and
 * unload it. So the driver is no more than looked at, and nothing is found once for all, until it
 * is in use.
 *
 * Nothing here makes a syscall or takes a lock of ours; what is written are pointers that every
 * writer would set to the same. dlerror() says after us what it would say without us: glibc forgets
 * an error at the next dl* call that succeeds.
 */

#include "symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

#include "dlsym.h"
#include "driver.h"
#include "trampoline.h"

#define NAME_MAX_LENGTH 64
#define CUDA_12 12000

static void *kept; /* the driver that is in use: from then on it stays */

/* The driver that is loaded, with a reference of ours, or NULL. */
static void *open_driver(void)
{
	return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

void *driver_symbol(const char *name)
{
	void *driver = __atomic_load_n(&kept, __ATOMIC_ACQUIRE), *found;

	if (driver)
		return dlsym_real(driver, name);
	driver = open_driver();
	if (!driver)
		return NULL;
	found = dlsym_real(driver, name);
	dlclose(driver);
	return found;
}

void driver_keep(void)
{
	void *driver = driver_is_kept() ? NULL : open_driver(), *none = NULL;

	if (!driver)
		return;
	if (__atomic_compare_exchange_n(&kept, &none, driver, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		trampoline_refresh();
	else
		dlclose(driver);
}

bool driver_is_kept(void)
{
	return __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
}

bool driver_is_in_use(void)
{
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

bool symbols_is_driver(const void *function)
{
	Dl_info info, driver;

	return dladdr(function, &info) && dladdr(driver_symbol("cuInit"), &driver) &&
	       driver.dli_fbase == info.dli_fbase;
}

void *symbols_next(const char *name)
{
	void *found = dlsym_real(RTLD_NEXT, name);

	return found ? found : driver_symbol(name);
}

void *symbols_local(const char *name, const void *caller)
{
	void *map = NULL, *found;
	Dl_info info;

	if (!dladdr1(caller, &info, &map, RTLD_DL_LINKMAP) || !map)
		return NULL;
	found = dlsym_real(map, name);
	return trampoline_is_ours(found) ? NULL : found;
}

/* Does another interposer have to do with this function? */
static int is_of_others(const char *name, const void *found)
{
	const void *own = driver_symbol(name), *next = dlsym_real(RTLD_NEXT, name);

	return (next && next != own) || (found != own && found == dlsym_real(RTLD_DEFAULT, name));
}

/*
 * What a lookup would find without us that found our export: the next in the global scope; for
 * RTLD_DEFAULT of a library outside of it also what it brought along.
 */
static void *find_without_us(void *handle, int index, const void *caller)
{
	const char *name = trampoline_name(index);
	void *found = dlsym_real(RTLD_NEXT, name);

	if (!found && handle == RTLD_DEFAULT)
		found = symbols_local(name, caller);
	return found == trampoline_function(index) ? NULL : found;
}

/* The name under which the driver exports a function that begins there, or NULL. */
static const char *exported_name(const void *function)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	if (!dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) || !info.dli_sname ||
	    info.dli_saddr != function || !symbol || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
	    !dlsym_is_of_interest(info.dli_sname))
		return NULL;
	return symbols_is_driver(function) ? info.dli_sname : NULL;
}

/* The trampoline of a function of the driver that is known, or gets a spare one now. */
static int find_or_add(const char *name, void *found)
{
	int index = trampoline_find(name);

	return index != TRAMPOLINE_NONE ? index : trampoline_add(name, found);
}

void *symbols_dlsym(void *handle, const char *name, const void *caller)
{
	void *found;
	int index;

	index = trampoline_find(name);
	found = dlsym_real(handle, name);
	if (!found)
		return index == TRAMPOLINE_NONE ? DLSYM_JUMP : NULL;
	if (index != TRAMPOLINE_NONE && found == trampoline_function(index)) {
		found = find_without_us(handle, index, caller);
		if (!found)
			return dlsym_real(RTLD_NEXT,
					  name); /* fails, and so dlerror() speaks of it */
	} else if (found != driver_symbol(name) || is_of_others(name, found)) {
		return DLSYM_JUMP;
	}
	if (index == TRAMPOLINE_NONE)
		index = exported_name(found) ? trampoline_add(name, found) : TRAMPOLINE_NONE;
	if (index == TRAMPOLINE_NONE)
		return DLSYM_JUMP;
	trampoline_found(index, found);
	dlerror();
	return trampoline_function(index);
}

/* Is it a name of the same function, of another version or for other streams? */
static int is_version(const char *suffix)
{
	return !*suffix || !strncmp(suffix, "_v", 2) || !strncmp(suffix, "_pt", 3);
}

/* The trampoline of a version of `name` that stands for what was found. */
static int find_version(const char *name, const void *found, bool per_thread)
{
	size_t length = strlen(name);
	int first = trampoline_lower_bound(name), last = first;

	while (last < FUNCTION_COUNT && !strncmp(trampoline_name(last), name, length))
		last++;
	while (--last >= first) {
		const char *suffix = trampoline_name(last) + length;

		if (is_version(suffix) && (strstr(suffix, "_pt") != NULL) == per_thread &&
		    driver_symbol(trampoline_name(last)) == found)
			return last;
	}
	return TRAMPOLINE_NONE;
}

/* The trampoline of name + suffix, if that is a function with a wrapper. */
static int find_suffixed(const char *name, const char *suffix)
{
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
static int find_by_rules(const char *name, int version, bool per_thread)
{
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
static int find_found(const char *name, void *found, int version, bool per_thread)
{
	int index = per_thread ? find_version(name, found, true) : TRAMPOLINE_NONE;
	const char *exported;

	if (index == TRAMPOLINE_NONE)
		index = find_version(name, found, false);
	if (index != TRAMPOLINE_NONE)
		return index;
	exported = exported_name(found);
	return exported ? find_or_add(exported, found) : find_by_rules(name, version, per_thread);
}

void symbols_swap(const char *name, void **found, int version, uint64_t flags, int by_driver)
{
	int index;

	if (!name || !found || !*found || !by_driver || !dlsym_is_of_interest(name) ||
	    getauxval(AT_SECURE) || trampoline_is_ours(*found))
		return; /* a driver that refers to its own exported functions finds ours */
	index = find_found(name, *found, version, !!(flags & DRIVER_PROC_ADDRESS_PER_THREAD));
	if (index == TRAMPOLINE_NONE || is_of_others(trampoline_name(index), *found))
		return;
	trampoline_found(index, *found);
	*found = trampoline_function(index);
}
