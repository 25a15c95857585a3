/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs on functions of files, by bpf(2) and perf_event_open(2): Debian 12's libbpf and headers
 * know neither uprobe_multi nor sessions. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Attach types of the kernel's that older headers lack. */
#define UPROBE_ATTACH_MULTI 48 /* BPF_TRACE_UPROBE_MULTI */
#define UPROBE_ATTACH_SESSION 57 /* BPF_TRACE_UPROBE_SESSION */

/* Descriptors that hold what is attached: links, events, programs. */
struct uprobe_fds {
	int *fds; /* free it in the end */
	size_t n, n_max;
};

/* Takes a descriptor; a negative errno is handed on. 0, or -ENOMEM: it is closed. */
int uprobe_fds_add(struct uprobe_fds *fds, int fd);
/* Closes what came after there were n, the last first. */
void uprobe_fds_close(struct uprobe_fds *fds, size_t n);
/* The same, if r is an error; hands it on. */
int uprobe_fds_undo(struct uprobe_fds *fds, size_t n, int r);

/* Where in a file, and whose calls. */
struct uprobe_place {
	const char *path; /* best of a descriptor: the very inode that was looked at */
	pid_t pid; /* 0: of all processes */
	int cpu; /* of perf events of all processes: one that runs */
	unsigned int type; /* of perf events: uprobe_event_type() */
};

/* One link of a program on n functions, with a cookie each. The descriptor, or -errno. */
int uprobe_attach_multi(int program, unsigned int type, bool returns,
			const struct uprobe_place *place, const uint64_t *offsets,
			const uint64_t *cookies, size_t n);

/* A perf event with a program on one function. The descriptor, or -errno. */
int uprobe_attach_event(int program, bool returns, const struct uprobe_place *place,
			uint64_t offset, uint64_t cookie);

/* The number of the kernel's perf events of that kind; 0: it has none. */
unsigned int uprobe_event_type(void);
