/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attaches eBPF programs to functions of files by bpf(2) and perf_event_open(2) (uprobe-attach.h).
 * It makes the system calls and keeps no state; uprobe-link.c chooses the way.
 */

#include "uprobe-attach.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MULTI_RETURN 1 /* BPF_F_UPROBE_MULTI_RETURN */

int uprobe_attach_multi(int program, unsigned int type, bool returns,
			const struct uprobe_place *place, const uint64_t *offsets,
			const uint64_t *cookies, size_t n) {
	/* the beginning of union bpf_attr, of the command */
	struct {
		uint32_t program, target, type, flags;
		uint64_t path, offsets, semaphores, cookies;
		uint32_t n, multi_flags, pid, reserved;
	} attribute = {
		.program = (uint32_t)program,
		.type = type,
		.path = (uint64_t)(uintptr_t)place->path,
		.offsets = (uint64_t)(uintptr_t)offsets,
		.cookies = (uint64_t)(uintptr_t)cookies,
		.n = (uint32_t)n,
		.multi_flags = returns ? MULTI_RETURN : 0,
		.pid = (uint32_t)place->pid,
	};
	int fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attribute, sizeof(attribute));

	return fd < 0 ? -errno : fd;
}

int uprobe_attach_event(int program, bool returns, const struct uprobe_place *place,
			uint64_t offset, uint64_t cookie) {
	struct perf_event_attr attribute = {
		.type = place->type,
		.size = sizeof(attribute),
		.config = returns,
		.uprobe_path = (uint64_t)(uintptr_t)place->path,
		.probe_offset = offset,
	};
	LIBBPF_OPTS(bpf_link_create_opts, options, .perf_event.bpf_cookie = cookie);
	int event, fd;

	if (!place->type)
		return -EOPNOTSUPP;
	event = (int)syscall(SYS_perf_event_open, &attribute, place->pid ? place->pid : -1,
			     place->pid ? -1 : place->cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	fd = bpf_link_create(program, event, BPF_PERF_EVENT, &options);
	fd = fd < 0 ? -errno : fd;
	close(event); /* the link holds it */
	return fd;
}

unsigned int uprobe_event_type(void) {
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	unsigned int type = 0;

	if (file && fscanf(file, "%u", &type) != 1)
		type = 0;
	if (file)
		fclose(file);
	return type;
}

int uprobe_fds_add(struct uprobe_fds *fds, int fd) {
	const size_t n_max = 2 * fds->n_max + 2;
	int *grown;

	if (fd < 0)
		return fd;
	if (fds->n == fds->n_max) {
		grown = reallocarray(fds->fds, n_max, sizeof(*grown));
		if (!grown) {
			close(fd);
			return -ENOMEM;
		}
		fds->fds = grown;
		fds->n_max = n_max;
	}
	fds->fds[fds->n++] = fd;
	return 0;
}

void uprobe_fds_close(struct uprobe_fds *fds, size_t n) {
	while (fds->n > n)
		close(fds->fds[--fds->n]);
}

int uprobe_fds_undo(struct uprobe_fds *fds, size_t n, int r) {
	if (r < 0)
		uprobe_fds_close(fds, n);
	return r;
}
