/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Counts how much GPU memory each process has in use, from its allocating and freeing calls
 * (in-use.h). The formats chrome and perfetto show it as a counter.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "in-use.h"
#include "lib/base/hash-table.h"

#define ALLOCATIONS_MAX 98304
#define PROCESSES_MAX 1024

struct allocation {
	uint64_t pid, address; /* the key */
	uint64_t size;
	uint64_t since; /* of an address that another one had: the end of its call, before which
			   nobody can free it; else 0 */
};

struct trace_in_use {
	struct hash_table allocations;
	size_t n_processes;
	struct {
		uint32_t pid;
		uint64_t bytes;
	} processes[PROCESSES_MAX];
};

int trace_in_use_new(struct trace_in_use **in_usep) {
	struct trace_in_use *in_use = calloc(1, sizeof(*in_use));

	if (!in_use)
		return -ENOMEM;
	in_use->allocations.key_size = offsetof(struct allocation, size);
	in_use->allocations.entry_size = sizeof(struct allocation);
	*in_usep = in_use;
	return 0;
}

struct trace_in_use *trace_in_use_free(struct trace_in_use *in_use) {
	if (in_use)
		hash_table_deinit(&in_use->allocations);
	free(in_use);
	return NULL;
}

/* The number of bytes of a process; NULL: there are too many processes. */
static uint64_t *find_process(struct trace_in_use *in_use, uint32_t pid) {
	size_t i = 0;

	while (i < in_use->n_processes && in_use->processes[i].pid != pid)
		i++;
	if (i == PROCESSES_MAX)
		return NULL;
	if (i == in_use->n_processes) {
		in_use->processes[i].pid = pid;
		in_use->processes[i].bytes = 0;
		in_use->n_processes++;
	}
	return &in_use->processes[i].bytes;
}

/* What was allocated or is freed. */
static bool find_address(const struct trace_item *item, uint64_t *addressp) {
	for (size_t i = 0; i < item->n_values; i++)
		if (item->values[i].name && (strcmp(item->values[i].name, "dptr") == 0 ||
					     strcmp(item->values[i].name, "handle") == 0)) {
			*addressp = (uint64_t)item->values[i].number;
			return *addressp != 0;
		}
	return false;
}

/* A process is gone, or executes another program: its memory is gone, too. */
static bool end_process(struct trace_in_use *in_use, uint32_t pid) {
	for (size_t i = 0; i < in_use->n_processes; i++) {
		bool had = in_use->processes[i].bytes > 0;

		if (in_use->processes[i].pid != pid)
			continue;
		for (size_t k = had ? in_use->allocations.n : 0; k-- > 0;) {
			struct allocation *allocation = hash_table_at(&in_use->allocations, k);

			if (allocation->pid == pid)
				hash_table_remove(&in_use->allocations, allocation);
		}
		in_use->processes[i] = in_use->processes[--in_use->n_processes];
		return had;
	}
	return false;
}

/* True if an item changed how much its process has; then *bytesp is how much at the item's end. */
bool trace_in_use_item(struct trace_in_use *in_use, const struct trace_item *item,
		       uint64_t *bytesp) {
	bool allocates, frees;
	struct allocation key = {}, *allocation;
	uint64_t since = 0, *bytes;

	if (item->kind == EVENT_PROCESS &&
	    (strcmp(item->name, "exit") == 0 || strcmp(item->name, "exec") == 0)) {
		*bytesp = 0;
		return end_process(in_use, item->pid);
	}
	if (item->kind != EVENT_CALL || item->failed || item->open)
		return false;
	allocates = strcmp(item->base, "cuMemCreate") == 0 ||
		    (strncmp(item->base, "cuMemAlloc", 10) == 0 &&
		     strcmp(item->base, "cuMemAllocHost") != 0);
	frees = strcmp(item->base, "cuMemFree") == 0 || strcmp(item->base, "cuMemFreeAsync") == 0 ||
		strcmp(item->base, "cuMemRelease") == 0;
	if ((!allocates && !frees) || !find_address(item, &key.address))
		return false;
	bytes = find_process(in_use, item->pid);
	if (!bytes)
		return false;
	key.pid = item->pid;
	allocation = hash_table_find(&in_use->allocations, &key);
	if (allocation) {
		/* of who had the address before, who counts no more */
		if (frees && item->start < allocation->since)
			return false;
		/* freed; or allocated anew, and its end was not seen, or is yet to come: another
		 * thread's call began before that */
		since = item->end;
		*bytes -= allocation->size;
		hash_table_remove(&in_use->allocations, allocation);
	} else if (frees) {
		return false;
	}
	allocation = allocates && item->size && in_use->allocations.n < ALLOCATIONS_MAX
			     ? hash_table_add(&in_use->allocations, &key, NULL)
			     : NULL;
	if (allocation) {
		allocation->size = item->size;
		allocation->since = since;
		*bytes += item->size;
	}
	*bytesp = *bytes;
	return true;
}
