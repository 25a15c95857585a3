/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* struct trace_hooks, for hook.c, hook-event.c and hook-discover.c. */

#include "hook-attach.h"
#include "hook-kernel.h"
#include "hook.h"

struct hook_programs;
struct hook_user;
struct ring_buffer;

struct trace_hooks {
	struct trace_session *session; /* borrowed */
	struct hook_kernel kernel;
	struct hook_catalogue catalogue;
	struct hook **probes; /* of the user */
	size_t n_probes;
	struct hook_attachment *attachments; /* by row */
	size_t n_attachments;
	struct hook_programs *programs;
	struct hook_user *user; /* probes of functions of files; NULL: there are none */
	struct ring_buffer *ring;
	uint64_t n_taken; /* records of this drain */
	uint64_t n_looked; /* spans that were looked at in it, for processes that have ended */
	bool all_users, errors;
	uint64_t lost; /* told */
	size_t n_cpus; /* possible ones: of maps with a value for each */
	uint64_t *values; /* of one key of such a map */
	struct hook_discover *discover; /* or NULL */
};

/* trace_hooks_new() with other places than the kernel's, for tests. */
int trace_hooks_new_at(struct trace_hooks **hooksp, struct trace_session *session,
		       const struct trace_options *options, const struct hook_places *places);

#define HOOK_DRAIN_MAX                                                                             \
	16384 /* records at once: all processors together may make them faster than they are taken \
	       */
#define HOOK_LOOK_MAX 16384 /* spans, likewise */

/* A record of the ring becomes one of the trace. For ring_buffer__new(); -EAGAIN: enough for now.
 */
int hook_event_take(void *hooks, void *data, size_t size);

/* What still runs is told, as it stands. */
void hook_event_flush(struct trace_hooks *hooks);

/* Sum over all CPUs. */
uint64_t hook_sum(const struct trace_hooks *hooks, int map, uint32_t key);

/* Counts calls of functions of NVIDIA's modules that a pattern "discover:GLOB" matches; rows of
 * records come behind those of attachments. */
int hook_discover_new(struct trace_hooks *hooks, const char *const *patterns, size_t n);
void hook_discover_drain(struct trace_hooks *hooks, bool last);
void hook_discover_free(struct trace_hooks *hooks);
