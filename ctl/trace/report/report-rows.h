/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A row of numbers for each name. Row 0 is that of all names for which there is no room. */

#include "ctl/trace/read/report-names.h"

struct report_rows {
	struct report_names names;
	char *rows; /* by the number of the name; zeros at first */
	size_t n, size;
};

void report_rows_init(struct report_rows *rows, size_t size, size_t max_names);
void report_rows_deinit(struct report_rows *rows);
/* NULL: no memory. Good until the next one. */
void *report_rows_get(struct report_rows *rows, uint32_t number);
void *report_rows_of(struct report_rows *rows, const char *name);
