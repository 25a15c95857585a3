/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Suggestions for misspelt names.
 *
 * The distance between two names is the number of letters that must be added, removed, changed, or
 * swapped with their neighbour, without regard to case. A name is suggested if less than a third of
 * it differs, or if it begins with what was typed.
 */

#include "suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_MAX 128 /* longer names are not compared */

static unsigned int min(unsigned int a, unsigned int b) {
	return a < b ? a : b;
}

static bool same_letter(char a, char b) {
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Both have at most LENGTH_MAX letters. */
static unsigned int distance(const char *a, const char *b) {
	unsigned int rows[3][LENGTH_MAX + 1]; /* of the last three letters of a, in turns */
	const unsigned int n_a = (unsigned int)strlen(a), n_b = (unsigned int)strlen(b);

	for (unsigned int j = 0; j <= n_b; j++)
		rows[0][j] = j;
	for (unsigned int i = 1; i <= n_a; i++) {
		unsigned int *row = rows[i % 3], *above = rows[(i + 2) % 3];

		row[0] = i;
		for (unsigned int j = 1; j <= n_b; j++) {
			row[j] = min(min(above[j], row[j - 1]) + 1,
				     above[j - 1] + !same_letter(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
			    same_letter(a[i - 2], b[j - 1]))
				row[j] = min(row[j], rows[(i + 1) % 3][j - 2] + 1);
		}
	}
	return rows[n_a % 3][n_b];
}

bool suggest_is_close(const char *word, const char *other) {
	const size_t n = strlen(word), n_other = strlen(other);

	return n && n <= LENGTH_MAX && n_other <= LENGTH_MAX && distance(word, other) <= 1 + n / 5;
}

void suggest_add(struct suggestion *suggestion, const char *name) {
	const size_t n_wanted = strlen(suggestion->wanted), n = strlen(name);
	const bool begins = n_wanted >= 3 && !strncmp(name, suggestion->wanted, n_wanted);
	unsigned int found;

	if (!n || n > LENGTH_MAX || n_wanted > LENGTH_MAX)
		return;
	found = begins ? 1 : distance(suggestion->wanted, name);
	if (!found || found * 3 > (n < n_wanted ? n_wanted : n))
		return;
	if (suggestion->distance && suggestion->distance <= found)
		return;
	suggestion->distance = found;
	snprintf(suggestion->best, sizeof(suggestion->best), "%s", name);
}

void suggest_add_members(struct suggestion *suggestion, json_object *objects, const char *key) {
	for (size_t i = 0; i < json_object_array_length(objects); i++) {
		json_object *name;

		if (json_object_object_get_ex(json_object_array_get_idx(objects, i), key, &name))
			suggest_add(suggestion, json_object_get_string(name));
	}
}

const char *suggest_text(const struct suggestion *suggestion) {
	static char text[300];

	if (!suggestion->distance)
		return "";
	snprintf(text, sizeof(text), "; did you mean %s?", suggestion->best);
	return text;
}
