/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Starts a detached thread of the shim with all signals blocked (helper-thread.h). Its stack also
 * gets room for the thread-local memory of all libraries.
 */

#include "helper-thread.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>

static int add_local(struct dl_phdr_info *library, size_t size, void *sum) {
	for (unsigned i = 0; i < library->dlpi_phnum; i++)
		if (library->dlpi_phdr[i].p_type == PT_TLS)
			*(size_t *)sum +=
				library->dlpi_phdr[i].p_memsz + library->dlpi_phdr[i].p_align;
	return 0;
}

/* libc takes the thread-local memory of the program and its libraries from the stack: that comes on
 * top. */
static size_t local_size(void) {
	size_t local = 0;

	dl_iterate_phdr(add_local, &local);
	return local;
}

bool helper_thread(void *(*run)(void *), size_t stack) {
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t created;
	bool good = false;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	sigfillset(&all);
	if (pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
	    pthread_attr_setstacksize(&attributes, stack + local_size()) == 0 &&
	    pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
		good = pthread_create(&created, &attributes, run, NULL) == 0;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_attr_destroy(&attributes);
	return good;
}
