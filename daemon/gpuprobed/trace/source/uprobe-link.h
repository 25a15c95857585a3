/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes of a program on many functions of a file, by the best way that the kernel has: one link
 * with a program that runs at the entry and decides about the return (6.13), two links (6.6), or
 * two perf events for each function, of which each takes a tenth of a second to go away.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	_UPROBE_LINK_E_SUCCESS,
	UPROBE_LINK_E_HARM, /* the kernel is one of those that kill a process whose seccomp filter
			       knows nothing of uretprobe(2): 6.11 to 6.13 */
	UPROBE_LINK_E_THREADS, /* links of one process see calls of its first thread only (6.6
				  to 6.9): none may be of one */
};

enum uprobe_rung {
	UPROBE_SESSION,
	UPROBE_MULTI,
	UPROBE_CLASSIC,
	_UPROBE_RUNG_N,
};

/* Programs; -1: not loaded. */
struct uprobe_programs {
	int session;
	int enter, leave;
};

struct uprobe_link;

/*
 * Attaches to offsets of the file `fd`, with a cookie each; in one process, if pid is not 0. A few
 * that the kernel refuses are left out, and counted in *refusedp. 0 or negative errno; -EMFILE: an
 * eighth of the descriptors that this process may have is to stay free.
 */
int uprobe_link_new(struct uprobe_link **linkp, enum uprobe_rung rung,
		    const struct uprobe_programs *programs, int fd, const uint64_t *offsets,
		    const uint64_t *cookies, size_t n, pid_t pid, size_t *refusedp);

/* Detaches, which takes up to a minute, in a thread of its own. */
struct uprobe_link *uprobe_link_free(struct uprobe_link *link);

/* Detaches before it returns: for tests. */
struct uprobe_link *uprobe_link_free_now(struct uprobe_link *link);

/*
 * Whether the kernel can do that, and without harm: a thread of a child of this program's calls a
 * probed function, under a seccomp filter as containers have it; the programs are not enabled and
 * say in `control`, a map, that they ran. 0, UPROBE_LINK_E_HARM, UPROBE_LINK_E_THREADS, or negative
 * errno.
 */
int uprobe_link_probe(enum uprobe_rung rung, const struct uprobe_programs *programs, int control);
