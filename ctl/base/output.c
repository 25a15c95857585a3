/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Output of all commands, for people and for programs. Other people choose the names of processes
 * and kernels and the lines of source in the verifier's log. So control characters in them never
 * reach a terminal, also not on standard error.
 */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "lib/base64.h"
#include "lib/json.h"
#include "value.h"

/* The member as a string; "" if it is absent or null. Valid as long as @object. */
const char *ctl_string(json_object *object, const char *key) {
	json_object *value = json_member(object, key);

	return value ? json_object_get_string(value) : "";
}

/* A formatted string as a value, for a table. */
json_object *ctl_format(const char *format, ...) {
	json_object *value;
	va_list arguments;
	char *text;
	int n;

	va_start(arguments, format);
	n = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (n < 0)
		return NULL;
	value = json_object_new_string(text);
	free(text);
	return value;
}

/* Prints JSON, spread out if the user wants it pretty. json-c leaves those control characters as
 * they are that are no ASCII, and DEL. */
void ctl_put_json(const struct ctl *ctl, json_object *value) {
	int flags = ctl->pretty ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
				: JSON_C_TO_STRING_PLAIN;
	const char *text =
		json_object_to_json_string_ext(value, flags | JSON_C_TO_STRING_NOSLASHESCAPE);

	for (size_t n; *text; text += n) {
		unsigned char next;

		n = strcspn(text, "\x7f\xc2");
		fwrite(text, 1, n, stdout);
		next = text[n] ? (unsigned char)text[n + 1] : 0;
		if (text[n] == 0x7f ||
		    (next >= 0x80 && next < 0xa0)) { /* a path need not be UTF-8 */
			n += text[n] == 0x7f ? 1 : 2;
			printf("\\u%04x", (unsigned char)text[n - 1]);
		} else if (text[n]) {
			putchar(text[n++]);
		}
	}
}

/* The same, as a line. */
void ctl_print_json(const struct ctl *ctl, json_object *value) {
	ctl_put_json(ctl, value);
	putchar('\n');
}

/* The character at @text and its length; what a terminal would take for a command is a '?'. */
static size_t next_character(const char *text, const char **outp) {
	unsigned char c = text[0];
	size_t n = 1;

	*outp = text;
	if (c < 0x20 || (c >= 0x7f && c < 0xc0) || (c == 0xc2 && (unsigned char)text[1] < 0xa0)) {
		*outp = "?";
		return c == 0xc2 && (text[1] & 0xc0) == 0x80 ? 2 : 1;
	}
	if (c >= 0xc0)
		while ((text[n] & 0xc0) == 0x80)
			n++;
	return n;
}

/* Prints a text without its control characters. */
void ctl_print_text(const char *text) {
	const char *out;

	while (*text) {
		size_t n = next_character(text, &out);

		fwrite(out, 1, *out == '?' ? 1 : n, stdout);
		text += n;
	}
}

void ctl_clean_text(char *text, const char *kept) {
	const char *from = text, *out;

	while (*from) {
		size_t n = next_character(from, &out);

		if (strchr(kept, *from))
			out = from;
		memmove(text, out, *out == '?' ? 1 : n);
		text += *out == '?' ? 1 : n;
		from += n;
	}
	*text = '\0';
}

int ctl_flush(void) {
	static int error; /* stdio forgets what it could not write, and others change errno */

	errno = 0;
	if ((fflush(stdout) == EOF || ferror(stdout)) && !error)
		error = errno ?: EIO;
	return error;
}

const char *ctl_program = "gpuprobectl";

void ctl_tell_list(const char *format, va_list arguments) {
	char *text;

	ctl_flush();
	if (vasprintf(&text, format, arguments) < 0)
		return;
	ctl_clean_text(text, "");
	fprintf(stderr, "%s: %s\n", ctl_program, text);
	free(text);
}

void ctl_tell(const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	ctl_tell_list(format, arguments);
	va_end(arguments);
}

void ctl_tell_log(const char *log) {
	char *text = strdup(log);

	if (text && *text) {
		ctl_clean_text(text, "\n\t");
		fprintf(stderr, "%s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
	}
	free(text);
}

/* Columns that a text takes; good enough for names. */
static int width(const char *text) {
	const char *out;
	int n = 0;

	for (; *text; n++)
		text += next_character(text, &out);
	return n;
}

#define MAX_COLUMNS 16
#define SHORTENED_MIN \
	16 /* columns are not made narrower: a terminal that has no room wraps lines */

/* Columns of the terminal that standard output is; INT_MAX: it is none. */
static int terminal_width(void) {
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) >= 0 && size.ws_col ? size.ws_col : INT_MAX;
}

/* Makes the widest columns narrower until a line fits into the terminal. */
static void fit(int *widths, size_t n_columns) {
	int room = terminal_width();

	for (;;) {
		size_t widest = 0;
		int line = -2;

		for (size_t j = 0; j < n_columns; j++) {
			line += widths[j] + 2;
			widest = widths[j] >= widths[widest] ? j : widest;
		}
		if (line <= room || widths[widest] <= SHORTENED_MIN)
			return;
		widths[widest] -= line - room < widths[widest] - SHORTENED_MIN
					  ? line - room
					  : widths[widest] - SHORTENED_MIN;
	}
}

/* Prints a text in at most @columns columns, with "..." at the end of one that is cut. Returns the
 * columns taken. */
static int print_shortened(const char *text, int columns) {
	const int n_text = width(text);
	const char *out;

	if (n_text <= columns) {
		ctl_print_text(text);
		return n_text;
	}
	for (int n = 0; n < columns - 3; n++) {
		size_t length = next_character(text, &out);

		fwrite(out, 1, *out == '?' ? 1 : length, stdout);
		text += length;
	}
	fputs("...", stdout);
	return columns;
}

/* The text in a row, or in the header, which is the row NULL. */
static const char *cell_at(const char *const *header, json_object *row, size_t column) {
	return row ? json_object_get_string(json_object_array_get_idx(row, column))
		   : header[column];
}

/*
 * Prints rows, arrays of strings, below a header that NULL ends. Nothing if there are no rows. On a
 * terminal long texts are shortened so that a row is a line.
 */
void ctl_print_table(const char *const *header, json_object *rows) {
	size_t n_rows = json_object_array_length(rows), n_columns = 0;
	int widths[MAX_COLUMNS];

	if (!n_rows)
		return;
	for (; header[n_columns]; n_columns++)
		widths[n_columns] = width(header[n_columns]);
	for (size_t i = 0; i < n_rows; i++)
		for (size_t j = 0; j < n_columns; j++) {
			int n = width(cell_at(header, json_object_array_get_idx(rows, i), j));

			widths[j] = n > widths[j] ? n : widths[j];
		}
	fit(widths, n_columns);
	for (size_t i = 0; i < n_rows + 1; i++) {
		json_object *row = i ? json_object_array_get_idx(rows, i - 1) : NULL;

		for (size_t j = 0; j < n_columns; j++) {
			int n = print_shortened(cell_at(header, row, j), widths[j]);

			if (j + 1 < n_columns)
				printf("%*s", widths[j] - n + 2, "");
		}
		putchar('\n');
	}
}

json_object *ctl_cell(json_object *object, const char *member) {
	return json_object_new_string(ctl_string(object, member));
}

json_object *ctl_cell_or_dash(json_object *object, const char *member) {
	const char *text = ctl_string(object, member);

	return json_object_new_string(*text ? text : "-");
}

json_object *ctl_cell_list(json_object *object, const char *member) {
	json_object *list = json_member(object, member), *value;
	char *text = NULL;
	size_t n_text;
	FILE *stream = open_memstream(&text, &n_text);

	for (size_t i = 0; stream && i < json_object_array_length(list); i++)
		fprintf(stream, "%s%s", i ? "," : "",
			json_object_get_string(json_object_array_get_idx(list, i)));
	if (stream)
		fclose(stream);
	value = json_object_new_string(text && *text ? text : "-");
	free(text);
	return value;
}

void ctl_print_columns(const struct ctl_column *columns, json_object *list, int64_t limit) {
	const char *header[MAX_COLUMNS + 1] = {};
	json_object *rows = json_object_new_array();

	for (size_t j = 0; columns[j].title; j++)
		header[j] = columns[j].title;
	for (size_t i = 0; i < json_object_array_length(list) && (int64_t)i < limit; i++) {
		json_object *row = json_object_new_array();

		for (const struct ctl_column *column = columns; column->title; column++) {
			json_object *object = json_object_array_get_idx(list, i);
			const char *member = column->member, *dot = strchr(member, '.');
			char outer[32];

			if (dot) {
				snprintf(outer, sizeof(outer), "%.*s", (int)(dot - member), member);
				object = json_member(object, outer);
				member = dot + 1;
			}
			json_append(row, (column->cell ?: ctl_cell)(object, member));
		}
		json_append(rows, row);
	}
	ctl_print_table(header, rows);
	json_object_put(rows);
}

/* Prints local time, as in 2026-11-21 09:57:26. */
void ctl_print_time(int64_t microseconds) {
	time_t seconds = microseconds / 1000000;
	struct tm tm;
	char text[64];

	if (localtime_r(&seconds, &tm) && strftime(text, sizeof(text), "%F %T", &tm))
		fputs(text, stdout);
	else
		putchar('?');
}

unsigned char *ctl_decode(json_object *text, size_t *n_datap) {
	unsigned char *data;

	if (!text || base64_decode(json_object_get_string(text),
				   (size_t)json_object_get_string_len(text), &data, n_datap))
		return NULL;
	return data;
}

int ctl_value_types(json_object *btf, struct value_types **typesp) {
	size_t n_data = 0;
	unsigned char *data = ctl_decode(btf, &n_data);
	int r = value_types_new(typesp, n_data ? data : NULL, n_data);

	if (r == -EINVAL)
		r = value_types_new(typesp, NULL, 0);
	free(data);
	return r ? ctl_fail(CTL_ERROR, "%s", strerror(-r)) : CTL_OK;
}
