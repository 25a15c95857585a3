/* SPDX-License-Identifier: Apache-2.0 */

/* Whether a word may be another one that was mistyped: few letters differ. */

#include <ctype.h>
#include <string.h>

#include "ctl.h"

#define LETTERS_MAX 64

bool ctl_is_close(const char *word, const char *other) {
	unsigned int rows[3][LETTERS_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2], *oldest;
	const size_t n = strlen(word), m = strlen(other);

	if (!n || n > LETTERS_MAX || m > LETTERS_MAX)
		return false;
	for (size_t j = 0; j <= m; j++)
		last[j] = (unsigned int)j;
	for (size_t i = 1; i <= n; i++) {
		row[0] = (unsigned int)i;
		for (size_t j = 1; j <= m; j++) {
			const int a = tolower((unsigned char)word[i - 1]), b = tolower((unsigned char)other[j - 1]);

			row[j] = last[j - 1] + (a != b);
			if (last[j] + 1 < row[j])
				row[j] = last[j] + 1;
			if (row[j - 1] + 1 < row[j])
				row[j] = row[j - 1] + 1;
			/* two letters in the wrong order are one slip */
			if (i > 1 && j > 1 && a == tolower((unsigned char)other[j - 2]) && b == tolower((unsigned char)word[i - 2]) && before[j - 2] + 1 < row[j])
				row[j] = before[j - 2] + 1;
		}
		oldest = before;
		before = last;
		last = row;
		row = oldest;
	}
	return last[m] <= 1 + n / 5;
}
