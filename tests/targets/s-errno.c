/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. errno after calls that succeed, and the thread's mask and the
 * open descriptors below 40, as they were.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "s.h"

static int low_descriptors(void) {
	int count = 0;

	for (int fd = 0; fd < 40; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

int main(void) {
	struct s_loaded loaded;
	sigset_t mask;
	int before, blocked = 0;

	driver_start(false);
	before = low_descriptors();
	for (int how = S_MODULE; how <= S_LIBRARY; how++) {
		errno = 4242;
		loaded = s_load(how);
		printf("load: %d\n", errno);
		s_launch(&loaded);
		printf("launch: %d\n", errno);
		s_unload(&loaded);
		printf("unload: %d\n", errno);
	}
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (int number = 1; number < 32; number++)
		blocked += sigismember(&mask, number) == 1;
	/* another thread may be about to move one up */
	for (int tries = 0; tries < 100 && low_descriptors() != before; tries++)
		usleep(10000);
	printf("blocked: %d, new low descriptors: %d\n", blocked, low_descriptors() - before);
	return 0;
}
