/* SPDX-License-Identifier: Apache-2.0 */

/* A target for tests. Preloaded: a real time that runs backwards, for tests/e2e/test-metrics.py. */

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
	int r = (int)syscall(SYS_clock_gettime, clock, time);

	if (clock == CLOCK_REALTIME)
		time->tv_sec = 4000000000 - time->tv_sec;
	return r;
}
