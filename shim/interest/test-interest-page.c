/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of interest-page.c: how long a process may wait, within the bound of the settings. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "interest-page.h"
#include "proto/paths.h"

static void test_deadline(void **state) {
	const uint32_t deadlines[][2] = {
		{ 10, 10 }, { 60001, 60001 }, { 600000, 600000 }, { 600001, 600000 }
	};
	struct interest_page page = { .magic = INTEREST_MAGIC,
				      .version = INTEREST_VERSION,
				      .flags = INTEREST_FLAG_EVERYONE };
	char name[32], user[64], folder[128], path[160];
	struct interest interest;
	int fd;

	snprintf(name, sizeof(name), "page_%d", (int)getpid());
	setenv(PATHS_SESSION_VARIABLE, name, 1);
	snprintf(user, sizeof(user), PATHS_USER_DIR, getuid());
	if (access(user, F_OK) == 0)
		snprintf(folder, sizeof(folder), PATHS_SESSION_IN_USER_DIR "-%s", getuid(), name);
	else
		snprintf(folder, sizeof(folder), PATHS_SESSION_IN_TMP "-%s", getuid(), name);
	assert_int_equal(mkdir(folder, 0700), 0);
	snprintf(path, sizeof(path), "%s/" PATHS_INTEREST_PAGE, folder);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	assert_int_equal(ftruncate(fd, INTEREST_PAGE_SIZE), 0);
	for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++) {
		page.deadline_ms = deadlines[i][0];
		assert_int_equal(pwrite(fd, &page, sizeof(page), 0), sizeof(page));
		assert_true(interest_find(&interest, false));
		assert_int_equal(interest.deadline_ms, deadlines[i][1]);
	}
	close(fd);
	unlink(path);
	rmdir(folder);
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_deadline) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
