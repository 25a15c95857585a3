/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded behind the shim: who looks for the function S_SLOW, as the shim does among others, waits in the middle of that, once. The driver's
 * function S_SLOW_CALL waits S_SLOW_MS milliseconds, or till who writes to the named pipe S_SLOW_PIPE has closed it, or till S_SLOW_TILL, a function of one
 * argument, was called meanwhile, or with S_SLOW_BEHIND when it is done, once: when the program has called it s_slow times since it set that. Then s_slow_waits is 1, if the program has it.
 */

#include <dlfcn.h>
#include <fcntl.h>
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

static int (*real_call)(void *, void *), (*real_till)(void *);
static atomic_bool waits, over;

static int till(void *first)
{
	int result = real_till(first);

	atomic_store(&over, atomic_load(&waits));
	return result;
}

static void wait_for_pipe(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	while (fd >= 0 && read(fd, &byte, 1) > 0)
		;
	close(fd);
}

static void wait_now(void)
{
	atomic_int *tell = dlsym(RTLD_DEFAULT, "s_slow_waits");

	atomic_store(&waits, true);
	if (tell)
		atomic_store(tell, 1);
	if (getenv("S_SLOW_PIPE"))
		wait_for_pipe(getenv("S_SLOW_PIPE"));
	else if (!getenv("S_SLOW_TILL"))
		usleep(1000u * (unsigned)atoi(getenv("S_SLOW_MS")));
	while (getenv("S_SLOW_TILL") && !atomic_load(&over))
		usleep(1000);
}

static int call(void *first, void *second)
{
	atomic_int *slow = dlsym(RTLD_DEFAULT, "s_slow");
	bool wait = slow && atomic_load(slow) > 0 && atomic_fetch_sub(slow, 1) == 1;
	int result;

	if (wait && !getenv("S_SLOW_BEHIND"))
		wait_now();
	result = real_call(first, second);
	if (wait && getenv("S_SLOW_BEHIND"))
		wait_now();
	return result;
}

void *dlsym(void *handle, const char *name)
{
	static atomic_bool slow;
	const char *looked_for = getenv("S_SLOW"), *called = getenv("S_SLOW_CALL"), *until = getenv("S_SLOW_TILL");
	void *(*real)(void *, const char *), *found;

	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", VERSION);
	if (looked_for && !strcmp(name, looked_for) && !atomic_exchange(&slow, true))
		usleep(500000);
	found = real(handle, name);
	if (found && until && !strcmp(name, until)) {
		*(void **)&real_till = found;
		return (void *)till;
	}
	if (!found || !called || strcmp(name, called) != 0)
		return found;
	*(void **)&real_call = found;
	return (void *)call;
}
