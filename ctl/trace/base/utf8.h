/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Texts of traced programs may be any bytes; formats want UTF-8. */

#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, for a byte that belongs to no character */

size_t trace_utf8_length(const char *text, size_t n);
