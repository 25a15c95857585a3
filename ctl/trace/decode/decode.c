/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decodes the records of a trace into items (decode.h). It keeps the names, processes, threads and
 * stacks that the trace has told so far.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "ctl/rm/ctxsw-tag.h"
#include "decode.h"
#include "ioctl.h"
#include "names.h"

#define TEXTS_SIZE ((size_t)32 << 10) /* more than a record can need */
#define NOT_READY 600 /* CUDA_ERROR_NOT_READY: an answer, not an error */
#define MIG_INSTANCES \
	0xfd /* numbers from here on mean that there is none, or that it is not told */

struct trace_decoder {
	struct names *names;
	struct trace_about about;
	uint64_t number; /* of the record that is decoded now */
	size_t n_texts;
	char texts[TEXTS_SIZE];
};

static size_t pad8(size_t n) {
	return (n + 7) & ~(size_t)7;
}

/* Whether words and extras of a call lie within it. */
static bool call_is_whole(const struct trace_call *call) {
	size_t at = sizeof(*call) + call->n_arguments * sizeof(*call->words);

	for (size_t i = 0; i < call->n_extras; i++) {
		const struct trace_extra *extra = (const void *)((const char *)call + at);

		if (at + sizeof(*extra) > call->record.size ||
		    at + sizeof(*extra) + pad8(extra->size) > call->record.size)
			return false;
		at += sizeof(*extra) + pad8(extra->size);
	}
	return call->n_arguments <= TRACE_WORDS_MAX && at <= call->record.size;
}

static bool counts_are_whole(const struct trace_counts *counts) {
	if (counts->n_buckets > (counts->record.size - sizeof(*counts)) / sizeof(*counts->buckets))
		return false;
	for (size_t i = 0; i < counts->n_buckets; i++)
		if (counts->buckets[i].bucket >= TRACE_BUCKETS)
			return false;
	return true;
}

bool trace_record_is_whole(const struct trace_record *record) {
	static const size_t smallest[] = {
		[TRACE_START] = sizeof(struct trace_start),
		[TRACE_PROCESS] = sizeof(struct trace_process),
		[TRACE_THREAD] = sizeof(struct trace_thread),
		[TRACE_NAME] = sizeof(struct trace_name),
		[TRACE_CALL] = sizeof(struct trace_call),
		[TRACE_IOCTL] = sizeof(struct trace_ioctl),
		[TRACE_EVENT] = sizeof(struct trace_event),
		[TRACE_KERNEL] = sizeof(struct trace_kernel),
		[TRACE_CLOCK] = sizeof(struct trace_clock),
		[TRACE_LOST] = sizeof(struct trace_lost),
		[TRACE_STACK] = sizeof(struct trace_stack),
		[TRACE_STOP] = sizeof(struct trace_stop),
		[TRACE_NOTE] = sizeof(struct trace_note),
		[TRACE_COUNTS] = sizeof(struct trace_counts),
		[TRACE_CTXSW] = sizeof(struct trace_ctxsw),
	};
	const struct trace_ioctl *ioctl = (const struct trace_ioctl *)record;
	const struct trace_event *event = (const struct trace_event *)record;

	if (record->type >= sizeof(smallest) / sizeof(*smallest))
		return true;
	if (record->size < smallest[record->type])
		return false;
	switch (record->type) {
	case TRACE_CALL:
		return call_is_whole((const struct trace_call *)record);
	case TRACE_IOCTL:
		return sizeof(*ioctl) + pad8(ioctl->n_before) + pad8(ioctl->n_after) +
			       pad8(ioctl->n_inner) <=
		       record->size;
	case TRACE_EVENT:
		return event->n_words <= TRACE_WORDS_MAX &&
		       sizeof(*event) + event->n_words * sizeof(*event->words) + event->n_text <=
			       record->size;
	case TRACE_STACK:
		return ((const struct trace_stack *)record)->n <=
		       (record->size - sizeof(struct trace_stack)) / sizeof(uint64_t);
	case TRACE_COUNTS:
		return counts_are_whole((const struct trace_counts *)record);
	default:
		return true;
	}
}

char *trace_decoder_text(struct trace_decoder *decoder, const char *text, size_t n) {
	char *copy = decoder->texts + decoder->n_texts;

	if (n >= TEXTS_SIZE - decoder->n_texts) {
		if (!text)
			return NULL;
		copy = decoder->texts + TEXTS_SIZE - 1;
		*copy = '\0';
		return copy;
	}
	if (text)
		memcpy(copy, text, n);
	else
		memset(copy, 0, n);
	copy[n] = '\0';
	decoder->n_texts += n + 1;
	return copy;
}

/* "word3" */
static const char *numbered(struct trace_decoder *decoder, const char *word, unsigned int number) {
	char name[24];

	return trace_decoder_text(decoder, name,
				  (size_t)snprintf(name, sizeof(name), "%s%u", word, number));
}

const char *trace_decoder_kernel(struct trace_decoder *decoder, uint32_t pid, uint64_t handle) {
	const struct names_text *text =
		names_text(decoder->names, TRACE_NAME_KERNEL, pid, handle, decoder->number);

	return text ? text->text : NULL;
}

struct trace_value *trace_item_value(struct trace_item *item, const char *name,
				     enum trace_value_kind kind, int64_t number) {
	static _Thread_local struct trace_value nowhere;
	struct trace_value *value =
		item->n_values < TRACE_VALUES_MAX ? &item->values[item->n_values++] : &nowhere;

	*value = (struct trace_value){ .name = name, .kind = kind, .number = number };
	return value;
}

/* Nanoseconds since the beginning. */
static uint64_t since(const struct trace_decoder *decoder, uint64_t time) {
	return time > decoder->about.monotonic ? time - decoder->about.monotonic : 0;
}

/* What all items have: kind, times and thread. */
static void begin_item(const struct trace_decoder *decoder, struct trace_item *item,
		       enum trace_item_kind kind, uint64_t start, uint64_t end, uint32_t pid,
		       uint32_t tid) {
	item->kind = kind;
	item->start = since(decoder, start);
	item->end = since(decoder, end);
	if (item->end < item->start)
		item->end = item->start;
	item->pid = pid;
	item->tid = tid;
	item->process = names_process(decoder->names, pid, decoder->number);
	item->thread = tid ? names_thread(decoder->names, pid, tid, decoder->number) : "";
}

static void set_stack(const struct trace_decoder *decoder, struct trace_item *item, uint32_t id) {
	const struct names_stack *stack =
		names_stack(decoder->names, id, item->pid, decoder->number);

	if (stack) {
		item->n_frames = stack->n;
		item->frames = stack->frames;
	}
}

/* The name of a function that no table has. */
static void name_function(struct trace_decoder *decoder, uint16_t function,
			  struct trace_item *item) {
	const struct names_text *text =
		names_text(decoder->names, TRACE_NAME_FUNCTION, 0, function, decoder->number);

	item->name = item->base = text ? text->text : numbered(decoder, "cu#", function);
	item->class = "other";
}

static void decode_call(struct trace_decoder *decoder, const struct trace_call *call,
			struct trace_item *item) {
	begin_item(decoder, item, EVENT_CALL, call->start, call->end, call->pid, call->tid);
	set_stack(decoder, item, call->stack);
	item->open = call->record.flags & TRACE_CALL_OPEN;
	item->has_result = !(call->record.flags & (TRACE_CALL_OPEN | TRACE_CALL_NO_RESULT));
	item->result = item->has_result ? call->result : 0;
	item->failed = item->has_result && call->result && call->result != NOT_READY;
	item->sequence = call->sequence;
	if (trace_decode_call(decoder, call, item))
		return;
	name_function(decoder, call->function, item);
	for (unsigned int i = 0; i < call->n_arguments; i++)
		trace_item_value(item, numbered(decoder, "word", i), VALUE_HEX,
				 (int64_t)call->words[i]);
}

static void decode_ioctl(struct trace_decoder *decoder, const struct trace_ioctl *ioctl,
			 struct trace_item *item) {
	begin_item(decoder, item, EVENT_IOCTL, ioctl->start, ioctl->end, ioctl->pid, ioctl->tid);
	set_stack(decoder, item, ioctl->stack);
	item->open = ioctl->record.flags & 1;
	item->has_result = !item->open;
	item->result = item->has_result ? ioctl->result : 0;
	item->failed = item->has_result && ioctl->result < 0;
	item->command = ioctl->command;
	item->name = item->base = item->class = "ioctl";
	trace_decode_ioctl(decoder, ioctl, decoder->about.driver, item);
}

static int64_t sign_extend(uint64_t word, unsigned int size) {
	const unsigned int shift = 64 - 8 * size;

	return (int64_t)(word << shift) >> shift;
}

/* One argument of a hook; *textp: what is left of the texts. */
static void add_hook_value(struct trace_decoder *decoder, struct trace_item *item,
			   const struct names_argument *argument, uint64_t word, const char **textp,
			   const char *end) {
	const uint64_t mask =
		argument->size < 8 ? (UINT64_C(1) << 8 * argument->size) - 1 : UINT64_MAX;
	struct trace_value *value;
	size_t n;

	switch (argument->type) {
	case NAMES_SIGNED:
		trace_item_value(item, argument->name, VALUE_INT,
				 sign_extend(word, argument->size));
		return;
	case NAMES_UNSIGNED:
		trace_item_value(item, argument->name, VALUE_UINT, (int64_t)(word & mask));
		return;
	case NAMES_BOOL:
		trace_item_value(item, argument->name, VALUE_BOOL, word & 0xff ? 1 : 0);
		return;
	case NAMES_TEXT:
		n = strnlen(*textp, (size_t)(end - *textp));
		value = trace_item_value(item, argument->name, VALUE_STRING, (int64_t)word);
		value->text = trace_decoder_text(decoder, *textp, n);
		*textp += n < (size_t)(end - *textp) ? n + 1 : n;
		return;
	default:
		trace_item_value(item, argument->name, VALUE_HEX, (int64_t)word);
	}
}

static void decode_event(struct trace_decoder *decoder, const struct trace_event *event,
			 struct trace_item *item) {
	struct names_argument unknown = { .type = NAMES_HEX, .size = 8 };
	const struct names_hook *hook = names_hook(decoder->names, event->hook);
	const char *text = (const char *)(event->words + event->n_words),
		   *end = text + event->n_text;

	begin_item(decoder, item, EVENT_HOOK, event->start, event->end, event->pid, event->tid);
	set_stack(decoder, item, event->stack);
	item->cpu = event->cpu;
	item->instant = event->record.flags & TRACE_EVENT_INSTANT;
	item->open = event->record.flags & TRACE_EVENT_OPEN;
	item->class = hook ? hook->set : "hook";
	item->has_result = !item->open && !item->instant && hook && hook->result.type != NAMES_NONE;
	item->name = item->base = hook ? hook->name : numbered(decoder, "hook#", event->hook);
	if (item->has_result)
		item->result = hook->result.type == NAMES_SIGNED
				       ? sign_extend((uint64_t)event->result, hook->result.size)
				       : event->result;
	item->failed = item->has_result && hook->result.type == NAMES_SIGNED && item->result < 0;
	for (unsigned int i = 0; i < event->n_words; i++) {
		const bool known = hook && i < hook->n_arguments;

		unknown.name = known ? NULL : numbered(decoder, "word", i);
		add_hook_value(decoder, item, known ? &hook->arguments[i] : &unknown,
			       event->words[i], &text, end);
	}
}

static void decode_kernel(struct trace_decoder *decoder, const struct trace_kernel *kernel,
			  struct trace_item *item) {
	const struct names_text *text = names_text(decoder->names, TRACE_NAME_KERNEL, kernel->pid,
						   kernel->function, decoder->number);
	char name[32];

	begin_item(decoder, item, EVENT_KERNEL, kernel->start, kernel->end, kernel->pid,
		   kernel->tid);
	item->source = TRACE_SOURCE_GPU;
	item->class = "kernel";
	item->sequence = kernel->sequence;
	item->device = kernel->device;
	item->context = kernel->context;
	item->stream = kernel->stream;
	item->error = kernel->error;
	if (text) {
		item->kernel = text->text;
		item->name = text->demangled;
	} else if (kernel->function) {
		snprintf(name, sizeof(name), "kernel@%#llx", (unsigned long long)kernel->function);
		item->name = trace_decoder_text(decoder, name, strlen(name));
	} else {
		item->name = ""; /* its launch says what it was */
	}
	item->base = item->name;
}

/* A tag by name, or by number. */
static void add_tag(struct trace_decoder *decoder, struct trace_item *item, const char *name,
		    uint8_t tag) {
	if (tag)
		trace_item_value(item, name, VALUE_NAME, tag)->text = trace_ctxsw_tag_name(tag);
}

/* "python[4711]" */
static void name_context(struct trace_decoder *decoder, const struct trace_ctxsw *ctxsw,
			 struct trace_item *item) {
	const size_t n_known = strnlen(item->process->comm, sizeof(item->process->comm));
	const char *comm = n_known ? item->process->comm : ctxsw->comm;
	char name[64];

	if (!ctxsw->pid)
		item->name = "another user";
	else if (ctxsw->pid == UINT32_MAX)
		item->name = "the driver";
	else
		item->name = trace_decoder_text(decoder, name,
						(size_t)snprintf(name, sizeof(name), "%.16s[%u]",
								 *comm ? comm : "pid", ctxsw->pid));
}

static void decode_ctxsw(struct trace_decoder *decoder, const struct trace_ctxsw *ctxsw,
			 struct trace_item *item) {
	const bool known = ctxsw->pid && ctxsw->pid != UINT32_MAX &&
			   !(ctxsw->record.flags & TRACE_CTXSW_FOREIGN);

	begin_item(decoder, item, EVENT_CTXSW, ctxsw->start, ctxsw->end, known ? ctxsw->pid : 0, 0);
	item->source = TRACE_SOURCE_GPU;
	item->instant = ctxsw->record.flags & TRACE_CTXSW_INSTANT;
	item->open = ctxsw->record.flags & TRACE_CTXSW_OPEN;
	item->class = "ctxsw";
	item->device = ctxsw->device;
	item->context = ctxsw->context;
	item->sequence = ctxsw->sequence;
	item->error = ctxsw->error;
	if (item->instant)
		item->name = trace_ctxsw_tag_name(ctxsw->began)
				     ?: numbered(decoder, "tag", ctxsw->began);
	else
		name_context(decoder, ctxsw, item);
	item->base = item->name;
	if (!item->instant) {
		add_tag(decoder, item, "began", ctxsw->began);
		add_tag(decoder, item, "ended", ctxsw->ended);
		add_tag(decoder, item, "preemption", ctxsw->preemption);
	}
	if (ctxsw->pid && !known && ctxsw->pid != UINT32_MAX)
		trace_item_value(item, "host_pid", VALUE_UINT, ctxsw->pid);
	if (ctxsw->gpu_instance < MIG_INSTANCES) {
		trace_item_value(item, "gpu_instance", VALUE_UINT, ctxsw->gpu_instance);
		trace_item_value(item, "compute_instance", VALUE_UINT, ctxsw->compute_instance);
	}
}

static void decode_process(struct trace_decoder *decoder, const struct trace_process *process,
			   struct trace_item *item) {
	static const char *const names[] = { "seen", "fork", "exec", "exit" };
	struct trace_value *value;

	begin_item(decoder, item, EVENT_PROCESS, process->time, process->time, process->pid,
		   process->pid);
	item->instant = true;
	item->name = item->base =
		process->what < sizeof(names) / sizeof(*names) ? names[process->what] : "seen";
	item->class = "process";
	trace_item_value(item, "parent", VALUE_UINT, process->parent);
	trace_item_value(item, "uid", VALUE_UINT, process->uid);
	if (process->what == TRACE_PROCESS_EXIT) {
		trace_item_value(item, "status", VALUE_INT, process->status);
	} else {
		value = trace_item_value(item, "exe", VALUE_STRING, 0);
		value->text = item->process->exe;
	}
}

static void decode_clock(struct trace_decoder *decoder, const struct trace_clock *clock,
			 struct trace_item *item) {
	begin_item(decoder, item, EVENT_CLOCK, clock->host_time, clock->host_time, clock->pid, 0);
	item->instant = true;
	item->name = item->base = item->class = "clock";
	item->device = clock->device;
	item->error = clock->error > UINT32_MAX ? UINT32_MAX : (uint32_t)clock->error;
	trace_item_value(item, "gpu_time", VALUE_UINT, (int64_t)clock->gpu_time);
	trace_item_value(item, "host_time", VALUE_UINT, (int64_t)clock->host_time);
	trace_item_value(item, "drift", VALUE_INT, clock->drift);
	trace_item_value(item, "error", VALUE_UINT, (int64_t)clock->error);
}

static void decode_lost(struct trace_decoder *decoder, const struct trace_lost *lost,
			struct trace_item *item) {
	char text[80];
	int n;

	begin_item(decoder, item, EVENT_LOST, lost->time, lost->time, lost->pid, lost->tid);
	item->instant = true;
	item->name = item->base = item->class = "lost";
	item->count = lost->count;
	if (!(lost->record.flags & TRACE_LOST_ENDS))
		return;
	n = snprintf(text, sizeof(text), "%" PRIu64 " launch%s whose end is unknown", lost->count,
		     lost->count == 1 ? "" : "es");
	item->kind = EVENT_NOTE;
	item->class = "note";
	item->name = item->base = trace_decoder_text(decoder, text, (size_t)n);
}

static void decode_note(struct trace_decoder *decoder, const struct trace_note *note,
			struct trace_item *item) {
	begin_item(decoder, item, EVENT_NOTE, note->time, note->time, note->pid, 0);
	item->instant = true;
	item->class = "note";
	item->name = item->base = trace_decoder_text(
		decoder, note->text, strnlen(note->text, note->record.size - sizeof(*note)));
}

static void decode_counts(struct trace_decoder *decoder, const struct trace_counts *counts,
			  struct trace_item *item) {
	begin_item(decoder, item, EVENT_COUNTS, counts->start, counts->end, counts->pid, 0);
	item->counts = counts;
	if (!trace_decode_function(counts->function, item))
		name_function(decoder, counts->function, item);
}

bool trace_decoder_item(struct trace_decoder *decoder, const struct trace_record *record,
			uint64_t number, struct trace_item *item) {
	memset(item, 0, offsetof(struct trace_item, values));
	item->n_frames = 0;
	item->frames = NULL;
	item->source = record->source;
	decoder->number = number;
	decoder->n_texts = 0;
	switch (record->type) {
	case TRACE_CALL:
		decode_call(decoder, (const struct trace_call *)record, item);
		return true;
	case TRACE_COUNTS:
		decode_counts(decoder, (const struct trace_counts *)record, item);
		return true;
	case TRACE_IOCTL:
		decode_ioctl(decoder, (const struct trace_ioctl *)record, item);
		return true;
	case TRACE_EVENT:
		decode_event(decoder, (const struct trace_event *)record, item);
		return true;
	case TRACE_KERNEL:
		decode_kernel(decoder, (const struct trace_kernel *)record, item);
		return true;
	case TRACE_CTXSW:
		decode_ctxsw(decoder, (const struct trace_ctxsw *)record, item);
		return true;
	case TRACE_PROCESS:
		decode_process(decoder, (const struct trace_process *)record, item);
		return true;
	case TRACE_CLOCK:
		decode_clock(decoder, (const struct trace_clock *)record, item);
		return true;
	case TRACE_LOST:
		decode_lost(decoder, (const struct trace_lost *)record, item);
		return true;
	case TRACE_NOTE:
		decode_note(decoder, (const struct trace_note *)record, item);
		return true;
	default:
		return false;
	}
}

void trace_decoder_learn(struct trace_decoder *decoder, const struct trace_record *record,
			 uint64_t number) {
	const struct trace_start *start = (const struct trace_start *)record;

	if (record->type != TRACE_START)
		return names_learn(decoder->names, record, number);
	decoder->about.monotonic = start->monotonic;
	decoder->about.realtime = start->realtime;
	memcpy(decoder->about.host, start->host, sizeof(start->host) - 1);
	memcpy(decoder->about.driver, start->driver, sizeof(start->driver) - 1);
	memcpy(decoder->about.daemon, start->daemon, sizeof(start->daemon) - 1);
}

const struct trace_about *trace_decoder_about(const struct trace_decoder *decoder) {
	return &decoder->about;
}

int trace_decoder_new(struct trace_decoder **decoderp) {
	struct trace_decoder *decoder = calloc(1, sizeof(*decoder));

	if (!decoder)
		return -ENOMEM;
	if (names_new(&decoder->names)) {
		free(decoder);
		return -ENOMEM;
	}
	*decoderp = decoder;
	return 0;
}

struct trace_decoder *trace_decoder_free(struct trace_decoder *decoder) {
	if (decoder)
		names_free(decoder->names);
	free(decoder);
	return NULL;
}
