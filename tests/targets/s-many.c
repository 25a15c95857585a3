/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Thousands of modules that are loaded at one time: what each costs
 * does not grow with their number.
 */

#include "s.h"

#define MODULES 4000

int main(void) {
	static struct s_loaded loaded[MODULES];
	int sum = 0;

	driver_start(false);
	for (int i = 0; i < MODULES; i++)
		loaded[i] = s_load(S_MODULE);
	for (int i = 0; i < MODULES; i += MODULES / 4)
		sum += s_launch(&loaded[i]);
	for (int i = 0; i < MODULES; i++)
		s_unload(&loaded[i]);
	printf("%d\n", sum);
	return 0;
}
