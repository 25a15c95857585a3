/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Statistics of what was traced: a table as of strace -c, histograms, and the summary of the seeds'
 * tools. */

#include <stdio.h>

#include "ctl/trace/base/item.h"

struct trace_table;

int trace_table_new(struct trace_table **tablep);
struct trace_table *trace_table_free(struct trace_table *table);
int trace_table_add(struct trace_table *table, const struct trace_item *item);
bool trace_table_has_rows(const struct trace_table *table);
/* A row for each function, command, hook and kernel, those that took longest first. */
int trace_table_print(const struct trace_table *table, FILE *file);
/* How long each took: powers of two of nanoseconds. */
int trace_table_print_histograms(const struct trace_table *table, FILE *file);
void trace_table_print_summary(const struct trace_table *table, FILE *file);
