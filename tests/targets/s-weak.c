/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library that uses the driver where the program
 * brought one, by weak references.
 */

#include "s.h"

extern __typeof__(cuInit) cuInit __attribute__((weak));

int s_weak(void);
int s_weak(void) {
	if (!cuInit) {
		printf("no driver\n");
		return 0;
	}
	driver_start(false);
	printf("%d\n", s_once(S_MODULE));
	return 0;
}
