/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of the driver's functions (functions.h). The dynamic linker relocates nothing in it,
 * because most programs that load the shim never call any of them: names are offsets.
 */

#include "functions.h"

#include <stdbool.h>
#include <string.h>

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

static void *own[DRIVER_FUNCTION_COUNT]; /* the driver's */

static char spare_names[DRIVER_FUNCTION_SPARE][SPARE_NAME_MAX];
static unsigned spare_count; /* of those that somebody has taken */
static bool spare_ready[DRIVER_FUNCTION_SPARE]; /* name and target are there */

const char *driver_function_name(int index) {
	return index < FUNCTION_COUNT ? (const char *)&names + function_rows[index].name
				      : spare_names[index - FUNCTION_COUNT];
}

int driver_function_lower_bound(const char *name) {
	int low = 0, high = FUNCTION_COUNT;

	while (low < high) {
		int middle = (low + high) / 2;

		if (strcmp(driver_function_name(middle), name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int driver_function_find(const char *name) {
	int found;

	if (name[0] != 'c' || name[1] != 'u')
		return DRIVER_FUNCTION_NONE;
	found = driver_function_lower_bound(name);
	if (found < FUNCTION_COUNT && !strcmp(driver_function_name(found), name))
		return found;
	for (int i = 0; i < DRIVER_FUNCTION_SPARE; i++)
		if (__atomic_load_n(&spare_ready[i], __ATOMIC_ACQUIRE) &&
		    !strcmp(spare_names[i], name))
			return FUNCTION_COUNT + i;
	return DRIVER_FUNCTION_NONE;
}

int driver_function_add(const char *name) {
	unsigned spare;

	if (strlen(name) >= SPARE_NAME_MAX ||
	    __atomic_load_n(&spare_count, __ATOMIC_RELAXED) >= DRIVER_FUNCTION_SPARE)
		return DRIVER_FUNCTION_NONE;
	spare = __atomic_fetch_add(&spare_count, 1, __ATOMIC_RELAXED);
	if (spare >= DRIVER_FUNCTION_SPARE)
		return DRIVER_FUNCTION_NONE;
	strcpy(spare_names[spare], name);
	__atomic_store_n(&spare_ready[spare], true, __ATOMIC_RELEASE);
	return FUNCTION_COUNT + (int)spare;
}

void *driver_function_own(int index) {
	return index == DRIVER_FUNCTION_NONE ? NULL
					     : __atomic_load_n(&own[index], __ATOMIC_ACQUIRE);
}

void driver_function_set_own(int index, void *function) {
	__atomic_store_n(&own[index], function, __ATOMIC_RELEASE);
}

int driver_function_index(const void *function) {
	for (int i = 0; i < DRIVER_FUNCTION_COUNT; i++)
		if (driver_function_own(i) == function)
			return i;
	return DRIVER_FUNCTION_NONE;
}
