/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the calls that eBPF programs of uprobes have counted (uprobe-private.h).
 *
 * What the programs count is read a few times a second, all of it in one pass of some calls of
 * bpf(2), and told to the session, which knows what of it is new. Which processes are meant only
 * the session knows: those that are not are refused here, as their first record would be, and what
 * was counted of them is forgotten. The map has room for UPROBE_COUNTS_MAX functions of processes:
 * when it is half full, those of processes that are gone leave it.
 */

#include <bpf/bpf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "uprobe-private.h"

#define PERIOD UINT64_C(200000000) /* nanoseconds */
#define BATCH 512 /* more than one bucket of the map will have */

struct uprobe_counter {
	struct trace_uprobe *uprobe;
	uint64_t read; /* when it was last */
	pid_t told; /* whose PROCESS record has been seen to last */
	size_t n_read; /* by the last pass */
	struct uprobe_count_key keys[BATCH];
	struct trace_tally tallies[BATCH];
};

int uprobe_counter_new(struct uprobe_counter **counterp, struct trace_uprobe *uprobe) {
	struct uprobe_counter *counter = calloc(1, sizeof(*counter));

	if (!counter)
		return -ENOMEM;
	counter->uprobe = uprobe;
	*counterp = counter;
	return 0;
}

/* What threads that raced for a maximum may have left too low, the buckets know. */
static void mend_extremes(struct trace_tally *tally) {
	uint32_t first = 0, last = TRACE_BUCKETS;

	while (last && !tally->buckets[last - 1])
		last--;
	if (!last)
		return;
	while (!tally->buckets[first])
		first++;
	if (tally->max < trace_bucket_start(last - 1))
		tally->max = trace_bucket_start(last - 1);
	if (first + 1 < TRACE_BUCKETS && ~tally->least >= trace_bucket_start(first + 1))
		tally->least = ~(trace_bucket_start(first + 1) - 1);
}

static uint64_t calls_of(const struct trace_tally *tally) {
	uint64_t calls = 0;

	for (size_t i = 0; i < TRACE_BUCKETS; i++)
		calls += tally->buckets[i];
	return calls;
}

/* One element of the map. False: it is to leave it. */
static bool use_tally(struct uprobe_counter *counter, const struct uprobe_count_key *key,
		      struct trace_tally *tally, bool crowded) {
	struct trace_uprobe *uprobe = counter->uprobe;
	pid_t pid = (pid_t)key->pid;

	if (!trace_session_meant(uprobe->session, pid, monotonic_now())) {
		if (trace_session_missed(uprobe->session, pid))
			trace_session_lost(uprobe->session, TRACE_SOURCE_BPF, 0, 0,
					   calls_of(tally));
		uprobe_refuse_process(uprobe, pid);
		return false;
	}
	if (pid != counter->told) {
		uprobe_saw_process(uprobe, pid);
		trace_session_process(uprobe->session, pid);
		counter->told = pid;
	}
	mend_extremes(tally);
	return !trace_session_counts(uprobe->session, TRACE_SOURCE_BPF, key->pid,
				     (uint16_t)key->function, tally) ||
	       !crowded || !uprobe_is_gone(pid);
}

void uprobe_counter_read(struct uprobe_counter *counter, uint64_t now, bool last) {
	uint64_t token = 0;
	bool crowded, first = true;
	size_t n_read = 0;
	int map, r = 0;

	if (!counter || (!last && now - counter->read < PERIOD))
		return;
	map = counter->uprobe->engine.counts;
	crowded = counter->n_read > UPROBE_COUNTS_MAX / 2;
	counter->read = now;
	while (!r && n_read < UPROBE_COUNTS_MAX) {
		uint32_t n = BATCH;

		r = bpf_map_lookup_batch(map, first ? NULL : &token, &token, counter->keys,
					 counter->tallies, &n, NULL);
		if (r && errno != ENOENT) /* that is the end */
			break;
		first = false;
		n_read += n;
		for (uint32_t i = 0; i < n; i++)
			if (!use_tally(counter, &counter->keys[i], &counter->tallies[i], crowded) &&
			    bpf_map_delete_elem(map, &counter->keys[i]) == 0)
				trace_session_counts_anew(counter->uprobe->session,
							  TRACE_SOURCE_BPF, counter->keys[i].pid,
							  (uint16_t)counter->keys[i].function);
	}
	counter->n_read = n_read;
}
