/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attaches one eBPF program to many functions of a file (uprobe-link.h), by the best way that the
 * running kernel has, and detaches it in a thread of its own.
 */

#include "uprobe-link.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/gpuprobed/trace/bpf/uprobe.h"
#include "cpu-list.h"
#include "uprobe-attach.h"

#define URETPROBE_SYSCALL \
	335 /* of x86-64: how a probed return, and from 6.18 on a probed nop5, enter the kernel */
#define UPROBE_SYSCALL 336
#define REFUSED_MAX 32 /* functions */
#define PATH_SIZE 64

struct uprobe_link {
	struct uprobe_fds fds;
};

/* What is attached where. */
struct request {
	const struct uprobe_programs *programs;
	char path[PATH_SIZE]; /* of the file's descriptor: the very inode */
	struct uprobe_place place;
	const uint64_t *offsets, *cookies;
	size_t refused;
};

static int multi_link(const struct request *request, int program, unsigned int type, bool returns,
		      size_t first, size_t n) {
	return uprobe_attach_multi(program, type, returns, &request->place,
				   request->offsets + first, request->cookies + first, n);
}

/* Attaches n functions by a link or two. */
static int attach_multi(struct uprobe_link *link, const struct request *request,
			enum uprobe_rung rung, size_t first, size_t n) {
	const size_t before = link->fds.n;
	int r;

	if (rung == UPROBE_SESSION)
		return uprobe_fds_add(&link->fds,
				      multi_link(request, request->programs->session,
						 UPROBE_ATTACH_SESSION, false, first, n));
	r = uprobe_fds_add(&link->fds, multi_link(request, request->programs->leave,
						  UPROBE_ATTACH_MULTI, true, first, n));
	if (!r)
		r = uprobe_fds_add(&link->fds, multi_link(request, request->programs->enter,
							  UPROBE_ATTACH_MULTI, false, first, n));
	return uprobe_fds_undo(&link->fds, before, r);
}

/* The same in halves, when the kernel refuses a function among them. */
static int attach_parts(struct uprobe_link *link, struct request *request, enum uprobe_rung rung,
			size_t first, size_t n) {
	int r;

	r = attach_multi(link, request, rung, first, n);
	if (!r || r == -ENOMEM || r == -EPERM || r == -EACCES || r == -EMFILE || r == -ESRCH)
		return r;
	if (n == 1)
		return ++request->refused > REFUSED_MAX ? r : 0;
	r = attach_parts(link, request, rung, first, n / 2);
	return r ? r : attach_parts(link, request, rung, first + n / 2, n - n / 2);
}

/* How many descriptors are open; more than one may have if nobody can say. */
static size_t count_descriptors(void) {
	DIR *folder = opendir("/proc/self/fd");
	size_t n = 0;

	if (!folder)
		return SIZE_MAX / 2;
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* Whether n more leave others an eighth of what one may have. */
static bool make_room_for_descriptors(size_t n) {
	const size_t wanted = count_descriptors() + n;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	    wanted <= limit.rlim_cur - limit.rlim_cur / 8)
		return true;
	limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || wanted + wanted / 7 + 1 < limit.rlim_max
				 ? wanted + wanted / 7 + 1
				 : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	return wanted <= limit.rlim_cur - limit.rlim_cur / 8;
}

/* A perf event on function i. */
static int classic_probe(const struct request *request, int program, bool returns, size_t i) {
	return uprobe_attach_event(program, returns, &request->place, request->offsets[i],
				   request->cookies[i]);
}

static int attach_classic(struct uprobe_link *link, struct request *request, size_t n) {
	request->place.type = uprobe_event_type();
	request->place.cpu = cpu_first_online();
	if (!request->place.type)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < n; i++) {
		const size_t before = link->fds.n;
		int r = uprobe_fds_add(&link->fds,
				       classic_probe(request, request->programs->leave, true, i));

		if (!r)
			r = uprobe_fds_add(&link->fds,
					   classic_probe(request, request->programs->enter, false,
							 i));
		if (!uprobe_fds_undo(&link->fds, before, r))
			continue;
		if (r == -EMFILE || r == -ENOMEM || r == -EPERM || r == -EACCES ||
		    ++request->refused > REFUSED_MAX)
			return r;
	}
	return 0;
}

int uprobe_link_new(struct uprobe_link **linkp, enum uprobe_rung rung,
		    const struct uprobe_programs *programs, int fd, const uint64_t *offsets,
		    const uint64_t *cookies, size_t n, pid_t pid, size_t *refusedp) {
	struct request request = {
		.programs = programs, .offsets = offsets, .cookies = cookies, .place.pid = pid
	};
	struct uprobe_link *link = calloc(1, sizeof(*link));
	int r;

	if (!link)
		return -ENOMEM;
	snprintf(request.path, sizeof(request.path), "/proc/self/fd/%d", fd);
	request.place.path = request.path;
	if (!make_room_for_descriptors(rung == UPROBE_CLASSIC ? 2 * n : 2 * (REFUSED_MAX + 1)))
		r = -EMFILE;
	else
		r = rung == UPROBE_CLASSIC ? attach_classic(link, &request, n)
					   : attach_parts(link, &request, rung, 0, n);
	if (!r && n && !link->fds.n)
		r = -EOPNOTSUPP; /* all were refused */
	if (r) {
		uprobe_link_free(link);
		return r;
	}
	*refusedp = request.refused;
	*linkp = link;
	return 0;
}

struct uprobe_link *uprobe_link_free_now(struct uprobe_link *link) {
	if (!link)
		return NULL;
	uprobe_fds_close(&link->fds, 0);
	free(link->fds.fds);
	free(link);
	return NULL;
}

static void *run_free(void *link) {
	uprobe_link_free_now(link);
	return NULL;
}

struct uprobe_link *uprobe_link_free(struct uprobe_link *link) {
	sigset_t all, old;
	pthread_t thread;
	int r = -1;

	if (!link || !link->fds.n)
		return uprobe_link_free_now(link);
	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &old) == 0) { /* signals are the loop's */
		r = pthread_create(&thread, NULL, run_free, link);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (r)
		return uprobe_link_free_now(link);
	pthread_detach(thread);
	return NULL;
}

/* The child's two threads share what sanitizers take for a thread's own. */
#define ONE_FOR_TWO __attribute__((no_sanitize("address", "thread", "undefined")))

/* Nobody calls it. */
static ONE_FOR_TWO __attribute__((noinline, used)) int probe_target(volatile int *value) {
	return ++*value;
}

struct target {
	uint64_t address, offset;
};

/* dl_iterate_phdr(): finds where in its file the address lies. */
static int find_target(struct dl_phdr_info *info, size_t size, void *userdata) {
	struct target *target = userdata;

	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD || target->address < start ||
		    target->address - start >= segment->p_filesz)
			continue;
		target->offset = segment->p_offset + (target->address - start);
		return 1;
	}
	return 0;
}

struct probed {
	volatile int value;
	volatile bool ended;
};

static ONE_FOR_TWO int call_target(void *userdata) {
	struct probed *probed = userdata;

	probe_target(&probed->value);
	probed->ended = true;
	return 0;
}

/* The child: waits for its probe, forbids itself what a container forbids, and has a thread call
 * the function. */
static ONE_FOR_TWO _Noreturn void run_probed(int go) {
	static _Alignas(16) char stack[16384];
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UPROBE_SYSCALL, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, URETPROBE_SYSCALL, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	const struct rlimit no_core = { 0, 0 };
	struct probed probed = {};
	char byte;

	if (read(go, &byte, 1) == 1) {
		setrlimit(RLIMIT_CORE, &no_core);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
		/* not one of pthread_create(): this is the child of a program with threads */
		if (clone(call_target, stack + sizeof(stack),
			  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
				  CLONE_SYSVSEM,
			  &probed) < 0)
			call_target(&probed);
		while (!probed.ended)
			sched_yield();
	}
	_exit(probed.value != 1);
}

/* Attaches to the function in a process. */
static int attach_to_target(struct uprobe_link **linkp, enum uprobe_rung rung,
			    const struct uprobe_programs *programs, pid_t pid) {
	struct target target = { .address = (uint64_t)(uintptr_t)probe_target };
	const uint64_t cookie = 1;
	size_t refused;
	int fd, r;

	if (!dl_iterate_phdr(find_target, &target))
		return -ENOENT;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = uprobe_link_new(linkp, rung, programs, fd, &target.offset, &cookie, 1, pid, &refused);
	close(fd);
	return r;
}

/* Whether a program ran. */
static bool has_run(int map) {
	struct uprobe_control control;
	uint32_t key = 0;

	return bpf_map_lookup_elem(map, &key, &control) == 0 && control.tried;
}

int uprobe_link_probe(enum uprobe_rung rung, const struct uprobe_programs *programs, int control) {
	struct uprobe_link *link = NULL;
	int go[2], status = 0, r;
	pid_t child;

	if (pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (!child) {
		close(go[1]);
		run_probed(go[0]);
	}
	close(go[0]);
	r = child < 0 ? -errno : attach_to_target(&link, rung, programs, child);
	if (!r && write(go[1], "", 1) != 1)
		r = -EPIPE;
	close(go[1]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	uprobe_link_free(link);
	if (!r && status)
		r = UPROBE_LINK_E_HARM;
	else if (!r && !has_run(control))
		r = UPROBE_LINK_E_THREADS;
	return r;
}
