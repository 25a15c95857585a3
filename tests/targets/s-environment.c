/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. How often the environment is read, once modules were loaded: a
 * program may be changing it in another thread, and who reads it then may die. Programs that look
 * something up themselves do so with getenv().
 */

#include "s.h"

static int calls;

char *secure_getenv(const char *name) {
	calls++;
	return getenv(name);
}

int main(void) {
	int before;

	driver_start(false);
	printf("%d %d\n", s_once(S_MODULE), s_once(S_LIBRARY));
	before = calls;
	for (int i = 0; i < 10; i++)
		printf("%d %d\n", s_once(S_MODULE), s_once(S_LIBRARY));
	printf("read: %d\n", calls - before);
	return 0;
}
