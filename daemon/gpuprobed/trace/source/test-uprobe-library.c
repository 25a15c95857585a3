/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of uprobe-library.c, in the manner of test-uprobe.c: which libraries are probed, and for
 * how long. Some come later, some are shared by containers, some are used only by processes with
 * the shim, and there are more than fit.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcuda-watch.h"
#include "test-uprobe-session.h"

/* Of no library but those of processes, and what nobody uses goes at once. */
static struct trace_uprobe *start_unlingering(const struct trace_options *options) {
	return start_tuned(options, &(struct uprobe_tuning){ .first = best,
							     .only_first = true,
							     .no_usual = true,
							     .detach_now = true,
							     .no_linger = true });
}

/* If all have the shim, the probes go; they come back when another process needs them. */
static void test_dormant(void **state) {
	struct target shim, other;
	struct trace_uprobe *uprobe;
	struct trace_options options;

	session_reset();
	target_start(&shim, program, "many");
	options = open_options();
	uprobe = start(&options, best, false);
	if (!uprobe->watch) {
		trace_uprobe_free(uprobe);
		target_stop(&shim);
		skip();
	}
	session.shim = shim.pid;
	assert_int_equal(uprobe->n_libraries, 1);
	assert_non_null(uprobe->libraries[0].link);
	trace_uprobe_exclude(uprobe, shim.pid, true);
	assert_null(uprobe->libraries[0].link);
	target_run(&shim);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 0);
	target_start(&other, program, "kinds");
	for (int i = 0; i < 12000 && !uprobe->libraries[0].link; i++) {
		usleep(5000);
		trace_uprobe_drain(uprobe);
	}
	assert_non_null(uprobe->libraries[0].link);
	target_run(&other);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	trace_uprobe_free(uprobe);
	target_stop(&shim);
	target_stop(&other);
}

/* Two libraries, of which one comes later, in a mount namespace where its path is another's, and is
 * deleted. */
static void test_libraries(void **state) {
	char folder[] = "/tmp/test-uprobe-XXXXXX", path[256], executable[256], told[512];
	struct target first, second;
	struct trace_uprobe *uprobe;
	struct trace_options options;

	session_reset();
	assert_non_null(mkdtemp(folder));
	target_start(&first, program, "kinds");
	options = open_options();
	uprobe = start(&options, best, false);
	assert_int_equal(uprobe->n_libraries, 1);
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	snprintf(executable, sizeof(executable), "%s/program", folder);
	if (unshare(CLONE_NEWNS) == 0) {
		assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
		assert_int_equal(mount("none", folder, "tmpfs", 0, NULL),
				 0); /* all further programs are in here */
	}
	assert_true(copy_file(library, path));
	assert_true(copy_file(program, executable));
	setenv("LD_LIBRARY_PATH", folder, 1);
	target_start(&second, executable, "kinds");
	unsetenv("LD_LIBRARY_PATH");
	assert_int_equal(unlink(path), 0);
	for (int i = 0; i < 12000 && uprobe->n_libraries < 2; i++) {
		usleep(5000);
		trace_uprobe_drain(uprobe);
	}
	assert_int_equal(uprobe->n_libraries, 2);
	target_run(&first);
	target_run(&second);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 34);
	assert_int_equal(count_calls("cuLaunchKernel"), 2);
	trace_uprobe_free(uprobe);
	/* of the second its calls before are missing, as far as one knows; the first one's were
	 * none of the trace's */
	snprintf(told, sizeof(told),
		 "bpf: %s (deleted): new to this trace when process %d mapped it", path,
		 (int)second.pid);
	assert_non_null(strstr(session.missing, told));
	assert_null(strstr(strstr(session.missing, "new to this trace") + 1, "new to this trace"));
	target_stop(&first);
	target_stop(&second);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}

/* Drains until there are so many libraries, and users of them. */
static void drain_until(struct trace_uprobe *uprobe, size_t n_libraries, size_t n_users) {
	size_t n = 0;

	for (int i = 0; i < 24000 && (uprobe->n_libraries != n_libraries || n != n_users); i++) {
		usleep(2500);
		trace_uprobe_drain(uprobe);
		n = 0;
		for (size_t k = 0; k < uprobe->n_libraries; k++)
			n += uprobe->libraries[k].n_users;
	}
	assert_int_equal(uprobe->n_libraries, n_libraries);
	assert_int_equal(n, n_users);
}

/* Whether this process has a file of a folder open. */
static bool has_open(const char *folder) {
	char command[512];

	snprintf(command, sizeof(command), "ls -l /proc/%d/fd | grep -q %s", (int)getpid(), folder);
	return system(command) == 0;
}

/* A folder of the test's own, if it can be in a mount namespace of its own. */
static bool make_folder(char *folder) {
	assert_non_null(mkdtemp(folder));
	if (unshare(CLONE_NEWNS) < 0)
		return false;
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("none", folder, "tmpfs", 0, NULL), 0);
	return true;
}

static void start_in(struct target *target, const char *folder, const char *executable) {
	setenv("LD_LIBRARY_PATH", folder, 1);
	target_start(target, executable, "kinds");
	unsetenv("LD_LIBRARY_PATH");
}

/* Containers of one image: what is probed is the one file below their overlays, once; after the
 * last one nothing of them is held. */
static void test_containers(void **state) {
	char folder[] = "/tmp/test-uprobe-XXXXXX", command[512], path[256], layers[512],
	     executable[256];
	struct target targets[3];
	struct trace_uprobe *uprobe;
	struct trace_options options;

	session_reset();
	if (!make_folder(folder))
		skip();
	snprintf(command, sizeof(command),
		 "cd %s && mkdir lower && cp '%s' lower/libcuda.so.1 && for i in 0 1 2; do mkdir "
		 "-p $i/upper $i/work $i/root; done",
		 folder, library);
	assert_int_equal(system(command), 0);
	snprintf(executable, sizeof(executable), "%s/program", folder);
	assert_true(copy_file(program, executable));
	for (int i = 0; i < 3; i++) {
		snprintf(layers, sizeof(layers),
			 "lowerdir=%s/lower,upperdir=%s/%d/upper,workdir=%s/%d/work", folder,
			 folder, i, folder, i);
		snprintf(path, sizeof(path), "%s/%d/root", folder, i);
		if (mount("none", path, "overlay", 0, layers) < 0) {
			umount2(folder, MNT_DETACH);
			skip();
		}
		if (i == 2) { /* one that has changed it has a file of its own */
			snprintf(command, sizeof(command), "cp '%s' %s/libcuda.so.1", library,
				 path);
			assert_int_equal(system(command), 0);
		}
		start_in(&targets[i], path, executable);
	}
	options = open_options();
	uprobe = start_unlingering(&options);
	drain_until(uprobe, 2, 3);
	for (size_t i = 0, n = 0; i < session.n; i++) {
		n += session.records[i]->type == TRACE_NAME &&
		     ((const struct trace_name *)session.records[i])->kind == TRACE_NAME_LIBRARY;
		assert_true(n <= 2);
	}
	for (int i = 0; i < 3; i++)
		target_run(&targets[i]);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 3 * 17);
	target_stop(&targets[0]); /* the one whose file is probed */
	target_stop(&targets[2]);
	drain_until(uprobe, 1, 1);
	target_stop(&targets[1]);
	assert_true(has_open(folder));
	drain_until(uprobe, 0, 0);
	assert_false(has_open(folder));
	trace_uprobe_free(uprobe);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}

static bool is_told_full(void) {
	return strstr(session.missing, "more than 64 libcudas");
}

/* More libraries than there is place for, one after the other: each is seen. If all have users, it
 * is said, and the next one is found when there is place. */
static void test_places(void **state) {
	char folder[] = "/tmp/test-uprobe-XXXXXX", path[128], copy[256], executable[256];
	struct target first, target;
	struct trace_uprobe *uprobe;
	struct trace_options options;

	session_reset();
	if (!make_folder(folder))
		skip();
	snprintf(executable, sizeof(executable), "%s/program", folder);
	assert_true(copy_file(program, executable));
	target_start(&first, program, "kinds");
	options = open_options();
	uprobe = start(&options, best, false);
	if (!uprobe->watch) {
		trace_uprobe_free(uprobe);
		target_stop(&first);
		umount2(folder, MNT_DETACH);
		skip();
	}
	for (size_t i = 0; i < UPROBE_LIBRARIES_MAX + 4; i++) {
		const uint32_t last = uprobe->last_library;
		const bool full = i == UPROBE_LIBRARIES_MAX + 2;

		session.missing[0] = '\0';
		snprintf(path, sizeof(path), "%s/%zu", folder, i);
		assert_int_equal(mkdir(path, 0755), 0);
		snprintf(copy, sizeof(copy), "%s/libcuda.so.1", path);
		assert_true(copy_file(library, copy));
		for (size_t k = 0; k < uprobe->n_libraries && full; k++) {
			uprobe->libraries[k].kept = true;
			uprobe->libraries[k].unused = 0;
		}
		start_in(&target, path, executable);
		for (int k = 0;
		     k < 24000 && !(full ? is_told_full() : uprobe->last_library != last); k++) {
			usleep(2500);
			trace_uprobe_drain(uprobe);
		}
		assert_int_equal(uprobe->last_library, full ? last : last + 1);
		assert_true(full == is_told_full());
		for (size_t k = 0; full && k < uprobe->n_libraries; k++)
			uprobe->libraries[k].kept = false;
		for (int k = 0; full && k < 24000 && uprobe->last_library == last; k++) {
			usleep(2500);
			trace_uprobe_drain(uprobe);
		}
		assert_int_equal(uprobe->last_library, last + 1);
		if (i >= UPROBE_LIBRARIES_MAX)
			target_run(&target);
		trace_uprobe_drain(uprobe);
		target_stop(&target);
		unlink(copy);
	}
	assert_int_equal(uprobe->n_libraries, UPROBE_LIBRARIES_MAX);
	target_run(&first);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls("cuCtxSynchronize"), 5);
	trace_uprobe_free(uprobe);
	target_stop(&first);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}

/* A child that a process left behind has its library, too, though it has mapped nothing. */
static void test_children(void **state) {
	struct uprobe_library *only;
	struct trace_options options;
	struct trace_uprobe *uprobe;
	struct target target;

	session_reset();
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	target_start(&target, program, "leaves");
	options = open_options();
	uprobe = start_unlingering(&options);
	only = &uprobe->libraries[0];
	assert_int_equal(uprobe->n_libraries, 1);
	assert_true(only->n_users == 1 && only->users[0] == target.pid);
	target_say(&target);
	target_expect(&target, "left");
	assert_int_equal(waitpid(target.pid, NULL, 0), target.pid);
	for (int i = 0;
	     i < 24000 && uprobe->n_libraries && (!only->n_users || only->users[0] == target.pid);
	     i++) {
		usleep(2500);
		trace_uprobe_drain(uprobe);
	}
	assert_int_equal(uprobe->n_libraries, 1);
	assert_int_equal(only->n_users, 1);
	target.pid = only->users[0];
	target_run(&target);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	target_stop(&target);
	drain_until(uprobe, 0, 0);
	trace_uprobe_free(uprobe);
	prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

/* A library that could not be attached is tried again after a while; said is that once. */
static void test_again(void **state) {
	struct uprobe_library *only;
	struct trace_options options;
	struct trace_uprobe *uprobe;
	struct uprobe_programs programs;
	struct target target;

	session_reset();
	target_start(&target, program, "kinds");
	options = open_options();
	uprobe = start_unlingering(&options);
	only = &uprobe->libraries[0];
	assert_int_equal(uprobe->n_libraries, 1);
	only->link = uprobe_link_free_now(only->link);
	programs = uprobe->engine.programs;
	uprobe->engine.programs = (struct uprobe_programs){ -1, -1, -1 };
	only->broken = true; /* which was said */
	trace_uprobe_drain(uprobe);
	assert_true(only->broken && !only->link && only->retry);
	assert_null(strstr(session.missing, "its calls are not seen"));
	uprobe->engine.programs = programs;
	trace_uprobe_drain(uprobe);
	assert_true(only->broken && !only->link); /* not so soon */
	only->retry = 0;
	trace_uprobe_drain(uprobe);
	assert_true(!only->broken && only->link);
	target_run(&target);
	trace_uprobe_drain(uprobe);
	assert_int_equal(count_calls(NULL), 17);
	trace_uprobe_free(uprobe);
	target_stop(&target);
}

/* 64 pairs of perf events of no program, with a limit that leaves 8 descriptors above them. */
static int attach_within(int fd, rlim_t max) {
	static const uint64_t offsets[64], cookies[64];
	const struct rlimit limit = { (rlim_t)fd + 128 + 8, max };
	struct uprobe_link *link;
	size_t refused;

	return setrlimit(RLIMIT_NOFILE, &limit) < 0
		       ? -errno
		       : uprobe_link_new(&link, UPROBE_CLASSIC,
					 &(struct uprobe_programs){ -1, -1, -1 }, fd, offsets,
					 cookies, 64, 0, &refused);
}

/* Links take no descriptor of the last eighth, which others need, if there may not be more of them.
 */
static void test_descriptors(void **state) {
	struct rlimit before, after;
	int fd, status;
	pid_t child;

	fd = open(library, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	if (before.rlim_max < 1024)
		skip();
	child = fork();
	if (!child)
		_exit(attach_within(fd, (rlim_t)fd + 128 + 8) == -EMFILE ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_not_equal(attach_within(fd, before.rlim_max), -EMFILE);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
	assert_true(after.rlim_cur > (rlim_t)fd + 128 + 8 && after.rlim_max == before.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	close(fd);
}

/* CPUs that come while a trace runs: what was mapped on them before they were watched is looked
 * for, what is mapped later is seen. */
static void test_cpus(void **state) {
	char folder[] = "/tmp/test-uprobe-XXXXXX", copy[128], executable[128];
	struct trace_options options;
	struct trace_uprobe *uprobe;
	struct target first, second;
	bool changed;

	session_reset();
	if (!make_folder(folder))
		skip();
	snprintf(copy, sizeof(copy), "%s/libcuda.so.1", folder);
	snprintf(executable, sizeof(executable), "%s/program", folder);
	assert_true(copy_file(library, copy));
	assert_true(copy_file(program, executable));
	target_start(&first, program, "kinds");
	options = open_options();
	uprobe = start(&options, best, false);
	assert_int_equal(uprobe->n_libraries, 1);
	if (uprobe->watch) {
		assert_int_equal(libcuda_watch_set_cpus(uprobe->watch, NULL, 0, &changed), 0);
		assert_false(changed);
	}
	start_in(&second, folder, executable);
	drain_until(uprobe, 2, 2);
	trace_uprobe_free(uprobe);
	target_stop(&first);
	target_stop(&second);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dormant),    cmocka_unit_test(test_libraries),
		cmocka_unit_test(test_containers), cmocka_unit_test(test_places),
		cmocka_unit_test(test_cpus),       cmocka_unit_test(test_children),
		cmocka_unit_test(test_again),      cmocka_unit_test(test_descriptors),
	};
	const int r = test_begin(argc, argv);

	if (r)
		return r;
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
