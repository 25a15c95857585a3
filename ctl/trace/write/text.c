/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `text`.
 *
 * Lines for people, as strace prints them:
 *
 *     12:00:01.123456 python[4821/4830] cuMemcpyHtoD_v2(dst=0x7f00, n=4MiB) = CUDA_SUCCESS <3.2us>
 *
 * Time of day, process[pid/thread], what happened with its arguments (what a call gave back stands
 * in brackets), result, duration. What the kernel's driver did within a call is indented. All texts
 * are foreign: what a terminal might take for a command is shown as \x1b.
 */

#include <errno.h>
#include <sys/wait.h>
#include <time.h>

#include "ctl/trace/decode/demangle.h"
#include "ctl/trace/base/item.h"
#include "ctl/trace/base/out.h"

struct trace_writer {
	FILE *file;
	struct trace_out line;
	struct trace_demangler demangler;
	uint64_t realtime;
	time_t second; /* the one of `clock` */
	char clock[16];
};

static void put_time(struct trace_writer *writer, uint64_t start) {
	const uint64_t time = writer->realtime + start;
	const time_t second = (time_t)(time / 1000000000);
	struct tm tm;

	if (second != writer->second || !*writer->clock) {
		if (!localtime_r(&second, &tm) ||
		    !strftime(writer->clock, sizeof(writer->clock), "%H:%M:%S", &tm))
			strcpy(writer->clock, "?");
		writer->second = second;
	}
	out_text(&writer->line, writer->clock);
	out_char(&writer->line, '.');
	out_digits(&writer->line, time % 1000000000 / 1000, 6);
	out_char(&writer->line, ' ');
}

static void put_thread(struct trace_out *line, const struct trace_item *item) {
	if (!item->pid) {
		out_literal(line, "- ");
		return;
	}
	out_printable(line, item->process->comm);
	out_char(line, '[');
	out_uint(line, item->pid);
	if (item->tid && item->tid != item->pid) {
		out_char(line, '/');
		out_uint(line, item->tid);
	}
	out_literal(line, "] ");
}

static size_t put_value(struct trace_out *line, const struct trace_value *values, size_t n);

/* name=value, of the return name=[value]. Returns how many values it took. */
static size_t put_named(struct trace_out *line, const struct trace_value *values, size_t n,
			bool bracket) {
	size_t taken;

	out_printable(line, values->name);
	out_char(line, '=');
	if (bracket)
		out_char(line, '[');
	taken = put_value(line, values, n);
	if (bracket)
		out_char(line, ']');
	return taken;
}

static void put_text(struct trace_out *line, const struct trace_value *value) {
	const bool quotes = value->kind == VALUE_STRING;

	if (!value->text)
		return out_int(line, value->number);
	if (quotes)
		out_char(line, '"');
	out_printable(line, value->text);
	if (quotes)
		out_char(line, '"');
}

static size_t put_value(struct trace_out *line, const struct trace_value *values, size_t n) {
	size_t i = 1;
	char real[32];

	switch (values->kind) {
	case VALUE_INT:
		out_int(line, values->number);
		break;
	case VALUE_UINT:
		out_uint(line, (uint64_t)values->number);
		break;
	case VALUE_SIZE:
		out_size(line, (uint64_t)values->number);
		break;
	case VALUE_HEX:
		out_hex(line, (uint64_t)values->number);
		break;
	case VALUE_FLOAT:
		snprintf(real, sizeof(real), "%g", values->real);
		out_text(line, real);
		break;
	case VALUE_BOOL:
		out_text(line, values->number ? "true" : "false");
		break;
	case VALUE_NAME:
	case VALUE_STRING:
	case VALUE_BYTES:
		put_text(line, values);
		break;
	case VALUE_GROUP:
		out_char(line, '{');
		for (int64_t member = 0; member < values->number && i < n; member++) {
			if (member)
				out_literal(line, ", ");
			i += put_named(line, values + i, n - i, false);
		}
		out_char(line, '}');
		break;
	}
	return i;
}

static void put_values(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *line = &writer->line;

	out_char(line, '(');
	if (item->kernel && item->kind == EVENT_CALL) {
		out_printable(line, trace_demangle(&writer->demangler, item->kernel));
		if (item->n_values)
			out_literal(line, ", ");
	}
	for (size_t i = 0; i < item->n_values;) {
		if (i)
			out_literal(line, ", ");
		i += put_named(line, &item->values[i], item->n_values - i, item->values[i].out);
	}
	out_char(line, ')');
}

static void put_result(struct trace_out *line, const struct trace_item *item) {
	if (item->open) {
		out_literal(line, " = ? <unfinished>");
	} else if (item->has_result) {
		out_literal(line, " = ");
		if (item->result_name)
			out_printable(line, item->result_name);
		else
			out_int(line, item->result);
	}
}

static void put_kernel(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *line = &writer->line;

	out_literal(line, "GPU");
	out_uint(line, item->device);
	out_char(line, ' ');
	out_printable(line, item->name);
	out_literal(line, " stream=");
	out_hex(line, item->stream);
}

/* python[4711] GPU0 context 0x3 (began=SIMPLE_START, ended=SIMPLE_END) */
static void put_ctxsw(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *line = &writer->line;

	out_printable(line, item->instant ? "-" : item->name);
	out_literal(line, " GPU");
	out_uint(line, item->device);
	out_char(line, ' ');
	if (item->instant) {
		out_printable(line, item->name);
	} else {
		out_literal(line, "context ");
		out_hex(line, item->context);
	}
	out_char(line, ' ');
	put_values(writer, item);
	put_result(line, item);
}

/* --- exec /usr/bin/python3 ---, +++ exited with 1 +++ */
static void put_process(struct trace_out *line, const struct trace_item *item) {
	const char *what = item->name;

	if (strcmp(what, "exit")) {
		out_literal(line, "--- ");
		out_printable(line, what);
		out_char(line, ' ');
		out_printable(line, item->process->exe);
		out_text(line, *item->process->exe
				       ? " ---"
				       : "---"); /* it was gone before anybody could look */
		return;
	}
	for (size_t i = 0; i < item->n_values; i++)
		if (!strcmp(item->values[i].name, "status")) {
			const int status = (int)item->values[i].number;

			out_text(line, WIFSIGNALED(status) ? "+++ killed by signal "
							   : "+++ exited with ");
			out_uint(line, (uint64_t)(WIFSIGNALED(status) ? WTERMSIG(status)
								      : WEXITSTATUS(status)));
			out_literal(line, " +++");
		}
}

static void put_lost(struct trace_out *line, const struct trace_item *item) {
	out_literal(line, "--- lost ");
	out_uint(line, item->count);
	out_text(line, item->count == 1 ? " event ---" : " events ---");
}

static int text_item(struct trace_writer *writer, const struct trace_item *item) {
	struct trace_out *line = &writer->line;

	if (item->kind == EVENT_CLOCK ||
	    (item->kind == EVENT_PROCESS && !strcmp(item->name, "seen")))
		return 0;
	put_time(writer, item->start);
	if (item->kind != EVENT_CTXSW)
		put_thread(line, item);
	if (item->kind == EVENT_LOST) {
		put_lost(line, item);
	} else if (item->kind == EVENT_NOTE) {
		out_literal(line, "--- ");
		out_printable(line, item->name);
		out_literal(line, " ---");
	} else if (item->kind == EVENT_PROCESS) {
		put_process(line, item);
	} else if (item->kind == EVENT_KERNEL) {
		put_kernel(writer, item);
	} else if (item->kind == EVENT_CTXSW) {
		put_ctxsw(writer, item);
	} else {
		if (item->parent)
			out_literal(line, "  ");
		out_printable(line, item->name);
		put_values(writer, item);
		put_result(line, item);
	}
	if (!item->instant && !item->open) {
		out_literal(line, " <");
		out_duration(line, item->end - item->start);
		out_char(line, '>');
	}
	if (item->violation) {
		out_char(line, ' ');
		out_printable(line, item->violation);
	}
	out_char(line, '\n');
	for (size_t i = 0; i < item->n_frames; i++) {
		out_literal(line, "    ");
		out_printable(line, item->frames[i]);
		out_char(line, '\n');
	}
	return out_write(line, writer->file);
}

static int text_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	*writerp = calloc(1, sizeof(**writerp));
	if (!*writerp)
		return -ENOMEM;
	(*writerp)->file = file;
	(*writerp)->realtime = about->realtime;
	return 0;
}

static int text_close(struct trace_writer *writer, bool complete) {
	trace_demangler_deinit(&writer->demangler);
	free(writer->line.text);
	free(writer);
	return 0;
}

const struct trace_format trace_format_text = { "text", ".txt", text_open, text_item, text_close };
