/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text of metrics in the OpenMetrics format, version 1.0.0, as it grows. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENMETRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define PROMETHEUS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPENMETRICS_NAME_MAX 200 /* bytes of a name of a metric or label */
#define OPENMETRICS_VALUE_MAX 256 /* bytes of a label's value, before what is escaped in it */

struct metrics_text {
	char *data;
	size_t n, size;
	bool failed; /* no memory: nothing is added any more */
	bool prometheus; /* Prometheus' older format (0.0.4), which node exporter reads */
	bool json; /* it becomes a string in JSON: what that takes more is counted */
	size_t n_escapes;
};

void metrics_text_deinit(struct metrics_text *text);
void metrics_text_add(struct metrics_text *text, const char *data, size_t n);
void metrics_text_cut(struct metrics_text *text, size_t n); /* to its first n bytes */
void metrics_text_print(struct metrics_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * A value between the quotes of a label (is_label), or the text of # HELP: line ends, quotes and
 * backslashes are escaped. What is no printable ASCII, and no letter in UTF-8, shows as \xNN.
 */
void metrics_text_escape(struct metrics_text *text, const char *value, size_t n, bool is_label);

/* # TYPE, # UNIT (unless it is empty) and # HELP (likewise) of a family. Prometheus knows no units,
 * and puts _total into the name. */
void metrics_text_family(struct metrics_text *text, const char *name, const char *type,
			 const char *unit, const char *help);

/* A number of a FLOAT. */
void metrics_text_double(struct metrics_text *text, double value);

/* [A-Za-z_][A-Za-z0-9_]*; of metrics colons, too. Labels do not begin with two underscores: these
 * are the reader's own. */
bool openmetrics_name_valid(const char *name);
bool openmetrics_label_valid(const char *name);
