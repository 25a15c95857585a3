/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The format of printf(), piece by piece: for the checks and for the output. libc only. */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum format_kind {
	FORMAT_TEXT, /* as it is; of %% one % */
	FORMAT_NUMBER, /* %d and its like */
	FORMAT_STRING, /* %s */
	FORMAT_FLOAT, /* %f %e %g */
	FORMAT_WRONG,
};

#define FORMAT_WIDTH_MAX 3 /* digits */

struct format_piece {
	enum format_kind kind;
	const char *text; /* of a conversion: from its % on */
	size_t n;
	char letter; /* of a conversion: d, u, x, X, o, s, f, e or g */
	int width; /* 0: none; negative: on the left */
	bool zeros; /* %08d */
};

/* The next piece at *atp, behind which *atp points then. False: there is none. */
static inline bool format_next(const char **atp, struct format_piece *piece) {
	const char *at = *atp;
	bool left = false;

	*piece = (struct format_piece){ .kind = FORMAT_TEXT, .text = at };
	if (!*at)
		return false;
	if (*at != '%' || at[1] == '%') {
		piece->n = *at == '%' ? 1 : strcspn(at, "%");
		*atp = at + piece->n + (*at == '%');
		return true;
	}
	for (at++; *at == '-' || *at == '0'; at++) {
		left |= *at == '-';
		piece->zeros |= *at == '0';
	}
	for (int i = 0; i < FORMAT_WIDTH_MAX && *at >= '0' && *at <= '9'; i++)
		piece->width = piece->width * 10 + (*at++ - '0');
	piece->width = left ? -piece->width : piece->width;
	at += strspn(at, "l");
	piece->kind = *at && strchr("diuxXo", *at) ? FORMAT_NUMBER
		      : *at && strchr("feg", *at)  ? FORMAT_FLOAT
		      : *at == 's'                 ? FORMAT_STRING
						   : FORMAT_WRONG;
	piece->letter = *at == 'i' ? 'd' : *at;
	at += *at != '\0';
	piece->n = (size_t)(at - piece->text);
	*atp = at;
	return true;
}
