/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is allocated and not freed yet: a table by process, kind and address. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report.h"

struct report_live {
	uint64_t address, size, time; /* time: from which on it is there */
	uint32_t pid;
	uint32_t function, stack; /* numbers of names */
	uint8_t resource; /* enum report_resource; NONE: a free place */
	bool ended; /* its process has */
};

struct report_live_table {
	struct report_live *rows;
	size_t n, n_rows; /* n_rows: a power of two */
};

struct report_live *report_live_find(const struct report_live_table *table, uint32_t pid,
				     enum report_resource resource, uint64_t address);
/* Adds what is not there yet. 0, or -ENOMEM. */
int report_live_add(struct report_live_table *table, const struct report_live *live);
void report_live_remove(struct report_live_table *table, struct report_live *live);
