/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The source of a trace that probes libcuda (sink.h says what a source is). */

#include "daemon/gpuprobed/trace/sink/sink.h"

/* B: calls of libcuda in processes without the shim, by uprobes. 0, or negative errno after
 * trace_session_missing(). */
struct trace_uprobe;
int trace_uprobe_new(struct trace_uprobe **uprobep, struct trace_session *session,
		     const struct trace_options *options);
void trace_uprobe_drain(
	struct trace_uprobe *uprobe); /* every few milliseconds, and once before the end */
/* From now on (or no longer) calls of a process come from the shim: trace_session_has_shim() says
 * so already. */
void trace_uprobe_exclude(struct trace_uprobe *uprobe, pid_t pid, bool excluded);
struct trace_uprobe *trace_uprobe_free(struct trace_uprobe *uprobe);
