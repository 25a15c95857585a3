/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads what /proc says about a process (process-facts.h).
 *
 * A pid may be reused between the connect(2) that told us of it and the moment we read /proc. The
 * pidfd of the peer (Linux 6.5) settles that: if its process is still alive after we have read,
 * what we read is about it. On older kernels the start time is read before and after, which leaves
 * the time before the first reading open.
 */

#include "process-facts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/memfd.h"

/* Reads a small file of /proc/PID as text. Bytes, or -errno. */
static ssize_t proc_read(pid_t pid, const char *name, char *text, size_t size) {
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	n = file_read_text(AT_FDCWD, path, text, size);
	return n == -ENOENT ? -ESRCH : n;
}

/* Field 22 of stat; the name in field 2 may hold spaces and parentheses. */
int process_start_time(pid_t pid, uint64_t *timep) {
	char text[1024], *field, *end;
	ssize_t n;

	n = proc_read(pid, "stat", text, sizeof(text));
	if (n < 0)
		return (int)n;
	field = strrchr(text, ')');
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	if (!field)
		return -EINVAL;
	*timep = strtoull(field + 1, &end, 10);
	return end == field + 1 ? -EINVAL : 0;
}

static int proc_comm(pid_t pid, char comm[static FILTER_COMM_SIZE]) {
	char text[64];
	ssize_t n;

	n = proc_read(pid, "comm", text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (n && text[n - 1] == '\n')
		text[n - 1] = '\0';
	memset(comm, 0, FILTER_COMM_SIZE);
	memcpy(comm, text, strnlen(text, FILTER_COMM_SIZE - 1));
	return 0;
}

/* The real uid, and whether the process has no other rights. A file of /proc/PID is root's if the
 * process may not be looked into (proc(5)). */
static int proc_uid(struct process_facts *facts) {
	char text[2048], path[64], *line;
	unsigned int ids[4]; /* real, effective, saved, of the file system */
	struct stat status;
	ssize_t n;

	n = proc_read(facts->pid, "status", text, sizeof(text));
	if (n < 0)
		return (int)n;
	line = strstr(text, "\nUid:\t");
	if (!line || sscanf(line + 6, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)facts->pid);
	facts->uid = ids[0];
	facts->own = ids[1] == ids[0] && ids[2] == ids[0] && ids[3] == ids[0] &&
		     stat(path, &status) == 0 && status.st_uid == ids[0];
	return 0;
}

/* The cgroup in the unified hierarchy, line "0::PATH". One that cannot be read is empty: no rule
 * means it. */
static void proc_cgroup(pid_t pid, char cgroup[static FILTER_CGROUP_SIZE]) {
	char text[16384], *line;
	size_t length;
	ssize_t n;

	cgroup[0] = '\0';
	n = proc_read(pid, "cgroup", text, sizeof(text));
	if (n <= 0)
		return;
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line)
		return;
	line = strchr(line, '/');
	length = line ? strcspn(line, "\n") : 0;
	if (!length || length >= FILTER_CGROUP_SIZE || !line[length])
		return;
	memcpy(cgroup, line, length);
	cgroup[length] = '\0';
}

int process_facts_read(struct process_facts *facts, pid_t pid, int pidfd) {
	struct process_facts read = { .pid = pid };
	char path[64];
	uint64_t again;
	ssize_t n;
	int r;

	r = process_start_time(pid, &read.start_time);
	if (r == 0)
		r = proc_comm(pid, read.comm);
	if (r == 0)
		r = proc_uid(&read);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, read.exe, sizeof(read.exe));
	if (n < 0 || (size_t)n == sizeof(read.exe))
		n = 0; /* not ours to see, or absurdly long: no filter by exe means it */
	read.exe[n] = '\0';
	proc_cgroup(pid, read.cgroup);
	if (pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH)
		return -ESRCH;
	r = process_start_time(pid, &again);
	if (r < 0)
		return r;
	if (again != read.start_time)
		return -ESRCH;
	*facts = read;
	return 0;
}

void process_facts_refresh(struct process_facts *facts) {
	proc_comm(facts->pid, facts->comm);
}

bool process_facts_same(const struct process_facts *a, const struct process_facts *b) {
	return a->pid == b->pid && a->start_time == b->start_time && strcmp(a->exe, b->exe) == 0;
}

bool process_facts_of_all(void) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	return syscall(SYS_capget, &header, data) == 0 &&
	       data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE);
}
