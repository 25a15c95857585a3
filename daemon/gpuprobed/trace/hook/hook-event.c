/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns records of the eBPF programs of hooks into records of a trace (hook-private.h). The
 * programs learn from the session here which processes they record; each process is asked about
 * once.
 */

#include <bpf/bpf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "daemon/gpuprobed/trace/bpf/hook.h"
#include "lib/clock.h"
#include "hook-private.h"
#include "hook-programs.h"

union record {
	struct trace_record record;
	struct trace_event event;
	struct trace_ioctl ioctl;
	char bytes[2048];
};

static size_t round8(size_t n) {
	return (n + 7) & ~(size_t)7;
}

uint64_t hook_sum(const struct trace_hooks *hooks, int map, uint32_t key) {
	uint64_t sum = 0;

	if (bpf_map_lookup_elem(hook_programs_map(hooks->programs, (enum hook_map)map), &key,
				hooks->values))
		return 0;
	for (size_t i = 0; i < hooks->n_cpus; i++)
		sum += hooks->values[i];
	return sum;
}

static void set_verdict(struct trace_hooks *hooks, uint32_t pid, bool yes) {
	uint32_t verdict = yes ? HOOK_VERDICT_YES : HOOK_VERDICT_NO;

	/* where the map is full, the session is asked each time */
	bpf_map_update_elem(hook_programs_map(hooks->programs, HOOK_MAP_PROCESSES), &pid, &verdict,
			    BPF_ANY);
}

/* Whether the trace means the process; if not, its next records stay in the kernel. */
static bool is_meant(struct trace_hooks *hooks, uint32_t pid) {
	if (trace_session_means(hooks->session, (pid_t)pid))
		return true;
	set_verdict(hooks, pid, false);
	return false;
}

/* Its process and thread are known to the reader from here on. */
static void introduce(struct trace_hooks *hooks, const struct hook_header *header) {
	if (!header->pid)
		return;
	trace_session_process(hooks->session, (pid_t)header->pid);
	trace_session_thread(hooks->session, (pid_t)header->pid, (pid_t)header->tid);
}

static void name_hook(struct trace_hooks *hooks, uint32_t row) {
	struct hook_attachment *attachment = &hooks->attachments[row];
	char text[TRACE_NAME_MAX];

	if (attachment->named)
		return;
	hook_describe(text, sizeof(text), attachment->hook, attachment->alternative,
		      attachment->types);
	attachment->named = trace_session_name(hooks->session, TRACE_SOURCE_DAEMON, TRACE_NAME_HOOK,
					       0, row, text, strlen(text));
}

static bool is_row(const struct trace_hooks *hooks, const struct hook_header *header) {
	return header->row < hooks->n_attachments && hooks->attachments[header->row].alternative;
}

/* Where things are in the kernel is not for callers who may not attach. */
static void hide_addresses(const struct hook_alternative *alternative, struct trace_event *event) {
	for (size_t i = 0; i < event->n_words && i < alternative->n_arguments; i++)
		if (event->words[i] >> 63 && alternative->arguments[i].type &&
		    !strcmp(alternative->arguments[i].type->name, "ptr"))
			event->words[i] = 0;
}

static void take_event(struct trace_hooks *hooks, const struct hook_event *event, size_t size,
		       uint8_t flags) {
	const size_t fixed = offsetof(struct hook_event, text);
	const struct hook_header *header = &event->header;
	union record record = {};
	size_t n_text;

	if (size < fixed || !is_row(hooks, header))
		return;
	if (hooks->attachments[header->row].hook->process == HOOK_PROCESS_MEANT &&
	    !is_meant(hooks, header->pid))
		return;
	n_text = size - fixed < event->n_text ? size - fixed : event->n_text;
	record.event = (struct trace_event){
		.record = { .type = TRACE_EVENT, .source = TRACE_SOURCE_BPF, .flags = flags },
		.start = header->start,
		.end = header->end,
		.pid = header->pid,
		.tid = header->tid,
		.cpu = event->cpu,
		.hook = header->row,
		.result = header->result,
		.n_words = event->n_words < HOOK_WORDS_MAX ? event->n_words : HOOK_WORDS_MAX,
		.n_text = (uint8_t)n_text,
	};
	memcpy(record.event.words, event->words, record.event.n_words * sizeof(uint64_t));
	memcpy(record.event.words + record.event.n_words, event->text, n_text);
	if (!hooks->all_users)
		hide_addresses(hooks->attachments[header->row].alternative, &record.event);
	if (header->end == header->start)
		record.record.flags |= TRACE_EVENT_INSTANT;
	record.record.size = (uint32_t)(sizeof(record.event) +
					record.event.n_words * sizeof(uint64_t) + round8(n_text));
	name_hook(hooks, header->row);
	introduce(hooks, header);
	trace_session_emit(hooks->session, &record.record, header->pid, header->tid);
}

/* Adds bytes, padded, and returns how many there are now. */
static size_t add_bytes(union record *record, size_t n, const uint8_t *bytes, size_t n_bytes) {
	memcpy(record->ioctl.bytes + n, bytes, n_bytes);
	return n + round8(n_bytes);
}

static uint16_t at_most(uint16_t n) {
	return n < HOOK_IOCTL_BYTES ? n : HOOK_IOCTL_BYTES;
}

/* RM_FREE, RM_CONTROL and RM_ALLOC say in their argument whether they failed (NVOS00, NVOS54,
 * NVOS64, NVOS21); others of the driver are not known here. */
static bool has_succeeded(const struct trace_hooks *hooks, const struct hook_ioctl *io) {
	const bool old = hooks->kernel.version[0] &&
			 hooks->kernel.version[0] <
				 535; /* NVOS21 had no number of bytes before its status */
	const struct {
		uint32_t command;
		uint16_t offset;
	} known[] = { { 0xc0104629, 12 },
		      { 0xc020462a, 28 },
		      { 0xc030462b, 40 },
		      { 0xc020462b, old ? 24 : 28 } };
	uint32_t status;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].command == io->command &&
		    io->n_after >= known[i].offset + sizeof(status)) {
			memcpy(&status, io->after + known[i].offset, sizeof(status));
			return io->header.result >= 0 && !status;
		}
	return false;
}

static void take_ioctl(struct trace_hooks *hooks, const struct hook_ioctl *io, size_t size,
		       uint8_t flags) {
	const struct hook_header *header = &io->header;
	union record record = {};
	size_t n;

	if (size < sizeof(*io) || !is_row(hooks, header) || !is_meant(hooks, header->pid) ||
	    (hooks->errors && has_succeeded(hooks, io)))
		return;
	record.ioctl = (struct trace_ioctl){
		.record = { .type = TRACE_IOCTL, .source = TRACE_SOURCE_BPF, .flags = flags },
		.start = header->start,
		.end = header->end,
		.pid = header->pid,
		.tid = header->tid,
		.command = io->command,
		.result = (int32_t)header->result,
		.device = io->device,
		.minor = io->minor,
		.n_before = at_most(io->n_before),
		.n_after = at_most(io->n_after),
		.n_inner = at_most(io->n_inner),
		.status = io->status,
	};
	if (io->has_status)
		record.record.flags |= TRACE_IOCTL_STATUS;
	n = add_bytes(&record, 0, io->before, record.ioctl.n_before);
	n = add_bytes(&record, n, io->after, record.ioctl.n_after);
	n = add_bytes(&record, n, io->inner, record.ioctl.n_inner);
	record.record.size = (uint32_t)(sizeof(record.ioctl) + n);
	introduce(hooks, header);
	trace_session_emit(hooks->session, &record.record, header->pid, header->tid);
}

/* A process that ended before anybody could look at it in /proc is what the kernel said at its
 * exec. */
static void tell_short(struct trace_hooks *hooks, const struct hook_process *process) {
	struct trace_process record = {
		.record = { .size = sizeof(record),
			    .type = TRACE_PROCESS,
			    .source = TRACE_SOURCE_BPF },
		.time = process->header.start,
		.pid = process->header.pid,
		.uid = process->uid,
		.what = TRACE_PROCESS_EXEC,
	};

	if (!is_meant(hooks, process->header.pid))
		return;
	memcpy(record.comm, process->comm, sizeof(record.comm));
	trace_session_emit(hooks->session, &record.record, record.pid, record.pid);
}

/* A span that has not ended, as it stands at a time; 0: its thread has left it, nobody knows when.
 */
static void tell_open(struct trace_hooks *hooks, struct hook_event *event, uint64_t now) {
	/* of opened files nobody knows yet whether they are the driver's */
	if (!is_row(hooks, &event->header) ||
	    hooks->attachments[event->header.row].alternative->kind == HOOK_SYSCALL)
		return;
	event->header.end = now;
	if (now)
		take_event(hooks, event, sizeof(*event), TRACE_EVENT_OPEN);
	else
		trace_session_lost(hooks->session, TRACE_SOURCE_BPF, event->header.pid,
				   event->header.tid, 1);
}

/* The spans that a process was within when it ended. Those that are not found, for want of time or
 * because the programs change the map meanwhile, are lost in the end. */
static void tell_open_of(struct trace_hooks *hooks, uint32_t pid, uint64_t end) {
	int pending = hook_programs_map(hooks->programs, HOOK_MAP_PENDING);
	struct hook_event event;
	uint64_t key, next;
	int r = bpf_map_get_next_key(pending, NULL, &next);

	for (size_t i = 0; !r && i < HOOK_PENDING_MAX && hooks->n_looked < HOOK_LOOK_MAX;
	     i++, hooks->n_looked++) {
		key = next;
		r = bpf_map_get_next_key(pending, &key, &next);
		if (bpf_map_lookup_elem(pending, &key, &event) || event.header.pid != pid ||
		    event.header.start > end)
			continue;
		tell_open(hooks, &event, end);
		bpf_map_delete_elem(pending, &key);
	}
}

static void take_process(struct trace_hooks *hooks, const struct hook_header *header, size_t size) {
	switch (header->type) {
	case HOOK_RECORD_FORK:
		if (is_meant(hooks, header->pid))
			trace_session_forked(hooks->session, (pid_t)header->pid, (pid_t)header->tid,
					     header->start);
		break;
	case HOOK_RECORD_EXEC:
		if (!trace_session_execed(hooks->session, (pid_t)header->pid, header->start) &&
		    size >= sizeof(struct hook_process))
			tell_short(hooks, (const struct hook_process *)header);
		break;
	case HOOK_RECORD_EXIT:
		tell_open_of(hooks, header->pid, header->start);
		bpf_map_delete_elem(hook_programs_map(hooks->programs, HOOK_MAP_PROCESSES),
				    &header->pid);
		trace_session_ended(hooks->session, (pid_t)header->pid, (int)header->result,
				    header->start);
		break;
	}
}

int hook_event_take(void *userdata, void *data, size_t size) {
	const struct hook_header *header = data;
	struct trace_hooks *hooks = userdata;

	if (size >= sizeof(*header) && header->type == HOOK_RECORD_EVENT)
		take_event(hooks, data, size, 0);
	else if (size >= sizeof(*header) && header->type == HOOK_RECORD_IOCTL)
		take_ioctl(hooks, data, size, 0);
	else if (size >= sizeof(*header))
		take_process(hooks, header, size);
	return ++hooks->n_taken % HOOK_DRAIN_MAX ? 0 : -EAGAIN;
}

/* Whether the thread is gone, as by longjmp() out of the function, and its end. */
static bool has_ended(const struct hook_header *header) {
	return header->pid && tgkill((pid_t)header->pid, (pid_t)header->tid, 0) < 0 &&
	       errno == ESRCH;
}

void hook_event_flush(struct trace_hooks *hooks) {
	int pending = hook_programs_map(hooks->programs, HOOK_MAP_PENDING),
	    ioctls = hook_programs_map(hooks->programs, HOOK_MAP_IOCTLS);
	struct hook_event event;
	struct hook_ioctl io;
	uint64_t key, now = monotonic_now();

	/* each is removed, so that the first is always a new one */
	while (!bpf_map_get_next_key(ioctls, NULL, &key)) {
		if (!bpf_map_lookup_elem(ioctls, &key, &io)) {
			io.header.end = now;
			take_ioctl(hooks, &io, sizeof(io), TRACE_IOCTL_OPEN);
		}
		if (bpf_map_delete_elem(ioctls, &key))
			break;
	}
	while (!bpf_map_get_next_key(pending, NULL, &key)) {
		if (!bpf_map_lookup_elem(pending, &key, &event))
			tell_open(hooks, &event, has_ended(&event.header) ? 0 : now);
		if (bpf_map_delete_elem(pending, &key))
			break;
	}
}
