/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Standard alphabet, with padding (RFC 4648, section 4). */

/* Bytes that the text of n bytes takes, with its NUL. */
static inline size_t base64_encoded_size(size_t n) {
	return (n + 2) / 3 * 4 + 1;
}

/* text has room for base64_encoded_size(n) bytes. */
void base64_encode(char *text, const void *data, size_t n);

/* *datap is to be freed. 0, -EINVAL if it is no base64, -ENOMEM. */
int base64_decode(const char *text, size_t n_text, unsigned char **datap, size_t *np);
