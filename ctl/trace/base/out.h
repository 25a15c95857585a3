/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A line of output under construction, which is then written at once. printf() is too slow for a
 * million lines a second.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace_out {
	char *text;
	size_t n, n_max;
	bool failed; /* no memory: the rest of the line is left out */
};

/* Room for n bytes more. */
static inline char *out_room(struct trace_out *out, size_t n) {
	if (out->n_max - out->n < n) {
		size_t n_max = (out->n + n) * 2 + 1024;
		char *text = realloc(out->text, n_max);

		if (!text) {
			out->failed = true;
			return NULL;
		}
		out->text = text;
		out->n_max = n_max;
	}
	return out->text + out->n;
}

static inline void out_bytes(struct trace_out *out, const char *text, size_t n) {
	char *at = n ? out_room(out, n) : NULL;

	if (at) {
		memcpy(at, text, n);
		out->n += n;
	}
}

static inline void out_text(struct trace_out *out, const char *text) {
	out_bytes(out, text, strlen(text));
}

static inline void out_char(struct trace_out *out, char c) {
	out_bytes(out, &c, 1);
}

#define out_literal(out, literal) out_bytes(out, "" literal, sizeof(literal) - 1)

void out_uint(struct trace_out *out, uint64_t number);
void out_int(struct trace_out *out, int64_t number);
void out_digits(struct trace_out *out, uint64_t number,
		unsigned int n); /* n digits, with zeros in front */
void out_hex(struct trace_out *out, uint64_t number); /* 0x1f */
void out_real(struct trace_out *out, double number); /* what reads back as the same */
void out_fixed(struct trace_out *out, uint64_t number,
	       unsigned int n); /* number / 10^n with n digits: 1.500 */
void out_json(struct trace_out *out,
	      const char *text); /* with quotes; bytes that are no UTF-8 become U+FFFD */
void out_json_cut(struct trace_out *out, const char *text,
		  size_t n_max); /* at most n_max bytes between them; the rest is left out */
void out_printable(struct trace_out *out,
		   const char *text); /* control characters and what is no UTF-8 as \x1b */
void out_json_uint(struct trace_out *out,
		   uint64_t number); /* one that a double cannot hold, as jq has them, as a text */
void out_json_int(struct trace_out *out, int64_t number);
void out_csv(struct trace_out *out,
	     const char *text); /* as printable, but \ as it is, and in quotes if it needs them */
void out_duration(struct trace_out *out, uint64_t nanoseconds); /* 850ns, 3.2us, 12.5ms, 1.50s */
void out_size(struct trace_out *out, uint64_t bytes); /* 512, 4.0KiB, 1.5GiB */

/* An unsigned number of an item: that of an id (its name says so) is always a text, as others that
 * would come out as the same one. */
struct trace_value;
/* A value as JSON, but not a group or a number that is not finite. */
void trace_value_json(struct trace_out *out, const struct trace_value *value);
bool trace_name_is_id(const char *name); /* streamId */

/* Writes the line and begins a new one. 0 or -ENOMEM; errors of the file are ferror()'s. */
int out_write(struct trace_out *out, FILE *file);

/* What was in a regular file goes. 0 or -errno. */
int out_empty_file(FILE *file);
