/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A table that gives texts numbers (intern.h), in bounded memory. The format perfetto writes each
 * text once and then its number.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "intern.h"
#include "ctl/trace/base/track.h"

#define SLOTS (1 << 14) /* a power of two */
#define TEXTS_FULL (SLOTS / 2)
#define TEXTS_MAX (SLOTS / 4 * 3)
#define RECENT 512 /* a power of two */
#define BYTES_FULL (1 << 20)
#define BYTES_MAX (BYTES_FULL + (1 << 19))

struct entry {
	uint64_t hash;
	uint32_t number; /* from 1; 0: no entry */
	uint32_t offset; /* of the text in bytes, which ends with a NUL; the byte before it is its
			    kind */
};

struct intern {
	uint32_t n, n_bytes;
	/* most texts are the same few places in memory again and again: where those were found last
	 */
	struct {
		const char *text;
		uint32_t slot;
	} recent[RECENT];
	struct entry slots[SLOTS];
	char bytes[BYTES_MAX];
};

int intern_new(struct intern **internp) {
	struct intern *intern = calloc(1, sizeof(*intern));

	if (!intern)
		return -ENOMEM;
	*internp = intern;
	return 0;
}

struct intern *intern_free(struct intern *intern) {
	free(intern);
	return NULL;
}

/* Whether it is time to clear it: there is room for what one more event has, but not for much more.
 */
bool intern_is_full(const struct intern *intern) {
	return intern->n >= TEXTS_FULL || intern->n_bytes >= BYTES_FULL;
}

void intern_clear(struct intern *intern) {
	memset(intern->slots, 0, sizeof(intern->slots));
	memset(intern->recent, 0, sizeof(intern->recent));
	intern->n = 0;
	intern->n_bytes = 0;
}

static bool is_text(const struct intern *intern, const struct entry *entry, unsigned kind,
		    const char *text) {
	return entry->number && intern->bytes[entry->offset - 1] == (char)kind &&
	       strcmp(intern->bytes + entry->offset, text) == 0;
}

/* The number of a text among all of the table; 0: it is too long, or there is no room. */
uint64_t intern_get(struct intern *intern, unsigned kind, const char *text, bool *newp) {
	const size_t recent = ((uintptr_t)text ^ (uintptr_t)text >> 9 ^ kind << 4) % RECENT;
	size_t n, slot = intern->recent[recent].slot;
	uint64_t hash;

	*newp = false;
	/* there may be another text in the place by now */
	if (intern->recent[recent].text == text &&
	    is_text(intern, &intern->slots[slot], kind, text))
		return intern->slots[slot].number;
	n = strnlen(text, INTERN_TEXT_MAX + 1);
	if (n > INTERN_TEXT_MAX)
		return 0;
	hash = trace_hash(kind, text, n);
	for (slot = hash % SLOTS; intern->slots[slot].number; slot = (slot + 1) % SLOTS)
		if (intern->slots[slot].hash == hash &&
		    is_text(intern, &intern->slots[slot], kind, text)) {
			intern->recent[recent].text = text;
			intern->recent[recent].slot = (uint32_t)slot;
			return intern->slots[slot].number;
		}
	if (intern->n == TEXTS_MAX || BYTES_MAX - intern->n_bytes < n + 2)
		return 0;
	intern->bytes[intern->n_bytes++] = (char)kind;
	intern->slots[slot] = (struct entry){ hash, ++intern->n, intern->n_bytes };
	memcpy(intern->bytes + intern->n_bytes, text, n + 1);
	intern->n_bytes += (uint32_t)n + 1;
	*newp = true;
	return intern->n;
}
