/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Ends as the argument says, with a module loaded: return, exit,
 * _exit, abort, kill, thread, handler, nested.
 */

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "s.h"

static void *exit_here(void *unused) {
	exit(9);
}

static void on_signal(int number) {
	exit(10);
}

static void nested(void) {
	printf("in a handler: %d\n", s_once(S_MODULE));
}

int main(int argc, char **argv) {
	const char *how = argc > 1 ? argv[1] : "return";
	struct s_loaded loaded;
	pthread_t thread;

	driver_start(false);
	if (!strcmp(how, "nested"))
		atexit(nested);
	loaded = s_load(S_LIBRARY);
	printf("%s: %d\n", how, s_launch(&loaded));
	fflush(stdout);
	if (!strcmp(how, "exit"))
		exit(7);
	if (!strcmp(how, "_exit"))
		_exit(8);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "kill"))
		raise(SIGKILL);
	if (!strcmp(how, "thread")) {
		if (!pthread_create(&thread, NULL, exit_here, NULL))
			pthread_join(thread, NULL);
		return 1;
	}
	if (!strcmp(how, "handler")) {
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
		return 1;
	}
	return 0;
}
