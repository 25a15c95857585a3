/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads JSON of one line in place: strings are unescaped where they lie and end with a NUL, so no
 * copy is made. The byte at `end` belongs to the reader and is a NUL. The syntax is checked
 * strictly. Texts come out as UTF-8 without a NUL; invalid bytes become '?'.
 */

#include <stdbool.h>
#include <stdint.h>

struct read_json {
	char *at, *end;
};

struct read_json_number {
	bool whole, negative; /* whole: it is an integer and fits into 64 bits */
	uint64_t magnitude;
	double real;
};

static inline int64_t read_json_integer(const struct read_json_number *number) {
	return (int64_t)(number->negative ? -number->magnitude : number->magnitude);
}

/* The character that comes next, which stays. */
static inline char read_json_next(struct read_json *json) {
	while (*json->at == ' ' || *json->at == '\t' || *json->at == '\r')
		json->at++;
	return *json->at;
}

/* Each returns false if something else comes; do not read on after that. */
static inline bool read_json_take(struct read_json *json, char c) {
	if (read_json_next(json) != c || json->at == json->end)
		return false;
	json->at++;
	return true;
}

bool read_json_string(struct read_json *json, char **textp);
bool read_json_number(struct read_json *json, struct read_json_number *number);
bool read_json_word(struct read_json *json, const char *word);
bool read_json_skip(struct read_json *json, unsigned int depth);
