/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of the driver's functions, and where their trampolines lead (trampoline.h). The dynamic
 * linker relocates nothing in it, because most programs that load the shim never call any of this:
 * names are offsets, and targets are zeros at first.
 */

#include "trampoline.h"

#include <string.h>

#include "driver.h"

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

#define FUNCTION(number, name, words, floats, ...)                                          \
	{ number,                                                                           \
	  offsetof(struct names, name),                                                     \
	  words,                                                                            \
	  floats,                                                                           \
	  sizeof((struct function_extra[]){ __VA_ARGS__ }) / sizeof(struct function_extra), \
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

const char *trampoline_name(int index) {
	return index < FUNCTION_COUNT ? (const char *)&names + function_rows[index].name
				      : spare_names[index - FUNCTION_COUNT];
}

int trampoline_lower_bound(const char *name) {
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

int trampoline_find(const char *name) {
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

void *trampoline_function(int index) {
	return (void *)(trampolines + (size_t)index * TRAMPOLINE_STRIDE);
}

bool trampoline_is_ours(const void *function) {
	return (const unsigned char *)function >= trampolines &&
	       (const unsigned char *)function < trampolines_end;
}

static const struct wrapper *find_wrapper(int index) {
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

bool trampoline_has_wrapper(int index) {
	return find_wrapper(index) != NULL;
}

/* What is called of a function that there is not. */
static driver_result not_found(void) {
	return DRIVER_ERROR_NOT_FOUND;
}

void trampoline_set(int index, void *function) {
	const struct wrapper *wrapper = find_wrapper(index);

	if (wrapper)
		__atomic_store_n(wrapper->real, function, __ATOMIC_RELEASE);
	if (!function)
		function = (void *)not_found;
	else if (wrapper)
		function = wrapper->function;
	__atomic_store_n(&trampoline_targets[index], function, __ATOMIC_RELEASE);
}

int trampoline_add(const char *name) {
	unsigned spare;

	if (strlen(name) >= SPARE_NAME_MAX ||
	    __atomic_load_n(&spare_count, __ATOMIC_RELAXED) >= TRAMPOLINE_SPARE)
		return TRAMPOLINE_NONE;
	spare = __atomic_fetch_add(&spare_count, 1, __ATOMIC_RELAXED);
	if (spare >= TRAMPOLINE_SPARE)
		return TRAMPOLINE_NONE;
	strcpy(spare_names[spare], name);
	__atomic_store_n(&spare_ready[spare], true, __ATOMIC_RELEASE);
	return FUNCTION_COUNT + (int)spare;
}
