/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decodes records into items. A decoder knows the names, processes, threads and stacks that a trace
 * has told so far. Records are decoded when it is their turn in the output, which is later than
 * they came. So each record has a number, and the names that held at that number apply.
 */

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ctl/trace/base/item.h"
#include "proto/trace.h"

struct trace_decoder;

int trace_decoder_new(struct trace_decoder **decoderp);
struct trace_decoder *trace_decoder_free(struct trace_decoder *decoder);

/*
 * Whether the members of a record lie within its size, which is that of the bytes at it: nothing
 * else looks at a record that is not whole.
 */
bool trace_record_is_whole(const struct trace_record *record);

/* Learns from a record, which is whole. Number: of the record in the trace, growing. */
void trace_decoder_learn(struct trace_decoder *decoder, const struct trace_record *record,
			 uint64_t number);

/*
 * Fills in all of an item but id, parent, flow and violation. False: records of this type make no
 * items.
 */
bool trace_decoder_item(struct trace_decoder *decoder, const struct trace_record *record,
			uint64_t number, struct trace_item *item);

/* What the trace's beginning said. */
const struct trace_about *trace_decoder_about(const struct trace_decoder *decoder);

/* For the decoders of calls and ioctls (call.h, ioctl.h). */

/*
 * n bytes, and a NUL behind them, that live as long as the item; "" when there is no room. text
 * NULL: zeros, to be written; NULL when there is no room.
 */
char *trace_decoder_text(struct trace_decoder *decoder, const char *text, size_t n);
/* The mangled name of a kernel by its handle, or NULL. Lives as long as the decoder. */
const char *trace_decoder_kernel(struct trace_decoder *decoder, uint32_t pid, uint64_t handle);

/* Bytes of a record: as many as are there, which may be fewer than they should be. */
struct trace_bytes {
	const uint8_t *data;
	size_t n;
};

/* A little-endian number of at most 8 bytes. False if the bytes end before it does. */
static inline bool trace_bytes_read(struct trace_bytes bytes, size_t offset, size_t size,
				    uint64_t *numberp) {
	uint64_t number = 0;

	if (size > sizeof(number) || offset > bytes.n || size > bytes.n - offset)
		return false;
	memcpy(&number, bytes.data + offset, size);
	*numberp = le64toh(number);
	return true;
}

/* Takes the first n bytes, padded to 8, as far as they are there. */
static inline struct trace_bytes trace_bytes_take(struct trace_bytes *rest, size_t n) {
	const struct trace_bytes bytes = { rest->data, n < rest->n ? n : rest->n };
	const size_t padded = (n + 7) & ~(size_t)7, taken = padded < rest->n ? padded : rest->n;

	rest->data += taken;
	rest->n -= taken;
	return bytes;
}

/* The next value of an item, zeroed but for name, kind and number; what is over TRACE_VALUES_MAX is
 * written nowhere. */
struct trace_value *trace_item_value(struct trace_item *item, const char *name,
				     enum trace_value_kind kind, int64_t number);
