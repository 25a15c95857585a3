/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the daemon's log lines to standard error (log.h). If standard error is the journal, each
 * line has its level in front, as <6>. systemd names the journal's file in JOURNAL_STREAM; that
 * variable is inherited by processes with another standard error, so the two are compared. One
 * write(2) a line, so that lines of workers do not mix with ours.
 */

#define SD_JOURNAL_SUPPRESS_LOCATION

#include "log.h"
#include "lib/base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
#define LINE_SIZE 1024
#define FIELDS_MAX 8
#define FIELD_SIZE 512

static bool is_journal(void) {
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device &&
	       status.st_ino == inode;
}

/* What cannot be printed is a '?'. */
static void make_printable(char *text) {
	for (; *text; text++)
		if (is_control(*text))
			*text = '?';
}

static void write_line(enum log_level level, bool journal, const char *text) {
	char line[LINE_SIZE + 32];
	int n;

	if (journal)
		n = snprintf(line, sizeof(line), "<%d>%s\n", (int)level, text);
	else
		n = snprintf(line, sizeof(line), "gpuprobed: %s%s\n",
			     level <= LOG_LEVEL_ERROR ? "error: " : "", text);
	if (n < 0 || write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody listens */
}

void log_message(enum log_level level, const char *format, ...) {
	char text[LINE_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	make_printable(text);
	write_line(level, is_journal(), text);
}

/* Gives the journal a message with fields. False: it does not take it. */
static bool send_event(enum log_level level, const char *message_id, const char *const *fields,
		       const char *text) {
	char storage[FIELDS_MAX + 4][FIELD_SIZE], message[LINE_SIZE + 16];
	struct iovec vector[FIELDS_MAX + 4] = { { message, 0 } };
	int n = 1;

	if (access(JOURNAL_SOCKET, W_OK) < 0)
		return false; /* which libsystemd would not tell */
	snprintf(message, sizeof(message), "MESSAGE=%s", text);
	snprintf(storage[n++], FIELD_SIZE, "MESSAGE_ID=%s", message_id);
	snprintf(storage[n++], FIELD_SIZE, "PRIORITY=%d", (int)level);
	snprintf(storage[n++], FIELD_SIZE, "SYSLOG_IDENTIFIER=gpuprobed");
	for (; fields[0] && n < FIELDS_MAX + 4; fields += 2)
		snprintf(storage[n++], FIELD_SIZE, "%s=%s", fields[0], fields[1]);
	vector[0].iov_len = strlen(message);
	for (int i = 1; i < n; i++)
		vector[i] = (struct iovec){ storage[i], strlen(storage[i]) };
	return sd_journal_sendv(vector, n) == 0;
}

void log_event(enum log_level level, const char *message_id, const char *const *fields,
	       const char *format, ...) {
	bool journal = is_journal();
	char text[LINE_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	make_printable(text);
	if (!journal || !send_event(level, message_id, fields, text))
		write_line(level, journal, text);
}
