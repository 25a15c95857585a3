/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Does what it reads: l loads, launches and unloads; k loads a
 * library to keep, at first, and launches from it; f forks a child that sleeps; r gives back one of
 * two references to the primary context, which takes long (s-slow.c).
 */

#include <stdatomic.h>
#include <unistd.h>

#include "s.h"

atomic_int s_slow; /* s-slow.c */

int main(void) {
	struct s_loaded kept = { 0 };
	CUcontext context;
	char step;

	driver_start(false);
	while (read(STDIN_FILENO, &step, 1) == 1) {
		if (step == 'k' && !kept.library)
			kept = s_load(S_LIBRARY);
		if (step == 'k')
			printf("kept %d\n", s_launch(&kept));
		if (step == 'l')
			printf("once %d\n", s_once(S_MODULE));
		if (step == 'f' && !fork()) {
			close(STDOUT_FILENO);
			sleep(5);
			_exit(0);
		}
		if (step == 'r') {
			CHECK(driver.primary_retain(&context, 0));
			s_slow = 2; /* who looks whether it is the last reference retains it, too */
			CHECK(driver.primary_release(0));
		}
		fflush(stdout);
	}
	return 0;
}
