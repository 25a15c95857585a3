/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Counts of numbers, nanoseconds mostly, by size: exact below 64, above in 64 buckets for each
 * power of two, so that what a percentile says is less than 1% off. Memory is taken for the powers
 * of two that occur: 512 bytes each, whatever the count.
 */

#include <stdint.h>

#define REPORT_HISTOGRAM_STEPS 64
#define REPORT_HISTOGRAM_OCTAVES 59 /* 0..63, then one for each power of two from 64 */

struct report_histogram {
	uint64_t count, min, max; /* of none: 0 */
	double total;
	uint64_t *octaves[REPORT_HISTOGRAM_OCTAVES]; /* NULL: nothing there */
};

void report_histogram_deinit(struct report_histogram *histogram);
int report_histogram_add(struct report_histogram *histogram, uint64_t value);
/* n numbers of about that size: they are not in the total, and bounds are not theirs. */
int report_histogram_add_many(struct report_histogram *histogram, uint64_t value, uint64_t n);
/* What is known of all of those: their sum and bounds. */
void report_histogram_widen(struct report_histogram *histogram, uint64_t total, uint64_t min,
			    uint64_t max);
double report_histogram_mean(const struct report_histogram *histogram);
/*
 * The smallest number that is >= `percent` percent of all numbers, within 1 %; 0 if there are none.
 */
uint64_t report_histogram_percentile(const struct report_histogram *histogram, double percent);
/* How many lie in [2^power, 2^(power + 1)); those of power 0: 0 and 1. */
uint64_t report_histogram_power(const struct report_histogram *histogram, unsigned int power);
