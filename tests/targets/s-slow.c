/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded behind the shim: who looks for the function S_SLOW, as the shim does among others, waits in the middle of that, once; and its
 * cuEventCreate() waits for as many milliseconds as S_SLOW_EVENTS has, once, when the program says so.
 */

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"
#endif

static int (*real_event_create)(void **, unsigned);

static int event_create(void **event, unsigned flags)
{
	int *slow = dlsym(RTLD_DEFAULT, "s_slow");

	if (slow && *slow) {
		*slow = 0;
		usleep(1000u * (unsigned)atoi(getenv("S_SLOW_EVENTS")));
	}
	return real_event_create(event, flags);
}

void *dlsym(void *handle, const char *name)
{
	static atomic_bool slow;
	const char *wanted = getenv("S_SLOW");
	void *(*real)(void *, const char *);

	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", VERSION);
	if (getenv("S_SLOW_EVENTS") && !strcmp(name, "cuEventCreate")) {
		*(void **)&real_event_create = real(handle, name);
		return real_event_create ? (void *)event_create : NULL;
	}
	if (wanted && !strcmp(name, wanted) && !atomic_exchange(&slow, true))
		usleep(500000);
	return real(handle, name);
}
