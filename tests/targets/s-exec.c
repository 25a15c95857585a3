/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Children by vfork and posix_spawn from a CUDA process, then exec
 * of itself.
 */

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "s.h"

int main(int argc, char **argv) {
	char quiet_name[] = "true", argument[] = "again";
	char *const quiet[] = { quiet_name, NULL }, *const again[] = { argv[0], argument, NULL };
	struct s_loaded loaded;
	int status = -1;
	pid_t child;

	driver_start(false);
	loaded = s_load(S_MODULE);
	printf("%s: %d\n", argc > 1 ? argv[1] : "first", s_launch(&loaded));
	fflush(stdout);
	child = vfork();
	if (!child) {
		execv("/bin/true", quiet);
		_exit(127);
	}
	waitpid(child, &status, 0);
	printf("vfork %d\n", status);
	if (posix_spawn(&child, "/bin/true", NULL, NULL, quiet, environ))
		return 1;
	waitpid(child, &status, 0);
	printf("spawn %d, %d\n", status, s_launch(&loaded));
	fflush(stdout);
	if (argc < 2)
		execv("/proc/self/exe", again);
	s_unload(&loaded);
	return argc < 2;
}
