/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A storm of SIGALRM (no SA_RESTART) while modules are loaded; the
 * handler leaves errno as it was.
 */

#include <errno.h>
#include <signal.h>
#include <sys/time.h>

#include "s.h"

static volatile sig_atomic_t alarms;

static void on_alarm(int number) {
	alarms = 1;
}

int main(void) {
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval storm = { { 0, 300 }, { 0, 300 } }, quiet = { 0 };
	long sum = 0;

	driver_start(false);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &storm, NULL);
	for (int i = 0; i < 20; i++)
		sum += s_once(i % 2 ? S_LIBRARY : S_MODULE);
	setitimer(ITIMER_REAL, &quiet, NULL);
	printf("%ld, alarms: %d\n", sum, alarms);
	return 0;
}
