/* SPDX-License-Identifier: Apache-2.0 */

#include <stdint.h>

#include "utf8.h"

/* Bytes of the character at the beginning of these n bytes; 0: it is none (overlong, a surrogate,
 * beyond U+10FFFF, or cut off). */
size_t trace_utf8_length(const char *text, size_t n) {
	const uint8_t *bytes = (const uint8_t *)text;
	uint8_t lowest = 0x80, highest = 0xbf;
	size_t length;

	if (n == 0)
		return 0;
	if (bytes[0] < 0x80)
		return 1;
	if (bytes[0] >= 0xc2 && bytes[0] <= 0xdf)
		length = 2;
	else if (bytes[0] >= 0xe0 && bytes[0] <= 0xef)
		length = 3;
	else if (bytes[0] >= 0xf0 && bytes[0] <= 0xf4)
		length = 4;
	else
		return 0;
	/* the second byte is what tells overlong forms, surrogates and what is too large */
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
		if (bytes[i] < 0x80 || bytes[i] > 0xbf)
			return 0;
	return length;
}
