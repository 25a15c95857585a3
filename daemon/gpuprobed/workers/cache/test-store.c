/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of entry.c and store.c: an entry comes back as it was written, other files do not; the
 * oldest goes first; writers that die, full disks, two daemons.
 */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "store.h"

static char folder[64];

/* A key that is n. */
static struct cache_key key_of(unsigned int n) {
	struct cache_hash *hash;
	struct cache_key key;

	assert_int_equal(cache_hash_new(&hash), 0);
	cache_hash_add_int(hash, n);
	cache_hash_finish(hash, &key);
	cache_hash_free(hash);
	return key;
}

/* An entry with a part of so many bytes, all of them n. */
static void make(struct cache_entry *entry, unsigned int n, uid_t uid, size_t size) {
	char *bytes = malloc(size);

	assert_non_null(bytes);
	memset(bytes, (int)n, size);
	cache_entry_init(entry);
	entry->key = key_of(n);
	entry->uid = uid;
	entry->number = n;
	strcpy(entry->job, "image");
	snprintf(entry->name, sizeof(entry->name), "kernel %u", n);
	entry->reply = strdup("{\"status\":\"made\"}");
	entry->reply_size = strlen(entry->reply);
	entry->n_parts = 2;
	entry->parts[0] = (struct cache_entry_part){ .index = 1, .size = size };
	entry->parts[1] = (struct cache_entry_part){ .index = 5, .size = 3 };
	entry->fds[0] = memfd_new_sealed("part", bytes, size);
	entry->fds[1] = memfd_new_sealed("part", "abc", 3);
	free(bytes);
}

static int put(unsigned int n, uid_t uid, size_t size) {
	struct cache_entry entry;
	int r;

	make(&entry, n, uid, size);
	r = cache_store_put(folder, &entry);
	cache_entry_deinit(&entry);
	return r;
}

/* Gets entry n and checks that it is what was put, whatever its size. */
static int get(unsigned int n, uid_t uid) {
	const struct cache_key key = key_of(n);
	struct cache_entry entry;
	const char *why = "";
	const void *data;
	char bytes[3];
	int r;

	r = cache_store_get(folder, &key, uid, &entry);
	if (r)
		return r;
	assert_string_equal(entry.reply, "{\"status\":\"made\"}");
	assert_int_equal(entry.number, n);
	assert_int_equal(entry.n_parts, 2);
	assert_int_equal(entry.parts[1].index, 5);
	assert_int_equal(memfd_check(entry.fds[0], entry.parts[0].size, &why), 0);
	assert_int_equal(memfd_map(entry.fds[0], entry.parts[0].size, &data), 0);
	for (size_t i = 0; i < entry.parts[0].size; i++)
		assert_int_equal(((const unsigned char *)data)[i], n & 255);
	munmap((void *)data, entry.parts[0].size);
	assert_int_equal(pread(entry.fds[1], bytes, 3, 0), 3);
	assert_memory_equal(bytes, "abc", 3);
	cache_entry_deinit(&entry);
	return 0;
}

static void path_of(char path[static 256], unsigned int n, uid_t uid) {
	const struct cache_key key = key_of(n);
	char text[CACHE_KEY_TEXT_SIZE];

	cache_key_text(&key, text);
	snprintf(path, 256, "%s/%u-%s", folder, (unsigned)uid, text);
}

/* As if it had been used so many seconds ago. */
static void age(unsigned int n, uid_t uid, int seconds) {
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	char path[256];

	clock_gettime(CLOCK_REALTIME, &times[1]);
	times[1].tv_sec -= seconds;
	path_of(path, n, uid);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool exists(unsigned int n, uid_t uid) {
	char path[256];

	path_of(path, n, uid);
	return access(path, F_OK) == 0;
}

static int setup(void **state) {
	strcpy(folder, "/tmp/test-store-XXXXXX");
	return !mkdtemp(folder) || cache_hash_setup();
}

static int teardown(void **state) {
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* ---- tests ---- */

static void test_keys(void **state) {
	struct cache_hash *hash[2];
	struct cache_key key[2];
	char text[CACHE_KEY_TEXT_SIZE];

	for (int i = 0; i < 2; i++)
		assert_int_equal(cache_hash_new(&hash[i]), 0);
	cache_hash_add_text(hash[0], "a");
	cache_hash_add_text(hash[0], "bc");
	cache_hash_add_text(hash[1], "ab");
	cache_hash_add_text(hash[1], "c");
	for (int i = 0; i < 2; i++) {
		cache_hash_finish(hash[i], &key[i]);
		cache_hash_free(hash[i]);
	}
	assert_memory_not_equal(&key[0], &key[1], sizeof(key[0]));
	cache_key_text(&key[0],
		       text); /* of printf '\1\0\0\0\0\0\0\0a\2\0\0\0\0\0\0\0bc' | sha256sum */
	assert_string_equal(text,
			    "9a8acca1b6c6c0befd3fbc756aed625da998c998f7252e738c4ef061906b9b21");
}

static void test_put_get(void **state) {
	struct cache_usage usage;

	assert_int_equal(get(1, 1000), CACHE_STORE_E_MISS);
	assert_int_equal(put(1, 1000, 10000), 0);
	assert_int_equal(get(1, 1000), 0);
	assert_int_equal(get(1, 1000), 0);
	assert_int_equal(get(2, 1000), CACHE_STORE_E_MISS);
	assert_int_equal(get(1, 1001), CACHE_STORE_E_MISS); /* another user */
	assert_int_equal(put(1, 1000, 20000), 0); /* in place of the other */
	assert_int_equal(get(1, 1000), 0);
	assert_int_equal(cache_store_trim(folder, 1 << 20, &usage), 0);
	assert_int_equal(usage.entries, 1);
	assert_int_equal(usage.bytes, 20480);
	assert_int_equal(usage.removed, 0);
}

/* Another user's entry under one's own name, or another key's: it is not believed. */
static void test_renamed(void **state) {
	char from[256], to[256];

	assert_int_equal(put(1, 1000, 100), 0);
	path_of(from, 1, 1000);
	path_of(to, 1, 1001);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(get(1, 1001), CACHE_STORE_E_INVALID);
	assert_false(exists(1, 1001));
	assert_int_equal(put(1, 1000, 100), 0);
	path_of(to, 2, 1000);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(get(2, 1000), CACHE_STORE_E_INVALID);
	assert_int_equal(get(2, 1000), CACHE_STORE_E_MISS);
}

/* Makes a copy of a file with a change. */
static void damage(const char *path, const char *bytes, size_t size, size_t at, unsigned int mask) {
	int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);
	char byte = (char)(bytes[at % size] ^ (char)mask);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)(at % size)), 1);
	close(fd);
}

static void test_damaged(void **state) {
	char path[256], bytes[4096];
	ssize_t size;
	int fd;

	assert_int_equal(put(7, 0, 1000), 0);
	path_of(path, 7, 0);
	fd = open(path, O_RDONLY);
	size = read(fd, bytes, sizeof(bytes));
	close(fd);
	assert_true(size > 1200 && size < 4096);
	for (ssize_t at = 0; at < size; at++) { /* a bit of each byte */
		damage(path, bytes, (size_t)size, (size_t)at, 1U << (at % 8));
		assert_int_equal(get(7, 0), CACHE_STORE_E_INVALID);
		assert_false(exists(7, 0));
	}
	for (ssize_t cut = 0; cut < size; cut += cut < 300 ? 1 : 37) { /* cut short */
		damage(path, bytes, (size_t)size, 0, 0);
		assert_int_equal(truncate(path, cut), 0);
		assert_int_equal(get(7, 0), CACHE_STORE_E_INVALID);
		assert_false(exists(7, 0));
	}
	damage(path, bytes, (size_t)size, 0, 0);
	assert_int_equal(truncate(path, size + 1), 0); /* longer */
	assert_int_equal(get(7, 0), CACHE_STORE_E_INVALID);
	damage(path, bytes, (size_t)size, 0, 0);
	assert_int_equal(get(7, 0), 0);
}

/* What is no file of ours. */
static void test_foreign(void **state) {
	struct cache_usage usage;
	char path[256], other[300];

	path_of(path, 1, 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(get(1, 0), CACHE_STORE_E_INVALID);
	assert_false(exists(1, 0));
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(get(1, 0), CACHE_STORE_E_INVALID);
	assert_int_equal(put(2, 0, 10), 0);
	path_of(other, 2, 0);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(get(1, 0), CACHE_STORE_E_INVALID);
	assert_int_equal(get(2, 0), 0); /* the link went, not what it points to */
	assert_int_equal(chmod(other, 0620), 0); /* somebody else could have written it */
	assert_int_equal(get(2, 0), CACHE_STORE_E_INVALID);
	snprintf(other, sizeof(other), "%s/notes", folder); /* not ours to remove */
	close(open(other, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(put(3, 0, 10), 0);
	assert_int_equal(cache_store_clear(folder, CACHE_STORE_ANYBODY, &usage), 0);
	assert_int_equal(usage.removed, 1);
	assert_int_equal(access(other, F_OK), 0);
}

static void test_oldest_goes(void **state) {
	struct cache_usage usage;

	for (unsigned int n = 0; n < 10; n++) {
		assert_int_equal(put(n, 5, 7000), 0); /* two blocks each */
		age(n, 5, 1000 - (int)n);
	}
	assert_int_equal(get(0, 5), 0); /* the oldest becomes the youngest */
	assert_int_equal(cache_store_trim(folder, 20 * 4096, &usage), 0);
	assert_int_equal(usage.removed, 0);
	assert_int_equal(cache_store_trim(folder, 10 * 4096, &usage),
			 0); /* room for a tenth, too: nine blocks */
	assert_int_equal(usage.removed, 6);
	assert_int_equal(usage.bytes, 8 * 4096);
	for (unsigned int n = 0; n < 10; n++)
		assert_int_equal(exists(n, 5), n == 0 || n > 6);
}

/* A clock that was set back: what is made then is not what goes. */
static void test_clock_set_back(void **state) {
	struct cache_usage usage;

	for (unsigned int n = 0; n < 10; n++) {
		assert_int_equal(put(n, 1000, 100000), 0);
		age(n, 1000, -86400);
	}
	for (unsigned int n = 10; n < 15; n++) {
		assert_int_equal(put(n, 1000, 100000), 0);
		assert_int_equal(cache_store_trim(folder, 1000000, &usage), 0);
		for (unsigned int k = 10; k <= n; k++)
			assert_true(exists(k, 1000));
	}
}

/* One who fills the cache drives out what is his. */
static void test_shares(void **state) {
	struct cache_usage usage;

	for (unsigned int n = 0; n < 3; n++) {
		assert_int_equal(put(n, 1, 4000), 0);
		age(n, 1, 5000);
	}
	for (unsigned int n = 0; n < 20; n++)
		assert_int_equal(put(n, 2, 4000), 0);
	assert_int_equal(cache_store_trim(folder, 12 * 8192, &usage), 0);
	for (unsigned int n = 0; n < 3; n++)
		assert_true(exists(n, 1));
	assert_true(usage.entries >= 8 && usage.entries <= 12);
}

static void test_list(void **state) {
	struct cache_usage usage;
	struct cache_item *items;
	size_t n;

	for (unsigned int i = 0; i < 6; i++) {
		assert_int_equal(put(i, i % 2, 10), 0);
		age(i, i % 2, 100 - (int)i);
	}
	assert_int_equal(cache_store_list(folder, 1, 2, &items, &n, &usage), 0);
	assert_int_equal(n, 2);
	assert_int_equal(usage.entries, 3);
	assert_string_equal(items[0].header.name, "kernel 5");
	assert_string_equal(items[1].header.name, "kernel 3");
	free(items);
	assert_int_equal(cache_store_clear(folder, 1, &usage), 0);
	assert_int_equal(usage.removed, 3);
	assert_int_equal(get(0, 0), 0);
	assert_int_equal(get(1, 1), CACHE_STORE_E_MISS);
}

static int count_new(void) {
	char command[128], text[16] = "";
	FILE *pipe;

	snprintf(command, sizeof(command), "ls -A %s | grep -c '^\\.new-'", folder);
	pipe = popen(command, "r");
	assert_non_null(fgets(text, sizeof(text), pipe));
	pclose(pipe);
	return atoi(text);
}

/* A writer that is killed at any moment: what is there is whole, and what he left goes; that of one
 * who lives stays. */
static void test_killed_writer(void **state) {
	const struct timespec pause = { .tv_nsec = 3000000 };
	struct cache_usage usage;
	char path[256];
	int fd, status;

	for (int round = 0; round < 20; round++) {
		struct timespec later = { .tv_nsec = pause.tv_nsec + round * 700000 };
		pid_t child = fork();

		if (!child)
			for (unsigned int n = 0;; n++)
				put(n % 16, 0, 300000);
		nanosleep(&later, NULL);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		for (unsigned int n = 0; n < 16; n++)
			assert_true(get(n, 0) == 0 || get(n, 0) == CACHE_STORE_E_MISS);
	}
	snprintf(path, sizeof(path), "%s/.new-0123456789abcdef", folder);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(cache_store_trim(folder, 1 << 30, &usage), 0);
	assert_int_equal(count_new(), 1);
	close(fd);
	assert_int_equal(cache_store_trim(folder, 1 << 30, &usage), 0);
	assert_int_equal(count_new(), 0);
}

/* Two daemons put, get and make room at once: nobody finds what is not whole. */
static void test_two_daemons(void **state) {
	struct cache_usage usage;
	pid_t children[2];
	int status;

	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		for (unsigned int n = 0; n < 300; n++) {
			if (put((n * 7 + (unsigned)i) % 24, 0, 1000 + 100 * (n % 24)) ||
			    get((n * 5) % 24, 0) > CACHE_STORE_E_MISS || get((n * 5) % 24, 0) < 0 ||
			    (n % 20 == 0 && cache_store_trim(folder, 16 * 4096, &usage)))
				_exit(1);
		}
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		waitpid(children[i], &status, 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	assert_int_equal(cache_store_trim(folder, 16 * 4096, &usage), 0);
	assert_true(usage.bytes <= 16 * 4096 && usage.entries > 0);
	assert_int_equal(count_new(), 0);
}

/* A limit on the size of files, as a full disk: an error, and nothing is left behind. */
static void test_limit(void **state) {
	const struct rlimit limit = { 4096, 4096 };
	struct cache_entry small, large;
	int status;
	pid_t child;

	make(&small, 1, 0, 100); /* memfds are files, too: before there is a limit */
	make(&large, 2, 0, 100000);
	child = fork();
	if (!child) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(cache_store_put(folder, &small) != 0 ||
		      cache_store_put(folder, &large) != -EFBIG);
	}
	cache_entry_deinit(&small);
	cache_entry_deinit(&large);
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(get(1, 0), 0);
	assert_int_equal(get(2, 0), CACHE_STORE_E_MISS);
	assert_int_equal(count_new(), 0);
}

/* A real full disk, and one that is mounted read-only. */
static void test_full(void **state) {
	struct cache_usage usage;
	int status;
	pid_t child = fork();

	if (!child) {
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("none", folder, "tmpfs", 0, "size=64k,mode=700") < 0)
			_exit(77);
		if (put(1, 0, 10000) || put(2, 0, 100000) != -ENOSPC || count_new() || get(1, 0))
			_exit(1);
		if (put(3, 0, 30000) || put(4, 0, 30000) != -ENOSPC ||
		    cache_store_trim(folder, 16384, &usage) || put(4, 0, 30000))
			_exit(2);
		if (mount("none", folder, NULL, MS_REMOUNT | MS_RDONLY, "size=64k") < 0 ||
		    put(5, 0, 10) != -EROFS || get(4, 0) || get(5, 0) != CACHE_STORE_E_MISS)
			_exit(3);
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A folder that is missing is made, one that others may write to is left alone. */
static void test_folder(void **state) {
	struct cache_usage usage;

	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(get(1, 0), CACHE_STORE_E_MISS);
	assert_int_equal(cache_store_trim(folder, 1, &usage), 0);
	assert_int_equal(put(1, 0, 10), 0);
	assert_int_equal(get(1, 0), 0);
	assert_int_equal(chmod(folder, 0770), 0);
	assert_int_equal(get(1, 0), CACHE_STORE_E_UNSAFE);
	assert_int_equal(put(1, 0, 10), CACHE_STORE_E_UNSAFE);
	assert_int_equal(cache_store_prepare(folder), CACHE_STORE_E_UNSAFE);
	assert_int_equal(cache_store_trim(folder, 1, &usage), CACHE_STORE_E_UNSAFE);
	assert_int_equal(cache_store_prepare("/tmp/no-such-folder/cache"), -ENOENT);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_get, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renamed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
		cmocka_unit_test_setup_teardown(test_oldest_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clock_set_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shares, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_writer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_daemons, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
