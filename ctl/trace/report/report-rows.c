/* SPDX-License-Identifier: Apache-2.0 */

/* Keeps rows of numbers by name (report-rows.h), for reports that add up by name. */

#include <stdlib.h>
#include <string.h>

#include "report-rows.h"
#include "report.h"

void report_rows_init(struct report_rows *rows, size_t size, size_t max_names) {
	report_names_init(&rows->names, max_names, REPORT_NAME_BYTES_MAX);
	rows->size = size;
}

void report_rows_deinit(struct report_rows *rows) {
	report_names_deinit(&rows->names);
	free(rows->rows);
}

void *report_rows_get(struct report_rows *rows, uint32_t number) {
	size_t n = rows->n ?: 16;
	char *grown;

	if (number >= rows->n) {
		while (n <= number)
			n *= 2;
		grown = reallocarray(rows->rows, n, rows->size);
		if (!grown)
			return NULL;
		memset(grown + rows->n * rows->size, 0, (n - rows->n) * rows->size);
		rows->rows = grown;
		rows->n = n;
	}
	return rows->rows + number * rows->size;
}

void *report_rows_of(struct report_rows *rows, const char *name) {
	return report_rows_get(rows, report_names_number(&rows->names, name));
}
