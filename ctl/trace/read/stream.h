/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads a trace (proto/trace.h), whose bytes come in portions of any size, from a daemon or a file,
 * and gives its items away in the order of their start. What is foreign, it passes over: records of
 * types that it does not know, and those whose parts do not fit into them, which it counts.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/trace/base/item.h"
#include "order.h"

enum {
	_TRACE_STREAM_E_SUCCESS,
	TRACE_STREAM_E_FOREIGN, /* it does not begin as a trace does */
	TRACE_STREAM_E_VERSION, /* of another version */
	TRACE_STREAM_E_BROKEN, /* where a record should begin, there is none: the rest cannot be
				  read */
};

struct trace_stream;

struct trace_stream_state {
	bool started, stopped; /* the first and the last record have been read */
	uint64_t records;
	uint64_t events; /* records that are what happened: calls, ioctls, hooks, kernels */
	uint64_t calls; /* of libcuda, as far as each has a record, or was lost by the shim */
	uint64_t processes; /* beginnings and ends of processes */
	uint64_t contexts; /* on GPUs, of events */
	uint64_t lost; /* as the trace says */
	uint64_t unknown_ends; /* launches; likewise */
	uint64_t damaged; /* records that were passed over */
	uint64_t newest; /* CLOCK_MONOTONIC: the latest end of a call or event */
};

/* Without options->take records are only counted. begin (may be NULL) is called before the first
 * item; it returns 0 or negative errno. */
int trace_stream_new(struct trace_stream **streamp, const struct trace_order_options *options,
		     int (*begin)(const struct trace_about *about, void *userdata));
struct trace_stream *trace_stream_free(struct trace_stream *stream);
int trace_stream_feed(struct trace_stream *stream, const void *bytes, size_t n);
/* All that waits is given away: there is no more, or nothing has come for some time. */
int trace_stream_finish(struct trace_stream *stream);
void trace_stream_state(const struct trace_stream *stream, struct trace_stream_state *state);
/* Whether the trace ends with these bytes, which are whole records. */
bool trace_stream_ends(const void *bytes, size_t n);
/* Bytes of a record at the end that is not there in full. */
size_t trace_stream_cut(const struct trace_stream *stream);
