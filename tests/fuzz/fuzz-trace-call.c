/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. A call's record behind its head of times and threads: the values of its item are a
 * well-formed list, and all their texts end.
 */

#include <stdlib.h>
#include <string.h>

#include "ctl/trace/decode/call.h"
#include "lib/function.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks over a value and its members. Returns the number of the next one. */
static size_t walk(const struct trace_item *item, size_t i) {
	const struct trace_value *value = &item->values[i++];

	if (i > item->n_values || !value->name)
		abort();
	if (value->kind == VALUE_STRING || value->kind == VALUE_BYTES)
		if (strlen(value->text) > TRACE_RECORD_MAX)
			abort();
	if (value->kind == VALUE_GROUP)
		for (int64_t member = 0; member < value->number; member++)
			i = walk(item, i);
	return i;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static struct trace_decoder *decoder;
	static struct trace_item item;
	const size_t head = offsetof(struct trace_call, result);
	struct trace_call *call;

	if (!decoder && trace_decoder_new(&decoder) != 0)
		abort();
	if (size > TRACE_RECORD_MAX - head || size < sizeof(*call) - head)
		return 0;
	call = malloc(head + size); /* as large as it says, so that ASan sees any read past it */
	if (!call)
		abort();
	memset(call, 0, head);
	call->record = (struct trace_record){ .size = (uint32_t)(head + size), .type = TRACE_CALL };
	memcpy((uint8_t *)call + head, data, size);
	if (trace_record_is_whole(&call->record)) {
		if (!trace_decoder_item(decoder, &call->record, 1, &item) ||
		    item.n_values > TRACE_VALUES_MAX || !item.name || !item.base || !item.class)
			abort();
		for (size_t i = 0; i < item.n_values;)
			i = walk(&item, i);
	} else {
		memset(&item, 0, sizeof(item)); /* nobody asks for it then, yet it must hold */
		trace_decode_call(decoder, call, &item);
	}
	free(call);
	return 0;
}
