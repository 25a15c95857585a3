/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of hook-user.c: who pays for probes, files that do not answer, and how many probes a user
 * may have at a time. Needs the right to load eBPF programs.
 */

#include "hook-programs.h"
#include "hook-user.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/gpuprobed/trace/bpf/hook.h"
#include "test-hook-session.h"

#define OWNER 4242

static const struct hook_places places = { .devices = "/dev/null",
					   .folder = "/nonexistent",
					   .symbols = "/dev/null" };
static char self[4096];
static unsigned char untouched[16]; /* first bytes of test_hook_first() */

long test_hook_first(long number);
long test_hook_second(long number);

__attribute__((noipa)) long test_hook_first(long number) {
	__asm__ volatile("" ::: "memory");
	return number + 1;
}

__attribute__((noipa)) long test_hook_second(long number) {
	__asm__ volatile("" ::: "memory");
	return number + 2;
}

static void *call_first(void *unused) {
	return (void *)test_hook_first(5);
}

/* One call in the first thread and one in another. */
static void do_calls(void) {
	pthread_t thread;

	test_hook_first(4);
	test_hook_second(4);
	if (!pthread_create(&thread, NULL, call_first, NULL))
		pthread_join(thread, NULL);
}

static void probe(char spec[static 8192], const char *what) {
	snprintf(spec, 8192, "u:%s:%s", self, what);
}

static size_t count_events(void) {
	const void *event = NULL;
	size_t n = 0;

	while ((event = next(event, TRACE_EVENT)))
		n++;
	return n;
}

/* Whether the first function is in a process what it was before any probe. */
static bool is_untouched(pid_t pid) {
	unsigned char bytes[sizeof(untouched)];
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, sizeof(bytes), (off_t)(uintptr_t)test_hook_first),
			 sizeof(bytes));
	close(fd);
	return !memcmp(bytes, untouched, sizeof(bytes));
}

/* Who traces one process slows no other one that has the file. All threads of that one are seen. */
static void test_one_process(void **state) {
	struct child meant = child_new(do_calls), other = child_new(do_calls);
	char spec[8192], second[8192];

	probe(spec, "test_hook_first(number=arg0:s64)=ret:s64");
	probe(second, "test_hook_second(number=arg0:s64)");
	begin_at(meant.pid, (struct trace_options){ PROBES(spec, second) }, &places);
	assert_int_equal(session.n_missing, 0);
	assert_false(is_untouched(meant.pid));
	assert_true(is_untouched(other.pid));
	child_run(&meant);
	finish();
	child_run(&other);
	assert_int_equal(count_events(), 3);
	assert_int_equal(session.lost, 0);
}

/* Where children are traced, too, anybody may be one. */
static void test_children(void **state) {
	struct child meant = child_new(do_calls), other = child_new(do_calls);
	char spec[8192];

	probe(spec, "test_hook_first(number=arg0:s64)=ret:s64");
	begin_at(meant.pid, (struct trace_options){ .follow = true, PROBES(spec) }, &places);
	assert_false(is_untouched(meant.pid) || is_untouched(other.pid));
	child_run(&meant);
	finish();
	child_run(&other);
	assert_int_equal(count_events(), 2);
}

/* Kernels without links of many functions have an event for each. */
static void test_events(void **state) {
	struct child child = child_new(do_calls);
	struct hook_user_programs programs;
	char spec[8192];
	int error = 0;

	probe(spec, "test_hook_first(number=arg0:s64)=ret:s64");
	begin_at(child.pid, (struct trace_options){ PROBES(spec) }, &places);
	hook_user_free(hooks->user);
	programs = hook_programs_user(hooks->programs);
	programs.multi_entry = programs.multi_return = -1;
	assert_int_equal(hook_user_new(&hooks->user, OWNER, true, child.pid), 0);
	assert_int_equal(hook_user_add(hooks->user, self, "test_hook_first", 0, true), 0);
	assert_int_equal(hook_user_start(hooks->user, &programs), 0);
	while (!hook_user_over(hooks->user))
		usleep(1000);
	assert_int_equal(hook_user_result(hooks->user, 0, &error), 0);
	child_run(&child);
	finish();
	assert_true(count_events() >= 2); /* and those that the link saw before it was gone */
}

/* At the end programs are told to be silent before anything is detached, which takes its time. */
static void test_silence(void **state) {
	struct child child = child_new(do_calls);
	struct hook_row row;
	uint32_t key = 0;
	char spec[8192];
	int rows;

	probe(spec, "test_hook_first");
	begin_at(child.pid, (struct trace_options){ PROBES(spec) }, &places);
	rows = dup(hook_programs_map(hooks->programs, HOOK_MAP_ROWS));
	assert_int_equal(bpf_map_lookup_elem(rows, &key, &row), 0);
	assert_false(row.flags & HOOK_ROW_OFF);
	finish();
	assert_int_equal(bpf_map_lookup_elem(rows, &key, &row), 0);
	assert_true(row.flags & HOOK_ROW_OFF);
	close(rows);
	child_run(&child);
}

/* What was not found is said of each, though a file is read once. */
static void test_some(void **state) {
	struct child child = child_new(do_calls);
	char first[8192], none[8192], second[8192];

	probe(first, "test_hook_first");
	probe(none, "test_hook_third");
	probe(second, "test_hook_second");
	begin_at(child.pid,
		 (struct trace_options){
			 PROBES(first, none, second, "u:/nonexistent/x:f", "u:/etc/passwd:f") },
		 &places);
	assert_int_equal(session.n_missing, 3);
	assert_true(is_missing("test_hook_third: there is no such function"));
	assert_true(is_missing("/nonexistent/x: No such file"));
	assert_true(is_missing("/etc/passwd: f: not a program"));
	child_run(&child);
	finish();
	assert_int_equal(count_events(), 3);
}

/* How many descriptors of this program's file there are. */
static size_t count_open(void) {
	char link[64], path[sizeof(self)];
	size_t n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n += readlink(link, path, sizeof(path)) == (ssize_t)strlen(self) &&
		     !memcmp(path, self, strlen(self));
	}
	return n;
}

/* Begins to attach to a file that is there, and to the one that does not answer. */
static struct hook_user *start_silent(const char *silent) {
	static const struct hook_user_programs none = { -1, -1, -1, -1 };
	struct hook_user *user;

	assert_int_equal(hook_user_new(&user, OWNER, true, 0), 0);
	assert_int_equal(hook_user_add(user, self, "test_hook_first", 0, false), 0);
	assert_int_equal(hook_user_add(user, silent, "f", 1, false), 0);
	assert_int_equal(hook_user_start(user, &none), 0);
	return user;
}

/* A file system whose server answers nothing: nobody waits for the probe but the trace's client,
 * and that not for ever. */
static void test_silent_file(void **state) {
	struct child child = child_new(do_calls);
	char folder[] = "/tmp/test-hook-user-XXXXXX", options[100], spec[8192], silent[100];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct hook_user *user = NULL;
	bool mounted;
	int error;

	assert_non_null(mkdtemp(folder));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fuse);
	mounted = fuse >= 0 && mount("silent", folder, "fuse", 0, options) == 0;
	if (mounted) {
		const struct trace_options traced = {
			.all_users = true,
			.pids = (const uint32_t[]){ (uint32_t)child.pid },
			.n_pids = 1,
			.probes = (const char *const[]){ spec, silent },
			.n_probes = 2
		};

		probe(spec, "test_hook_first");
		snprintf(silent, sizeof(silent), "%s/x", folder);
		user = start_silent(silent);
		snprintf(silent, sizeof(silent), "u:%s/x:f", folder);
		free(session.records);
		memset(&session, 0, sizeof(session));
		session.meant = child.pid;
		alarm(30);
		assert_int_equal(trace_hooks_new_at(&hooks, &session, &traced, &places), 0);
		trace_hooks_drain(hooks);
		assert_false(trace_hooks_ready(hooks));
		hooks->n_taken = 0;
		finish(); /* while it hangs */
		assert_int_equal(trace_hooks_new_at(&hooks, &session, &traced, &places), 0);
		wait_until_ready();
		alarm(0);
		assert_true(is_missing("/x: it, a file of another probe, or a process that has it "
				       "mapped does not answer"));
		finish();
		assert_true(hook_user_over(user));
		assert_int_equal(hook_user_result(user, 0, &error), HOOK_USER_E_SILENT);
		assert_true(count_open() > 0);
	}
	close(fuse); /* what hangs comes back */
	for (int i = 0; i < 1000 && count_open();
	     i++) /* the thread leaves no file for who frees it: a server could hold that one up */
		usleep(5000);
	assert_int_equal(count_open(), 0);
	hook_user_free(user);
	if (mounted)
		umount2(folder, MNT_DETACH);
	rmdir(folder);
	child_run(&child);
	if (!mounted)
		skip();
}

/* A user has so many at a time, until they are gone. */
static void test_many(void **state) {
	struct hook_user *some[64], *other;
	size_t n = 0;

	while (n < 64 && !hook_user_new(&some[n], OWNER, false, 0))
		n++;
	assert_int_equal(n, 8);
	assert_int_equal(hook_user_new(&other, OWNER, false, 0), HOOK_USER_E_BUSY);
	assert_int_equal(hook_user_new(&other, OWNER + 1, false, 0), 0);
	hook_user_free(other);
	hook_user_free(some[--n]);
	assert_int_equal(hook_user_new(&some[n++], OWNER, false, 0), 0);
	while (n)
		hook_user_free(some[--n]);
}

/* Kernels that kill for the probe of a return. */
static void test_releases(void **state) {
	static const char *const safe[] = {
		"5.15.0-119-generic", "6.1.0-41-amd64",  "6.10.14", "6.12.38+deb13-amd64",
		"6.14.0-35-generic",  "6.18.44-fc-v657", "7.0-rc1"
	};
	static const char *const unsafe[] = {
		"6.11.0-26-generic", "6.11.11", "6.12", "6.12.5", "6.13.0", "6.13-rc1"
	};

	for (size_t i = 0; i < sizeof(safe) / sizeof(*safe); i++)
		assert_true(hook_user_returns_are_safe(safe[i]));
#ifdef __x86_64__
	for (size_t i = 0; i < sizeof(unsafe) / sizeof(*unsafe); i++)
		assert_false(hook_user_returns_are_safe(unsafe[i]));
#endif
	(void)unsafe;
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),        cmocka_unit_test(test_one_process),
		cmocka_unit_test(test_children),    cmocka_unit_test(test_events),
		cmocka_unit_test(test_silence),     cmocka_unit_test(test_some),
		cmocka_unit_test(test_silent_file), cmocka_unit_test(test_releases),
	};
	const struct trace_options nothing = { .all_users = true };
	int r;

	memcpy(untouched, (const void *)(uintptr_t)test_hook_first, sizeof(untouched));
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	r = trace_hooks_new_at(&hooks, &session, &nothing, &places);
	if (r < 0) {
		printf("skipped: %s\n", session.n_missing ? session.missing[0] : strerror(-r));
		return 77;
	}
	trace_hooks_free(hooks);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	free(session.records);
	return r;
}
