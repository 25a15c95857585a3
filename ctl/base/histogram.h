/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Histograms and lists by size, in one look for gputrace, `map dump`, `trace --hist` and `trace
 * report`.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum histogram_unit {
	HISTOGRAM_NUMBERS, /* [1024, 2048) */
	HISTOGRAM_POWERS, /* [1K, 2K) */
	HISTOGRAM_TIMES, /* [1.02us, 2.05us) */
};

/* Counts what is in [low, high). */
struct histogram_bucket {
	int64_t low, high;
	bool below, above; /* it has no low, or no high */
	uint64_t count;
};

/* In [2^power, 2^(power + 1)); all that is smaller belongs to power 0. */
struct histogram_bucket histogram_power(unsigned int power, uint64_t count);
/* A bucket: bounds in so many columns, and a bar of that share of a full one. */
void histogram_line(FILE *out, const char *bounds, int width, uint64_t count, double share);
/* A line a bucket, from the first to the last one that is not empty. */
void histogram_print(FILE *out, const struct histogram_bucket *buckets, size_t n,
		     enum histogram_unit unit);
/* [{"min":2,"count":3}], those that are not empty; the one without a low has no "min". */
json_object *histogram_json(const struct histogram_bucket *buckets, size_t n);

/* 850ns, 3.20us, 12.5ms, 1.50s */
void histogram_time(char text[static 24], uint64_t nanoseconds);

/* A row of a list that is sorted by a number. */
struct ranked {
	int64_t number;
	const void *row;
	size_t place; /* for rank() */
};

/* Sorts by the number, the smallest first, or the largest. Equal ones: as `order` says, or as they
 * came. */
void rank(struct ranked *rows, size_t n, bool largest_first,
	  int (*order)(const void *row, const void *other));
