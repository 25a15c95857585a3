/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts of other programs may be any bytes; what we write is UTF-8. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, for a byte that belongs to no character */

/*
 * How many bytes the character at the beginning of these `n` bytes takes; 0: there is no character
 * (overlong, a surrogate, beyond U+10FFFF, or cut off). Reads nothing behind a NUL, so a text that
 * ends with one may say n = 4.
 */
static inline size_t utf8_length(const char *text, size_t n) {
	const uint8_t *bytes = (const uint8_t *)text;
	uint8_t lowest = 0x80, highest = 0xbf;
	size_t length;

	if (n == 0)
		return 0;
	if (bytes[0] < 0x80)
		return 1;
	if (bytes[0] < 0xc2 || bytes[0] > 0xf4)
		return 0;
	length = bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	/* the second byte tells overlong forms, surrogates and what is too large */
	if (bytes[0] == 0xe0)
		lowest = 0xa0;
	else if (bytes[0] == 0xed)
		highest = 0x9f;
	else if (bytes[0] == 0xf0)
		lowest = 0x90;
	else if (bytes[0] == 0xf4)
		highest = 0x8f;
	if (n < length || bytes[1] < lowest || bytes[1] > highest)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/* Whether all bytes are UTF-8. Eight of ASCII go at once: texts may be megabytes of base64. */
static inline bool utf8_valid(const char *text, size_t n_text) {
	uint64_t word;

	for (size_t i = 0, n; i < n_text; i += n) {
		for (; n_text - i >= sizeof(word); i += sizeof(word)) {
			memcpy(&word, text + i, sizeof(word));
			if (word & UINT64_C(0x8080808080808080))
				break;
		}
		if (i == n_text)
			break;
		n = utf8_length(text + i, n_text - i);
		if (!n)
			return false;
	}
	return true;
}
