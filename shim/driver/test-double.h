/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A double of the driver for tests: a table of the functions that the test has in libcuda's place.
 * For a program that has driver.c and not driver-hold.c.
 */

#include <stddef.h>
#include <string.h>

#include "shim/driver/driver.h"

struct double_function {
	const char *name; /* of the driver's */
	void *function;
};

extern const struct double_function double_functions[]; /* the test's; the last one has no name */
void *double_lacks(const char *name); /* the test's: what stands for another one */

bool driver_is_in_use(void) {
	return true;
}

void *driver_symbol(const char *name) {
	for (const struct double_function *one = double_functions; one->name; one++)
		if (!strcmp(one->name, name))
			return one->function;
	return double_lacks(name);
}
