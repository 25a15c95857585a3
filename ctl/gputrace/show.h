/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maps for people, as bpftrace prints them, and as JSON. */

#include <stdio.h>

#include "ctl/base/histogram.h"
#include "store.h"

struct show {
	FILE *out;
	bool json;
	bool blank; /* a blank line before each map */
};

/* The elements of a map that are shown, by growing value. NULL: no memory. free() it. */
struct ranked *show_sorted(const struct store *store, size_t *np);
/* All of a map, or its top elements; values are divided by div. 0: all; as they are. */
void show_map(const struct show *show, const struct store *store, size_t top, int64_t div);
/* A text of a program: without control characters. */
void show_text(FILE *out, const char *text);
/* The text of printf() or time(), which in JSON is an object of its own. */
void show_output(const struct show *show, const char *type, const char *text, size_t n);
