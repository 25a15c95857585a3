/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of the sandbox that all workers enter.
 *
 * What a process in the sandbox can and cannot do. Each attempt is made by a child that has entered
 * it; the child tells by its exit code, or by the signal that ends it. Each attempt is also made
 * outside, where it has to succeed: else the test would show nothing.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox-filter.h"
#include "sandbox.h"

#define MEBI (UINT64_C(1) << 20)

static char path[] = "/tmp/gpuprobe-test-sandbox-XXXXXX";
static int shared_fd; /* a memfd that children may write */

/* An attempt: 0 if it worked, else an errno. */
typedef int (*attempt_fn)(void);

enum {
	KILLED = 1000, /* by the filter */
	SETUP_FAILED = 250,
};

static int try_fn(attempt_fn attempt, const struct sandbox_options *options) {
	pid_t pid;
	int status;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		const char *what = "";

		if (options && sandbox_enter(options, &what)) {
			fprintf(stderr, "sandbox: %s: %m\n", what);
			_exit(SETUP_FAILED);
		}
		_exit(attempt());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGSYS ? KILLED : -WTERMSIG(status);
	return WEXITSTATUS(status);
}

static struct sandbox_options plain(void) {
	static int keep[1];

	keep[0] = shared_fd;
	return (struct sandbox_options){
		.memory = 1024 * MEBI,
		.file_size = 1 * MEBI,
		.cpu_seconds = 1,
		.keep = keep,
		.n_keep = 1,
	};
}

static int open_read(void) {
	return open(path, O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int open_write(void) {
	return open(path, O_WRONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int open_read_write(void) {
	return open(path, O_RDWR | O_CLOEXEC) < 0 ? errno : 0;
}

static int open_create(void) {
	char other[sizeof(path) + 8];
	int fd;

	snprintf(other, sizeof(other), "%s.new", path);
	fd = open(other, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	unlink(other);
	return fd < 0 ? EACCES : 0;
}

static int open_truncate(void) {
	return open(path, O_RDONLY | O_TRUNC | O_CLOEXEC) < 0 ? errno : 0;
}

static int open_temporary(void) {
	return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) < 0 ? errno : 0;
}

static int unlink_file(void) {
	char other[sizeof(path) + 8];

	snprintf(other, sizeof(other), "%s.link", path);
	return unlink(other) && errno != ENOENT ? errno : 0;
}

/* Sizes and owners of files are found by their names, whatever the flags say. */
static int stat_flags(int flags) {
	struct stat status;

	return syscall(SYS_newfstatat, AT_FDCWD, path, &status, flags) ? errno : 0;
}

static int stat_file(void) {
	return stat_flags(0);
}

static int stat_empty_path(void) {
	return stat_flags(AT_EMPTY_PATH);
}

static int statx_empty_path(void) {
	struct statx status;

	return statx(AT_FDCWD, path, AT_EMPTY_PATH, STATX_BASIC_STATS, &status) ? errno : 0;
}

static int make_socket(void) {
	return socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int make_socketpair(void) {
	int fds[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ? errno : 0;
}

static int connect_socket(void) {
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/nothing" };

	/* Not a socket: outside this is an answer, not an end. */
	return connect(shared_fd, (struct sockaddr *)&address, sizeof(address)) && errno != ENOTSOCK
		       ? errno
		       : 0;
}

static int execute(void) {
	char *arguments[] = { (char *)"true", NULL };

	execv("/bin/true", arguments);
	return errno;
}

static int fork_child(void) {
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return 0;
}

static int vfork_exec(void) {
	/* As posix_spawn does. */
	return system("true") ? errno ? errno : EPERM : 0;
}

static void *nothing(void *argument) {
	return argument;
}

static int make_thread(void) {
	pthread_t thread;
	int r = pthread_create(&thread, NULL, nothing, NULL);

	if (!r)
		pthread_join(thread, NULL);
	return r;
}

static int trace_parent(void) {
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? errno : 0;
}

static int read_other_memory(void) {
	char byte;
	struct iovec local = { &byte, 1 }, remote = { &byte, 1 };

	return syscall(SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0) < 0 ? errno : 0;
}

static int signal_parent(void) {
	return kill(getppid(), 0) ? errno : 0;
}

static int limit_parent(void) {
	struct rlimit limit;

	return prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit) ? errno : 0;
}

static int make_executable(void) {
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? errno : 0;
}

static int become_executable(void) {
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(page, 4096, PROT_READ | PROT_EXEC) ? errno : 0;
}

static int load_library(void) {
	/* Refused, not killed: libraries that look for others go on without. */
	return dlopen("libutil.so.1", RTLD_NOW) ? 0 : EACCES;
}

static int bpf_call(void) {
	return syscall(SYS_bpf, 0, NULL, 0) && errno == EPERM ? EPERM : 0;
}

static int is_dumpable(void) {
	/* /proc/self is not there any more, so by its effect: prctl is refused. */
	return syscall(SYS_prctl, 3 /* PR_GET_DUMPABLE */, 0, 0, 0, 0) < 0 ? errno : 0;
}

static int use_memory(void) {
	return mmap(NULL, 2048 * MEBI, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0) == MAP_FAILED
		       ? errno
		       : 0;
}

static int use_time(void) {
	const struct sandbox_options options = plain();

	/* Outside there is nothing to exceed; do not burn time there. */
	if (syscall(SYS_prctl, 3, 0, 0, 0, 0) >= 0)
		return 0;
	if (sandbox_job_begin(&options))
		return EINVAL;
	for (volatile uint64_t i = 0;; i++)
		;
}

static int write_much(void) {
	return pwrite(shared_fd, "x", 1, 2 * MEBI) < 0 ? errno : 0;
}

/* What a worker does all day. */
static int work(void) {
	struct stat status;
	char *memory = malloc(64 * MEBI);
	void *map;

	if (!memory)
		return ENOMEM;
	memset(memory, 1, 64 * MEBI);
	free(memory);
	if (pwrite(shared_fd, "result", 6, 0) != 6 || sandbox_fstat(shared_fd, &status) ||
	    status.st_size < 6)
		return errno;
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, shared_fd, 0);
	if (map == MAP_FAILED || memcmp(map, "result", 6) || munmap(map, 4096))
		return EIO;
	if (fcntl(shared_fd, F_GET_SEALS) < 0)
		return errno;
	if (write(2, "", 0))
		return errno;
	return 0;
}

static int fail_hard(void) {
	abort();
}

static void test_refused(void **state) {
	static const struct {
		const char *name;
		attempt_fn attempt;
		int result;
	} attempts[] = {
		{ "open to read", open_read, EACCES },
		{ "open to write", open_write, EACCES },
		{ "open to read and write", open_read_write, EACCES },
		{ "create a file", open_create, EACCES },
		{ "truncate a file", open_truncate, EACCES },
		{ "temporary file", open_temporary, EACCES },
		{ "remove a file", unlink_file, EACCES },
		{ "stat", stat_file, EACCES },
		{ "stat with AT_EMPTY_PATH", stat_empty_path, EACCES },
		{ "statx with AT_EMPTY_PATH", statx_empty_path, EACCES },
		{ "socket", make_socket, KILLED },
		{ "socketpair", make_socketpair, KILLED },
		{ "connect", connect_socket, KILLED },
		{ "execve", execute, KILLED },
		{ "fork", fork_child, EPERM },
		{ "system()", vfork_exec, EPERM },
		{ "thread", make_thread, EPERM },
		{ "ptrace", trace_parent, KILLED },
		{ "memory of a process", read_other_memory, KILLED },
		{ "kill", signal_parent, KILLED },
		{ "limits of another process", limit_parent, EPERM },
		{ "executable memory", make_executable, EACCES },
		{ "memory made executable", become_executable, EACCES },
		{ "dlopen", load_library, EACCES },
		{ "prctl", is_dumpable, EPERM },
		{ "memory", use_memory, ENOMEM },
		{ "processor time", use_time, -SIGXCPU },
		{ "large output", write_much, EFBIG },
	};
	const struct sandbox_options options = plain();
	int failures = 0;

	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++) {
		int outside = try_fn(attempts[i].attempt, NULL);
		int inside = try_fn(attempts[i].attempt, &options);

		if (outside || inside != attempts[i].result) {
			print_error("%s: outside %d (0 expected), inside %d (%d expected)\n",
				    attempts[i].name, outside, inside, attempts[i].result);
			failures++;
		}
	}
	assert_int_equal(failures, 0);
	assert_int_equal(try_fn(bpf_call, &options), EPERM);
	assert_int_equal(access(path, F_OK), 0);
}

static void test_allowed(void **state) {
	const struct sandbox_options options = plain();

	assert_int_equal(try_fn(work, &options), 0);
	/* A failed assertion ends as such, not as a violation. */
	assert_int_equal(try_fn(fail_hard, &options), -SIGABRT);
}

static int make_many_kinds(void) {
	int r = make_thread();

	if (r)
		return r;
	r = fork_child();
	return r == EPERM ? vfork_exec() : 0;
}

/* Threads, and still no process. */
static void test_threads(void **state) {
	struct sandbox_options options = plain();

	options.threads = 4;
	assert_int_equal(try_fn(make_thread, &options), 0);
	assert_int_equal(try_fn(make_many_kinds, &options), EPERM);
	assert_int_equal(try_fn(execute, &options), KILLED);
	assert_int_equal(try_fn(make_executable, &options), EACCES);
}

static void test_read_files(void **state) {
	struct sandbox_options options = plain();

	options.read_files = true;
	assert_int_equal(try_fn(open_read, &options), 0);
	assert_int_equal(try_fn(open_write, &options), EACCES);
	assert_int_equal(try_fn(open_read_write, &options), EACCES);
	assert_int_equal(try_fn(open_create, &options), EACCES);
	assert_int_equal(try_fn(open_truncate, &options), EACCES);
	assert_int_equal(try_fn(open_temporary, &options), EACCES);
	assert_int_equal(try_fn(make_socket, &options), KILLED);
	assert_int_equal(try_fn(execute, &options), KILLED);
}

static int leaked_fd;

static int use_leaked(void) {
	char byte;

	return read(leaked_fd, &byte, 1) < 0 ? errno : 0;
}

static void test_descriptors(void **state) {
	const struct sandbox_options options = plain();

	leaked_fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(leaked_fd > 2);
	assert_int_equal(try_fn(use_leaked, NULL), 0);
	assert_int_equal(try_fn(use_leaked, &options), EBADF);
	close(leaked_fd);
}

/* What the sandbox leaves in /proc, looked at from outside. */
static int root_is_mount(void) {
	struct statx status;

	return statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &status) == 0 &&
	       (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static void test_status(void **state) {
	const struct sandbox_options options = plain();
	char status_path[64], line[256], root[64], byte;
	const char *what;
	unsigned int seen = 0;
	int pipes[2][2];
	FILE *file;
	pid_t pid;

	assert_int_equal(pipe(pipes[0]), 0);
	assert_int_equal(pipe(pipes[1]), 0);
	pid = fork();
	if (!pid) {
		int keep[] = { pipes[0][1], pipes[1][0] };
		struct sandbox_options mine = options;

		mine.keep = keep;
		mine.n_keep = 2;
		byte = sandbox_enter(&mine, &what) ? 'n' : 'y';
		_exit(write(pipes[0][1], &byte, 1) != 1 || read(pipes[1][0], &byte, 1) < 0);
	}
	assert_int_equal(read(pipes[0][0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	snprintf(status_path, sizeof(status_path), "/proc/%d/status", pid);
	file = fopen(status_path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		seen += !strcmp(line, "CapPrm:\t0000000000000000\n");
		seen += !strcmp(line, "CapEff:\t0000000000000000\n");
		seen += !strcmp(line, "CapInh:\t0000000000000000\n");
		seen += !strcmp(line, "NoNewPrivs:\t1\n");
		seen += !strcmp(line, "Seccomp:\t2\n");
		if (!geteuid())
			assert_false(!strncmp(line, "Uid:\t0", 6));
	}
	fclose(file);
	assert_int_equal(seen, 5);
	/* As root the namespaces are ours to make: another network, an empty root. */
	if (!geteuid()) {
		char mine[64] = "", theirs[64] = "";

		snprintf(root, sizeof(root), "/proc/%d/ns/net", pid);
		assert_true(readlink("/proc/self/ns/net", mine, sizeof(mine) - 1) > 0);
		assert_true(readlink(root, theirs, sizeof(theirs) - 1) > 0);
		assert_string_not_equal(mine, theirs);
		/* In a chroot, whose root is no mount, it keeps the root that it has. */
		snprintf(root, sizeof(root), "/proc/%d/root/etc", pid);
		if (root_is_mount())
			assert_int_equal(access(root, F_OK), -1);
	}
	assert_int_equal(write(pipes[1][1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (int i = 0; i < 4; i++)
		close(pipes[i / 2][i % 2]);
}

/*
 * ---- programs of passes, where there are no namespaces: the program has the daemon's user ----
 *
 * daemon (this test) > worker (in the sandbox) > supervisor > program
 */

static pid_t the_daemon, daemon_thread;
static char own_path[] = "/tmp/gpuprobe-test-sandbox-own-XXXXXX";

static int result(long r) {
	return r < 0 ? errno : 0;
}

static int signal_daemon(void) {
	return result(kill(the_daemon, 0));
}

static int signal_daemon_group(void) {
	return result(kill(-getpgid(the_daemon), 0));
}

static int signal_all(void) {
	return result(kill(-1, 0));
}

static int signal_thread_group(void) {
	return result(syscall(SYS_tgkill, the_daemon, daemon_thread, 0));
}

static int signal_main_thread(void) {
	return result(syscall(SYS_tkill, the_daemon, 0));
}

static int signal_with_value(void) {
	siginfo_t info = { .si_code = SI_QUEUE };

	return result(syscall(SYS_rt_sigqueueinfo, the_daemon, 0, &info));
}

static int signal_thread_with_value(void) {
	siginfo_t info = { .si_code = SI_QUEUE };

	return result(syscall(SYS_rt_tgsigqueueinfo, the_daemon, daemon_thread, 0, &info));
}

static int signal_descriptor(void) {
	return result(
		syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, the_daemon, 0), 0, NULL, 0));
}

static int signal_by_input(void) {
	return result(fcntl(0, F_SETOWN, the_daemon));
}

static int open_to_all(void) {
	return result(chmod(own_path, 0666));
}

static int open_to_group(void) {
	return result(fchmodat(AT_FDCWD, own_path, 0620, 0));
}

static int open_descriptor_to_all(void) {
	return result(fchmod(open(own_path, O_RDONLY | O_CLOEXEC), 0602));
}

static int make_set_user_id(void) {
	return result(chmod(own_path, 04700));
}

static int change_group(void) {
	return result(chown(own_path, (uid_t)-1, getegid()));
}

static int truncate_by_name(void) {
	return result(truncate(own_path, 0));
}

static int truncate_reading(void) {
	return result(open(own_path, O_RDONLY | O_TRUNC | O_CLOEXEC));
}

/* By the supervisor's child, the program. */
static int as_program(attempt_fn attempt) {
	pid_t supervisor = fork(), program;
	int status = 0;

	if (!supervisor) {
		setpgid(0, 0);
		program = fork();
		if (!program)
			_exit(sandbox_stay_in_group() ? SETUP_FAILED : attempt());
		_exit(waitpid(program, &status, 0) == program && WIFEXITED(status)
			      ? WEXITSTATUS(status)
			      : SETUP_FAILED);
	}
	return waitpid(supervisor, &status, 0) == supervisor && WIFEXITED(status)
		       ? WEXITSTATUS(status)
		       : SETUP_FAILED;
}

static int signal_thread_here(void) {
	return result(kill(daemon_thread, 0)) == EPERM
		       ? result(syscall(SYS_tkill, daemon_thread, 0))
		       : 0;
}

static int signal_thread(void) {
	return as_program(signal_thread_here);
}

/* All that a shell does with its children, and sed(1) with its files. */
static int live_here(void) {
	pid_t child;
	int status, fd;

	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	if (kill(child, SIGTERM) || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		return 1;
	if (kill(0, 0) || kill(-getpgrp(), 0) || kill(getpid(), 0) || raise(SIGCONT))
		return 2;
	fd = open(own_path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd < 0 || write(fd, "x", 1) != 1 || fchmod(fd, 0755) || chmod(own_path, 0400) ||
	    chmod(own_path, 0600))
		return 3;
	if (syscall(SYS_fsetxattr, fd, "user.x", "", 0, 0) == 0 || errno != EOPNOTSUPP)
		return 4;
	return 0;
}

static int live(void) {
	return as_program(live_here);
}

static const struct {
	const char *name;
	attempt_fn attempt;
	bool without_landlock; /* refused by a filter that Landlock does not help */
} of_programs[] = {
	{ "signal", signal_daemon, false },
	{ "signal to its group", signal_daemon_group, false },
	{ "signal to all", signal_all, false },
	{ "signal to a thread of a group", signal_thread_group, false },
	{ "signal to the first thread", signal_main_thread, false },
	{ "signal to any thread", signal_thread, false },
	{ "signal with a value", signal_with_value, false },
	{ "signal to a thread with a value", signal_thread_with_value, false },
	{ "signal to a descriptor", signal_descriptor, false },
	{ "signal by input", signal_by_input, false },
	{ "mode for all", open_to_all, false },
	{ "mode for a group", open_to_group, false },
	{ "mode of a descriptor", open_descriptor_to_all, false },
	{ "set user id", make_set_user_id, false },
	{ "group", change_group, false },
	{ "truncate by name", truncate_by_name, true },
	{ "truncate opened to read", truncate_reading, true },
};

static int try_alone(attempt_fn attempt) {
	pid_t pid = fork();
	int status = 0;

	if (!pid)
		_exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
				      sandbox_filter_install_programs(getppid(), false)
			      ? SETUP_FAILED
			      : attempt());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
								    : SETUP_FAILED;
}

static void *wait_for_end(void *argument) {
	*(volatile pid_t *)argument = (pid_t)syscall(SYS_gettid);
	while (pause())
		;
	return NULL;
}

/* As RestrictNamespaces= does. */
static int refuse_namespaces(void) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The daemon. How many attempts had another end than they should. */
static int try_programs(void) {
	const struct sandbox_options options = { .memory = 1024 * MEBI, .run_programs = true };
	int failures = 0, outside, inside, alone, fd;
	pthread_t thread;

	the_daemon = getpid();
	fd = mkstemp(own_path);
	if (fd < 0 || refuse_namespaces() ||
	    pthread_create(&thread, NULL, wait_for_end, &daemon_thread))
		return SETUP_FAILED;
	while (!*(volatile pid_t *)&daemon_thread)
		sched_yield();
	for (size_t i = 0; i < sizeof(of_programs) / sizeof(*of_programs); i++) {
		outside = of_programs[i].attempt == signal_thread
				  ? 0
				  : try_fn(of_programs[i].attempt, NULL);
		chmod(own_path, 0600);
		inside = of_programs[i].without_landlock ? EPERM
							 : try_fn(of_programs[i].attempt, &options);
		alone = try_alone(of_programs[i].attempt);
		if (outside || inside != EPERM || alone != EPERM) {
			print_error("%s: outside %d (0 expected), inside %d, by the filter alone "
				    "%d (%d expected)\n",
				    of_programs[i].name, outside, inside, alone, EPERM);
			failures++;
		}
	}
	/* The worker's own filter does not know the thread; Landlock does not need to. */
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 6 &&
	    try_fn(signal_thread_here, &options) != EPERM) {
		print_error("signal to any thread, by the worker: done\n");
		failures++;
	}
	inside = try_fn(live, &options);
	alone = try_alone(live);
	if (inside || alone) {
		print_error("what programs do: inside %d, by the filter alone %d (0 expected)\n",
			    inside, alone);
		failures++;
	}
	unlink(own_path);
	return failures;
}

static void test_programs(void **state) {
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		/* A group of its own, so that signals to all of it are the test's. Root would
		 * become another user than its daemon's. */
		if (setpgid(0, 0) || (!geteuid() && (setresgid(65534, 65534, 65534) ||
						     setresuid(65534, 65534, 65534))))
			_exit(SETUP_FAILED);
		_exit(try_programs());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int set_up(void **state) {
	int fd = mkstemp(path);

	if (fd < 0 || write(fd, "x", 1) != 1)
		return -1;
	close(fd);
	/* Root becomes nobody in the sandbox; permissions must not be what refuses. */
	chmod(path, 0666);
	shared_fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return shared_fd < 0 ? -1 : 0;
}

static int tear_down(void **state) {
	close(shared_fd);
	return unlink(path);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),     cmocka_unit_test(test_allowed),
		cmocka_unit_test(test_threads),     cmocka_unit_test(test_read_files),
		cmocka_unit_test(test_descriptors), cmocka_unit_test(test_status),
		cmocka_unit_test(test_programs),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
