/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The lock around the interest pages (interest-lock.h). It is no other's, so that a process that
 * nobody is interested in never waits for loads.
 */

#include "interest-lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "shim/base/deadline.h"
#include "shim/base/guard.h"

#define WAIT_MS 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum choice {
	UNKNOWN,
	NONE,
	OFF,
	PTX,
};

/* GPUPROBE. Read once: the program may be changing its environment in another thread. */
static enum choice read_choice(void) {
	static enum choice known;
	enum choice choice = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (choice == UNKNOWN) {
		const char *text = secure_getenv("GPUPROBE") ?: "";

		choice = !strcmp(text, "off") ? OFF : !strcmp(text, "ptx") ? PTX : NONE;
		__atomic_store_n(&known, choice, __ATOMIC_RELAXED);
	}
	return choice;
}

bool interest_allowed(void) {
	return !getauxval(AT_SECURE) && read_choice() != OFF;
}

bool interest_allows_sass(void) {
	return interest_allowed() && read_choice() != PTX;
}

/* Also in a forked child: it may look at the pages, though its parent has loaded modules. */
bool interest_lock(void) {
	return guard_lock(&lock, deadline_now_ms() + WAIT_MS);
}

void interest_unlock(void) {
	guard_unlock(&lock);
}

void interest_lock_forked(void) {
	pthread_mutex_init(&lock, NULL);
	interest_forked();
}

bool interest_is_meant(struct interest *found) {
	bool yes;

	if (!interest_allowed() || !interest_lock())
		return false;
	yes = interest_find(found, false) && found->deadline_ms;
	interest_unlock();
	return yes;
}
