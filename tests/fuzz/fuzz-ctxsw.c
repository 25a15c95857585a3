/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as the ring of an event buffer (4 bytes of put, 4 of get, 1 of how many
 * are taken at a time, then records): what is read lies within it, comes to an end, and becomes
 * spans that are well formed.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/rm/record.h"
#include "ctl/rm/spans.h"

#define HEAD 9
#define BATCH_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(void *userdata, struct trace_ctxsw *span) {
	size_t *n = userdata;

	if (span->record.size != sizeof(*span) || span->record.type != TRACE_CTXSW ||
	    span->end < span->start || span->device != 3)
		abort();
	if (span->record.flags & TRACE_CTXSW_INSTANT && span->end != span->start)
		abort();
	++*n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct rm_ctxsw_record records[BATCH_MAX];
	struct rm_spans *spans;
	uint32_t put, get, n_ring;
	size_t n, n_max, n_all = 0, n_spans = 0;
	uint8_t *ring;

	if (size < HEAD + 2 * RM_RECORD_SIZE)
		return 0;
	memcpy(&put, data, sizeof(put));
	memcpy(&get, data + 4, sizeof(get));
	n_max = 1 + data[8] % BATCH_MAX;
	n_ring = (uint32_t)((size - HEAD) / RM_RECORD_SIZE);
	ring = malloc((size_t)n_ring *
		      RM_RECORD_SIZE); /* no larger, so that ASan sees any read past it */
	spans = calloc(1, sizeof(*spans));
	if (!ring || !spans)
		abort();
	memcpy(ring, data + HEAD, (size_t)n_ring * RM_RECORD_SIZE);
	*spans = (struct rm_spans){
		.device = 3, .since = 1000, .emit = check, .userdata = &n_spans
	};
	do {
		const uint32_t before = get;

		n = rm_records_read(ring, n_ring, &get, put, records, n_max);
		if (n > n_max || (get >= n_ring && get != before))
			abort();
		for (size_t i = 0; i < n; i++)
			if (rm_spans_add(spans, &records[i], records[i].gpu_time, 7) > 0x10000)
				abort();
		n_all += n;
		if (n_all > n_ring)
			abort();
	} while (n == n_max);
	rm_spans_finish(spans, UINT64_MAX / 2);
	if (n_spans > 3 * n_all + RM_ENGINES_MAX)
		abort();
	free(spans);
	free(ring);
	return 0;
}
