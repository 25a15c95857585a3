/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Base64 as varlink carries bytes (base64.h): encoding and strict decoding. Line breaks, missing
 * padding and stray bits in the last digit are errors. Daemon and gpuprobectl use it.
 */

#include "base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(char *text, const void *data, size_t n) {
	const unsigned char *bytes = data;
	size_t i;

	for (i = 0; i + 2 < n; i += 3) {
		uint32_t v = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];

		*text++ = base64_digits[v >> 18];
		*text++ = base64_digits[v >> 12 & 63];
		*text++ = base64_digits[v >> 6 & 63];
		*text++ = base64_digits[v & 63];
	}
	if (i < n) {
		uint32_t v =
			(uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0);

		*text++ = base64_digits[v >> 18];
		*text++ = base64_digits[v >> 12 & 63];
		*text++ = i + 1 < n ? base64_digits[v >> 6 & 63] : '=';
		*text++ = '=';
	}
	*text = '\0';
}

/* The value of a digit plus 1; 0: it is none. */
static const unsigned char base64_values[256] = {
	['A'] = 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,         12,         13,
	14,         15, 16, 17, 18, 19, 20, 21, 22, 23, 24,         25,         26,
	['a'] = 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37,         38,         39,
	40,         41, 42, 43, 44, 45, 46, 47, 48, 49, 50,         51,         52,
	['0'] = 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, ['+'] = 63, ['/'] = 64,
};

static int base64_value(char c) {
	return base64_values[(unsigned char)c] - 1;
}

int base64_decode(const char *text, size_t n_text, unsigned char **datap, size_t *np) {
	size_t padding = 0, n_data, out = 0;
	unsigned char *data;

	if (n_text % 4)
		return -EINVAL;
	if (n_text && text[n_text - 1] == '=')
		padding = text[n_text - 2] == '=' ? 2 : 1;
	n_data = n_text / 4 * 3 - padding;
	data = malloc(n_data ? n_data : 1);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0; i < n_text; i += 4) {
		size_t digits = i + 4 == n_text ? 4 - padding : 4;
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = k < digits ? base64_value(text[i + k]) : 0;

			if (d < 0) {
				free(data);
				return -EINVAL;
			}
			v = v << 6 | (uint32_t)d;
		}
		if ((digits == 2 && v & 0xffff) || (digits == 3 && v & 0xff)) {
			free(data);
			return -EINVAL;
		}
		for (size_t k = 0; k + 1 < digits; k++)
			data[out++] = (unsigned char)(v >> (16 - 8 * k));
	}
	*datap = data;
	*np = n_data;
	return 0;
}
