/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From events of context switches to what lies between them: which context was on the engine, from
 * when to when. An engine has one context at a time; with MIG each instance has an engine of its
 * own.
 */

#include <stdbool.h>
#include <stdint.h>

#include "ctxsw.h"
#include "proto/trace.h"

#define RM_ENGINES_MAX 16 /* of a GPU; those of further instances are counted as lost */

struct rm_engine {
	bool used;
	uint8_t gpu_instance, compute_instance;
	uint64_t last; /* host time of the event before; a context whose beginning was not seen
			  counts from here */
	bool on; /* a context is on it: */
	struct trace_ctxsw span;
};

struct rm_spans {
	uint32_t device; /* N of /dev/nvidiaN */
	uint64_t since; /* host: nothing is known of what was before */
	bool sequenced;
	uint16_t sequence; /* of the latest event */
	struct rm_engine engines[RM_ENGINES_MAX];
	void (*emit)(void *userdata, struct trace_ctxsw *span);
	void *userdata;
};

/*
 * The next event, with its time on the host's clock and the error of that. Gives away a span that
 * it ends. Returns how many events were lost before it.
 */
unsigned int rm_spans_add(struct rm_spans *spans, const struct rm_ctxsw_record *record,
			  uint64_t time, uint32_t error);
/* An event whose time is not known. Returns how many were lost, with it. */
unsigned int rm_spans_lose(struct rm_spans *spans, const struct rm_ctxsw_record *record);
/* Gives away what is still there. */
void rm_spans_finish(struct rm_spans *spans, uint64_t now);
