/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Counts how much GPU memory each process has in use, from its allocating and freeing calls
 * (in-use.h). The formats chrome and perfetto show it as a counter.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "in-use.h"
#include "ctl/trace/base/track.h"

#define SLOTS (1 << 17) /* a power of two */
#define ALLOCATIONS_MAX (SLOTS / 4 * 3)
#define PROCESSES_MAX 1024

struct allocation {
	uint64_t address, size; /* size 0: no allocation */
	uint64_t since; /* of an address that another one had: the end of its call, before which
			   nobody can free it; else 0 */
	uint32_t pid;
};

struct trace_in_use {
	size_t n, n_processes;
	struct {
		uint32_t pid;
		uint64_t bytes;
	} processes[PROCESSES_MAX];
	struct allocation slots[SLOTS];
};

int trace_in_use_new(struct trace_in_use **in_usep) {
	struct trace_in_use *in_use = calloc(1, sizeof(*in_use));

	if (!in_use)
		return -ENOMEM;
	*in_usep = in_use;
	return 0;
}

struct trace_in_use *trace_in_use_free(struct trace_in_use *in_use) {
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

static size_t home_slot(uint32_t pid, uint64_t address) {
	const uint64_t words[] = { pid, address };

	return trace_hash(0, words, sizeof(words)) % SLOTS;
}

/* The slot of an allocation, or the empty one where it would be. */
static size_t find_slot(const struct trace_in_use *in_use, uint32_t pid, uint64_t address) {
	size_t slot = home_slot(pid, address);

	while (in_use->slots[slot].size &&
	       (in_use->slots[slot].pid != pid || in_use->slots[slot].address != address))
		slot = (slot + 1) % SLOTS;
	return slot;
}

/* Takes one out; those behind it move up, so that they are still found. */
static void remove_slot(struct trace_in_use *in_use, size_t slot) {
	size_t next = slot;

	in_use->n--;
	for (;;) {
		const struct allocation *allocation;

		in_use->slots[slot].size = 0;
		do {
			next = (next + 1) % SLOTS;
			allocation = &in_use->slots[next];
			if (!allocation->size)
				return;
		} while ((next - home_slot(allocation->pid, allocation->address)) % SLOTS <
			 (next - slot) % SLOTS);
		in_use->slots[slot] = *allocation;
		slot = next;
	}
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
		for (size_t slot = 0; had && slot < SLOTS; slot++)
			while (in_use->slots[slot].size && in_use->slots[slot].pid == pid)
				remove_slot(in_use, slot);
		in_use->processes[i] = in_use->processes[--in_use->n_processes];
		return had;
	}
	return false;
}

/* True if an item changed how much its process has; then *bytesp is how much at the item's end. */
bool trace_in_use_item(struct trace_in_use *in_use, const struct trace_item *item,
		       uint64_t *bytesp) {
	bool allocates, frees;
	uint64_t address, since = 0, *bytes;
	size_t slot;

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
	if ((!allocates && !frees) || !find_address(item, &address))
		return false;
	bytes = find_process(in_use, item->pid);
	slot = find_slot(in_use, item->pid, address);
	if (!bytes)
		return false;
	if (in_use->slots[slot].size) {
		/* of who had the address before, who counts no more */
		if (frees && item->start < in_use->slots[slot].since)
			return false;
		/* freed; or allocated anew, and its end was not seen, or is yet to come: another
		 * thread's call began before that */
		since = item->end;
		*bytes -= in_use->slots[slot].size;
		remove_slot(in_use, slot);
		slot = find_slot(in_use, item->pid, address);
	} else if (frees) {
		return false;
	}
	if (allocates && item->size && in_use->n < ALLOCATIONS_MAX) {
		in_use->slots[slot] = (struct allocation){ address, item->size, since, item->pid };
		in_use->n++;
		*bytes += item->size;
	}
	*bytesp = *bytes;
	return true;
}
