/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Texts kept once each, numbered from 1 in the order in which they came. There is a bound on how
 * many and on their bytes: what a file invents beyond it gets number 0, "(other)", and is counted.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/base/hash-table.h"

struct report_names {
	struct hash_table texts; /* of struct hash_text; owned; of number i + 1 */
	size_t max;
	size_t bytes, max_bytes;
	uint64_t refused; /* times that a text had no room */
};

void report_names_init(struct report_names *names, size_t max, size_t max_bytes);
void report_names_deinit(struct report_names *names);
/* Number of a text; 0: no room, or no memory. */
uint32_t report_names_number(struct report_names *names, const char *text);
const char *report_names_text(const struct report_names *names, uint32_t number);
/* The kept text that equals this one. Lives as long as names. */
const char *report_names_keep(struct report_names *names, const char *text);
