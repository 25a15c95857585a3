/* SPDX-License-Identifier: Apache-2.0 */

#include "helper-thread.h"

#include <pthread.h>
#include <signal.h>

#define STACK_SIZE (256 * 1024)

bool helper_thread(void *(*run)(void *))
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t created;
	bool good = false;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	sigfillset(&all);
	if (pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
	    pthread_attr_setstacksize(&attributes, STACK_SIZE) == 0 &&
	    pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
		good = pthread_create(&created, &attributes, run, NULL) == 0;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_attr_destroy(&attributes);
	return good;
}
