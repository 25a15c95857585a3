/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of what is allocated and not freed yet (report-live.h), for the report of leaks: a hash
 * table by process, kind and address.
 */

#include <errno.h>
#include <stdlib.h>

#include "report-live.h"
#include "ctl/trace/read/report-names.h"

static size_t place_of(const struct report_live_table *table, uint32_t pid, uint8_t resource,
		       uint64_t address) {
	const uint64_t key[] = { address, (uint64_t)pid << 8 | resource };

	return report_hash(key, sizeof(key), 0) & (table->n_rows - 1);
}

struct report_live *report_live_find(const struct report_live_table *table, uint32_t pid,
				     enum report_resource resource, uint64_t address) {
	size_t i;

	if (!table->n_rows)
		return NULL;
	for (i = place_of(table, pid, (uint8_t)resource, address); table->rows[i].resource;
	     i = (i + 1) & (table->n_rows - 1)) {
		struct report_live *live = &table->rows[i];

		if (live->address == address && live->pid == pid && live->resource == resource)
			return live;
	}
	return NULL;
}

static void insert(struct report_live_table *table, const struct report_live *live) {
	size_t i = place_of(table, live->pid, live->resource, live->address);

	while (table->rows[i].resource)
		i = (i + 1) & (table->n_rows - 1);
	table->rows[i] = *live;
}

int report_live_add(struct report_live_table *table, const struct report_live *live) {
	struct report_live_table larger = { .n = table->n,
					    .n_rows = table->n_rows ? table->n_rows * 2 : 256 };

	if (table->n >= table->n_rows / 2) {
		larger.rows = calloc(larger.n_rows, sizeof(*larger.rows));
		if (!larger.rows)
			return -ENOMEM;
		for (size_t i = 0; i < table->n_rows; i++)
			if (table->rows[i].resource)
				insert(&larger, &table->rows[i]);
		free(table->rows);
		*table = larger;
	}
	insert(table, live);
	table->n++;
	return 0;
}

/* Closes the hole, so that a search may end at the first free place. */
void report_live_remove(struct report_live_table *table, struct report_live *live) {
	const size_t mask = table->n_rows - 1;
	size_t hole = (size_t)(live - table->rows), i = hole, home;

	for (;;) {
		i = (i + 1) & mask;
		if (!table->rows[i].resource)
			break;
		home = place_of(table, table->rows[i].pid, table->rows[i].resource,
				table->rows[i].address);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		table->rows[hole] = table->rows[i];
		hole = i;
	}
	table->rows[hole].resource = RESOURCE_NONE;
	table->n--;
}
