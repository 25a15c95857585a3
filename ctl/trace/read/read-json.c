/* SPDX-License-Identifier: Apache-2.0 */

/* Reads JSON in place, in the buffer that holds a line (read-json.h). It allocates nothing. */

#include <stdlib.h>
#include <string.h>

#include "read-json.h"
#include "lib/base/utf8.h"

#define DEPTH_MAX 32

bool read_json_word(struct read_json *json, const char *word) {
	const size_t n = strlen(word);

	read_json_next(json);
	if ((size_t)(json->end - json->at) < n || memcmp(json->at, word, n) != 0)
		return false;
	json->at += n;
	return true;
}

/* Four hexadecimal digits, or -1. */
static int hex4(const char *text) {
	int value = 0;

	for (int i = 0; i < 4; i++) {
		const char c = text[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return value;
}

/* Writes a code point, at most four bytes; what cannot be in a text as '?'. */
static char *put_utf8(char *out, int code) {
	if (code <= 0 || (code >= 0xd800 && code < 0xe000)) {
		*out++ = '?';
	} else if (code < 0x80) {
		*out++ = (char)code;
	} else if (code < 0x800) {
		*out++ = (char)(0xc0 | code >> 6);
		*out++ = (char)(0x80 | (code & 0x3f));
	} else if (code < 0x10000) {
		*out++ = (char)(0xe0 | code >> 12);
		*out++ = (char)(0x80 | (code >> 6 & 0x3f));
		*out++ = (char)(0x80 | (code & 0x3f));
	} else {
		*out++ = (char)(0xf0 | code >> 18);
		*out++ = (char)(0x80 | (code >> 12 & 0x3f));
		*out++ = (char)(0x80 | (code >> 6 & 0x3f));
		*out++ = (char)(0x80 | (code & 0x3f));
	}
	return out;
}

/* What follows a backslash. NULL: no escape. */
static char *unescape(struct read_json *json, char *out) {
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;
	int code, low;

	if (*json->at == 'u') {
		code = hex4(json->at + 1);
		if (code < 0)
			return NULL;
		json->at += 5;
		if (code >= 0xd800 && code < 0xdc00 && json->at[0] == '\\' && json->at[1] == 'u') {
			low = hex4(json->at + 2);
			if (low >= 0xdc00 && low < 0xe000) {
				json->at += 6;
				code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
			}
		}
		return put_utf8(out, code);
	}
	found = *json->at ? strchr(from, *json->at) : NULL;
	if (!found)
		return NULL;
	json->at++;
	*out++ = to[found - from];
	return out;
}

bool read_json_string(struct read_json *json, char **textp) {
	char *out;

	if (!read_json_take(json, '"'))
		return false;
	*textp = json->at;
	/* most texts are plain: nothing moves */
	while ((signed char)*json->at >= ' ' && *json->at != '"' && *json->at != '\\')
		json->at++;
	out = json->at;
	while (*json->at != '"') {
		size_t n = 1;

		if (*json->at == '\\') {
			json->at++;
			out = unescape(json, out);
			if (!out)
				return false;
			continue;
		}
		if ((unsigned char)*json->at < ' ') /* the end as well */
			return false;
		if ((unsigned char)*json->at >= 0x80) {
			n = utf8_length(json->at, 4); /* there is a NUL at the end */
			if (!n) {
				*json->at = '?';
				n = 1;
			}
		}
		while (n--)
			*out++ = *json->at++;
	}
	*out = '\0';
	json->at++;
	return true;
}

/* The common case of what follows a point: so few digits that a division is exact. False: strtod()
 * has to do it. */
static bool read_decimals(struct read_json_number *number, char **atp) {
	uint64_t value = number->magnitude;
	double scale = 1;
	char *at = *atp;

	if (*at++ != '.' || *at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9' && value < UINT64_C(1) << 49; at++, scale *= 10)
		value = value * 10 + (uint64_t)(*at - '0');
	if ((*at >= '0' && *at <= '9') || *at == 'e' || *at == 'E' || value > UINT64_C(1) << 53)
		return false;
	number->real = (number->negative ? -1 : 1) * (double)value / scale;
	*atp = at;
	return true;
}

bool read_json_number(struct read_json *json, struct read_json_number *number) {
	char *at, *real_end;
	bool fits = true;

	read_json_next(json);
	at = json->at;
	*number = (struct read_json_number){ .negative = *at == '-' };
	at += number->negative;
	if (*at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++)
		fits = fits && !__builtin_mul_overflow(number->magnitude, 10, &number->magnitude) &&
		       !__builtin_add_overflow(number->magnitude, (uint64_t)(*at - '0'),
					       &number->magnitude);
	number->whole = fits && *at != '.' && *at != 'e' && *at != 'E';
	if (number->whole) {
		number->real =
			number->negative ? -(double)number->magnitude : (double)number->magnitude;
		json->at = at;
		return true;
	}
	if (fits && read_decimals(number, &at)) {
		json->at = at;
		return true;
	}
	number->real = strtod(json->at, &real_end); /* LC_NUMERIC is "C": nobody sets it */
	if (real_end < at)
		return false;
	json->at = real_end;
	return true;
}

bool read_json_skip(struct read_json *json, unsigned int depth) {
	struct read_json_number number;
	const char open = read_json_next(json), close = open == '{' ? '}' : ']';
	char *text;

	if (open == '"')
		return read_json_string(json, &text);
	if (open == 't')
		return read_json_word(json, "true");
	if (open == 'f')
		return read_json_word(json, "false");
	if (open == 'n')
		return read_json_word(json, "null");
	if (open != '{' && open != '[')
		return read_json_number(json, &number);
	if (depth == DEPTH_MAX)
		return false;
	json->at++;
	if (read_json_take(json, close))
		return true;
	do {
		if (open == '{' && !(read_json_string(json, &text) && read_json_take(json, ':')))
			return false;
		if (!read_json_skip(json, depth + 1))
			return false;
	} while (read_json_take(json, ','));
	return read_json_take(json, close);
}
