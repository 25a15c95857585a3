/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of interest-page.c, on the page of a session: how long a process may wait, within the
 * bound of the settings; daemons that go on with a page, and what is no page. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "interest-page.h"
#include "proto/paths.h"

static char folder[128], path[160];

static int make_folder(void **state) {
	char name[32], user[64];

	snprintf(name, sizeof(name), "page_%d", (int)getpid());
	setenv(PATHS_SESSION_VARIABLE, name, 1);
	snprintf(user, sizeof(user), PATHS_USER_DIR, getuid());
	if (access(user, F_OK) == 0)
		snprintf(folder, sizeof(folder), PATHS_SESSION_IN_USER_DIR "-%s", getuid(), name);
	else
		snprintf(folder, sizeof(folder), PATHS_SESSION_IN_TMP "-%s", getuid(), name);
	snprintf(path, sizeof(path), "%s/" PATHS_INTEREST_PAGE, folder);
	return mkdir(folder, 0700);
}

static int remove_folder(void **state) {
	return rmdir(folder);
}

/* A new file of zeros. */
static int make_file(off_t size) {
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	return fd;
}

static void put(int fd, const struct interest_page *page) {
	assert_int_equal(pwrite(fd, page, sizeof(*page), 0), sizeof(*page));
}

static void test_deadline(void **state) {
	const uint32_t deadlines[][2] = {
		{ 10, 10 }, { 60001, 60001 }, { 600000, 600000 }, { 600001, 600000 }
	};
	struct interest_page page = { .magic = INTEREST_MAGIC,
				      .version = INTEREST_VERSION,
				      .flags = INTEREST_FLAG_EVERYONE };
	struct interest interest;
	int fd = make_file(INTEREST_PAGE_SIZE);

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++) {
		page.deadline_ms = deadlines[i][0];
		put(fd, &page);
		assert_true(interest_find(&interest, false));
		assert_int_equal(interest.deadline_ms, deadlines[i][1]);
	}
	close(fd);
	unlink(path);
}

/* Nobody, then a daemon that goes on with the page, another one, and none: the file is looked at
 * once. */
static void test_same_file(void **state) {
	struct interest_page page = { .magic = INTEREST_MAGIC,
				      .version = INTEREST_VERSION,
				      .generation = 8,
				      .flags = INTEREST_FLAG_EVERYONE,
				      .deadline_ms = 10,
				      .trace_generation = 6,
				      .trace_rule_count = 1,
				      .daemon = 1 };
	int fd = make_file(INTEREST_PAGE_SIZE);
	struct interest found, now;
	uint64_t seen[2];

	assert_false(interest_find(&found, false));
	assert_false(interest_is_gone());
	assert_false(interest_is_foreign());
	assert_false(interest_wants_trace(&found));
	interest_traces_seen();
	assert_true(interest_trace_is_seen(0));
	interest_read_generations(seen);
	put(fd, &page);
	assert_true(interest_has_changed(seen));
	assert_false(interest_trace_is_seen(0));
	assert_int_equal(unlink(path), 0); /* who looks for it now finds none */
	assert_true(interest_find(&found, true));
	assert_int_equal(found.daemon, 1);
	assert_true(interest_wants_trace(&now));
	close(fd);

	assert_false(interest_find(&found, false));
	assert_true(interest_is_gone());
	fd = make_file(INTEREST_PAGE_SIZE);
	put(fd, &page);
	assert_true(interest_find(&found, false));
	assert_int_equal(interest_look_again(&found, &now), INTEREST_UNCHANGED);
	page.daemon = 2;
	page.generation = 9;
	put(fd, &page);
	assert_int_equal(interest_look_again(&found, &now), INTEREST_UNCHANGED);
	page.generation = 10;
	put(fd, &page);
	assert_int_equal(interest_look_again(&found, &now), INTEREST_OTHER);
	assert_int_equal(now.daemon, 2);
	page.flags = INTEREST_FLAG_CLOSED;
	put(fd, &page);
	assert_int_equal(interest_look_again(&found, &now), INTEREST_ENDED);
	close(fd);
	unlink(path);
}

/* A file that is too short is not mapped, garbage means nobody, and a folder or a link is none. */
static void test_no_page(void **state) {
	struct interest_page page;
	struct interest found;
	int fd = make_file(INTEREST_PAGE_SIZE - 1);
	char real[200];

	snprintf(real, sizeof(real), "%s/real", folder);
	assert_false(interest_find(&found, false));
	assert_true(interest_is_gone());
	close(fd);
	unlink(path);
	fd = make_file(INTEREST_PAGE_SIZE);
	memset(&page, 0xff, sizeof(page)); /* its generation is odd for good */
	put(fd, &page);
	assert_false(interest_find(&found, false));
	assert_false(interest_wants_trace(&found));
	interest_traces_seen();
	assert_true(interest_trace_is_seen(0));
	assert_false(interest_is_foreign());
	close(fd);
	assert_int_equal(rename(path, real), 0);
	assert_int_equal(symlink(real, path), 0);
	assert_false(interest_find(&found, false));
	assert_true(interest_is_gone());
	unlink(path);
	unlink(real);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_false(interest_find(&found, false));
	assert_true(interest_is_gone());
	rmdir(path);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_same_file),
		cmocka_unit_test(test_no_page),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
