/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Ends gpuprobectl by a signal if it is stuck while it writes, because the reader of its output has
 * stopped. Commands that block signals and handle them between two steps use it: such a step may
 * never end. A thread sees that a signal is pending for too long. It does what must not be left
 * undone, and then lets the signal end the process.
 */

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ctl/base/ctl.h"

#define STUCK_S 2 /* how long a signal waits for what is being printed */

struct ending {
	sigset_t signals;
	void (*before)(void);
};

static void *end_if_stuck(void *userdata) {
	const struct ending *ending = userdata;
	struct pollfd polled = { .fd = signalfd(-1, &ending->signals, SFD_CLOEXEC),
				 .events = POLLIN };

	do {
		while (poll(&polled, 1, -1) < 0)
			;
		sleep(STUCK_S);
	} while (poll(&polled, 1, 0) <= 0); /* somebody has taken it meanwhile */
	if (ending->before)
		ending->before();
	pthread_sigmask(SIG_UNBLOCK, &ending->signals, NULL);
	return NULL;
}

void ctl_end_if_stuck(const sigset_t *signals, void (*before)(void)) {
	static struct ending ending;
	pthread_t thread;

	ending = (struct ending){ *signals, before };
	if (!pthread_create(&thread, NULL, end_if_stuck, &ending))
		pthread_detach(thread);
}
