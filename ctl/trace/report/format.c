/* SPDX-License-Identifier: Apache-2.0 */

/* The list of the trace formats, and the search of one by its name. */

#include <string.h>

#include "ctl/trace/base/item.h"

const struct trace_format *trace_format_find(const char *name) {
	static const struct trace_format *const formats[] = {
		&trace_format_text,   &trace_format_jsonl,    &trace_format_seed,
		&trace_format_chrome, &trace_format_perfetto, &trace_format_folded,
		&trace_format_csv,    &trace_format_table,
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}
