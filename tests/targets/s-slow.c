/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Preloaded: the driver's function S_SLOW_CALL waits S_SLOW_MS
 * milliseconds, or till who writes to the named pipe S_SLOW_PIPE has closed it, or till
 * S_SLOW_TILL, another function, was called meanwhile, or with S_SLOW_BEHIND when it is done, once:
 * when the program, and the shim in it, has called it s_slow times since it set that. Then
 * s_slow_waits is 1, if the program has it. Only functions of the CPU driver that tell (API_SLOW).
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void s_slow_begin(const char *name);
void s_slow_end(const char *name);

static atomic_bool waits, over;
static _Thread_local bool waiting; /* in the call that is slow */

static bool is(const char *variable, const char *name) {
	const char *value = getenv(variable);

	return value && !strcmp(value, name);
}

static void wait_for_pipe(const char *path) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	while (fd >= 0 && read(fd, &byte, 1) > 0)
		;
	close(fd);
}

static void wait_now(void) {
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

void s_slow_begin(const char *name) {
	atomic_int *slow = is("S_SLOW_CALL", name) ? dlsym(RTLD_DEFAULT, "s_slow") : NULL;

	waiting = slow && atomic_load(slow) > 0 && atomic_fetch_sub(slow, 1) == 1;
	if (waiting && !getenv("S_SLOW_BEHIND"))
		wait_now();
}

void s_slow_end(const char *name) {
	if (is("S_SLOW_TILL", name))
		atomic_store(&over, atomic_load(&waits));
	if (waiting && is("S_SLOW_CALL", name) && getenv("S_SLOW_BEHIND"))
		wait_now();
	if (is("S_SLOW_CALL", name))
		waiting = false;
}
