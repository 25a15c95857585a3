/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Builds and installs the system call filter of workers (sandbox-filter.h), as classic BPF.
 *
 * There are three lists of calls, tried in this order. Some calls are allowed, a few of them only
 * with certain arguments. Some fail with an errno, because libraries try them and do without. All
 * others end the process. The program is built at run time from tables of numbers, because a rule
 * about an argument takes several instructions, and the tables differ between architectures. Each
 * rule ends in a return or falls through to the next.
 *
 * This order is why libseccomp (2.5) does not build it. There a rule for all arguments of a call
 * replaces the rules for some of them, and a rule may compare an argument only once. "Allow
 * fcntl(F_GETFD) and fcntl(F_GETFL), refuse all other fcntl()" cannot be said so in one filter.
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
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
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
 * Calls that look up a path: refused with EACCES, or allowed with read_files. newfstatat(2) is one
 * of them with all flags, because a filter does not see whether the path is empty. glibc's fstat()
 * makes that call, so workers use sandbox_fstat().
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

/* Loads the number of the call. Calls of another architecture end the process. */
static void begin(struct filter *filter) {
	emit_load(filter, offsetof(struct seccomp_data, arch));
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
	emit_return(filter, SECCOMP_RET_KILL_PROCESS);
	emit_load(filter, offsetof(struct seccomp_data, nr));
}

/* If the call is `number`: action. The accumulator holds the number, before and after. */
static void on_call(struct filter *filter, uint32_t number, uint32_t action) {
	emit(filter, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
	emit_return(filter, action);
}

static void on_calls(struct filter *filter, const uint16_t *numbers, size_t n, uint32_t action) {
	for (size_t i = 0; i < n; i++)
		on_call(filter, numbers[i], action);
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

	begin(filter);
	on_calls(filter, allowed, sizeof(allowed) / sizeof(*allowed), SECCOMP_RET_ALLOW);

	/* No memory that can be executed, be it new or made so. */
	allow_if(filter, SYS_mmap, 2, PROT_EXEC, 0);
	allow_if(filter, SYS_mprotect, 2, PROT_EXEC, 0);
	/* Seals and flags can be asked for, not set. */
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GET_SEALS);
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GETFD);
	allow_if(filter, SYS_fcntl, 1, ~0U, F_GETFL);
	/* abort(), and the limit that brings SIGXCPU: of this process alone. prlimit64() of
	 * pid 0 is that. */
	allow_if(filter, SYS_tgkill, 0, ~0U, (uint32_t)getpid());
	allow_if(filter, SYS_prlimit64, 0, ~0U, 0);
	/* pthread_create(), and nothing else. glibc tries clone3 first, which is refused because
	 * no filter can look into its arguments. */
	if (threads)
		allow_if(filter, SYS_clone, 0, ~0U, THREAD_FLAGS);
	if (read_files) {
		allow_if(filter, SYS_openat, 2, writing, O_RDONLY);
#ifdef SYS_open
		allow_if(filter, SYS_open, 1, writing, O_RDONLY);
#endif
	}
	on_calls(filter, lookups, sizeof(lookups) / sizeof(*lookups),
		 read_files ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EACCES);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		on_call(filter, refused[i].number, SECCOMP_RET_ERRNO | refused[i].error);
	emit_return(filter, SECCOMP_RET_KILL_PROCESS);
}

/*
 * Calls that a program of the operator may not make. It can be any program, so this is a list of
 * what is forbidden: the network, other processes, mounts and namespaces, and interfaces of the
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

/* Access control lists are such attributes. Some file systems have none, so programs go on. */
static const uint16_t attributes[] = {
	SYS_setxattr,     SYS_lsetxattr, SYS_fsetxattr,    SYS_removexattr, SYS_lremovexattr,
	SYS_fremovexattr, NR_SETXATTRAT, NR_REMOVEXATTRAT, NR_FILE_SETATTR,
};

/* Calls that set a mode, and which argument that is. The program runs as the owner of the daemon's
 * files, so it could open them to others. */
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

/*
 * No signal to the process `daemon`, to its group, to the group of this process, or to all. The ids
 * of the daemon's threads are not known here: Landlock, where the kernel has it, and
 * sandbox_filter_install_group() refuse signals to those.
 */
static void refuse_signals(struct filter *filter, pid_t daemon) {
	const uint32_t whom[] = { (uint32_t)daemon, -(uint32_t)daemon, -(uint32_t)getpgrp(), -1U };

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		for (size_t j = 0; j < sizeof(whom) / sizeof(*whom); j++)
			if (whom[j]) /* 0: the caller's own group */
				on_argument(filter, signals[i], 0, ~0U, whom[j], REFUSE);
}

/* Files are not emptied by their names, nor when they are opened for reading (access 0) or for
 * neither reading nor writing (access 3). */
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
	on_call(&filter, SYS_clone, REFUSE);
	on_call(&filter, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS); /* its flags cannot be seen */
	if (daemon)
		refuse_signals(&filter, daemon);
	/* The owner of a descriptor gets a signal when data comes; the program chooses which one.
	 */
	on_argument(&filter, SYS_fcntl, 1, ~0U, F_SETOWN, REFUSE);
	on_argument(&filter, SYS_fcntl, 1, ~0U, F_SETOWN_EX, REFUSE);
	on_argument(&filter, SYS_ioctl, 1, ~0U, FIOSETOWN, REFUSE);
	on_argument(&filter, SYS_ioctl, 1, ~0U, SIOCSPGRP, REFUSE);
	/* No files that others may write to, or that run as their owner. chmod(1) and sed(1) set
	 * other modes as usual. */
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		allow_if(&filter, modes[i].number, modes[i].index,
			 S_ISUID | S_ISGID | S_IWGRP | S_IWOTH, 0);
		on_call(&filter, modes[i].number, REFUSE);
	}
	on_calls(&filter, attributes, sizeof(attributes) / sizeof(*attributes),
		 SECCOMP_RET_ERRNO | EOPNOTSUPP);
	if (!may_truncate)
		refuse_truncation(&filter);
	on_calls(&filter, forbidden, sizeof(forbidden) / sizeof(*forbidden), REFUSE);
	emit_return(&filter, SECCOMP_RET_ALLOW);
	return install(&filter);
}

/*
 * No signal to a process, thread or group whose id is `last` or lower, because it is older than
 * this process. This is not exact once ids have begun anew: then a child with a low id gets no
 * signals, and an older process with a high id does.
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
	on_call(&filter, SYS_setsid, REFUSE);
	on_call(&filter, SYS_setpgid, REFUSE);
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
