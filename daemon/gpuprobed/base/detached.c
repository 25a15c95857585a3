/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Starts a detached thread that handles at most one signal (detached.h). It touches no state of the
 * daemon.
 */

#include "detached.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define STACK_SIZE ((size_t)64 * 1024)

int detached_start(void *(*run)(void *userdata), void *userdata, int signal) {
	pthread_attr_t attributes;
	sigset_t others, before;
	pthread_t thread;
	int r;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&others);
	if (signal)
		sigdelset(&others, signal);
	pthread_sigmask(SIG_SETMASK, &others, &before);
	r = -pthread_create(&thread, &attributes, run, userdata);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return r;
}
