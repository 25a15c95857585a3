/* SPDX-License-Identifier: Apache-2.0 */

/* Files that are read whole: of every kind, and with bounds. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"

/* A file with bytes 0, 1, 2, ..., to be read from its beginning. */
static int file_of(size_t size) {
	int fd = memfd_create("test", MFD_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	for (size_t i = 0; i < size; i++) {
		byte = (uint8_t)i;
		assert_int_equal(write(fd, &byte, 1), 1);
	}
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void check_bytes(const char *bytes, size_t n) {
	for (size_t i = 0; i < n; i++)
		assert_int_equal((uint8_t)bytes[i], (uint8_t)i);
	assert_int_equal(bytes[n], '\0');
}

/* Around each size at which a buffer grows or a bound lies. */
static void test_sizes(void **state) {
	static const size_t sizes[] = { 0, 1, 2, 4095, 4096, 4097, 8191, 8192, 8193, 20000 };
	char *bytes = NULL;
	size_t n;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int more = -1; more <= 1; more++) {
			size_t max = sizes[i] + (size_t)more;
			int fd = file_of(sizes[i]);

			if (!sizes[i] && more < 0)
				max = 0;
			if (sizes[i] > max) {
				assert_int_equal(file_load(fd, max, &bytes, &n), -EFBIG);
			} else {
				assert_int_equal(file_load(fd, max, &bytes, &n), 0);
				assert_int_equal(n, sizes[i]);
				check_bytes(bytes, n);
				free(bytes);
			}
			assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
			assert_int_equal(file_load_start(fd, max, &bytes, &n), 0);
			assert_int_equal(n, sizes[i] < max ? sizes[i] : max);
			check_bytes(bytes, n);
			free(bytes);
			close(fd);
		}
}

/* The size of a file of /proc is 0, and there are bytes in it. */
static void test_proc(void **state) {
	char *bytes = NULL, text[8];
	size_t n = 0;

	assert_int_equal(file_load_path(AT_FDCWD, "/proc/self/status", true, 1 << 20, &bytes, &n),
			 0);
	assert_int_equal(strlen(bytes), n);
	assert_true(n > 100);
	assert_memory_equal(bytes, "Name:\t", 6);
	free(bytes);
	assert_int_equal(file_read_text(AT_FDCWD, "/proc/self/status", text, sizeof(text)), 7);
	assert_int_equal(strlen(text), 7);
	assert_memory_equal(text, "Name:\t", 6);
	assert_int_equal(file_load_path(AT_FDCWD, "/proc/self/status", true, 100, &bytes, &n),
			 -EFBIG);
}

static void *write_slowly(void *userdata) {
	const int fd = *(int *)userdata;

	for (int i = 0; i < 10000; i++)
		if (write(fd, "abcde", 5) != 5)
			break;
	close(fd);
	return NULL;
}

/* Bytes of a pipe come in pieces. */
static void test_pipe(void **state) {
	char *bytes = NULL;
	pthread_t thread;
	size_t n = 0;
	int pipes[2];

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&thread, NULL, write_slowly, &pipes[1]), 0);
	assert_int_equal(file_load(pipes[0], 50000, &bytes, &n), 0);
	assert_int_equal(n, 50000);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(bytes[i], "abcde"[i % 5]);
	free(bytes);
	pthread_join(thread, NULL);
	close(pipes[0]);
}

static void nothing(int number) {
}

struct interrupted {
	pthread_t reader;
	int fd;
};

static void *interrupt_and_write(void *userdata) {
	struct interrupted *interrupted = userdata;

	for (int i = 0; i < 100; i++) {
		pthread_kill(interrupted->reader, SIGUSR1);
		usleep(1000);
	}
	assert_int_equal(write(interrupted->fd, "all", 3), 3);
	close(interrupted->fd);
	return NULL;
}

/* A signal without SA_RESTART ends read(2), not the reading. */
static void test_signal(void **state) {
	struct sigaction action = { .sa_handler = nothing }, before;
	struct interrupted interrupted = { .reader = pthread_self() };
	pthread_t thread;
	char text[8];
	int pipes[2];

	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	interrupted.fd = pipes[1];
	assert_int_equal(pthread_create(&thread, NULL, interrupt_and_write, &interrupted), 0);
	assert_int_equal(file_read(pipes[0], text, sizeof(text)), 3);
	assert_memory_equal(text, "all", 3);
	pthread_join(thread, NULL);
	close(pipes[0]);
	sigaction(SIGUSR1, &before, NULL);
}

/* What is no file, and what is no regular one: a FIFO is not waited for. */
static void test_not_a_file(void **state) {
	char folder[] = "/tmp/test-file-XXXXXX", text[4] = "abc", *bytes = NULL;
	size_t n = 0;
	int fd;

	assert_non_null(mkdtemp(folder));
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(mkfifoat(fd, "fifo", 0600), 0);
	assert_int_equal(file_load_path(fd, "fifo", true, 10, &bytes, &n), -ENOTSUP);
	assert_int_equal(file_load_path(fd, ".", true, 10, &bytes, &n), -ENOTSUP);
	assert_int_equal(file_load_path(fd, ".", false, 10, &bytes, &n), -EISDIR);
	assert_int_equal(file_load_path(fd, "none", true, 10, &bytes, &n), -ENOENT);
	assert_int_equal(file_load_path(AT_FDCWD, "/dev/null", false, 10, &bytes, &n), 0);
	assert_int_equal(n, 0);
	free(bytes);
	assert_int_equal(file_read_text(fd, "none", text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
	memcpy(text, "abc", 4);
	assert_int_equal(file_read_text(fd, ".", text, sizeof(text)), -EISDIR);
	assert_string_equal(text, "");
	assert_int_equal(file_read(-1, text, sizeof(text)), -EBADF);
	assert_int_equal(unlinkat(fd, "fifo", 0), 0);
	close(fd);
	assert_int_equal(rmdir(folder), 0);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),      cmocka_unit_test(test_proc),
		cmocka_unit_test(test_pipe),       cmocka_unit_test(test_signal),
		cmocka_unit_test(test_not_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
