/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A histogram with buckets that grow with the number (report-histogram.h), and percentiles of it.
 * Reports use it for durations.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "report-histogram.h"

/* The bucket of a number: its power of two, and the six bits below the highest. */
static void bucket_of(uint64_t value, unsigned int *octavep, unsigned int *stepp) {
	unsigned int power;

	if (value < REPORT_HISTOGRAM_STEPS) {
		*octavep = 0;
		*stepp = (unsigned int)value;
		return;
	}
	power = 63 - (unsigned int)__builtin_clzll(value);
	*octavep = power - 5;
	*stepp = (unsigned int)(value >> (power - 6)) & (REPORT_HISTOGRAM_STEPS - 1);
}

/* The middle of a bucket. */
static uint64_t bucket_middle(unsigned int octave, unsigned int step) {
	uint64_t width;

	if (!octave)
		return step;
	width = UINT64_C(1) << (octave - 1);
	return (REPORT_HISTOGRAM_STEPS + step) * width + width / 2;
}

void report_histogram_deinit(struct report_histogram *histogram) {
	for (unsigned int i = 0; i < REPORT_HISTOGRAM_OCTAVES; i++) {
		free(histogram->octaves[i]);
		histogram->octaves[i] = NULL;
	}
}

int report_histogram_add_many(struct report_histogram *histogram, uint64_t value, uint64_t n) {
	unsigned int octave, step;

	bucket_of(value, &octave, &step);
	if (!histogram->octaves[octave]) {
		histogram->octaves[octave] = calloc(REPORT_HISTOGRAM_STEPS, sizeof(uint64_t));
		if (!histogram->octaves[octave])
			return -ENOMEM;
	}
	histogram->octaves[octave][step] += n;
	if (!histogram->count)
		histogram->min = UINT64_MAX; /* see report_histogram_widen() */
	histogram->count += n;
	return 0;
}

void report_histogram_widen(struct report_histogram *histogram, uint64_t total, uint64_t min,
			    uint64_t max) {
	histogram->total += (double)total;
	histogram->min = min < histogram->min ? min : histogram->min;
	histogram->max = max > histogram->max ? max : histogram->max;
}

int report_histogram_add(struct report_histogram *histogram, uint64_t value) {
	int r = report_histogram_add_many(histogram, value, 1);

	if (!r)
		report_histogram_widen(histogram, value, value, value);
	return r;
}

double report_histogram_mean(const struct report_histogram *histogram) {
	return histogram->count ? histogram->total / (double)histogram->count : 0;
}

uint64_t report_histogram_percentile(const struct report_histogram *histogram, double percent) {
	uint64_t wanted = (uint64_t)ceil((double)histogram->count * percent / 100), seen = 0;

	if (wanted < 1)
		wanted = 1;
	for (unsigned int i = 0; i < REPORT_HISTOGRAM_OCTAVES; i++)
		for (unsigned int j = 0; histogram->octaves[i] && j < REPORT_HISTOGRAM_STEPS; j++) {
			uint64_t middle;

			seen += histogram->octaves[i][j];
			if (seen < wanted)
				continue;
			middle = bucket_middle(i, j);
			if (middle < histogram->min)
				return histogram->min;
			return middle > histogram->max ? histogram->max : middle;
		}
	return histogram->max;
}

uint64_t report_histogram_power(const struct report_histogram *histogram, unsigned int power) {
	const unsigned int octave = power < 6 ? 0 : power - 5;
	unsigned int first = 0, last = REPORT_HISTOGRAM_STEPS;
	uint64_t n = 0;

	if (octave >= REPORT_HISTOGRAM_OCTAVES || !histogram->octaves[octave])
		return 0;
	if (power < 6) {
		first = power ? 1U << power : 0;
		last = 2U << power;
	}
	for (unsigned int i = first; i < last; i++)
		n += histogram->octaves[octave][i];
	return n;
}
