/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library that is linked with the driver and uses
 * it in its constructor. It tells s-host.c what else it can do.
 */

#include "s.h"

extern const int s_plugin;
const int s_plugin = 1;
void s_registered(int (*run)(void));

static int run(void) {
	return s_once(S_MODULE);
}

static __attribute__((constructor)) void construct(void) {
	driver_start(false);
	printf("constructor: %d\n", s_once(S_LIBRARY));
	s_registered(run);
}
