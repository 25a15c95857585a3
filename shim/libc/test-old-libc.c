/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of old-libc.c: the shim with a libc that lacks what glibc 2.30 added, and with one
 * that has no threads.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "real-dlsym.h"

static bool threads; /* it has them */
static unsigned runs, asked_later;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

int libc_minor(void) {
	return 29;
}

void *dlsym_libc(const char *name) {
	static void *(*find)(void *, const char *) = dlsym;

	asked_later += strstr(name, "clock") != NULL;
	return threads ? find(RTLD_DEFAULT, name) : NULL;
}

static void run(void) {
	runs++;
}

static void *start(void *unused) {
	return NULL;
}

static struct timespec after(int ms) {
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += ms / 1000;
	time.tv_nsec += ms % 1000 * 1000000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_nsec -= 1000000000;
		time.tv_sec++;
	}
	return time;
}

static bool is_past(struct timespec time) {
	struct timespec now = after(0);

	return now.tv_sec > time.tv_sec ||
	       (now.tv_sec == time.tv_sec && now.tv_nsec >= time.tv_nsec);
}

static void test_without_threads(void **state) {
	pthread_once_t once = PTHREAD_ONCE_INIT;
	struct timespec until = after(20000);
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_key_t key;
	sigset_t before;

	threads = false;
	assert_int_equal(pthread_once(&once, run), 0);
	assert_int_equal(pthread_once(&once, run), 0);
	assert_int_equal(runs, 1);
	assert_int_not_equal(pthread_create(&thread, NULL, start, NULL), 0);
	pthread_attr_init(&attributes);
	assert_int_not_equal(pthread_attr_setstacksize(&attributes, 65536), 0);
	assert_int_not_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
	assert_int_not_equal(pthread_key_create(&key, NULL), 0);
	assert_int_not_equal(pthread_setspecific(0, NULL), 0);
	assert_int_equal(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until), 0);
	assert_null(dlopen(NULL, RTLD_LAZY));
	assert_null(dlerror());
	threads = true; /* libpthread.so.0 comes: what was not there is looked for again */
	assert_int_equal(pthread_once(&once, run), 0);
	assert_int_equal(runs, 1);
	assert_int_equal(pthread_create(&thread, NULL, start, NULL), 0);
	pthread_join(thread, NULL);
	assert_non_null(dlopen(NULL, RTLD_LAZY));
}

static void *hold(void *unused) {
	pthread_mutex_lock(&mutex);
	__atomic_store_n(&runs, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&runs, __ATOMIC_SEQ_CST) == 1)
		usleep(1000);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void *let_go(void *unused) {
	usleep(20000);
	__atomic_store_n(&runs, 2, __ATOMIC_SEQ_CST);
	return NULL;
}

static void test_lock(void **state) {
	struct timespec until;
	pthread_t holder, other;

	threads = true;
	runs = 0;
	assert_int_equal(pthread_create(&holder, NULL, hold, NULL), 0);
	while (!__atomic_load_n(&runs, __ATOMIC_SEQ_CST))
		usleep(1000);
	errno = EDOM;
	assert_int_equal(pthread_mutex_trylock(&mutex), EBUSY);
	until = after(-1);
	assert_int_equal(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until), ETIMEDOUT);
	until = after(30);
	assert_int_equal(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until), ETIMEDOUT);
	assert_true(is_past(until));
	assert_int_equal(pthread_create(&other, NULL, let_go, NULL), 0);
	until = after(60000);
	assert_int_equal(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until), 0);
	assert_int_equal(errno, EDOM);
	pthread_join(other, NULL);
	pthread_join(holder, NULL);
	pthread_mutex_unlock(&mutex);
	assert_int_equal(asked_later, 0);
}

static void *tell(void *unused) {
	pthread_mutex_lock(&mutex);
	runs = 2;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void test_condition(void **state) {
	struct timespec until = after(60000);
	pthread_t teller;
	int r = 0;

	threads = true;
	runs = 1;
	pthread_mutex_lock(&mutex);
	assert_int_equal(pthread_create(&teller, NULL, tell, NULL), 0);
	while (runs == 1 && r == 0)
		r = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
	assert_int_equal(r, 0);
	assert_int_equal(runs, 2);
	until = after(30);
	while (r == 0)
		r = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
	assert_int_equal(r, ETIMEDOUT);
	assert_true(is_past(until));
	assert_int_equal(pthread_mutex_trylock(&mutex), EBUSY); /* it is held again */
	pthread_mutex_unlock(&mutex);
	pthread_join(teller, NULL);
	assert_int_equal(asked_later, 0);
}

static void test_files(void **state) {
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), copy;
	struct stat status;
	char link[64];

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4711), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK);
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	assert_true(copy >= 100);
	assert_int_equal(fcntl(copy, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(copy, &status), 0);
	assert_int_equal(status.st_size, 4711);
	assert_true(S_ISREG(status.st_mode));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	memset(&status, 0, sizeof(status));
	assert_int_equal(stat(link, &status), 0);
	assert_int_equal(status.st_size, 4711);
	assert_int_equal(lstat(link, &status), 0);
	assert_true(S_ISLNK(status.st_mode));
	close(fd);
	assert_int_equal(fstat(fd, &status), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(stat("/nonesuch", &status), -1);
	assert_int_equal(errno, ENOENT);
	close(copy);
}

static void test_memory(void **state) {
	volatile size_t much = SIZE_MAX / 2;
	char *memory = reallocarray(NULL, 3, 5);

	assert_non_null(memory);
	memset(memory, 1, 15);
	memory = reallocarray(memory, 7, 5);
	assert_non_null(memory);
	assert_int_equal(memory[14], 1);
	errno = 0;
	assert_null(reallocarray(NULL, much, 3));
	assert_int_equal(errno, ENOMEM);
	free(memory);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_threads), cmocka_unit_test(test_lock),
		cmocka_unit_test(test_condition),       cmocka_unit_test(test_files),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
