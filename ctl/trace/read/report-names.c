/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bounded table of texts, each kept once and numbered (report-names.h). Readers of trace files
 * and reports use it.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report-names.h"

void report_names_init(struct report_names *names, size_t max, size_t max_bytes) {
	*names = (struct report_names){ .max = max, .max_bytes = max_bytes };
}

void report_names_deinit(struct report_names *names) {
	for (size_t i = 0; i < names->n; i++)
		free(names->texts[i]);
	free(names->texts);
	free(names->table);
	*names = (struct report_names){};
}

/* Eight bytes at a time: names are hashed for each item. */
uint64_t report_hash(const void *data, size_t n, uint64_t seed) {
	const unsigned char *bytes = data;
	uint64_t hash = seed ^ n * UINT64_C(0x9e3779b97f4a7c15), word;

	for (; n >= 8; n -= 8, bytes += 8) {
		memcpy(&word, bytes, 8);
		hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, bytes, n);
	hash = (hash ^ word) * UINT64_C(0xc4ceb9fe1a85ec53);
	return hash ^ hash >> 29;
}

/* The place in the table of a text: where it is, or would be. */
static size_t place_of(const struct report_names *names, const char *text, size_t n) {
	size_t place = report_hash(text, n, 0) & (names->n_table - 1);

	while (names->table[place] && strcmp(names->texts[names->table[place] - 1], text) != 0)
		place = (place + 1) & (names->n_table - 1);
	return place;
}

/* Doubles the table. Returns whether there was memory for it. */
static bool grow(struct report_names *names) {
	size_t n_table = names->n_table ? names->n_table * 2 : 64;
	uint32_t *table = calloc(n_table, sizeof(*table));
	char **texts = realloc(names->texts, n_table / 2 * sizeof(*texts));

	if (texts)
		names->texts = texts;
	if (!table || !texts) {
		free(table);
		return false;
	}
	free(names->table);
	names->table = table;
	names->n_table = n_table;
	for (size_t i = 0; i < names->n; i++)
		table[place_of(names, texts[i], strlen(texts[i]))] = (uint32_t)i + 1;
	return true;
}

uint32_t report_names_number(struct report_names *names, const char *text) {
	const size_t n = strlen(text);
	size_t place;

	if (names->n_table) {
		place = place_of(names, text, n);
		if (names->table[place])
			return names->table[place];
	}
	if (names->n == names->max || names->bytes + n > names->max_bytes) {
		names->refused++;
		return 0;
	}
	if (names->n >= names->n_table / 2 && !grow(names))
		return 0;
	place = place_of(names, text, n);
	names->texts[names->n] = strdup(text);
	if (!names->texts[names->n])
		return 0;
	names->bytes += n;
	names->table[place] = (uint32_t)++names->n;
	return (uint32_t)names->n;
}

const char *report_names_text(const struct report_names *names, uint32_t number) {
	return number && number <= names->n ? names->texts[number - 1] : "(other)";
}

const char *report_names_keep(struct report_names *names, const char *text) {
	return *text ? report_names_text(names, report_names_number(names, text)) : "";
}
