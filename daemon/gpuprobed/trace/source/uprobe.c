/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The source of a trace that uses uprobes (source.h).
 *
 * Calls of libcuda in processes without the shim. One link for each libcuda (uprobe-link.h) with
 * probes where they are cheap (site.h), a program that builds the whole record and filters
 * (bpf/uprobe.bpf.c), and a ring that nobody is woken for: it is drained by the session's timer.
 *
 * Which processes are meant only the session knows. The kernel has a list of those that are not,
 * each for a second: the first record of a process passes, is dropped here, and puts it onto the
 * list. That costs others one call in a while, and needs nobody to tell of forks. If there are only
 * certain processes, and not their children, it is the other way round.
 *
 * A process that has the shim is told by the session before its first call: what the ring has of it
 * is from before, and right.
 *
 * Starting blocks for some ten milliseconds for each library; ending does not: links go away in
 * threads of their own (uprobe_link_free()).
 */

#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uprobe-private.h"
#include "lib/clock.h"
#include "lib/function.h"

#define REFUSAL UINT64_C(1000000000) /* nanoseconds */
#define DRAIN_MAX 65536 /* records at once */
#define SEEN_MAX 4096 /* processes */
#define NAMES_MAX 65536 /* kernels */

/* ---- names of kernels ---- */

/* An extra of a call whose record was checked; NULL: it has none of that argument and size (0:
 * any). */
static const struct trace_extra *find_extra(const struct trace_call *call, uint8_t argument,
					    uint16_t size) {
	const char *at = (const char *)(call->words + call->n_arguments),
		   *end = (const char *)call + call->record.size;

	for (uint8_t i = 0; i < call->n_extras && end - at >= (ptrdiff_t)sizeof(struct trace_extra);
	     i++) {
		const struct trace_extra *extra = (const void *)at;
		size_t length = sizeof(*extra) + ((size_t)extra->size + 7) / 8 * 8;

		if ((size_t)(end - at) < length)
			break;
		if (extra->argument == argument && (!size || extra->size == size))
			return extra;
		at += length;
	}
	return NULL;
}

static uint64_t name_key(pid_t pid, uint64_t handle) {
	uint64_t key = number_hash((uint64_t)pid << 32) ^ handle;

	return key + !key;
}

/* Tells the name of a kernel, unless it has been told. */
static void name_kernel(struct trace_uprobe *uprobe, pid_t pid, uint64_t handle, const char *text,
			size_t n) {
	const uint64_t key = name_key(pid, handle);
	char *known = number_map_pointer(&uprobe->names, key), *copy;

	if (!n || n > UPROBE_NAME_MAX)
		return;
	if (known && strlen(known) == n && !memcmp(known, text, n))
		return;
	if (!trace_session_name(uprobe->session, TRACE_SOURCE_BPF, TRACE_NAME_KERNEL, (uint32_t)pid,
				handle, text, n))
		return;
	copy = strndup(text, n); /* it may be one of the names that are forgotten now */
	if (!known && uprobe->names.table.n >= NAMES_MAX)
		number_map_free(&uprobe->names);
	if (copy && number_map_add_pointer(&uprobe->names, key, copy))
		free(known);
	else
		free(copy);
}

/* A call that gave a kernel: (handle *, module or library, name), or (handle *, kernel). */
static void learn_name(struct trace_uprobe *uprobe, const struct trace_call *call) {
	const struct trace_extra *handle = find_extra(call, 0, sizeof(uint64_t)),
				 *name = find_extra(call, 2, 0);
	const char *known;
	uint64_t number;

	if (call->result || !handle || call->n_arguments < 2)
		return;
	memcpy(&number, handle + 1, sizeof(number));
	if (name) {
		name_kernel(uprobe, (pid_t)call->pid, number, (const char *)(name + 1), name->size);
		return;
	}
	known = call->n_arguments == 2
			? number_map_pointer(&uprobe->names,
					     name_key((pid_t)call->pid, call->words[1]))
			: NULL;
	if (known)
		name_kernel(uprobe, (pid_t)call->pid, number, known, strlen(known));
}

/* A call of cuGetProcAddress(name, pointer *, ...). */
static void learn_pointer(struct trace_uprobe *uprobe, const struct trace_call *call) {
	const struct function *function = function_by_number(call->function);
	const struct trace_extra *name = find_extra(call, 0, 0),
				 *pointer = find_extra(call, 1, sizeof(uint64_t));
	char text[LIBCUDA_NAME_MAX] = "";
	uint64_t address;

	if (!function || !uprobe_gives_pointers(function->name) || call->result || !name ||
	    !pointer || name->size >= sizeof(text))
		return;
	memcpy(text, name + 1, name->size);
	memcpy(&address, pointer + 1, sizeof(address));
	uprobe_follow(uprobe, (pid_t)call->pid, text, address);
}

/* Makes of the extras what others have: none, or strings that are cut. */
static void trim_extras(struct trace_call *call, bool extras) {
	char *from = (char *)(call->words + call->n_arguments), *to = from,
	     *end = (char *)call + call->record.size;
	uint8_t n = extras ? call->n_extras : 0;

	call->n_extras = 0;
	while (n-- && end - from >= (ptrdiff_t)sizeof(struct trace_extra)) {
		struct trace_extra extra;
		size_t size, length;

		memcpy(&extra, from, sizeof(extra));
		size = sizeof(extra) + ((size_t)extra.size + 7) / 8 * 8;
		if ((size_t)(end - from) < size)
			break;
		length = size;
		if (extra.size > UPROBE_STRING_MAX) {
			extra.size = UPROBE_STRING_MAX;
			length = sizeof(extra) + UPROBE_STRING_MAX;
		}
		memmove(to, from, length);
		memcpy(to, &extra, sizeof(extra));
		from += size;
		to += length;
		call->n_extras++;
	}
	call->record.size = (uint32_t)(to - (char *)call);
}

/* ---- records ---- */

void uprobe_refuse_process(struct trace_uprobe *uprobe, pid_t pid) {
	uprobe_engine_set_process(&uprobe->engine, pid, monotonic_now() + REFUSAL);
}

void uprobe_saw_process(struct trace_uprobe *uprobe, pid_t pid) {
	if (uprobe->seen.table.n < SEEN_MAX)
		number_map_add(&uprobe->seen, (uint64_t)pid, 1);
}

/* A record of the programs'. */
static void use_record(struct trace_uprobe *uprobe, const void *data, size_t size) {
	const struct uprobe_record *record = data;
	const struct trace_call *call = &record->call;
	size_t frames = offsetof(struct uprobe_record, call) + call->record.size;
	pid_t pid = (pid_t)call->pid, tid = (pid_t)call->tid;
	union {
		struct trace_call call;
		char bytes[UPROBE_CALL_MAX];
	} copy;

	if (size < frames || call->record.size > sizeof(copy) ||
	    (size - frames) / 8 < record->n_frames)
		return;
	if (!trace_session_meant(uprobe->session, pid, call->end)) {
		if (!(record->flags & UPROBE_RECORD_UNWANTED) &&
		    trace_session_missed(uprobe->session, pid))
			trace_session_lost(uprobe->session, TRACE_SOURCE_BPF, 0, 0, 1);
		uprobe_refuse_process(uprobe, pid);
		return;
	}
	uprobe_saw_process(uprobe, pid);
	trace_session_process(uprobe->session, pid);
	if (record->flags & UPROBE_RECORD_NAMES) {
		learn_name(uprobe, call);
		learn_pointer(uprobe, call);
	}
	if (record->flags & UPROBE_RECORD_UNWANTED)
		return;
	trace_session_thread(uprobe->session, pid, tid);
	if (record->n_frames || record->flags & UPROBE_RECORD_NAMES) {
		memcpy(&copy, call, call->record.size);
		if (record->n_frames)
			copy.call.stack =
				trace_session_stack(uprobe->session, pid,
						    (const uint64_t *)((const char *)data + frames),
						    record->n_frames);
		trim_extras(&copy.call, uprobe->extras);
		call = &copy.call;
	}
	trace_session_emit(uprobe->session, &call->record, (uint32_t)pid, (uint32_t)tid);
}

/* The same for the ring; ends a drain that would be too long for the loop. */
static int take_record(void *userdata, void *data, size_t size) {
	struct trace_uprobe *uprobe = userdata;

	use_record(uprobe, data, size);
	return ++uprobe->n_taken % DRAIN_MAX ? 0 : -EAGAIN;
}

/* ---- the source ---- */

pid_t uprobe_only_process(const struct trace_uprobe *uprobe) {
	return uprobe->closed && uprobe->n_pids == 1 && !uprobe->engine.wide
		       ? (pid_t)uprobe->pids[0]
		       : 0;
}

/* Takes the options' processes. */
static int copy_pids(struct trace_uprobe *uprobe, const struct trace_options *options) {
	const uint32_t one = (uint32_t)options->filter.pid,
		       *pids = options->n_pids ? options->pids : &one;

	uprobe->n_pids = options->n_pids ? options->n_pids : options->filter.has_pid;
	uprobe->closed = uprobe->n_pids && !options->follow;
	uprobe->pids = calloc(uprobe->n_pids + 1, sizeof(*uprobe->pids));
	if (!uprobe->pids)
		return -ENOMEM;
	memcpy(uprobe->pids, pids, uprobe->n_pids * sizeof(*uprobe->pids));
	return 0;
}

int uprobe_new_tuned(struct trace_uprobe **uprobep, struct trace_session *session,
		     const struct trace_options *options, const struct uprobe_tuning *tuning) {
	struct trace_uprobe *uprobe = calloc(1, sizeof(*uprobe));
	int r;

	if (!uprobe)
		return -ENOMEM;
	uprobe->session = session;
	uprobe->tuning = *tuning;
	uprobe->extras = options->extras;
	uprobe->aggregate = options->aggregate;
	memcpy(uprobe->functions, options->functions, sizeof(uprobe->functions));
	r = copy_pids(uprobe, options);
	if (!r)
		r = uprobe_engine_init(&uprobe->engine, session, options, tuning, take_record,
				       uprobe);
	if (!r && uprobe->aggregate) {
		r = uprobe_counter_new(&uprobe->counter, uprobe);
		if (r)
			uprobe_engine_deinit(&uprobe->engine);
	}
	if (r) {
		free(uprobe->pids);
		free(uprobe);
		return r;
	}
	for (size_t i = 0; i < uprobe->n_pids && uprobe->closed; i++)
		uprobe_engine_set_process(&uprobe->engine, (pid_t)uprobe->pids[i],
					  UPROBE_PROCESS_MEANT);
	uprobe->engine.control->enabled = 1;
	uprobe_libraries_start(uprobe);
	*uprobep = uprobe;
	return 0;
}

void trace_uprobe_exclude(struct trace_uprobe *uprobe, pid_t pid, bool excluded) {
	uint64_t value = excluded ? UPROBE_PROCESS_SHIM : 0;

	for (size_t i = 0; i < uprobe->n_pids && uprobe->closed && !excluded; i++)
		if ((pid_t)uprobe->pids[i] == pid)
			value = UPROBE_PROCESS_MEANT;
	uprobe_engine_set_process(&uprobe->engine, pid, value);
	if (excluded)
		uprobe_libraries_shim(uprobe);
}

int trace_uprobe_new(struct trace_uprobe **uprobep, struct trace_session *session,
		     const struct trace_options *options) {
	return uprobe_new_tuned(uprobep, session, options, &(struct uprobe_tuning){});
}

void trace_uprobe_drain(struct trace_uprobe *uprobe) {
	uprobe_libraries_continue(uprobe, monotonic_now());
	uprobe->n_taken = 0;
	ring_buffer__consume(uprobe->engine.ring);
	uprobe_counter_read(uprobe->counter, monotonic_now(), false);
	trace_session_lost(uprobe->session, TRACE_SOURCE_BPF, 0, 0,
			   uprobe_engine_take_lost(&uprobe->engine));
}

/* Gives the calls that a process's threads are within. */
static void end_process(struct trace_uprobe *uprobe, pid_t pid, struct uprobe_state *state) {
	const struct uprobe_record *record;
	const struct dirent *entry;
	char path[64];
	DIR *tasks;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
			record = uprobe_engine_unfinished(&uprobe->engine,
							  (pid_t)atoi(entry->d_name), state, &n);
			if (record)
				use_record(uprobe, record, n);
		}
	if (tasks)
		closedir(tasks);
}

/* The same for all processes that are known. */
static void end_processes(struct trace_uprobe *uprobe) {
	struct uprobe_state *state = malloc(sizeof(*state));

	for (size_t i = 0; i < uprobe->n_pids; i++)
		number_map_add(&uprobe->seen, uprobe->pids[i], 1);
	for (size_t i = 0; i < uprobe->n_libraries; i++)
		for (size_t k = 0; k < uprobe->libraries[i].n_users; k++)
			number_map_add(&uprobe->seen, (uint64_t)uprobe->libraries[i].users[k], 1);
	for (size_t i = 0; state && i < uprobe->seen.table.n; i++)
		end_process(uprobe, (pid_t)number_map_at(&uprobe->seen, i)->key, state);
	free(state);
}

struct trace_uprobe *trace_uprobe_free(struct trace_uprobe *uprobe) {
	if (!uprobe)
		return NULL;
	uprobe->engine.control->enabled = 0;
	while (ring_buffer__consume(uprobe->engine.ring) == -EAGAIN)
		;
	uprobe_counter_read(uprobe->counter, monotonic_now(), true);
	end_processes(uprobe);
	trace_session_lost(uprobe->session, TRACE_SOURCE_BPF, 0, 0,
			   uprobe_engine_take_lost(&uprobe->engine));
	uprobe_late_tell(uprobe, UINT64_MAX);
	uprobe_libraries_stop(uprobe);
	free(uprobe->counter);
	uprobe_engine_deinit(&uprobe->engine);
	number_map_free(&uprobe->names);
	number_map_deinit(&uprobe->seen);
	free(uprobe->pids);
	free(uprobe);
	return NULL;
}
