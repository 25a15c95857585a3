/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts of other processes, before they are shown: a terminal would take control characters for
 * commands. */

#include <stdbool.h>

static inline bool is_control(char c) {
	return (unsigned char)c < ' ' || c == 0x7f;
}

/* Replaces what is not printable ASCII by '?'. */
static inline void text_make_printable(char *text) {
	for (; *text; text++)
		if (is_control(*text) || (unsigned char)*text >= 0x80)
			*text = '?';
}
