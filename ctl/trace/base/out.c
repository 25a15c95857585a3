/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Adds numbers and JSON strings to a line of output (out.h). Writers of formats and reports use it;
 * it writes to no file.
 */

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/base/histogram.h"
#include "item.h"
#include "out.h"
#include "lib/base/utf8.h"

const char *trace_kind_name(enum trace_item_kind kind) {
	static const char *const names[] = {
		[EVENT_CALL] = "userspace",   [EVENT_IOCTL] = "ioctl", [EVENT_HOOK] = "kernel",
		[EVENT_KERNEL] = "gpu",       [EVENT_CTXSW] = "ctxsw", [EVENT_PROCESS] = "process",
		[EVENT_CLOCK] = "clock",      [EVENT_LOST] = "lost",   [EVENT_NOTE] = "note",
		[EVENT_COUNTS] = "userspace", /* of calls */
	};

	return names[kind];
}

const char *trace_source_name(enum trace_source source) {
	static const char *const names[] = { "daemon", "shim", "bpf", "gpu" };

	return (unsigned int)source < 4 ? names[source] : "";
}

void out_uint(struct trace_out *out, uint64_t number) {
	char digits[20];
	size_t n = sizeof(digits);

	do {
		digits[--n] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	out_bytes(out, digits + n, sizeof(digits) - n);
}

void out_int(struct trace_out *out, int64_t number) {
	if (number < 0)
		out_char(out, '-');
	out_uint(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

void out_digits(struct trace_out *out, uint64_t number, unsigned int n) {
	char digits[20];

	for (unsigned int i = n; i-- > 0; number /= 10)
		digits[i] = (char)('0' + number % 10);
	out_bytes(out, digits, n);
}

void out_hex(struct trace_out *out, uint64_t number) {
	char digits[18];
	size_t n = sizeof(digits);

	do {
		digits[--n] = "0123456789abcdef"[number & 15];
		number >>= 4;
	} while (number);
	digits[--n] = 'x';
	digits[--n] = '0';
	out_bytes(out, digits + n, sizeof(digits) - n);
}

void out_real(struct trace_out *out, double number) {
	char text[32];

	out_bytes(out, text, (size_t)snprintf(text, sizeof(text), "%.17g", number));
}

void out_fixed(struct trace_out *out, uint64_t number, unsigned int n) {
	uint64_t unit = 1;

	for (unsigned int i = 0; i < n; i++)
		unit *= 10;
	out_uint(out, number / unit);
	out_char(out, '.');
	out_digits(out, number % unit, n);
}

static bool is_plain(char c) {
	return (unsigned char)c >= 0x20 && (unsigned char)c < 0x7f && c != '"' && c != '\\';
}

/* Whether a character of two bytes is one that a terminal takes for a command. */
static bool is_control(const char *text) {
	return (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0;
}

/* Copies what needs no escape, at most n_max bytes; returns where the rest begins. */
static const char *out_plain(struct trace_out *out, const char *text, size_t n_max) {
	size_t n = 0;

	while (n < n_max && is_plain(text[n]))
		n++;
	out_bytes(out, text, n);
	return text + n;
}

void out_json_cut(struct trace_out *out, const char *text, size_t n_max) {
	size_t end, n;

	out_char(out, '"');
	end = out->n + n_max;
	while (*(text = out_plain(out, text, end - out->n)) &&
	       end - out->n >= 6) { /* an escape has as many */
		n = (unsigned char)*text >= 0x80 ? utf8_length(text, 4) : 0;
		if (n && !is_control(text)) {
			out_bytes(out, text, n);
			text += n - 1;
		} else if (*text == '"' || *text == '\\') {
			out_char(out, '\\');
			out_char(out, *text);
		} else if ((unsigned char)*text >= 0x80 && !n) {
			out_literal(out, "\\ufffd");
		} else {
			text += n == 2; /* U+0080 to U+009F are their second byte */
			out_literal(out, "\\u00");
			out_char(out, "0123456789abcdef"[(unsigned char)*text >> 4]);
			out_char(out, "0123456789abcdef"[*text & 15]);
		}
		text++;
	}
	out_char(out, '"');
}

void out_json(struct trace_out *out, const char *text) {
	out_json_cut(out, text, SIZE_MAX / 2);
}

void out_json_uint(struct trace_out *out, uint64_t number) {
	const bool quotes = number > UINT64_C(1) << 53;

	if (quotes)
		out_char(out, '"');
	out_uint(out, number);
	if (quotes)
		out_char(out, '"');
}

void out_json_int(struct trace_out *out, int64_t number) {
	const bool quotes = number > INT64_C(1) << 53 || number < -(INT64_C(1) << 53);

	if (quotes)
		out_char(out, '"');
	out_int(out, number);
	if (quotes)
		out_char(out, '"');
}

bool trace_name_is_id(const char *name) {
	const size_t n = name ? strlen(name) : 0;

	return n > 2 && (!strcmp(name + n - 2, "Id") || !strcmp(name + n - 3, "_id"));
}

void trace_value_json(struct trace_out *out, const struct trace_value *value) {
	const bool quotes = value->kind == VALUE_HEX ||
			    ((value->kind == VALUE_UINT || value->kind == VALUE_SIZE) &&
			     trace_name_is_id(value->name));

	if (quotes)
		out_char(out, '"');
	if (value->kind == VALUE_HEX)
		out_hex(out, (uint64_t)value->number);
	else if (quotes)
		out_uint(out, (uint64_t)value->number);
	else if (value->kind == VALUE_UINT || value->kind == VALUE_SIZE)
		out_json_uint(out, (uint64_t)value->number);
	else if (value->kind == VALUE_BOOL)
		out_text(out, value->number ? "true" : "false");
	else if (value->kind == VALUE_FLOAT)
		out_real(out, value->real);
	else if (value->kind == VALUE_INT || (value->kind == VALUE_NAME && !value->text))
		out_json_int(out, value->number);
	else
		out_json(out, value->text ?: "");
	if (quotes)
		out_char(out, '"');
}

/* Of a text that is not plain the first character as it is, or its first byte as \x1b. Returns
 * where the rest begins. */
static const char *out_shown(struct trace_out *out, const char *text) {
	const size_t n = (unsigned char)*text >= 0x80 ? utf8_length(text, 4) : 0;

	if (n && !is_control(text)) {
		out_bytes(out, text, n);
		return text + n;
	}
	out_literal(out, "\\x");
	out_char(out, "0123456789abcdef"[(unsigned char)*text >> 4]);
	out_char(out, "0123456789abcdef"[*text & 15]);
	return text + 1;
}

void out_printable(struct trace_out *out, const char *text) {
	while (*(text = out_plain(out, text, SIZE_MAX))) {
		if (*text == '"' || *text == '\\') {
			out_char(out, '\\');
			out_char(out, *text++);
		} else {
			text = out_shown(out, text);
		}
	}
}

void out_csv(struct trace_out *out, const char *text) {
	const bool quotes = text[strcspn(text, ",\"")];

	if (quotes)
		out_char(out, '"');
	while (*(text = out_plain(out, text, SIZE_MAX))) {
		if (*text == '"' || *text == '\\') {
			out_text(out, *text == '"' ? "\"\"" : "\\");
			text++;
		} else {
			text = out_shown(out, text);
		}
	}
	if (quotes)
		out_char(out, '"');
}

void out_duration(struct trace_out *out, uint64_t nanoseconds) {
	char text[24];

	histogram_time(text, nanoseconds);
	out_text(out, text);
}

void out_size(struct trace_out *out, uint64_t bytes) {
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double number = (double)bytes / 1024;
	char text[32];
	size_t i = 0;

	if (bytes < 1024)
		return out_uint(out, bytes);
	for (; number >= 1024; i++)
		number /= 1024;
	out_bytes(out, text, (size_t)snprintf(text, sizeof(text), "%.1f%s", number, units[i]));
}

int out_write(struct trace_out *out, FILE *file) {
	bool failed = out->failed;

	if (!failed)
		fwrite_unlocked(out->text, 1, out->n, file);
	out->n = 0;
	out->failed = false;
	return failed ? -ENOMEM : 0;
}

int out_empty_file(FILE *file) {
	struct stat status;

	if (fstat(fileno(file), &status) < 0 || !S_ISREG(status.st_mode))
		return 0;
	return ftruncate(fileno(file), 0) < 0 ? -errno : 0;
}
