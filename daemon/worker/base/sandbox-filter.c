/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Builds and installs the system call filter of workers (sandbox-filter.h).
 *
 * The system call filter, written as classic BPF.
 *
 * Three lists of calls, tried in this order: those allowed, some only if an argument is as it must
 * be; those that a library tries and does without, which fail with an errno; and the rest, which
 * ends the process. The program is built at run time from tables of numbers, because a conditional
 * rule is several instructions long and the tables differ between architectures. Each rule is
 * self-contained: it ends in a return or falls through to the next.
 */

#include "sandbox-filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture"
#endif

#define FILTER_MAX 512
#define THREAD_FLAGS                                                                        \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SIGHAND | CLONE_THREAD | \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

/* Calls that can do no harm with any argument. */
static const uint16_t allowed[] = {
	/* Descriptors that we have. */
	SYS_read,
	SYS_write,
	SYS_pread64,
	SYS_pwrite64,
	SYS_readv,
	SYS_writev,
	SYS_recvmsg,
	SYS_sendmsg,
	SYS_close,
	SYS_fstat,
	SYS_lseek,
	SYS_ppoll,
#ifdef SYS_poll
	SYS_poll,
#endif
	/* Memory; mmap and mprotect are below. */
	SYS_brk,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_membarrier,
	/* Time, threads of our own, signals to ourselves. */
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_clock_nanosleep,
	SYS_nanosleep,
	SYS_gettimeofday,
	SYS_futex,
	SYS_sched_yield,
	SYS_sched_getaffinity,
	SYS_sched_get_priority_max,
	SYS_sched_get_priority_min,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_restart_syscall,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	SYS_exit,
	SYS_exit_group,
	/* What we are. */
	SYS_getpid,
	SYS_getppid,
	SYS_gettid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getrandom,
	SYS_getrusage,
	SYS_times,
	SYS_uname,
	SYS_sysinfo,
	SYS_getrlimit,
	SYS_getcwd,
#ifdef SYS_time
	SYS_time,
#endif
};

/*
 * Calls by which a path is looked up: refused with EACCES, or allowed with read_files.
 * newfstatat(2) is one of them whatever its flags are: a filter does not see whether the path is
 * empty. glibc's fstat() is that call, so that there is sandbox_fstat().
 */
static const uint16_t lookups[] = {
	SYS_faccessat,  SYS_faccessat2, SYS_readlinkat, SYS_statx,
	SYS_newfstatat, SYS_getdents64, SYS_statfs,     SYS_fstatfs,
#ifdef SYS_access
	SYS_access,     SYS_readlink,   SYS_stat,       SYS_lstat,
#endif
};

/* Calls that libraries try and do without. clone3 is tried before clone. */
static const struct {
	uint16_t number;
	uint16_t error;
} refused[] = {
	{ SYS_prctl, EPERM },
	{ SYS_ioctl, ENOTTY },
	{ SYS_fcntl, EPERM },
	{ SYS_clone, EPERM },
	{ SYS_clone3, ENOSYS },
	{ SYS_openat2, ENOSYS },
	{ SYS_memfd_create, EPERM },
	{ SYS_bpf, EPERM },
	{ SYS_prlimit64, EPERM },
	{ SYS_setrlimit, EPERM },
	{ SYS_sched_setaffinity, EPERM },
	{ SYS_mlock, EPERM },
	{ SYS_mprotect, EACCES },
	{ SYS_mmap, EACCES },
	{ SYS_openat, EACCES },
	{ SYS_get_mempolicy, EPERM },
	{ SYS_unlinkat, EACCES },
	{ SYS_mkdirat, EACCES },
	{ SYS_renameat2, EACCES },
#ifdef SYS_open
	{ SYS_open, EACCES },
	{ SYS_creat, EACCES },
	{ SYS_unlink, EACCES },
	{ SYS_mkdir, EACCES },
	{ SYS_rename, EACCES },
	{ SYS_rmdir, EACCES },
#endif
};

struct filter {
	struct sock_filter code[FILTER_MAX];
	unsigned short n;
	bool full;
};

static void emit(struct filter *filter, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf) {
	if (filter->n == FILTER_MAX) {
		filter->full = true;
		return;
	}
	filter->code[filter->n++] = (struct sock_filter){ code, jt, jf, k };
}

static void emit_return(struct filter *filter, uint32_t action) {
	emit(filter, BPF_RET | BPF_K, action, 0, 0);
}

static void emit_load(struct filter *filter, size_t offset) {
	emit(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* If the call is `number`: action. The accumulator holds the number, before and after. */
static void on_call(struct filter *filter, uint32_t number, uint32_t action) {
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
	emit_return(filter, action);
}

/* If the call is `number` and the low half of argument `index`, masked, equals `value`: action. */
static void on_argument(struct filter *filter, uint32_t number, unsigned int index, uint32_t mask,
			uint32_t value, uint32_t action) {
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 5);
	emit_load(filter, offsetof(struct seccomp_data, args) + 8 * index);
	emit(filter, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	emit_return(filter, action);
	emit_load(filter, offsetof(struct seccomp_data, nr));
}

static void allow_if(struct filter *filter, uint32_t number, unsigned int index, uint32_t mask,
		     uint32_t value) {
	on_argument(filter, number, index, mask, value, SECCOMP_RET_ALLOW);
}

static void build(struct filter *filter, bool read_files, bool threads) {
	const uint32_t writing =
		O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

	emit_load(filter, offsetof(struct seccomp_data, arch));
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
	emit_return(filter, SECCOMP_RET_KILL_PROCESS);
	emit_load(filter, offsetof(struct seccomp_data, nr));

	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		on_call(filter, allowed[i], SECCOMP_RET_ALLOW);

	/* No memory that can be executed, be it new or made so. */
	allow_if(filter, SYS_mmap, 2, PROT_EXEC, 0);
	allow_if(filter, SYS_mprotect, 2, PROT_EXEC, 0);
	/* Seals and flags can be asked for, not set. */
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GET_SEALS);
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GETFD);
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GETFL);
	/* abort() and SIGXCPU's limit: ourselves alone. The pid of prlimit is 0, or it is
	 * another's. */
	allow_if(filter, SYS_tgkill, 0, ~0U, (uint32_t)getpid());
	allow_if(filter, SYS_prlimit64, 0, ~0U, 0);
	/* pthread_create(), and nothing else: clone3, which no filter can look into, is refused,
	 * and glibc takes this. */
	if (threads)
		allow_if(filter, SYS_clone, 0, ~0U, THREAD_FLAGS);
	if (read_files) {
		allow_if(filter, SYS_openat, 2, writing, O_RDONLY);
#ifdef SYS_open
		allow_if(filter, SYS_open, 1, writing, O_RDONLY);
#endif
	}
	for (size_t i = 0; i < sizeof(lookups) / sizeof(*lookups); i++)
		on_call(filter, lookups[i],
			read_files ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EACCES);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		on_call(filter, refused[i].number, SECCOMP_RET_ERRNO | refused[i].error);
	emit_return(filter, SECCOMP_RET_KILL_PROCESS);
}

/*
 * What a program that an operator has named may not do. It is any program, so that there is a list
 * of what is forbidden: the network, other processes, mounts and namespaces, and interfaces of the
 * kernel that programs do without and that have had holes.
 */
static const uint16_t forbidden[] = {
	SYS_socket,
	SYS_ptrace,
	SYS_pidfd_send_signal,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_process_madvise,
	SYS_pidfd_getfd,
	SYS_kcmp,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_io_uring_setup,
	SYS_io_uring_enter,
	SYS_io_uring_register,
	SYS_keyctl,
	SYS_add_key,
	SYS_request_key,
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_move_mount,
	SYS_open_tree,
	SYS_fsopen,
	SYS_fsconfig,
	SYS_fsmount,
	SYS_fspick,
	SYS_mount_setattr,
	SYS_unshare,
	SYS_setns,
	SYS_open_by_handle_at,
	SYS_quotactl,
	SYS_swapon,
	SYS_swapoff,
	SYS_reboot,
	SYS_acct,
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_shmget,
	SYS_msgget,
	SYS_semget,
	SYS_mq_open,
	SYS_clock_settime,
	SYS_settimeofday,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_prlimit64, /* of others; of itself: below */
	/* Whose a file is: programs of users are used to it. */
	SYS_fchown,
	SYS_fchownat,
#ifdef SYS_chown
	SYS_chown,
	SYS_lchown,
#endif
};

/* For headers older than the kernel. */
enum {
	NR_FCHMODAT2 = 452,
	NR_SETXATTRAT = 463,
	NR_REMOVEXATTRAT = 466,
	NR_FILE_SETATTR = 469,
};

/* Access control lists are such attributes. There are file systems without, so that programs go on.
 */
static const uint16_t attributes[] = {
	SYS_setxattr,     SYS_lsetxattr, SYS_fsetxattr,    SYS_removexattr, SYS_lremovexattr,
	SYS_fremovexattr, NR_SETXATTRAT, NR_REMOVEXATTRAT, NR_FILE_SETATTR,
};

/* Modes, and which argument they are. The daemon's files are the program's user's, so that it could
 * open them to others. */
static const struct {
	uint16_t number;
	uint16_t index;
} modes[] = {
	{ SYS_fchmod, 1 },
	{ SYS_fchmodat, 2 },
	{ NR_FCHMODAT2, 2 },
#ifdef SYS_chmod
	{ SYS_chmod, 1 },
#endif
};

/* Calls that send a signal; the first argument says to whom. */
static const uint16_t signals[] = {
	SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
};

#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

static int install(struct filter *filter) {
	struct sock_fprog program = { .filter = filter->code };

	if (filter->full)
		return -E2BIG;
	program.len = filter->n;
	/* Positive: a thread that could not be given the filter. */
	switch (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
			&program)) {
	case 0:
		return 0;
	case -1:
		return -errno;
	}
	return -ESRCH;
}

static void begin(struct filter *filter) {
	emit_load(filter, offsetof(struct seccomp_data, arch));
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
	emit_return(filter, SECCOMP_RET_KILL_PROCESS);
	emit_load(filter, offsetof(struct seccomp_data, nr));
}

/*
 * No signal to `daemon`, to the group that we are in, its own, or to all. A thread of the daemon
 * has an id that we do not know: that is for Landlock, where the kernel has it, and for
 * sandbox_filter_install_group().
 */
static void refuse_signals(struct filter *filter, pid_t daemon) {
	const uint32_t whom[] = { (uint32_t)daemon, -(uint32_t)daemon, -(uint32_t)getpgrp(), -1U };

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		for (size_t j = 0; j < sizeof(whom) / sizeof(*whom); j++)
			if (whom[j]) /* 0: the caller's own group */
				on_argument(filter, signals[i], 0, ~0U, whom[j], REFUSE);
}

/* Files are not made empty by their names, nor by opening them to read (or for nothing, which is
 * 3). */
static void refuse_truncation(struct filter *filter) {
	on_call(filter, SYS_truncate, REFUSE);
	on_call(filter, SYS_openat2, SECCOMP_RET_ERRNO | ENOSYS); /* its flags cannot be seen */
	for (uint32_t access = 0; access <= 3; access += 3) {
		on_argument(filter, SYS_openat, 2, O_ACCMODE | O_TRUNC, access | O_TRUNC, REFUSE);
#ifdef SYS_open
		on_argument(filter, SYS_open, 1, O_ACCMODE | O_TRUNC, access | O_TRUNC, REFUSE);
#endif
	}
}

int sandbox_filter_install_programs(pid_t daemon, bool may_truncate) {
	const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
				    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
	struct filter filter = { .n = 0 };

	begin(&filter);
#ifdef __x86_64__
	/* The x32 calls have numbers of their own. */
	emit(&filter, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
	emit_return(&filter, SECCOMP_RET_ERRNO | ENOSYS);
#endif
	allow_if(&filter, SYS_prlimit64, 0, ~0U, 0);
	allow_if(&filter, SYS_clone, 0, namespaces, 0);
	on_call(&filter, SYS_clone, SECCOMP_RET_ERRNO | EPERM);
	on_call(&filter, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS); /* its flags cannot be seen */
	if (daemon)
		refuse_signals(&filter, daemon);
	/* Who owns a descriptor gets a signal when something comes, any signal that one likes. */
	on_argument(&filter, SYS_fcntl, 1, ~0U, F_SETOWN, REFUSE);
	on_argument(&filter, SYS_fcntl, 1, ~0U, F_SETOWN_EX, REFUSE);
	on_argument(&filter, SYS_ioctl, 1, ~0U, FIOSETOWN, REFUSE);
	on_argument(&filter, SYS_ioctl, 1, ~0U, SIOCSPGRP, REFUSE);
	/* What others may write to, or run as its owner. All else is set as users of chmod(1) and
	 * sed(1) know it. */
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		allow_if(&filter, modes[i].number, modes[i].index,
			 S_ISUID | S_ISGID | S_IWGRP | S_IWOTH, 0);
		on_call(&filter, modes[i].number, REFUSE);
	}
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		on_call(&filter, attributes[i], SECCOMP_RET_ERRNO | EOPNOTSUPP);
	if (!may_truncate)
		refuse_truncation(&filter);
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++)
		on_call(&filter, forbidden[i], REFUSE);
	emit_return(&filter, SECCOMP_RET_ALLOW);
	return install(&filter);
}

/*
 * No signal to a process, thread or group whose id is `last` or lower: it was there before us. (Ids
 * begin anew some time. Then this is not exact: a child may not be killed that could be, and the
 * other way round.)
 */
static void refuse_older(struct filter *filter, uint32_t number, uint32_t last) {
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 6);
	emit_load(filter, offsetof(struct seccomp_data, args));
	emit(filter, BPF_JMP | BPF_JGE | BPF_K, -last, 2, 0); /* a group; -1: all */
	emit(filter, BPF_ALU | BPF_SUB | BPF_K, 1, 0, 0); /* 0, our group, becomes the largest */
	emit(filter, BPF_JMP | BPF_JGE | BPF_K, last, 1, 0);
	emit_return(filter, REFUSE);
	emit_load(filter, offsetof(struct seccomp_data, nr));
}

int sandbox_filter_install_group(void) {
	pid_t older = getppid() - 1; /* none where the parent is the first of a namespace */
	struct filter filter = { .n = 0 };

	begin(&filter);
	on_call(&filter, SYS_setsid, SECCOMP_RET_ERRNO | EPERM);
	on_call(&filter, SYS_setpgid, SECCOMP_RET_ERRNO | EPERM);
	for (size_t i = 0; older > 0 && i < sizeof(signals) / sizeof(*signals); i++)
		refuse_older(&filter, signals[i], (uint32_t)older);
	emit_return(&filter, SECCOMP_RET_ALLOW);
	return install(&filter);
}

int sandbox_filter_install(bool read_files, bool threads) {
	struct filter filter = { .n = 0 };

	build(&filter, read_files, threads);
	return install(&filter);
}
