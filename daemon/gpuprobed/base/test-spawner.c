/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of spawner.c: which descriptors, folder, signals and environment a started process
 * has.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spawner.h"

static char *const environment[] = { (char *)"WORD=here", NULL };

/* Runs a script of sh; what it writes to descriptor 3. */
static void run_script(struct spawner *spawner, const char *script, char *text, size_t n_text) {
	char *const arguments[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };
	int pair[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(spawner_start(spawner, "/bin/sh", arguments, environment, pair[1], &pid),
			 0);
	close(pair[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	n = read(pair[0], text, n_text - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(pair[0]);
}

static void test_started(void **state) {
	struct spawner *spawner;
	char text[256];
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	assert_int_equal(spawner_new(&spawner), 0);
	/* what is open here and not closed when another program is executed */
	fd = open("/dev/zero", O_RDONLY);
	assert_true(fd > 3);
	run_script(spawner,
		   "exec >&3; for n in 0 1 2 3 4 5 6 7 8 9 10 11 12; do [ ! -e /proc/$$/fd/$n ] || "
		   "echo -n $n; done",
		   text, sizeof(text));
	assert_string_equal(text, "0123");
	run_script(spawner,
		   "readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/cwd | cat >&3; echo $WORD >&3",
		   text, sizeof(text));
	assert_string_equal(text, "/dev/null\n/dev/null\n/\nhere\n");
	/* two above those are of the C library, which ignores them until it has use for them */
	run_script(spawner,
		   "while read name word; do case $name in SigBlk:|SigIgn:) echo $name $((0x$word "
		   "& 0x7fffffff));; esac; done < /proc/$$/status >&3",
		   text, sizeof(text));
	assert_string_equal(text, "SigBlk: 0\nSigIgn: 0\n");
	run_script(spawner,
		   "read a b c d e session rest < /proc/$$/stat; [ $session = $$ ] && echo own >&3",
		   text, sizeof(text));
	assert_string_equal(text, "own\n");
	close(fd);
	assert_null(spawner_free(spawner));
}

static void test_refused(void **state) {
	char *const arguments[] = { (char *)"nothing", NULL };
	struct spawner *spawner;
	pid_t pid = 7;

	assert_int_equal(spawner_new(&spawner), 0);
	assert_int_equal(spawner_start(spawner, "/nothing/there", arguments, environment, 2, &pid),
			 -ENOENT);
	assert_int_equal(spawner_start(spawner, "/etc/passwd", arguments, environment, 2, &pid),
			 -EACCES);
	assert_int_equal(spawner_start(spawner, "/bin/sh", arguments, environment, -1, &pid),
			 -EBADF);
	assert_int_equal(pid, 7);
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	assert_int_equal(errno, ECHILD);
	assert_null(spawner_free(spawner));
	assert_null(spawner_free(NULL));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_started),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
