/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Says, in lines of the trace, that calls are missing because a library was probed late
 * (uprobe-private.h).
 *
 * A library that is new to the trace is probed some milliseconds after a process mapped it. Calls
 * before that are missing; a process that ends before that is not seen at all. One line says so for
 * each library, up to a bound. A process with the shim misses nothing: it says that it has the shim
 * within SHIM_DELAY, so lines wait that long.
 */

#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "uprobe-private.h"

#define SHIM_DELAY \
	UINT64_C(200000000) /* nanoseconds: a process with the shim has said so by then */

static void tell(struct trace_uprobe *uprobe, const struct uprobe_late *late) {
	if (trace_session_has_shim(uprobe->session, late->pid))
		return;
	if (late->gone)
		trace_session_missing(uprobe->session,
				      "bpf: %s: new to this trace, and process %d was done with it "
				      "before it could be probed: its calls are missing",
				      late->path, (int)late->pid);
	else
		trace_session_missing(uprobe->session,
				      "bpf: %s: new to this trace when process %d mapped it: calls "
				      "before it was probed, some milliseconds later, are missing",
				      late->path, (int)late->pid);
}

void uprobe_late_add(struct trace_uprobe *uprobe, pid_t pid, uint64_t inode, const char *path,
		     bool gone) {
	struct uprobe_late *late = &uprobe->late[uprobe->n_late];

	for (size_t i = 0; i < uprobe->n_late; i++)
		if (uprobe->late[i].inode == inode)
			return;
	if (uprobe->n_late == UPROBE_LATE_MAX)
		return;
	*late = (struct uprobe_late){
		.pid = pid, .inode = inode, .due = monotonic_now() + SHIM_DELAY, .gone = gone
	};
	snprintf(late->path, sizeof(late->path), "%s", path);
	for (char *at = late->path; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	uprobe->n_late++;
}

void uprobe_late_tell(struct trace_uprobe *uprobe, uint64_t now) {
	for (size_t i = 0; i < uprobe->n_late; i++) {
		struct uprobe_late *late = &uprobe->late[i];

		if (late->told || now < late->due)
			continue;
		late->told = true;
		tell(uprobe, late);
	}
}
