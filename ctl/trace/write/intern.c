/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A table that gives texts numbers (intern.h), in bounded memory. The format perfetto writes each
 * text once and then its number.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "intern.h"
#include "lib/base/hash-table.h"

#define TEXTS_FULL 8192
#define TEXTS_MAX 12288
#define RECENT 512 /* a power of two */
#define BYTES_FULL (1 << 20)
#define BYTES_MAX (BYTES_FULL + (1 << 19))

struct intern {
	struct hash_table texts; /* of struct hash_text */
	uint32_t n_bytes;
	/* most texts are the same few places in memory again and again: their numbers */
	struct {
		const char *text;
		uint32_t number;
	} recent[RECENT];
	char bytes[BYTES_MAX]; /* texts, each with a NUL */
};

int intern_new(struct intern **internp) {
	struct intern *intern = calloc(1, sizeof(*intern));

	if (!intern)
		return -ENOMEM;
	intern->texts.entry_size = sizeof(struct hash_text);
	if (!hash_table_reserve(&intern->texts, TEXTS_MAX))
		intern = intern_free(intern);
	*internp = intern;
	return intern ? 0 : -ENOMEM;
}

struct intern *intern_free(struct intern *intern) {
	if (intern)
		hash_table_deinit(&intern->texts);
	free(intern);
	return NULL;
}

/* Whether it is time to clear it: there is room for what one more event has, but not for much more.
 */
bool intern_is_full(const struct intern *intern) {
	return intern->texts.n >= TEXTS_FULL || intern->n_bytes >= BYTES_FULL;
}

void intern_clear(struct intern *intern) {
	hash_table_clear(&intern->texts);
	memset(intern->recent, 0, sizeof(intern->recent));
	intern->n_bytes = 0;
}

static bool is_recent(const struct intern *intern, size_t recent, unsigned kind, const char *text) {
	const struct hash_text *known;

	if (intern->recent[recent].text != text)
		return false;
	/* there may be another text in the place by now */
	known = hash_table_at(&intern->texts, intern->recent[recent].number - 1);
	return known->kind == kind && !strcmp(known->bytes, text);
}

/* The number of a text among all of the table; 0: it is too long, or there is no room. */
uint64_t intern_get(struct intern *intern, unsigned kind, const char *text, bool *newp) {
	const size_t recent = ((uintptr_t)text ^ (uintptr_t)text >> 9 ^ kind << 4) % RECENT,
		     n = strnlen(text, INTERN_TEXT_MAX + 1);
	struct hash_text key = { text, (uint32_t)n, kind }, *known;
	uint32_t number;

	*newp = false;
	if (is_recent(intern, recent, kind, text))
		return intern->recent[recent].number;
	if (n > INTERN_TEXT_MAX)
		return 0;
	known = hash_table_find(&intern->texts, &key);
	if (known) {
		number = (uint32_t)(known - (struct hash_text *)hash_table_at(&intern->texts, 0)) +
			 1;
		intern->recent[recent].text = text;
		intern->recent[recent].number = number;
		return number;
	}
	if (intern->texts.n == TEXTS_MAX || BYTES_MAX - intern->n_bytes < n + 1)
		return 0;
	key.bytes = memcpy(intern->bytes + intern->n_bytes, text, n + 1);
	intern->n_bytes += (uint32_t)n + 1;
	*newp = hash_table_add(&intern->texts, &key, NULL);
	return intern->texts.n;
}
