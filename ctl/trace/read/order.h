/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sorts records by their start, and finds out what belongs together. Records wait until no older
 * one can be expected: for a time, and within a bound of memory. Records that come later are given
 * away late.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/trace/decode/decode.h"
#include "ctl/trace/base/item.h"

struct trace_order_options {
	uint64_t window; /* nanoseconds that records wait */
	size_t memory; /* bytes of records that wait, at most */
	uint64_t min_duration; /* shorter calls, ioctls and hooks are left out */
	bool errors; /* so is what did not fail */
	bool counts; /* calls that were counted are items, too */
	bool gpu; /* times of kernels are to come: launches get flows */
	/* Gets each item; it is valid until the return. 0 or negative errno, which ends everything.
	 */
	int (*take)(const struct trace_item *item, void *userdata);
	void *userdata;
};

/* Memory of records, shared by all that wait in it. */
struct trace_block;
int trace_block_new(struct trace_block **blockp, size_t size);
char *trace_block_bytes(struct trace_block *block);

struct trace_order;

int trace_order_new(struct trace_order **orderp, struct trace_decoder *decoder,
		    const struct trace_order_options *options);
struct trace_order *trace_order_free(struct trace_order *order);
/* A block is in use: its bytes count. _unref() frees it when no record waits in it any more. */
void trace_order_ref(struct trace_order *order, struct trace_block *block);
void trace_order_unref(struct trace_order *order, struct trace_block *block);
/* Adds a whole record, which lies in block and which the decoder has learned from. */
int trace_order_add(struct trace_order *order, struct trace_block *block,
		    const struct trace_record *record, uint64_t number);
/* Gives away all records that wait: no older ones can come any more. */
int trace_order_finish(struct trace_order *order);
