/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of runtime-dir.c: names of sessions, the lock that keeps a second daemon out, and
 * folders that are refused because they are not safe.
 */

#include "runtime-dir.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_names(void **state) {
	char path[128];

	assert_true(runtime_dir_session_name_valid("a_Z9"));
	assert_true(runtime_dir_session_name_valid("12345678901234567890123456789012"));
	assert_false(runtime_dir_session_name_valid("123456789012345678901234567890123"));
	assert_false(runtime_dir_session_name_valid(""));
	assert_false(runtime_dir_session_name_valid("a/b"));
	assert_false(runtime_dir_session_name_valid(".."));
	assert_int_equal(runtime_dir_session_path(path, 4000000000U, "x"), 0);
	assert_string_equal(path, "/tmp/gpuprobe-4000000000-x");
	assert_int_equal(runtime_dir_session_path(path, 4000000000U, NULL), 0);
	assert_string_equal(path, "/tmp/gpuprobe-4000000000");
	assert_int_equal(runtime_dir_session_path(path, 0, "../x"), RUNTIME_DIR_E_NAME);
}

static void test_lock(void **state) {
	char folder[] = "/tmp/test-runtime-XXXXXX", path[64];
	struct runtime_dir *dir, *second;
	struct stat status;
	int pipes[2];
	pid_t child;
	char byte;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/gpuprobe", folder);
	assert_int_equal(runtime_dir_new(&dir, path, 0700, true), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	assert_int_equal(runtime_dir_new(&second, path, 0700, true), RUNTIME_DIR_E_RUNNING);
	runtime_dir_free(dir);
	assert_int_equal(access(path, F_OK), -1); /* nothing is left */

	/* a daemon that was killed does not keep the next one from starting, nor does what it was
	 * about to start */
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		if (runtime_dir_new(&dir, path, 0700, true) == 0 && fork() == 0) {
			for (pid_t parent = getppid(); getppid() == parent;)
				usleep(10000);
			usleep(200000);
			_exit(0);
		}
		if (write(pipes[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(runtime_dir_new(&second, path, 0700, true), RUNTIME_DIR_E_RUNNING);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(runtime_dir_new(&second, path, 0700, true), 0);
	runtime_dir_free(second);
	rmdir(folder);
	close(pipes[0]);
	close(pipes[1]);
}

static void test_unsafe(void **state) {
	char folder[] = "/tmp/test-runtime-XXXXXX", path[64], link[64];
	struct runtime_dir *dir;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/open", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(runtime_dir_new(&dir, path, 0700, true),
			 RUNTIME_DIR_E_UNSAFE); /* somebody else's idea */
	assert_int_equal(chmod(path, 0700), 0);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(runtime_dir_new(&dir, link, 0700, true), RUNTIME_DIR_E_UNSAFE);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(runtime_dir_new(&dir, path, 0755, false), RUNTIME_DIR_E_UNSAFE);
	unlink(link);
	rmdir(path);
	assert_int_equal(runtime_dir_new(&dir, "/tmp/no/such", 0700, true), -ENOENT);
	rmdir(folder);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_unsafe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
