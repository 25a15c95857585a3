/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts of other processes, before they are shown: a terminal would take control characters for
 * commands. */

#include <stdbool.h>

#include "utf8.h"

static inline bool is_control(char c) {
	return (unsigned char)c < ' ' || c == 0x7f;
}

/* How many bytes the character at the beginning takes, as utf8_length(); 0 for control characters,
 * too, of which U+0080 to U+009F are some. */
static inline size_t text_printable_length(const char *text, size_t n) {
	const bool control = n && (is_control(*text) ||
				   (n > 1 && text[0] == '\xc2' && (unsigned char)text[1] < 0xa0));

	return control ? 0 : utf8_length(text, n);
}

/* Replaces what is not printable ASCII by '?'. */
static inline void text_make_printable(char *text) {
	for (; *text; text++)
		if (is_control(*text) || (unsigned char)*text >= 0x80)
			*text = '?';
}
