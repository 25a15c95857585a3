/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* "did you mean": the closest of some names to one that was not found. */

#include <json-c/json.h>
#include <stdbool.h>

struct suggestion {
	const char *wanted;
	char best[256];
	unsigned int distance; /* of best; 0: there is none yet */
};

/* Whether a word may be another one that was mistyped. */
bool suggest_is_close(const char *word, const char *other);
void suggest_add(struct suggestion *suggestion, const char *name);
/* Adds the strings that the members of an array of objects have under a key. */
void suggest_add_members(struct suggestion *suggestion, json_object *objects, const char *key);
/* "; did you mean NAME?", or "" if no name is close. Valid until the next call. */
const char *suggest_text(const struct suggestion *suggestion);
