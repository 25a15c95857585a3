/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes text in the OpenMetrics format, or Prometheus' older one, into a buffer that grows
 * (openmetrics.h).
 */

#include "openmetrics.h"
#include "lib/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void metrics_text_deinit(struct metrics_text *text) {
	free(text->data);
	*text = (struct metrics_text){ .prometheus = text->prometheus };
}

/* Room for n more bytes and a NUL. */
static bool metrics_text_grow(struct metrics_text *text, size_t n) {
	size_t size = text->size ? text->size : 4096;
	char *data;

	if (text->failed)
		return false;
	while (size - text->n <= n)
		size *= 2;
	if (size != text->size) {
		data = realloc(text->data, size);
		if (!data) {
			text->failed = true;
			return false;
		}
		text->data = data;
		text->size = size;
	}
	return true;
}

/* What the bytes from n on take more in JSON. They are UTF-8, and line ends the only control
 * characters. */
static size_t escapes(const struct metrics_text *text, size_t n) {
	size_t found = 0;

	for (size_t i = n; text->json && i < text->n; i++)
		found += text->data[i] == '"' || text->data[i] == '\\' || text->data[i] == '\n';
	return found;
}

void metrics_text_add(struct metrics_text *text, const char *data, size_t n) {
	if (!metrics_text_grow(text, n))
		return;
	memcpy(text->data + text->n, data, n);
	text->n += n;
	text->data[text->n] = '\0';
	text->n_escapes += escapes(text, text->n - n);
}

void metrics_text_cut(struct metrics_text *text, size_t n) {
	text->n_escapes -= escapes(text, n);
	text->n = n;
}

void metrics_text_print(struct metrics_text *text, const char *format, ...) {
	va_list arguments, again;
	int n;

	va_start(arguments, format);
	va_copy(again, arguments);
	n = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (n > 0 && metrics_text_grow(text, (size_t)n)) {
		vsnprintf(text->data + text->n, (size_t)n + 1, format, again);
		text->n += (size_t)n;
		text->n_escapes += escapes(text, text->n - (size_t)n);
	}
	va_end(again);
}

void metrics_text_escape(struct metrics_text *text, const char *value, size_t n, bool is_label) {
	for (size_t i = 0; i < n;) {
		const char *p = value + i;
		const size_t length = text_printable_length(p, n - i);

		if (*p == '\n')
			metrics_text_add(text, "\\n", 2);
		else if (*p == '\\')
			metrics_text_add(text, "\\\\", 2);
		else if (*p == '"' && (is_label || !text->prometheus))
			metrics_text_add(text, "\\\"", 2);
		else if (length)
			metrics_text_add(text, p, length);
		else
			metrics_text_print(text, is_label ? "\\\\x%02x" : "?", (unsigned char)*p);
		i += length ? length : 1;
	}
}

void metrics_text_family(struct metrics_text *text, const char *name, const char *type,
			 const char *unit, const char *help) {
	const char *total = text->prometheus && !strcmp(type, "counter") ? "_total" : "";

	metrics_text_print(text, "# TYPE %s%s %s\n", name, total, type);
	if (*unit && !text->prometheus)
		metrics_text_print(text, "# UNIT %s %s\n", name, unit);
	if (*help) {
		metrics_text_print(text, "# HELP %s%s ", name, total);
		metrics_text_escape(text, help, strlen(help), false);
		metrics_text_add(text, "\n", 1);
	}
}

void metrics_text_double(struct metrics_text *text, double value) {
	if (__builtin_isnan(value))
		metrics_text_print(text, "NaN");
	else if (__builtin_isinf(value))
		metrics_text_print(text, value < 0 ? "-Inf" : "+Inf");
	else
		metrics_text_print(text, "%.17g", value);
}

static bool name_valid(const char *name, bool colons) {
	size_t n = strlen(name);

	if (!n || n > OPENMETRICS_NAME_MAX || (name[0] >= '0' && name[0] <= '9'))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		      (name[i] >= '0' && name[i] <= '9') || name[i] == '_' ||
		      (colons && name[i] == ':')))
			return false;
	return true;
}

bool openmetrics_name_valid(const char *name) {
	return name_valid(name, true);
}

bool openmetrics_label_valid(const char *name) {
	return name_valid(name, false) && strncmp(name, "__", 2) != 0;
}
