/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bounded table of texts, each kept once and numbered (report-names.h). Readers of trace files
 * and reports use it.
 */

#include <stdlib.h>
#include <string.h>

#include "report-names.h"

void report_names_init(struct report_names *names, size_t max, size_t max_bytes) {
	*names = (struct report_names){ .texts.entry_size = sizeof(struct hash_text),
					.max = max,
					.max_bytes = max_bytes };
}

void report_names_deinit(struct report_names *names) {
	for (uint32_t i = 1; i <= names->texts.n; i++)
		free((char *)report_names_text(names, i));
	hash_table_deinit(&names->texts);
	*names = (struct report_names){};
}

uint32_t report_names_number(struct report_names *names, const char *text) {
	struct hash_text key = { .bytes = text, .n = (uint32_t)strlen(text) };
	const struct hash_text *known = hash_table_find(&names->texts, &key);

	if (known)
		return (uint32_t)(known - (struct hash_text *)hash_table_at(&names->texts, 0)) + 1;
	if (names->texts.n == names->max || names->bytes + key.n > names->max_bytes) {
		names->refused++;
		return 0;
	}
	key.bytes = strdup(text);
	if (!key.bytes || !hash_table_add(&names->texts, &key, NULL)) {
		free((char *)key.bytes);
		return 0;
	}
	names->bytes += key.n;
	return names->texts.n;
}

const char *report_names_text(const struct report_names *names, uint32_t number) {
	return number && number <= names->texts.n
		       ? ((struct hash_text *)hash_table_at(&names->texts, number - 1))->bytes
		       : "(other)";
}

const char *report_names_keep(struct report_names *names, const char *text) {
	return *text ? report_names_text(names, report_names_number(names, text)) : "";
}
