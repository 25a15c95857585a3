/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the daemon counts about itself, in one list: Status and metrics are made of it. To add one:
 * a line in statistics_each(), and one in gpuprobe-metrics(5).
 */

#include <stdbool.h>
#include <stdint.h>

struct metrics_context;

enum statistic_unit {
	STATISTIC_NUMBER,
	STATISTIC_BYTES,
	STATISTIC_MICROSECONDS, /* as metrics: seconds */
};

struct statistic {
	const char *group, *name; /* as metrics: gpuprobe_GROUP_NAME, with the unit behind it, and
				     _total if it counts */
	const char *label, *of; /* what it is of: pool, image. NULL: of all */
	bool counts; /* it only grows */
	enum statistic_unit unit;
	uint64_t value;
	const char *help;
};

/* Those of one name come one after the other. */
void statistics_each(const struct metrics_context *context,
		     void (*take)(const struct statistic *statistic, void *userdata),
		     void *userdata);

/* number, bytes, microseconds. */
const char *statistic_unit_name(enum statistic_unit unit);
