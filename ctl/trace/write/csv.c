/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The trace format `csv`.
 *
 * Comma-separated values (RFC 4180, lines end with LF), a header first. Arguments are in one
 * column: a=1 b=0x2. All texts are foreign, as in text.c.
 */

#include <errno.h>

#include "ctl/trace/base/item.h"
#include "ctl/trace/base/out.h"

struct trace_writer {
	FILE *file;
	struct trace_out line, arguments;
};

static void put_value(struct trace_out *out, const struct trace_value *value) {
	switch (value->kind) {
	case VALUE_UINT:
	case VALUE_SIZE:
		return out_uint(out, (uint64_t)value->number);
	case VALUE_HEX:
		return out_hex(out, (uint64_t)value->number);
	case VALUE_FLOAT:
		return out_real(out, value->real);
	case VALUE_GROUP: /* its members follow */
		return;
	case VALUE_NAME:
	case VALUE_STRING:
	case VALUE_BYTES:
		if (value->text)
			return out_printable(out, value->text);
		return out_int(out, value->number);
	default:
		return out_int(out, value->number);
	}
}

static int csv_item(struct trace_writer *writer, const struct trace_item *item) {
	const char *const texts[] = { item->name, item->class, item->process->comm };
	const uint64_t numbers[] = { item->size, item->stream, item->device };
	const uint64_t links[] = { item->parent, item->flow, item->sequence };
	struct trace_out *line = &writer->line, *arguments = &writer->arguments;

	out_uint(line, item->id);
	out_char(line, ',');
	out_uint(line, item->start);
	out_char(line, ',');
	out_uint(line, item->end - item->start);
	out_char(line, ',');
	out_text(line, trace_kind_name(item->kind));
	out_char(line, ',');
	out_text(line, trace_source_name(item->source));
	out_char(line, ',');
	out_uint(line, item->pid);
	out_char(line, ',');
	out_uint(line, item->tid);
	for (size_t i = 0; i < 3; i++) {
		out_char(line, ',');
		out_csv(line, texts[i]);
	}
	out_char(line, ',');
	if (item->has_result)
		out_int(line, item->result);
	out_char(line, ',');
	out_csv(line, item->result_name ?: "");
	for (size_t i = 0; i < 3; i++) {
		out_char(line, ',');
		out_uint(line, numbers[i]);
	}
	out_char(line, ',');
	out_csv(line, item->kernel ?: "");
	for (size_t i = 0; i < 3; i++) {
		out_char(line, ',');
		out_uint(line, links[i]);
	}
	out_char(line, ',');
	if (item->kind == EVENT_LOST) {
		out_literal(arguments, "count=");
		out_uint(arguments, item->count);
	}
	for (size_t i = 0; i < item->n_values; i++) {
		if (arguments->n)
			out_char(arguments, ' ');
		out_printable(arguments, item->values[i].name);
		out_char(arguments, '=');
		put_value(arguments, &item->values[i]);
	}
	out_char(arguments, '\0');
	line->failed |= arguments->failed;
	if (!line->failed)
		out_csv(line, arguments->text);
	arguments->n = 0;
	out_char(line, '\n');
	return out_write(line, writer->file);
}

static int csv_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	*writerp = calloc(1, sizeof(**writerp));
	if (!*writerp)
		return -ENOMEM;
	(*writerp)->file = file;
	fputs("id,ts_ns,dur_ns,type,source,pid,tid,name,class,comm,ret,ret_name,size,stream,device,"
	      "kernel,parent,flow,sequence,args\n",
	      file);
	return 0;
}

static int csv_close(struct trace_writer *writer, bool complete) {
	free(writer->line.text);
	free(writer->arguments.text);
	free(writer);
	return 0;
}

const struct trace_format trace_format_csv = { "csv", ".csv", csv_open, csv_item, csv_close };
