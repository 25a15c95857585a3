/* SPDX-License-Identifier: Apache-2.0 */

/*
 * systemd connects standard error to the journal and says so in JOURNAL_STREAM; a prefix <6> is
 * then the level. Elsewhere it is for people. One write(2) a line, so that lines of the workers do
 * not mix with ours.
 */

#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void log_message(enum log_level level, const char *format, ...) {
	char line[1024];
	size_t start, n;
	va_list arguments;
	int r;

	if (getenv("JOURNAL_STREAM"))
		r = snprintf(line, sizeof(line), "<%d>", (int)level);
	else
		r = snprintf(line, sizeof(line), "gpuprobed: %s",
			     level <= LOG_LEVEL_ERROR ? "error: " : "");
	start = (size_t)r;
	va_start(arguments, format);
	r = vsnprintf(line + start, sizeof(line) - start - 1, format, arguments);
	va_end(arguments);
	if (r < 0)
		return;
	n = strlen(line);
	for (size_t i = start; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nobody listens */
}
