/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of sigbus.c. Pages mapped beyond the end of a file stand for memory that the kernel
 * does not have. Real faults must still be fatal.
 */

#include "sigbus.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/gpuprobed/workers/cache/key.h"
#include "memfd.h"

static void test_missing_pages(void **state) {
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_new("shrinks");
	const uint64_t before = sigbus_pages();
	char *bytes;

	sigbus_survive(); /* cmocka has put its own handler there */
	assert_int_equal(ftruncate(fd, (off_t)(4 * page)), 0);
	bytes = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	memset(bytes, 1, 4 * page);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	assert_int_equal(*(volatile char *)(bytes + page - 1), 1);
	assert_int_equal(*(volatile char *)(bytes + 3 * page), 0); /* reads */
	*(volatile char *)(bytes + page) = 2; /* writes */
	assert_int_equal(*(volatile char *)(bytes + page), 2);
	assert_int_equal(*(volatile char *)bytes, 1);
	assert_int_equal(sigbus_pages() - before, 2);
	munmap(bytes, 4 * page);
	close(fd);
}

/* Also where there is no memory for a page of zeros: to read them takes none. */
static void test_no_memory(void **state) {
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_new("shrinks"), status;
	pid_t child = fork();
	char *bytes;

	if (child == 0) {
		sigbus_survive();
		bytes = ftruncate(fd, (off_t)page) < 0
				? MAP_FAILED
				: mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
		if (bytes == MAP_FAILED || ftruncate(fd, 0) < 0 ||
		    setrlimit(RLIMIT_DATA, &(struct rlimit){ page, page }) < 0)
			_exit(1);
		if (mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
		    MAP_FAILED)
			_exit(2);
		_exit(*(volatile char *)bytes == 0 && sigbus_pages() ? 0 : 3);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
}

static void test_sent(void **state) {
	int status;
	pid_t child = fork();

	if (child == 0) {
		sigbus_survive();
		raise(SIGBUS);
		raise(SIGBUS);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* A memfd of holes is hashed as zeros, and stays one of holes: nobody pays for what a client has
 * not written. */
static void test_holes(void **state) {
	const size_t size = (size_t)3 << 20;
	struct cache_key keys[2];
	struct cache_hash *hash;
	struct stat status;
	int fd = memfd_new("holes");
	void *zeros;

	assert_int_equal(cache_hash_setup(), 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(memfd_seal(fd), 0);
	assert_int_equal(cache_hash_new(&hash), 0);
	assert_int_equal(cache_hash_add_memfd(hash, fd, size), 0);
	cache_hash_finish(hash, &keys[0]);
	cache_hash_free(hash);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_blocks, 0);
	zeros = test_calloc(1, size);
	assert_int_equal(cache_hash_new(&hash), 0);
	cache_hash_add(hash, zeros, size);
	cache_hash_finish(hash, &keys[1]);
	cache_hash_free(hash);
	test_free(zeros);
	assert_memory_equal(&keys[0], &keys[1], sizeof(keys[0]));
	assert_int_equal(cache_hash_new(&hash), 0);
	assert_true(cache_hash_add_memfd(hash, fd, size + 1) < 0); /* shorter than it was */
	cache_hash_free(hash);
	close(fd);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing_pages),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_sent),
		cmocka_unit_test(test_holes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
