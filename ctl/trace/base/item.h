/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What happened, decoded, for everything behind the reading of a trace: filters, writers of
 * formats, and reports. It is made of records of proto/trace.h (decode.c) or of a file that a
 * writer wrote (jsonl, seed). Strings live until the trace is closed, values as long as the event.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/trace.h"

#define TRACE_VALUES_MAX 48

enum trace_item_kind {
	EVENT_CALL, /* of a cu* function */
	EVENT_IOCTL,
	EVENT_HOOK,
	EVENT_KERNEL, /* on the GPU */
	EVENT_CTXSW, /* a context on a GPU, from one context switch to the next */
	EVENT_PROCESS,
	EVENT_CLOCK,
	EVENT_LOST,
	EVENT_NOTE, /* one line about the trace; name: the text */
	EVENT_COUNTS, /* calls of a function that were counted: for tables alone */
};

enum trace_value_kind {
	VALUE_INT,
	VALUE_UINT,
	VALUE_HEX,
	VALUE_FLOAT,
	VALUE_BOOL,
	VALUE_SIZE, /* bytes */
	VALUE_NAME, /* number with a name: an enumerator, a class, a command */
	VALUE_STRING,
	VALUE_BYTES, /* text: in hexadecimal */
	VALUE_GROUP, /* a struct: as many members follow as number says, each with members of its
			own behind it */
};

struct trace_value {
	const char *name; /* of the argument or field */
	enum trace_value_kind kind;
	bool out; /* what it was at the return */
	int64_t number;
	double real;
	const char *text; /* NAME, STRING, BYTES; of a NAME NULL if the number has none */
};

struct trace_process_info {
	uint32_t pid, parent, uid;
	char comm[16];
	const char *exe;
};

struct trace_item {
	enum trace_item_kind kind;
	enum trace_source source;
	uint64_t id; /* from 1, in the order of the output */
	uint64_t parent; /* id of the span around it, in the same thread; of a kernel the call that
			    launched it; 0: none */
	uint64_t flow; /* the same number in a launch and what it launched; 0: none */
	uint64_t start, end; /* nanoseconds since the beginning of the trace */
	bool instant, open;
	uint32_t pid, tid, cpu;
	const struct trace_process_info *process; /* never NULL; zeros if unknown */
	const char *thread; /* its comm, or "" */
	const char *name; /* cuMemAlloc_v2, NV_ESC_RM_CONTROL, nvidia:nv_dma_map_alloc, the
			     kernel's, demangled, or python[4711] of a context */
	const char *base; /* cuMemAlloc; else as name */
	const char *class; /* launch, memory, ..., ioctl, uvm, the hook's set, kernel, ctxsw */
	int64_t result;
	const char *result_name; /* CUDA_SUCCESS, NV_OK, ENOTTY; NULL: none */
	bool has_result, failed;
	uint64_t size; /* bytes that were allocated, freed or copied; 0: none, unknown */
	uint64_t stream, context; /* 0: none or default */
	uint32_t device; /* ordinal in the process; of CTXSW, and of CLOCK without a process, N of
			    /dev/nvidiaN */
	const char *kernel; /* of a launch or a kernel: mangled; NULL: none, unknown */
	uint64_t sequence;
	uint32_t command; /* IOCTL: the whole number */
	uint64_t count; /* LOST */
	const struct trace_counts *counts; /* COUNTS */
	uint32_t error; /* KERNEL, CTXSW, CLOCK: nanoseconds that times may be off */
	const char *violation; /* NULL; else what is impossible about its times: "starts 1.2us
				  before its launch" */
	uint64_t launched; /* KERNEL that starts before its launch: when that started */
	size_t n_values;
	struct trace_value values[TRACE_VALUES_MAX];
	size_t n_frames; /* stack, innermost first */
	const char *const *frames;
};

/* "userspace", "ioctl", ...: how files call it. */
const char *trace_kind_name(enum trace_item_kind kind);
const char *trace_source_name(enum trace_source source); /* "shim"; "": there is no such one */

struct trace_about {
	uint64_t monotonic, realtime; /* nanoseconds; the beginning */
	char host[64], driver[32], daemon[32];
};

/* A format. Writers get items in order of their start as far as they can be put in order. */
struct trace_writer;
struct trace_format {
	const char *name;
	const char *suffix; /* of files: ".json" */
	/* Errors of output are ferror(out)'s; negative errno: out of memory. */
	int (*open)(struct trace_writer **writerp, FILE *out, const struct trace_about *about);
	int (*item)(struct trace_writer *writer, const struct trace_item *item);
	int (*close)(struct trace_writer *writer,
		     bool complete); /* finishes the file, of a trace that came to its end or was
					cut off, and frees the writer */
	const char *end; /* what close() puts behind the last event, without which a file cannot be
			    read; NULL: nothing */
};

/* text and csv: text.c; jsonl, jsonl-seed: jsonl.c; chrome: chrome.c; perfetto: perfetto.c; folded:
 * folded.c; table: table.c */
extern const struct trace_format trace_format_text, trace_format_csv, trace_format_jsonl,
	trace_format_seed, trace_format_chrome, trace_format_perfetto, trace_format_folded,
	trace_format_table;
const struct trace_format *trace_format_find(const char *name);
