/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Converts times of other clocks to CLOCK_MONOTONIC (clock.h): the processor's counter, and the
 * timers of GPUs.
 *
 * The counter runs at one rate, CLOCK_MONOTONIC at one that NTP bends a little all the time. So its
 * line is renewed once a second: the new segment begins where the old one ends, with the slope that
 * meets what the clocks said a second later if they go on as they did. A time is converted by the
 * segment it lies in.
 *
 * While nobody traces, nobody looks; and while the machine sleeps, one of the two may stand still,
 * or the counter begin again. When they are too far apart for a bend, the line begins anew where
 * they are.
 */

#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TSC_TRIES 8
#define TSC_START_NS UINT64_C(20000000) /* between the first two readings */
#define TSC_ANCHOR_NS UINT64_C(8000000000) /* slopes are taken over so long a time */
#define TSC_STEP_NS UINT64_C(1000000) /* so far from the line it is no bend */
#define GPU_DRIFT_MAX 1e-3
#define GPU_JUMP_NS UINT64_C(1000000000)
#define GPU_DRIFT_SPAN_NS 100000000.0 /* pairs closer together say nothing about the drift */

uint64_t tsc_now(void) {
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return monotonic_now();
#endif
}

/* Both clocks at the same moment: the closest of some readings. */
static void tsc_read(uint64_t *tscp, uint64_t *nanosecondsp) {
	uint64_t best = UINT64_MAX;

	*tscp = *nanosecondsp = 0;
	for (int i = 0; i < TSC_TRIES; i++) {
		uint64_t before = tsc_now(), now = monotonic_now(), after = tsc_now();

		if (after - before >= best)
			continue;
		best = after - before;
		*tscp = before + best / 2;
		*nanosecondsp = now;
	}
}

/* Whether a line of a file has all these words. */
static bool file_has(const char *path, const char *line_start, const char *first,
		     const char *second) {
	FILE *file = fopen(path, "re");
	char line[8192];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strncmp(line, line_start, strlen(line_start)) == 0 && strstr(line, first) &&
			strstr(line, second);
	if (file)
		fclose(file);
	return found;
}

/* On x86 the kernel says whether the counter is even, and takes another clock source when it finds
 * that it is not. */
static bool tsc_usable(void) {
#if defined(__x86_64__)
	static const char source[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";

	return file_has("/proc/cpuinfo", "flags", " constant_tsc", " nonstop_tsc") &&
	       !file_has(source, "", "hpet", "") && !file_has(source, "", "acpi_pm", "");
#elif defined(__aarch64__)
	return true;
#else
	return false;
#endif
}

void tsc_clock_init(struct tsc_clock *clock) {
	*clock = (struct tsc_clock){ .usable = tsc_usable() };
	tsc_read(&clock->first_tsc, &clock->first_ns);
}

static uint64_t tsc_slope(uint64_t tsc, uint64_t nanoseconds) {
	return tsc ? (uint64_t)(((unsigned __int128)nanoseconds << 32) / tsc) : 0;
}

static void tsc_push(struct tsc_clock *clock, uint64_t tsc, uint64_t nanoseconds, uint64_t slope) {
	memmove(&clock->segments[1], &clock->segments[0],
		sizeof(clock->segments) - sizeof(clock->segments[0]));
	clock->segments[0] = (struct tsc_segment){ tsc, nanoseconds, slope };
	if (clock->n < TSC_SEGMENTS)
		clock->n++;
}

/* The slope since the anchor; about `slope`, or else one of the clocks has stood still since, and
 * it is that. */
static uint64_t tsc_long_slope(const struct tsc_clock *clock, uint64_t tsc, uint64_t nanoseconds,
			       uint64_t slope) {
	const uint64_t since = tsc_slope(tsc > clock->first_tsc ? tsc - clock->first_tsc : 0,
					 nanoseconds - clock->first_ns);

	return since < slope - slope / 1000 || since > slope + slope / 1000 ? slope : since;
}

/* Begins the line anew, where the clocks are. */
static void tsc_begin_anew(struct tsc_clock *clock, uint64_t tsc, uint64_t nanoseconds) {
	const uint64_t slope = tsc_long_slope(clock, tsc, nanoseconds, clock->segments[0].slope);

	if (tsc <= clock->segments[0].tsc)
		clock->n = 0; /* the counter has begun again: what it said before, nobody knows */
	clock->first_tsc = tsc;
	clock->first_ns = nanoseconds;
	tsc_push(clock, tsc, nanoseconds, slope);
}

void tsc_clock_feed(struct tsc_clock *clock, uint64_t tsc, uint64_t nanoseconds) {
	uint64_t slope, here, target;

	if (nanoseconds <= clock->first_ns || (clock->n && tsc == clock->segments[0].tsc))
		return;
	if (!clock->n && tsc <= clock->first_tsc) {
		clock->first_tsc = tsc;
		clock->first_ns = nanoseconds;
		return;
	}
	here = clock->n ? tsc_clock_nanoseconds(clock, tsc) : nanoseconds;
	if (clock->n && (tsc < clock->segments[0].tsc || here > nanoseconds + TSC_STEP_NS ||
			 nanoseconds > here + TSC_STEP_NS)) {
		tsc_begin_anew(clock, tsc, nanoseconds);
		return;
	}
	slope = tsc_slope(tsc - clock->first_tsc, nanoseconds - clock->first_ns);
	if (!clock->n) {
		tsc_push(clock, tsc, nanoseconds, slope);
		return;
	}
	/* where the clocks will be when this segment ends, from where the last one ends */
	target = nanoseconds + TSC_PERIOD_NS;
	if (target <= here)
		target = here + TSC_PERIOD_NS / 2;
	tsc_push(clock, tsc, here,
		 tsc_slope((uint64_t)(((unsigned __int128)TSC_PERIOD_NS << 32) / slope),
			   target - here));
	if (nanoseconds - clock->first_ns > TSC_ANCHOR_NS) {
		clock->first_tsc += (tsc - clock->first_tsc) / 2;
		clock->first_ns = tsc_clock_nanoseconds(clock, clock->first_tsc);
	}
}

void tsc_clock_start(struct tsc_clock *clock) {
	const struct tsc_clock before = *clock;
	uint64_t tsc, now;

	tsc_clock_update(clock);
	if (!clock->usable || clock->n)
		return;
	tsc_read(&tsc, &now);
	if (now - clock->first_ns >= TSC_PERIOD_NS) { /* the machine may have slept since */
		clock->first_tsc = tsc;
		clock->first_ns = now;
	}
	while (!clock->n) {
		do
			tsc_read(&tsc, &now);
		while (now - clock->first_ns < TSC_START_NS);
		tsc_clock_feed(clock, tsc, now);
	}
	clock->segments[0].slope = tsc_long_slope(&before, tsc, now, clock->segments[0].slope);
}

void tsc_clock_update(struct tsc_clock *clock) {
	uint64_t tsc, now;

	if (!clock->n || monotonic_now() - clock->segments[0].nanoseconds < TSC_PERIOD_NS)
		return;
	tsc_read(&tsc, &now);
	tsc_clock_feed(clock, tsc, now);
}

uint64_t tsc_clock_nanoseconds(const struct tsc_clock *clock, uint64_t tsc) {
	const struct tsc_segment *segment = &clock->segments[0],
				 *last = &clock->segments[clock->n - 1];
	__int128 nanoseconds;

	while (tsc < segment->tsc && segment < last)
		segment++;
	nanoseconds = (__int128)segment->nanoseconds +
		      (((__int128)tsc - segment->tsc) * segment->slope >> 32);
	/* where the line begins anew it may do so below the end of what was before: a later time is
	 * not to become an earlier one */
	if (segment != clock->segments && nanoseconds > segment[-1].nanoseconds)
		return segment[-1].nanoseconds;
	return nanoseconds < 0 ? 0 : (uint64_t)nanoseconds;
}

uint64_t tsc_clock_steps(const struct tsc_clock *clock, uint64_t nanoseconds) {
	unsigned __int128 steps = ((unsigned __int128)nanoseconds << 32) / clock->segments[0].slope;

	return steps > UINT64_MAX ? UINT64_MAX : (uint64_t)steps;
}

/* ---- a GPU's clock ---- */

/* How far a pair is from the line of no drift through the base, and its weight. */
static double gpu_offset(const struct gpu_clock *clock, const struct gpu_clock_pair *pair,
			 double *xp, double *weightp) {
	double x = (double)(int64_t)(pair->gpu - clock->base_gpu), half = (double)pair->half + 16;

	*xp = x;
	*weightp = 1 / (half * half);
	return (double)(int64_t)(pair->host - clock->base_host) - x;
}

/* The line through all pairs, seen from the newest one so that numbers stay small. */
static void gpu_fit(struct gpu_clock *clock, const struct gpu_clock_pair *newest) {
	double sum = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0, squares = 0, first = 0,
	       last = 0, best = (double)newest->half, offset, determinant, x, y, w;

	clock->base_gpu = newest->gpu;
	clock->base_host = newest->host;
	for (unsigned int i = 0; i < clock->n; i++) {
		y = gpu_offset(clock, &clock->pairs[i], &x, &w);
		sum += w;
		sum_x += w * x;
		sum_y += w * y;
		sum_xx += w * x * x;
		sum_xy += w * x * y;
		first = fmin(first, x);
		last = fmax(last, x);
		best = fmin(best, (double)clock->pairs[i].half);
	}
	determinant = sum * sum_xx - sum_x * sum_x;
	clock->drift = last - first >= GPU_DRIFT_SPAN_NS && determinant > 0
			       ? (sum * sum_xy - sum_x * sum_y) / determinant
			       : 0;
	clock->drift = fmax(-GPU_DRIFT_MAX, fmin(GPU_DRIFT_MAX, clock->drift));
	offset = (sum_y - clock->drift * sum_x) / sum;
	for (unsigned int i = 0; i < clock->n; i++) {
		y = gpu_offset(clock, &clock->pairs[i], &x, &w);
		squares += w * (y - offset - clock->drift * x) * (y - offset - clock->drift * x);
	}
	clock->base_host += (uint64_t)llround(offset);
	/* what pairs differ from the line, and what the best of them does not know itself */
	clock->error = (uint64_t)(best + 2 * sqrt(squares / sum));
}

/* Whether two clocks have gone so differently that it is no drift. */
static bool gpu_jumped(uint64_t difference) {
	return difference + GPU_JUMP_NS > 2 * GPU_JUMP_NS;
}

void gpu_clock_add(struct gpu_clock *clock, uint64_t gpu, uint64_t host, uint64_t half) {
	const struct gpu_clock_pair *last =
		&clock->pairs[(clock->next + GPU_CLOCK_PAIRS - 1) % GPU_CLOCK_PAIRS];

	if (clock->n && (gpu <= last->gpu || host <= last->host ||
			 gpu_jumped((gpu - last->gpu) - (host - last->host))))
		*clock = (struct gpu_clock){};
	clock->pairs[clock->next] = (struct gpu_clock_pair){ gpu, host, half };
	if (clock->n < GPU_CLOCK_PAIRS)
		clock->n++;
	gpu_fit(clock, &clock->pairs[clock->next]);
	clock->next = (clock->next + 1) % GPU_CLOCK_PAIRS;
}

uint64_t gpu_clock_nanoseconds(const struct gpu_clock *clock, uint64_t gpu) {
	double x = (double)(int64_t)(gpu - clock->base_gpu);

	return clock->base_host + (gpu - clock->base_gpu) + (uint64_t)(int64_t)(x * clock->drift);
}

int64_t gpu_clock_drift_ppb(const struct gpu_clock *clock) {
	return llround(clock->drift * 1e9);
}
