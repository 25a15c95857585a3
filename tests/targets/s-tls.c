/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A program with S_TLS bytes of thread-local memory, as Fortran's
 * threadprivate makes it: each thread has it on its stack.
 */

#include "s.h"

static __thread char memory[S_TLS];

int main(void) {
	volatile char *last = &memory[sizeof(memory) - 1];

	*last = 1;
	driver_start(false);
	for (int i = 0; i < 3; i++)
		printf("%d\n", s_once(i % 2 ? S_LIBRARY : S_MODULE));
	return *last != 1;
}
