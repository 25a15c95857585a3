/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Signals that are blocked, because they are looked at between two steps, where a step does not end: who reads our output has stopped to. A
 * thread sees that a signal stays where it is, and lets it end us as it ends others.
 */

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ctl.h"

#define STUCK_S 2 /* how long a signal waits for what is being printed */

static void *end_if_stuck(void *userdata) {
	const sigset_t *signals = userdata;
	struct pollfd polled = { .fd = signalfd(-1, signals, SFD_CLOEXEC), .events = POLLIN };

	do {
		while (poll(&polled, 1, -1) < 0)
			;
		sleep(STUCK_S);
	} while (poll(&polled, 1, 0) <= 0); /* somebody has taken it meanwhile */
	pthread_sigmask(SIG_UNBLOCK, signals, NULL);
	return NULL;
}

void ctl_end_if_stuck(const sigset_t *signals) {
	static sigset_t ending;
	pthread_t thread;

	ending = *signals;
	if (!pthread_create(&thread, NULL, end_if_stuck, &ending))
		pthread_detach(thread);
}
