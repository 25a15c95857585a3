/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. A byte for the driver's version, then a record of an ioctl as a file of a trace may
 * have it.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/trace/decode/decode.h"
#include "ctl/trace/decode/ioctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of an item, as a writer does. */
static void read_item(const struct trace_item *item) {
	size_t sum = strlen(item->name) + strlen(item->class) +
		     (item->result_name ? strlen(item->result_name) : 0);

	if (item->n_values > TRACE_VALUES_MAX)
		abort();
	for (size_t i = 0; i < item->n_values; i++) {
		const struct trace_value *value = item->values + i;

		if (value->kind == VALUE_STRING && !value->text)
			abort();
		sum += strlen(value->name) + (value->text ? strlen(value->text) : 0);
	}
	if (sum > 1 << 16)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const char *const drivers[] = { "",           "515.43.04", "525.60.11",
					       "580.159.04", "595.45.04", "x" };
	struct trace_decoder *decoder = NULL;
	struct trace_ioctl *record;
	struct trace_item item = { 0 };

	if (size < 1 + sizeof(*record) || size > TRACE_RECORD_MAX ||
	    trace_decoder_new(&decoder) < 0)
		return 0;
	/* exactly as large as the record says */
	record = malloc(size - 1);
	if (record) {
		memcpy(record, data + 1, size - 1);
		record->record.type = TRACE_IOCTL;
		record->record.size = (uint32_t)(size - 1);
		item.result = record->result;
		trace_decode_ioctl(decoder, record,
				   drivers[data[0] % (sizeof(drivers) / sizeof(*drivers))], &item);
		read_item(&item);
	}
	free(record);
	trace_decoder_free(decoder);
	return 0;
}
