/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Records of a log: what comes out is one line of valid UTF-8 without control
 * characters.
 */

#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/map/log-format.h"
#include "lib/base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct log_line line;
	size_t n;

	memset(&line, 0xff, sizeof(line));
	if (log_line_read(&line, data, size))
		return 0;
	n = strnlen(line.text, sizeof(line.text));
	if (n == sizeof(line.text) || !utf8_valid(line.text, n))
		abort();
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line.text[i] < ' ' || line.text[i] == 0x7f)
			abort();
	return 0;
}
