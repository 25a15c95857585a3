/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Not a program: a library to preload. The process forks in the
 * moment in which it has given memory back; it ends badly if the child gives the same memory back
 * once more.
 */

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *given_back;
static int again;

__attribute__((visibility("default"))) int munmap(void *memory, size_t size) {
	int result, status;
	pid_t child;

	again |= memory == given_back;
	result = (int)syscall(SYS_munmap, memory, size);
	if (given_back)
		return result; /* in the child's handlers of the fork */
	given_back = memory;
	child = fork();
	if (!child)
		_exit(again);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		abort();
	given_back = NULL;
	return result;
}
