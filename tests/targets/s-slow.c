/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded behind the shim: who looks for the function S_SLOW, as the shim does among others, waits in the middle of that, once. The driver's
 * function S_SLOW_CALL waits S_SLOW_MS milliseconds, or with S_SLOW_BEHIND when it is done, once: when the program has
 * called it s_slow times since it set that.
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

static int (*real_call)(void *, void *);

static int call(void *first, void *second)
{
	atomic_int *slow = dlsym(RTLD_DEFAULT, "s_slow");
	bool wait = slow && atomic_load(slow) > 0 && atomic_fetch_sub(slow, 1) == 1;
	int result;

	if (wait && !getenv("S_SLOW_BEHIND"))
		usleep(1000u * (unsigned)atoi(getenv("S_SLOW_MS")));
	result = real_call(first, second);
	if (wait && getenv("S_SLOW_BEHIND"))
		usleep(1000u * (unsigned)atoi(getenv("S_SLOW_MS")));
	return result;
}

void *dlsym(void *handle, const char *name)
{
	static atomic_bool slow;
	const char *looked_for = getenv("S_SLOW"), *called = getenv("S_SLOW_CALL");
	void *(*real)(void *, const char *), *found;

	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", VERSION);
	if (looked_for && !strcmp(name, looked_for) && !atomic_exchange(&slow, true))
		usleep(500000);
	found = real(handle, name);
	if (!found || !called || strcmp(name, called) != 0)
		return found;
	*(void **)&real_call = found;
	return (void *)call;
}
