/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The programs of an object that run on the host (uprobes, tracepoints, ...), and the kernel arrays
 * that they share with its GPU programs. libbpf loads and attaches them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"
#include "verify.h"

enum host_result {
	_HOST_SUCCESS,
	HOST_E_REFUSED, /* by the kernel's verifier; the report has a log */
	HOST_E_NOT_PERMITTED, /* this process may not: reason says what to do */
	HOST_E_INVALID, /* the object, a map or a section: reason */
	HOST_E_ATTACH, /* there is no such function, tracepoint, ...: program, reason */
};

struct host;

/*
 * Loads the host programs of an object (bit i of host_programs: program i of linked) and creates
 * their maps. elf is what linked was made of. gpu_programs: those that go to the GPU, whose maps
 * may be shared. targets: of each program, where it is attached (host-target.h); NULL: where its
 * section says. Nothing runs yet. Blocks, up to seconds: may run in a thread. 0, a positive result
 * and a report (zeroed by the caller, who frees it), or negative errno.
 */
int host_new(struct host **hostp, const void *elf, size_t n_elf, const struct linked *linked,
	     const void *blob, uint64_t gpu_programs, uint64_t host_programs,
	     char *const targets[static LINKED_PROGRAMS_MAX], struct verify_report *report);

/* Attaches them: from here on they run. As above. */
int host_attach(struct host *host, char *const targets[static LINKED_PROGRAMS_MAX],
		struct verify_report *report);

/* What an earlier daemon attached: links alone, by which programs and maps live on. 0 or -ENOMEM.
 * The descriptor of a link is consumed. */
int host_adopt(struct host **hostp);
void host_adopt_link(struct host *host, size_t program, int fd);

/* The descriptor of a program's link, by which it stays attached; -1: there is none. Owned by host.
 */
int host_link_fd(const struct host *host, size_t program);

/* Detaches one program. */
void host_detach(struct host *host, size_t program);

/* Detaches and closes everything. NULL is fine; returns NULL. */
struct host *host_free(struct host *host);

/* The kernel array that stands for map i of linked, if host programs use it; else -1. Owned by
 * host. */
int host_map_fd(const struct host *host, size_t map);

/* Whether a host program, and whether a GPU program uses map i. */
bool host_map_shared(const struct host *host, size_t map);
