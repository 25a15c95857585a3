/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Takes a worker into its sandbox (sandbox.h).
 *
 * The way into the sandbox, in an order in which each step is still permitted:
 *
 *   no new privileges, close descriptors  then nothing is inherited
 *   namespaces, empty root, other user    what the system grants; root becomes nobody
 *   files                                 run_programs: writes to temporary folders alone, and no
 *                                         signals to others
 *   capabilities                          none left, none to be had
 *   limits                                memory, file size, descriptors, no core, no processes
 *   system call filter                    an allow list (sandbox-filter.c); last, as it forbids all
 * the above
 *
 * The filter alone keeps a worker from files, sockets and processes. The steps before it are there
 * for the case that the kernel has a hole behind a call that the filter allows.
 */

#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sandbox-filter.h"

#define NOBODY 65534
#define PROCESSES_MAX 64 /* that a program may start, with threads */
#define NOFILE_MAX \
	160 /* 64 descriptors of a message, those that the compiler libraries hold, and room */

static int compare_int(const void *a, const void *b) {
	return *(const int *)a - *(const int *)b;
}

/* Closes all but 0, 1, 2 and those to keep. */
static int close_others(const struct sandbox_options *options) {
	unsigned int from = 3;
	int *keep;

	keep = malloc((options->n_keep + 1) * sizeof(*keep));
	if (!keep)
		return -ENOMEM;
	memcpy(keep, options->keep, options->n_keep * sizeof(*keep));
	qsort(keep, options->n_keep, sizeof(*keep), compare_int);
	for (size_t i = 0; i < options->n_keep; i++) {
		if (keep[i] < (int)from)
			continue;
		if (keep[i] > (int)from && close_range(from, (unsigned int)keep[i] - 1, 0))
			break;
		from = (unsigned int)keep[i] + 1;
	}
	free(keep);
	return close_range(from, ~0U, 0) ? -errno : 0;
}

/* All of it may be refused (RestrictNamespaces=, containers, sysctls): then the filter stands
 * alone. Whether there are namespaces. */
static bool leave_world(const struct sandbox_options *options) {
	int namespaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWCGROUP;

	if (options->run_programs)
		namespaces |= CLONE_NEWPID; /* of the next process, and those it makes */
	if (unshare(geteuid() ? namespaces | CLONE_NEWUSER : namespaces))
		return false;
	if (options->run_programs)
		return true;
	/* An empty, read-only root: /proc exists everywhere, and is ours alone to cover here. */
	if (options->read_files || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
		  "size=4k") ||
	    chdir("/proc") || chroot("."))
		return true;
	return true;
}

/* For headers older than the kernel. */
#define TRUNCATE_ACCESS (UINT64_C(1) << 14)
#define SIGNAL_SCOPE (UINT64_C(1) << 1)
#define VERSION_TRUNCATE 3 /* which have them */
#define VERSION_SCOPE 6

struct ruleset_attributes { /* longer than older kernels know, which is fine as long as the rest is
			       0 */
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

/* Which Landlock the kernel has; less than 1: none. */
static long landlock_version(void) {
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

/* Lets a program write below `path`; a path that is not there is none. */
static int allow_writing(int rules, const char *path, uint64_t access) {
	struct landlock_path_beneath_attr rule = { .allowed_access = access };
	int r;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return 0;
	r = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) ? -errno
											: 0;
	close(rule.parent_fd);
	return r;
}

/*
 * A program may write what everybody may: temporary files. The daemon's user may have files that
 * matter. Where the kernel has no Landlock, the user's rights are the bound. Signals go to
 * processes that we make, where the kernel's is that new (6.12): threads of the daemon have ids of
 * their own, which no filter knows.
 */
static int limit_writing(long version) {
	static const char *const folders[] = { "/tmp", "/var/tmp", "/dev/shm" };
	static const char *const files[] = { "/dev/null", "/dev/zero", "/dev/full" };
	struct ruleset_attributes handled = {
		.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
				     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
				     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
				     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
				     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM,
	};
	uint64_t on_files = LANDLOCK_ACCESS_FS_WRITE_FILE;
	int rules, r = 0;

	if (version < 1)
		return 0;
	if (version >= VERSION_SCOPE)
		handled.scoped = SIGNAL_SCOPE;
	if (version >= VERSION_TRUNCATE) {
		handled.handled_access_fs |= TRUNCATE_ACCESS;
		on_files |= TRUNCATE_ACCESS;
	}
	rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	if (rules < 0)
		return -errno;
	for (size_t i = 0; !r && i < sizeof(folders) / sizeof(*folders); i++)
		r = allow_writing(rules, folders[i], handled.handled_access_fs);
	for (size_t i = 0; !r && i < sizeof(files) / sizeof(*files); i++)
		r = allow_writing(rules, files[i], on_files);
	if (!r && syscall(SYS_landlock_restrict_self, rules, 0))
		r = -errno;
	close(rules);
	return r;
}

/* A root whose user namespace does not know nobody stays what it is, but has no capabilities. */
static void leave_user(void) {
	if (geteuid())
		return;
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return;
}

static int drop_capabilities(void) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	/* Without CAP_SETPCAP the bounding set stays; no_new_privs makes it meaningless. */
	for (unsigned long capability = 0; capability < 64; capability++)
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
			break;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) && errno != EINVAL)
		return -errno;
	if (syscall(SYS_capset, &header, data))
		return -errno;
	return 0;
}

static int limit(int resource, uint64_t value) {
	struct rlimit old, new;

	if (getrlimit((__rlimit_resource_t)resource, &old))
		return -errno;
	/* Never above what was inherited. */
	new.rlim_cur = new.rlim_max = value < old.rlim_max ? value : old.rlim_max;
	return setrlimit((__rlimit_resource_t)resource, &new) ? -errno : 0;
}

/*
 * How many processes and threads the user may have. Where there is no user namespace, those that he
 * has already count, too: then all threads of the system are the nearest that is known.
 */
static uint64_t process_limit(const struct sandbox_options *options) {
	unsigned long running, total = 0;
	FILE *file;

	if (!options->run_programs && !options->threads)
		return 0;
	file = fopen("/proc/loadavg", "re");
	if (file && fscanf(file, "%*s %*s %*s %lu/%lu", &running, &total) != 2)
		total = 1024;
	if (file)
		fclose(file);
	return total + (options->run_programs ? PROCESSES_MAX : options->threads);
}

static int set_limits(const struct sandbox_options *options, uint64_t processes) {
	int r = 0;

	if (options->memory)
		r = limit(RLIMIT_AS, options->memory);
	if (!r && options->file_size)
		r = limit(RLIMIT_FSIZE, options->file_size);
	if (!r)
		r = limit(RLIMIT_CORE, 0);
	if (!r)
		r = limit(RLIMIT_NOFILE, NOFILE_MAX);
	if (!r)
		r = limit(RLIMIT_NPROC, processes);
	if (!r)
		r = limit(RLIMIT_MEMLOCK, 0);
	if (!r)
		r = limit(RLIMIT_MSGQUEUE, 0);
	return r;
}

int sandbox_enter(const struct sandbox_options *options, const char **what) {
	const uint64_t processes = process_limit(options); /* /proc may be covered soon */
	long landlock = landlock_version();
	bool apart;
	int r;

	*what = "no new privileges";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	*what = "close descriptors";
	r = close_others(options);
	if (r)
		return r;
	apart = leave_world(options);
	leave_user();
	*what = "files";
	r = options->run_programs ? limit_writing(landlock) : 0;
	if (r)
		return r;
	*what = "capabilities";
	r = drop_capabilities();
	if (r)
		return r;
	*what = "limits";
	r = set_limits(options, processes);
	if (r)
		return r;
	/* Writing more than RLIMIT_FSIZE is an error like others, not a signal. */
	signal(SIGXFSZ, SIG_IGN);
	*what = "process attributes";
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	/* After all changes of identity, which clear it. If the daemon is gone already, its socket
	 * tells. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return -errno;
	*what = "system call filter";
	if (!options->run_programs)
		return sandbox_filter_install(options->read_files, options->threads);
	return sandbox_filter_install_programs(apart ? 0 : getppid(), landlock >= VERSION_TRUNCATE);
}

int sandbox_fstat(int fd, struct stat *status) {
	return (int)syscall(SYS_fstat, fd, status);
}

int sandbox_job_begin(const struct sandbox_options *options) {
	struct rlimit cpu;
	struct timespec used;

	if (!options->cpu_seconds)
		return 0;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) || getrlimit(RLIMIT_CPU, &cpu))
		return -errno;
	cpu.rlim_cur = (rlim_t)used.tv_sec + 1 + options->cpu_seconds;
	if (cpu.rlim_cur > cpu.rlim_max)
		cpu.rlim_cur = cpu.rlim_max;
	return setrlimit(RLIMIT_CPU, &cpu) ? -errno : 0;
}

int sandbox_stay_in_group(void) {
	return sandbox_filter_install_group();
}
