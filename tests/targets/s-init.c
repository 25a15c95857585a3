/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. The first process of a PID namespace launches, and has a child
 * that is the first of another one: they have the same number. The child ends. Exits 77 where it
 * may make no namespaces.
 */

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "s.h"

/* Forks, into a new namespace. Returns the status of the child. */
static int in_namespace(int (*run)(void)) {
	pid_t child;
	int status;

	if (unshare(CLONE_NEWPID))
		return 77;
	fflush(stdout);
	child = fork();
	if (!child)
		exit(run());
	if (waitpid(child, &status, 0) != child)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int inner(void) {
	printf("%d\n", getpid());
	return 0;
}

static int outer(void) {
	struct s_loaded loaded;
	int status;

	driver_start(false);
	loaded = s_load(S_MODULE);
	printf("%d: %d\n", getpid(), s_launch(&loaded));
	status = in_namespace(inner);
	s_unload(&loaded);
	return status;
}

int main(void) {
	return in_namespace(outer);
}
