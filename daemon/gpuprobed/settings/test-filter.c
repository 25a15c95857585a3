/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of filter.c and of the interest page that announces filters. */

#include "filter.h"
#include "daemon/gpuprobed/registry/interest-writer.h"
#include "daemon/gpuprobed/wire/process-facts.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct process_facts python = {
	.pid = 42, .uid = 1000, .start_time = 7000, .comm = "python3", .exe = "/usr/bin/python3.11"
};

static void test_matches(void **state) {
	struct filter filter = {};

	assert_true(filter_matches(&filter, &python)); /* nothing said: everybody */
	filter.has_pid = true;
	filter.pid = 42;
	assert_true(filter_matches(&filter, &python));
	filter.start_time = python.start_time;
	assert_true(filter_matches(&filter, &python));
	filter.start_time++; /* the number was another process's */
	assert_false(filter_matches(&filter, &python));
	filter.start_time = 0;
	filter.pid = 43;
	assert_false(filter_matches(&filter, &python));
	filter = (struct filter){ .has_uid = true, .uid = 1000 };
	assert_true(filter_matches(&filter, &python));
	assert_true(filter_set_comm(&filter, "python3"));
	assert_true(filter_matches(&filter, &python));
	assert_true(filter_set_comm(&filter, "python"));
	assert_false(filter_matches(&filter, &python)); /* whole, and no glob */
	assert_true(filter_set_comm(&filter, "python3"));
	filter.uid = 0;
	assert_false(filter_matches(&filter, &python)); /* all must hold */
}

static void test_exe(void **state) {
	static const char *const good[] = { "/usr/bin/python3.11", "/usr/bin/python3*",
					    "*python3.1?", "/usr/*/python3.11", "*" };
	static const char *const bad[] = { "/usr/bin/python3", "/usr/bin/perl*",
					   "/usr/bin/python3.1[02]" };
	struct process_facts unknown = python;
	struct filter filter = {};

	for (size_t i = 0; i < 5; i++) {
		assert_true(filter_set_exe(&filter, good[i]));
		assert_true(filter_matches(&filter, &python));
	}
	for (size_t i = 0; i < 3; i++) {
		assert_true(filter_set_exe(&filter, bad[i]));
		assert_false(filter_matches(&filter, &python));
	}
	unknown.exe[0] = '\0';
	assert_true(filter_set_exe(&filter, "*"));
	assert_false(filter_matches(&filter, &unknown)); /* what could not be read is not meant */
	assert_false(filter_set_exe(&filter, "python3"));
	assert_false(filter_set_exe(&filter, ""));
	assert_false(filter_set_comm(&filter, ""));
	assert_false(filter_set_comm(&filter, "sixteen-bytes-xx"));
	assert_true(filter_set_comm(&filter, "fifteen-bytes-x"));
}

static void test_rule(void **state) {
	struct interest_rule rule;
	struct filter filter = { .has_pid = true, .pid = 7, .has_uid = true, .uid = 5 };

	filter_set_comm(&filter, "fifteen-bytes-x");
	filter_set_exe(&filter, "/bin/true");
	filter_to_rule(&filter, &rule);
	assert_int_equal(rule.flags, INTEREST_RULE_PID | INTEREST_RULE_UID | INTEREST_RULE_COMM |
					     INTEREST_RULE_EXE);
	assert_int_equal(rule.pid, 7);
	assert_int_equal(rule.uid, 5);
	assert_string_equal(rule.comm, "fifteen-bytes-x");
	assert_true(rule.exe == interest_hash("/bin/true"));
	filter_set_exe(&filter, "/bin/tr*");
	filter_to_rule(&filter, &rule); /* too wide, never too narrow */
	assert_int_equal(rule.flags, INTEREST_RULE_PID | INTEREST_RULE_UID | INTEREST_RULE_COMM);
}

static const struct interest_page *open_page(const char *path) {
	const struct interest_page *page;
	struct stat status;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_size, INTEREST_PAGE_SIZE);
	assert_int_equal(status.st_mode & 07777, 0644);
	page = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	close(fd);
	return page;
}

static void test_cgroup(void **state) {
	static const char *const never[] = { "", "/", "//", "a/b", "a" };
	struct process_facts facts = { .cgroup = "/user.slice/a.scope" };
	struct filter filter = {}, other = {};
	struct interest_rule rule;
	char text[FILTER_CGROUP_SIZE + 8];

	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		assert_false(filter_set_cgroup(&filter, never[i]));
	memset(text, '/', sizeof(text));
	memset(text + 1, 'x', FILTER_CGROUP_SIZE - 1);
	text[FILTER_CGROUP_SIZE] = '\0';
	assert_false(filter_set_cgroup(&filter, text));
	assert_false(filter.has_cgroup);
	assert_true(filter_set_cgroup(&filter, "/user.slice/"));
	assert_true(filter_matches(&filter, &facts)); /* below */
	filter_to_rule(&filter, &rule);
	assert_int_equal(rule.flags, INTEREST_RULE_CGROUP);
	assert_true(rule.cgroup == interest_hash("/user.slice"));
	strcpy(facts.cgroup, "/user.slice");
	assert_true(filter_matches(&filter, &facts));
	strcpy(facts.cgroup, "/user.slices");
	assert_false(filter_matches(&filter, &facts));
	facts.cgroup[0] = '\0';
	assert_false(filter_matches(&filter, &facts)); /* could not be read */

	assert_true(filter_set_cgroup(&other, "/user.slice/a.scope"));
	assert_true(filter_implies(&other, &filter));
	assert_false(filter_implies(&filter, &other));
}

/* Who matches one filter matches the other. */
static void test_empty(void **state) {
	struct filter filter = { .own = true }, one;

	assert_true(filter_is_empty(&filter));
	one = filter;
	one.has_pid = true;
	assert_false(filter_is_empty(&one));
	for (size_t i = 0; i < 4; i++) {
		static const char *const matches[] = { "uid=1", "comm=a", "exe=/a", "cgroup=/a" };

		one = filter;
		assert_null(filter_set_match(&one, matches[i], true));
		assert_false(filter_is_empty(&one));
	}
}

static void test_implies(void **state) {
	struct filter nothing = {}, uid = { .has_uid = true, .uid = 7 },
		      both = { .has_uid = true, .uid = 7, .has_pid = true, .pid = 9 };

	assert_true(filter_implies(&uid, &nothing));
	assert_true(filter_implies(&both, &uid));
	assert_true(filter_implies(&both, &both));
	assert_false(filter_implies(&nothing, &uid));
	assert_false(filter_implies(&uid, &both));
	both.uid = 8;
	assert_false(filter_implies(&both, &uid));
	assert_true(filter_set_comm(&nothing, "python"));
	assert_false(filter_implies(&both, &nothing));
	assert_true(filter_set_comm(&both, "python"));
	assert_true(filter_implies(&both, &nothing));
	assert_true(filter_set_exe(&nothing, "/bin/*"));
	assert_false(filter_implies(&both, &nothing));
	assert_true(filter_set_exe(&both, "/bin/*"));
	assert_true(filter_implies(&both, &nothing));
}

static void test_page(void **state) {
	struct interest_rule rules[100] = {};
	struct interest_writer *writer, *second;
	const struct interest_page *page;
	char folder[] = "/tmp/test-filter-XXXXXX", path[64];
	uint64_t generation, trace_generation, daemon;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/interest", folder);
	umask(077); /* other users' processes must be able to read it all the same */
	assert_int_equal(interest_writer_new(&writer, path,
					     &(struct interest_options){ .deadline_ms = 1500 }),
			 0);
	page = open_page(path);
	assert_int_equal(page->magic, INTEREST_MAGIC);
	assert_int_equal(page->version, INTEREST_VERSION);
	assert_int_equal(page->deadline_ms, 1500);
	assert_int_equal(page->sass_rule_count, 0);
	assert_string_equal(page->sanitizer, "");
	assert_int_equal(page->rule_count, 0);
	generation = page->generation;
	assert_int_equal(generation & 1, 0);

	rules[0] = rules[1] = rules[2] =
		(struct interest_rule){ .flags = INTEREST_RULE_PID, .pid = 3 };
	rules[1].pid = 4;
	interest_writer_set(writer, rules, 3);
	assert_int_equal(page->rule_count, 2); /* equal ones once */
	assert_int_equal(page->rules[1].pid, 4);
	assert_int_equal(page->flags, 0);
	assert_true(page->generation > generation && !(page->generation & 1));
	generation = page->generation;
	interest_writer_set(writer, rules,
			    3); /* one attachment for another, with the same filter */
	assert_true(page->generation > generation && !(page->generation & 1));

	for (unsigned int i = 0; i < 100; i++)
		rules[i] = (struct interest_rule){ .flags = INTEREST_RULE_PID, .pid = i };
	interest_writer_set(writer, rules, INTEREST_RULES_MAX);
	assert_int_equal(page->rule_count, INTEREST_RULES_MAX);
	assert_int_equal(page->flags, 0);
	interest_writer_set(writer, rules, INTEREST_RULES_MAX + 1);
	assert_int_equal(page->flags, INTEREST_FLAG_EVERYONE);
	interest_writer_set(writer, NULL, 0);
	assert_int_equal(page->rule_count, 0);
	assert_int_equal(page->flags, 0);
	assert_int_equal(page->rules[5].flags, 0);

	/* the next daemon, after this one was killed: it goes on with the page */
	interest_writer_trace(writer, rules, 3);
	generation = page->generation;
	trace_generation = page->trace_generation;
	daemon = page->daemon;
	assert_int_equal(interest_writer_new(&second, path,
					     &(struct interest_options){ .deadline_ms = 2000,
									 .sass_rules = rules,
									 .n_sass_rules = 2,
									 .sanitizer = "/x/y.so" }),
			 0);
	assert_true(page->generation > generation && !(page->generation & 1));
	assert_true(page->trace_generation > trace_generation && !(page->trace_generation & 1));
	assert_true(page->daemon != daemon);
	assert_int_equal(page->flags, 0);
	assert_int_equal(page->trace_rule_count, 0);
	assert_int_equal(page->deadline_ms, 2000);
	assert_int_equal(page->sass_rule_count, 2);
	assert_int_equal(page->sass_rules[1].pid, 1);
	assert_string_equal(page->sanitizer, "/x/y.so");
	interest_writer_set(second, rules, 1); /* these stay as they are */
	assert_int_equal(page->sass_rule_count, 2);
	assert_int_equal(page->rule_count, 1);
	interest_writer_free(second);
	assert_int_equal(page->flags, INTEREST_FLAG_CLOSED);
	assert_int_equal(page->generation & 1, 0);
	interest_writer_free(writer);
	munmap((void *)page, INTEREST_PAGE_SIZE);
	unlink(path);
	rmdir(folder);
	assert_int_equal(interest_writer_new(&writer, path,
					     &(struct interest_options){ .deadline_ms = 1 }),
			 -ENOENT);
}

/* A page that was left: what is on it, how large the file is, and whether it is gone on with. */
struct left_page {
	struct interest_page page;
	off_t size;
	bool kept, told; /* told: else its readers are */
};

static void check_left(const char *path, const struct left_page *left) {
	const struct interest_options options = { .deadline_ms = 7 };
	const struct interest_page *before = NULL, *now;
	struct interest_writer *writer;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &left->page, sizeof(left->page)), sizeof(left->page));
	assert_int_equal(ftruncate(fd, left->size), 0);
	if (left->size >= INTEREST_PAGE_SIZE)
		before = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_int_equal(interest_writer_new(&writer, path, &options), 0);
	now = open_page(path);
	assert_int_equal(now->magic, INTEREST_MAGIC);
	assert_int_equal(now->version, INTEREST_VERSION);
	assert_int_equal((now->generation | now->trace_generation) & 1, 0);
	assert_int_equal(now->flags, 0);
	assert_int_equal(now->rule_count, 0);
	assert_int_equal(now->deadline_ms, 7);
	if (left->kept || left->told) {
		assert_int_equal(before->generation & 1, 0);
		assert_true(before->generation != left->page.generation);
		assert_int_equal(before->flags,
				 left->kept ? 0 : INTEREST_FLAG_CLOSED | INTEREST_FLAG_REPLACED);
	}
	assert_int_equal(before && before->deadline_ms == 7, left->kept);
	interest_writer_free(writer);
	munmap((void *)now, INTEREST_PAGE_SIZE);
	if (before)
		munmap((void *)before, INTEREST_PAGE_SIZE);
	unlink(path);
}

/* Whatever a daemon finds at its path, there is a page afterwards, and who maps the old one knows.
 */
static void test_left_pages(void **state) {
	const struct interest_page empty = { 0 }, open = { .magic = INTEREST_MAGIC,
							   .version = INTEREST_VERSION,
							   .generation = 8,
							   .trace_generation = 8 };
	const struct left_page left[] = {
		{ empty, INTEREST_PAGE_SIZE, .kept = true },
		{ open, INTEREST_PAGE_SIZE, .kept = true },
		{ { .magic = INTEREST_MAGIC,
		    .version = INTEREST_VERSION,
		    .generation = 9,
		    .flags = INTEREST_FLAG_CLOSED,
		    .rule_count = UINT32_MAX,
		    .trace_generation = UINT64_MAX },
		  INTEREST_PAGE_SIZE,
		  .kept = true }, /* died while it wrote */
		{ { .magic = INTEREST_MAGIC, .version = INTEREST_VERSION + 1, .generation = 9 },
		  INTEREST_PAGE_SIZE,
		  .told = true },
		{ { .magic = 1, .generation = UINT64_MAX }, INTEREST_PAGE_SIZE, .told = true },
		{ { .version = 1 }, INTEREST_PAGE_SIZE, .told = true },
		{ open, INTEREST_PAGE_SIZE - 1 },
		{ open, 0 },
		{ open, INTEREST_PAGE_SIZE + 1 },
	};
	char folder[] = "/tmp/test-filter-XXXXXX", path[64], other[64];
	struct interest_writer *writer;
	struct stat status;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/interest", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
		check_left(path, &left[i]);
	/* another file by a link to it, and by a second name, is left alone */
	for (int hard = 0; hard < 2; hard++) {
		assert_int_equal(close(creat(other, 0600)), 0);
		assert_int_equal(truncate(other, INTEREST_PAGE_SIZE), 0);
		assert_int_equal(hard ? link(other, path) : symlink(other, path), 0);
		assert_int_equal(interest_writer_new(&writer, path, &(struct interest_options){}),
				 0);
		interest_writer_free(writer);
		assert_int_equal(lstat(path, &status), 0);
		assert_true(S_ISREG(status.st_mode));
		assert_int_equal(status.st_nlink, 1);
		assert_int_equal(stat(other, &status), 0);
		assert_int_equal(status.st_mode & 07777, 0600);
		unlink(path);
		unlink(other);
	}
	if (geteuid() == 0) { /* nor is another user's gone on with */
		assert_int_equal(close(creat(path, 0644)), 0);
		assert_int_equal(truncate(path, INTEREST_PAGE_SIZE), 0);
		assert_int_equal(chown(path, 1, 1), 0);
		assert_int_equal(interest_writer_new(&writer, path, &(struct interest_options){}),
				 0);
		interest_writer_free(writer);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_uid, 0);
		unlink(path);
	}
	assert_int_equal(mkdir(path, 0700), 0); /* nor is a folder replaced */
	assert_true(interest_writer_new(&writer, path, &(struct interest_options){}) < 0);
	rmdir(path);
	assert_int_equal(rmdir(folder), 0); /* nothing is left */
}

/* What the kernel says of our own cgroup. */
static void check_cgroup(const char *cgroup) {
	char line[4096] = "", *end;
	FILE *file = fopen("/proc/self/cgroup", "re");

	assert_non_null(file);
	while (strncmp(line, "0::", 3) != 0)
		if (!fgets(line, sizeof(line), file))
			strcpy(line, "0::\n"); /* there is no unified hierarchy */
	fclose(file);
	end = strchr(line, '\n');
	assert_non_null(end);
	*end = '\0';
	assert_string_equal(cgroup, line + 3);
}

/* A name with spaces and parentheses does not confuse the reader of /proc/PID/stat. */
static void test_facts(void **state) {
	struct process_facts facts, again;
	char exe[FILTER_EXE_SIZE] = "", comm[16] = "";
	pid_t child;

	assert_int_equal(prctl(PR_GET_NAME, comm), 0);
	assert_int_equal(prctl(PR_SET_NAME, "a) R 1 (b"), 0);
	assert_int_equal(process_facts_read(&facts, getpid(), -1), 0);
	assert_string_equal(facts.comm, "a) R 1 (b");
	assert_int_equal(facts.uid, getuid());
	assert_true(facts.start_time > 0);
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_string_equal(facts.exe, exe);
	check_cgroup(facts.cgroup);
	assert_int_equal(prctl(PR_SET_NAME, comm), 0);
	assert_int_equal(process_facts_read(&again, getpid(), -1), 0);
	assert_true(process_facts_same(&facts, &again)); /* whatever it calls itself */
	process_facts_refresh(&facts);
	assert_string_equal(facts.comm, comm);
	again.start_time++;
	assert_false(process_facts_same(&facts, &again)); /* the pid was reused */

	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(process_facts_read(&again, child, -1), -ESRCH);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matches),    cmocka_unit_test(test_exe),
		cmocka_unit_test(test_rule),       cmocka_unit_test(test_page),
		cmocka_unit_test(test_left_pages), cmocka_unit_test(test_facts),
		cmocka_unit_test(test_cgroup),     cmocka_unit_test(test_empty),
		cmocka_unit_test(test_implies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
