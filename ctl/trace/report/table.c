/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Statistics of a trace (table.h): counts calls and durations by name, and prints them as a table,
 * as histograms or as a summary. Also the trace format `table`.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "ctl/base/histogram.h"
#include "lib/base/hash-table.h"
#include "ctl/trace/base/out.h"
#include "report.h"
#include "table.h"

#define ROWS_MAX 65536 /* names; more are one row */

struct row {
	struct hash_text name; /* owned, with a NUL behind; its kind is that of the items */
	uint64_t calls, errors, bytes;
	struct report_histogram durations;
};

struct trace_table {
	struct hash_table rows; /* of struct row */
	uint64_t calls, launches, allocations, allocated, transfers, transferred;
	uint64_t ioctls, ioctl_time, works, lost, kernels, kernel_time, violations;
};

static const char *const kinds[] = {
	[EVENT_CALL] = "call",  [EVENT_IOCTL] = "ioctl", [EVENT_HOOK] = "hook",
	[EVENT_KERNEL] = "gpu", [EVENT_CTXSW] = "ctxsw",
};

/* The row of a name, a new one if need be; NULL without memory. Names beyond the bound share one.
 */
static struct row *get_row(struct trace_table *table, enum trace_item_kind kind, const char *name) {
	struct hash_text key = { name, (uint32_t)strlen(name), kind };
	struct row *row = hash_table_find(&table->rows, &key);

	if (!row && table->rows.n >= ROWS_MAX) {
		key = (struct hash_text){ "(others)", strlen("(others)"), kind };
		row = hash_table_find(&table->rows, &key);
	}
	if (row)
		return row;
	key.bytes = strdup(key.bytes);
	row = key.bytes ? hash_table_add(&table->rows, &key, NULL) : NULL;
	if (!row)
		free((char *)key.bytes);
	return row;
}

/* So many calls, of which so many did not fail, and what those were about. */
static void count_calls(struct trace_table *table, const struct trace_item *item, uint64_t calls,
			uint64_t done, uint64_t bytes_done) {
	table->calls += calls;
	table->launches += report_is_launch(item) ? calls : 0;
	if (report_is_transfer(item)) {
		table->transfers += done;
		table->transferred += bytes_done;
	} else if (report_is_allocation(item->base)) {
		table->allocations += done;
		table->allocated += bytes_done;
	}
}

static void count(struct trace_table *table, const struct trace_item *item) {
	switch (item->kind) {
	case EVENT_CALL:
		count_calls(table, item, 1, !item->failed, item->failed ? 0 : item->size);
		break;
	case EVENT_COUNTS:
		count_calls(table, item, item->counts->calls,
			    item->counts->calls - item->counts->errors, item->counts->bytes_done);
		break;
	case EVENT_IOCTL:
		table->ioctls++;
		table->ioctl_time += item->end - item->start;
		break;
	case EVENT_HOOK:
		table->works += !strcmp(item->class, "work");
		break;
	case EVENT_KERNEL:
		table->kernels++;
		table->kernel_time += item->end - item->start;
		table->violations += !!item->violation;
		break;
	case EVENT_LOST:
		table->lost += item->count;
		break;
	default:
		break;
	}
}

/* What --discover gives: how often a function was called since the last time. */
static bool is_count(const struct trace_item *item) {
	return item->kind == EVENT_HOOK && item->n_values == 1 && !strcmp(item->class, "discover");
}

static int add_counts(struct trace_table *table, const char *name,
		      const struct trace_counts *counts) {
	struct row *row = get_row(table, EVENT_CALL, name);
	int r = row ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < counts->n_buckets; i++) {
		const uint64_t first = trace_bucket_start(counts->buckets[i].bucket),
			       end = trace_bucket_start(counts->buckets[i].bucket + 1);

		r = report_histogram_add_many(&row->durations, first + (end - first) / 2,
					      counts->buckets[i].calls);
	}
	if (r)
		return r;
	report_histogram_widen(&row->durations, counts->time, counts->min, counts->max);
	row->calls += counts->calls;
	row->errors += counts->errors;
	row->bytes += counts->bytes;
	return 0;
}

int trace_table_add(struct trace_table *table, const struct trace_item *item) {
	struct row *row;

	count(table, item);
	if (item->kind == EVENT_COUNTS)
		return add_counts(table, item->name, item->counts);
	if (item->kind > EVENT_CTXSW)
		return 0;
	row = get_row(table, item->kind, item->name);
	if (!row)
		return -ENOMEM;
	row->calls += is_count(item) ? (uint64_t)item->values[0].number : 1;
	row->errors += item->failed;
	row->bytes += item->size;
	return report_histogram_add(&row->durations, item->end - item->start);
}

bool trace_table_has_rows(const struct trace_table *table) {
	return table->rows.n;
}

static int by_time(const void *a, const void *b) {
	const struct row *const *rows[2] = { a, b };
	const double totals[2] = { (*rows[0])->durations.total, (*rows[1])->durations.total };

	if ((*rows[0])->name.kind != (*rows[1])->name.kind)
		return (*rows[0])->name.kind < (*rows[1])->name.kind ? -1 : 1;
	if (totals[0] != totals[1])
		return totals[0] > totals[1] ? -1 : 1;
	if ((*rows[0])->calls != (*rows[1])->calls)
		return (*rows[0])->calls > (*rows[1])->calls ? -1 : 1;
	return strcmp((*rows[0])->name.bytes, (*rows[1])->name.bytes);
}

/* All rows in order; NULL without memory. */
static struct row **sort_rows(const struct trace_table *table) {
	struct row **rows = calloc(table->rows.n + 1, sizeof(*rows));

	for (size_t i = 0; rows && i < table->rows.n; i++)
		rows[i] = hash_table_at(&table->rows, i);
	if (rows)
		qsort(rows, table->rows.n, sizeof(*rows), by_time);
	return rows;
}

static void put_cell(struct trace_out *out, void (*put)(struct trace_out *out, uint64_t number),
		     uint64_t number, int width) {
	struct trace_out cell = {};

	put(&cell, number);
	for (int i = (int)cell.n; i < width; i++)
		out_char(out, ' ');
	out_bytes(out, cell.text, cell.n);
	free(cell.text);
}

static void put_row(struct trace_out *line, const struct row *row, double total) {
	const struct report_histogram *durations = &row->durations;
	const uint64_t sum = durations->total < 0x1p63 ? (uint64_t)durations->total : UINT64_MAX;
	const uint64_t times[] = { sum,
				   (uint64_t)report_histogram_mean(durations),
				   report_histogram_percentile(durations, 50),
				   report_histogram_percentile(durations, 95),
				   report_histogram_percentile(durations, 99),
				   durations->max };
	char text[32];

	snprintf(text, sizeof(text), "%-6s%6.2f", kinds[row->name.kind],
		 total > 0 ? 100 * durations->total / total : 0);
	out_text(line, text);
	put_cell(line, out_uint, row->calls, 10);
	put_cell(line, out_uint, row->errors, 8);
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
		put_cell(line, out_duration, times[i], 9);
	if (row->bytes)
		put_cell(line, out_size, row->bytes, 10);
	else
		out_literal(line, "         -");
	out_literal(line, "  ");
	out_printable(line, row->name.bytes);
	out_char(line, '\n');
}

int trace_table_print(const struct trace_table *table, FILE *file) {
	struct row **rows = sort_rows(table);
	double totals[EVENT_CTXSW + 1] = {};
	struct trace_out line = {};
	int r = 0;

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < table->rows.n; i++)
		totals[rows[i]->name.kind] += rows[i]->durations.total;
	if (table->rows.n)
		fputs("TYPE       %     CALLS  ERRORS    TOTAL     MEAN      P50      P95      P99 "
		      "     MAX     BYTES  NAME\n",
		      file);
	for (size_t i = 0; !r && i < table->rows.n; i++) {
		put_row(&line, rows[i], totals[rows[i]->name.kind]);
		r = out_write(&line, file);
	}
	if (table->lost)
		fprintf(file, "lost events: %" PRIu64 "\n", table->lost);
	free(line.text);
	free(rows);
	return r;
}

/* One row's histogram. */
static int put_histogram(struct trace_out *name, const struct row *row, FILE *file) {
	struct histogram_bucket buckets[64];
	int r;

	for (unsigned int power = 0; power < 64; power++)
		buckets[power] =
			histogram_power(power, report_histogram_power(&row->durations, power));
	out_printable(name, row->name.bytes);
	out_literal(name, ":\n");
	r = out_write(name, file);
	histogram_print(file, buckets, 64, HISTOGRAM_TIMES);
	return r;
}

int trace_table_print_histograms(const struct trace_table *table, FILE *file) {
	struct row **rows = sort_rows(table);
	struct trace_out name = {};
	int r = rows ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < table->rows.n; i++)
		r = put_histogram(&name, rows[i], file);
	free(name.text);
	free(rows);
	return r;
}

void trace_table_print_summary(const struct trace_table *table, FILE *file) {
	fprintf(file,
		"=== TRACE SUMMARY ===\n\nUSERSPACE (libcuda.so):\n  Total CUDA API calls: %" PRIu64
		"\n  Kernel launches: %" PRIu64 "\n",
		table->calls, table->launches);
	fprintf(file,
		"  Memory allocations: %" PRIu64 "\n  Total memory allocated: %" PRIu64
		" bytes (%.2f MB)\n",
		table->allocations, table->allocated, (double)table->allocated / (1 << 20));
	fprintf(file,
		"  Memory transfers: %" PRIu64 "\n  Total data transferred: %" PRIu64
		" bytes (%.2f MB)\n",
		table->transfers, table->transferred, (double)table->transferred / (1 << 20));
	fprintf(file,
		"\nKERNEL SPACE (nvidia.ko):\n  IOCTL calls: %" PRIu64
		"\n  Total IOCTL time: %.3f ms\n  Scheduler calls: %" PRIu64 "\n",
		table->ioctls, (double)table->ioctl_time / 1e6, table->works);
	if (table->kernels)
		fprintf(file, "\nGPU:\n  Kernels: %" PRIu64 "\n  Total kernel time: %.3f ms\n",
			table->kernels, (double)table->kernel_time / 1e6);
	if (table->violations)
		fprintf(file, "  Kernels before their launch: %" PRIu64 "\n", table->violations);
	if (table->lost)
		fprintf(file, "\nLost events: %" PRIu64 "\n", table->lost);
}

int trace_table_new(struct trace_table **tablep) {
	*tablep = calloc(1, sizeof(**tablep));
	if (!*tablep)
		return -ENOMEM;
	(*tablep)->rows.entry_size = sizeof(struct row);
	return 0;
}

struct trace_table *trace_table_free(struct trace_table *table) {
	for (size_t i = 0; table && i < table->rows.n; i++) {
		struct row *row = hash_table_at(&table->rows, i);

		report_histogram_deinit(&row->durations);
		free((char *)row->name.bytes);
	}
	if (table)
		hash_table_deinit(&table->rows);
	free(table);
	return NULL;
}

/* As a format. */
struct trace_writer {
	FILE *file;
	struct trace_table *table;
};

static int table_open(struct trace_writer **writerp, FILE *file, const struct trace_about *about) {
	struct trace_writer *writer = calloc(1, sizeof(*writer));

	if (!writer || trace_table_new(&writer->table)) {
		free(writer);
		return -ENOMEM;
	}
	writer->file = file;
	*writerp = writer;
	return 0;
}

static int table_item(struct trace_writer *writer, const struct trace_item *item) {
	return trace_table_add(writer->table, item);
}

static int table_close(struct trace_writer *writer, bool complete) {
	int r = trace_table_print(writer->table, writer->file);

	trace_table_free(writer->table);
	free(writer);
	return r;
}

const struct trace_format trace_format_table = { "table", ".txt", table_open, table_item,
						 table_close };
