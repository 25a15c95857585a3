/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Passes each item of a trace to the writer of the chosen format, and to the statistics if they are
 * wanted. Notes of the trace are printed for the user.
 */

#include <errno.h>
#include <stdlib.h>

#include "command.h"
#include "ctl/trace/report/table.h"

struct trace_sink {
	const struct trace_command *trace;
	struct trace_target *target; /* of the format */
	FILE *told; /* of statistics */
	struct trace_writer *writer;
	struct trace_table *table;
};

int trace_sink_new(struct trace_sink **sinkp, const struct trace_command *trace,
		   struct trace_target *target, FILE *told) {
	struct trace_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return -ENOMEM;
	*sink = (struct trace_sink){ .trace = trace, .target = target, .told = told };
	if ((trace->histograms || trace->summary || trace->interval) &&
	    trace_table_new(&sink->table)) {
		free(sink);
		return -ENOMEM;
	}
	*sinkp = sink;
	return 0;
}

bool trace_sink_needs_items(const struct trace_sink *sink) {
	return sink->trace->format || sink->table;
}

int trace_sink_begin(const struct trace_about *about, void *userdata) {
	struct trace_sink *sink = userdata;
	int r;

	r = trace_target_begin(sink->target);
	sink->target->end = sink->trace->format ? sink->trace->format->end : NULL;
	if (!sink->trace->format)
		sink->target->regular =
			false; /* readers of records know one that is cut: nothing is taken back */
	return r || !sink->trace->format
		       ? r
		       : sink->trace->format->open(&sink->writer, sink->target->file, about);
}

int trace_sink_item(const struct trace_item *item, void *userdata) {
	struct trace_sink *sink = userdata;
	int r = 0;

	if (item->kind == EVENT_NOTE && sink->trace->format != &trace_format_text)
		ctl_tell("process %u (%.15s): %s", item->pid, item->process->comm, item->name);
	if (sink->writer && !sink->target->error) {
		r = sink->trace->format->item(sink->writer, item);
		trace_target_wrote(sink->target);
	}
	if (!r && sink->table)
		r = trace_table_add(sink->table, item);
	return r;
}

int trace_sink_interval(struct trace_sink *sink) {
	int r;

	if (!sink->table || !trace_table_has_rows(sink->table))
		return 0;
	r = trace_table_print(sink->table, sink->told);
	fputc('\n', sink->told);
	fflush(sink->told);
	return r;
}

int trace_sink_finish(struct trace_sink *sink, bool complete) {
	int r = 0;

	if (sink->writer)
		r = sink->trace->format->close(sink->writer, complete);
	sink->writer = NULL;
	sink->target->ended = true;
	trace_target_flush(sink->target);
	if (!r && sink->trace->histograms)
		r = trace_table_print_histograms(sink->table, sink->told);
	if (!r && sink->trace->summary)
		trace_table_print_summary(sink->table, sink->told);
	return r;
}

struct trace_sink *trace_sink_free(struct trace_sink *sink) {
	if (!sink)
		return NULL;
	if (sink->writer)
		sink->trace->format->close(sink->writer, false);
	sink->target->ended = true;
	trace_table_free(sink->table);
	free(sink);
	return NULL;
}
