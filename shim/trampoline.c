/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of functions, and where their trampolines go. Nothing here has to be relocated when the
 * library is loaded, because most programs that load it never call any of this: names are offsets,
 * and targets begin as zeros.
 */

#include "trampoline.h"

#include <errno.h>
#include <string.h>

#include "driver.h"
#include "symbols.h"

#define SPARE_NAME_MAX 72

#define FUNCTION(number, name, ...) char name[sizeof(#name)];
static const struct names {
#include "functions.inc"
} names = {
#undef FUNCTION
#define FUNCTION(number, name, ...) #name,
#include "functions.inc"
};
#undef FUNCTION

_Static_assert(sizeof(names) <= UINT16_MAX, "offsets of names have 16 bits");

#define FUNCTION(number, name, words, floats, ...)                                             \
	{ number,                                                                              \
	  offsetof(struct names, name),                                                        \
	  words,                                                                               \
	  floats,                                                                              \
	  sizeof((struct function_extra[]){ __VA_ARGS__ }) / sizeof(struct function_extra),    \
	  { __VA_ARGS__ } },
const struct function_row function_rows[] = {
#include "functions.inc"
};
#undef FUNCTION

void *trampoline_targets[TRAMPOLINE_COUNT];

/* trampoline.S */
extern const unsigned char trampolines[] __attribute__((visibility("hidden")));
extern const unsigned char trampolines_end[] __attribute__((visibility("hidden")));

static char spare_names[TRAMPOLINE_SPARE][SPARE_NAME_MAX];
static unsigned spare_count; /* of those that somebody has taken */
static bool spare_ready[TRAMPOLINE_SPARE]; /* name and target are there */

const char *trampoline_name(int index)
{
	return index < FUNCTION_COUNT ? (const char *)&names + function_rows[index].name
				      : spare_names[index - FUNCTION_COUNT];
}

int trampoline_lower_bound(const char *name)
{
	int low = 0, high = FUNCTION_COUNT;

	while (low < high) {
		int middle = (low + high) / 2;

		if (strcmp(trampoline_name(middle), name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int trampoline_find(const char *name)
{
	int found;

	if (name[0] != 'c' || name[1] != 'u')
		return TRAMPOLINE_NONE;
	found = trampoline_lower_bound(name);
	if (found < FUNCTION_COUNT && !strcmp(trampoline_name(found), name))
		return found;
	for (int i = 0; i < TRAMPOLINE_SPARE; i++)
		if (__atomic_load_n(&spare_ready[i], __ATOMIC_ACQUIRE) &&
		    !strcmp(spare_names[i], name))
			return FUNCTION_COUNT + i;
	return TRAMPOLINE_NONE;
}

void *trampoline_function(int index)
{
	return (void *)(trampolines + (size_t)index * TRAMPOLINE_STRIDE);
}

bool trampoline_is_ours(const void *function)
{
	return (const unsigned char *)function >= trampolines &&
	       (const unsigned char *)function < trampolines_end;
}

static const struct wrapper *find_wrapper(int index)
{
	for (size_t i = 0; i < wrapper_count; i++)
		if (wrappers[i].index == index)
			return &wrappers[i];
	for (size_t i = 0; i < graph_wrapper_count; i++)
		if (graph_wrappers[i].index == index)
			return &graph_wrappers[i];
	for (size_t i = 0; i < node_wrapper_count; i++)
		if (node_wrappers[i].index == index)
			return &node_wrappers[i];
	return NULL;
}

bool trampoline_has_wrapper(int index)
{
	return find_wrapper(index) != NULL;
}

void trampoline_found(int index, void *found)
{
	const struct wrapper *wrapper;
	const bool kept = driver_is_kept();

	if (__atomic_load_n(&trampoline_targets[index], __ATOMIC_RELAXED))
		return;
	wrapper = find_wrapper(index);
	if (wrapper && (!kept || !__atomic_load_n(wrapper->real, __ATOMIC_RELAXED)))
		__atomic_store_n(wrapper->real, found, __ATOMIC_RELEASE);
	if (kept)
		__atomic_store_n(&trampoline_targets[index], wrapper ? wrapper->function : found,
				 __ATOMIC_RELEASE);
}

/* What a function is now: under its name, or as it was found under another (symbols_swap()). */
static void *find_now(int index, const struct wrapper *wrapper)
{
	void *found = symbols_next(trampoline_name(index)), *before;

	if (found || !wrapper)
		return found;
	before = __atomic_load_n(wrapper->real, __ATOMIC_ACQUIRE);
	return before && symbols_is_driver(before) ? before : NULL;
}

static void refresh(const struct wrapper *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (__atomic_load_n(list[i].real, __ATOMIC_RELAXED))
			__atomic_store_n(list[i].real, find_now(list[i].index, &list[i]),
					 __ATOMIC_RELEASE);
}

void trampoline_refresh(void)
{
	refresh(wrappers, wrapper_count);
	refresh(graph_wrappers, graph_wrapper_count);
	refresh(node_wrappers, node_wrapper_count);
}

int trampoline_add(const char *name, void *found)
{
	unsigned spare;

	if (strlen(name) >= SPARE_NAME_MAX ||
	    __atomic_load_n(&spare_count, __ATOMIC_RELAXED) >= TRAMPOLINE_SPARE)
		return TRAMPOLINE_NONE;
	spare = __atomic_fetch_add(&spare_count, 1, __ATOMIC_RELAXED);
	if (spare >= TRAMPOLINE_SPARE)
		return TRAMPOLINE_NONE;
	strcpy(spare_names[spare], name);
	if (driver_is_kept())
		__atomic_store_n(&trampoline_targets[FUNCTION_COUNT + spare], found,
				 __ATOMIC_RELAXED);
	__atomic_store_n(&spare_ready[spare], true, __ATOMIC_RELEASE);
	return FUNCTION_COUNT + (int)spare;
}

/* What is called of a function that there is not. */
static driver_result not_found(void)
{
	return DRIVER_ERROR_NOT_FOUND;
}

/* Is it called before the driver is begun? Then there is no use in looking whether it was. */
static bool comes_first(int index)
{
	return index == FUNCTION_cuInit || index == FUNCTION_cuGetProcAddress ||
	       index == FUNCTION_cuGetProcAddress_v2;
}

/* What only the caller has is not kept: it may be there to load the driver, and look this up. */
void *trampoline_resolve(int index, const void *caller)
{
	void *target = __atomic_load_n(&trampoline_targets[index], __ATOMIC_ACQUIRE);
	const struct wrapper *wrapper;
	int saved = errno;

	if (target)
		return target;
	if (!comes_first(index))
		driver_is_in_use();
	wrapper = find_wrapper(index);
	target = find_now(index, wrapper);
	if (target) {
		trampoline_found(index, target);
		target = wrapper ? wrapper->function : target;
	} else {
		target = symbols_local(trampoline_name(index), caller);
	}
	errno = saved;
	return target ? target : (void *)not_found;
}
