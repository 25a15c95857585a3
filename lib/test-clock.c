/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of clock.c with made-up clocks: a counter whose relation to CLOCK_MONOTONIC bends, and
 * GPUs whose timers drift, jitter and jump.
 */

#include "clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define TSC_HZ 2999999000.0

/* The time at a count of the counter, if NTP makes the clock run faster by ppm. */
static uint64_t true_time(uint64_t tsc, double ppm) {
	return 5 * SECOND + (uint64_t)((double)tsc / TSC_HZ * 1e9 * (1 + ppm * 1e-6));
}

static void test_tsc_follows(void **state) {
	struct tsc_clock clock = { .usable = true,
				   .first_tsc = 3000000,
				   .first_ns = true_time(3000000, 0) };
	uint64_t last = 0;

	for (unsigned int second = 1; second < 60; second++) {
		uint64_t tsc = (uint64_t)(second * TSC_HZ);
		int64_t jitter = rand() % 60 - 30; /* of the readings */

		tsc_clock_feed(&clock, tsc, true_time(tsc, 0) + (uint64_t)jitter);
		for (uint64_t t = tsc; t < tsc + (uint64_t)TSC_HZ; t += 10000019) {
			uint64_t now = tsc_clock_nanoseconds(&clock, t);

			assert_true(now >= last); /* order is kept over the joints */
			last = now;
			assert_true(llabs((int64_t)(now - true_time(t, 0))) < 300);
		}
	}
	/* calls that began some segments ago */
	assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, (uint64_t)(50 * TSC_HZ)) -
				    true_time((uint64_t)(50 * TSC_HZ), 0))) < 300);
	assert_int_equal(clock.n, TSC_SEGMENTS);
	/* before all of them, and before the boot: no wrap-around */
	assert_true(tsc_clock_nanoseconds(&clock, 0) < 6 * SECOND);
	assert_true(tsc_clock_nanoseconds(&clock, UINT64_MAX) > 6 * SECOND);
}

/* A clock that is slewed: the line follows within the time of some segments, without a step. */
static void test_tsc_bends(void **state) {
	struct tsc_clock clock = { .usable = true, .first_ns = 5 * SECOND };
	uint64_t last = 0, real = 5 * SECOND, tsc = 0;

	for (unsigned int second = 0; second < 40; second++) {
		const double ppm = second < 10 ? 0 : 100;

		tsc += (uint64_t)TSC_HZ;
		real += (uint64_t)(1e9 * (1 + ppm * 1e-6));
		tsc_clock_feed(&clock, tsc, real);
		for (uint64_t t = tsc; t < tsc + (uint64_t)TSC_HZ; t += 100000037) {
			assert_true(tsc_clock_nanoseconds(&clock, t) >= last);
			last = tsc_clock_nanoseconds(&clock, t);
		}
		if (second > 30)
			assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, tsc) - real)) <
				    10000);
	}
}

/* Nobody has looked for a day, and the slope was not that good: the line begins where the clocks
 * are. */
static void test_tsc_pause(void **state) {
	const uint64_t begun = (uint64_t)TSC_HZ, later = begun + (uint64_t)(86400 * TSC_HZ);
	struct tsc_clock clock = { .usable = true, .first_ns = true_time(0, 0) };

	tsc_clock_feed(&clock, begun, true_time(begun, 0) + 1000); /* one part in a million off */
	tsc_clock_feed(&clock, later, true_time(later, 0));
	for (uint64_t t = later; t < later + (uint64_t)TSC_HZ; t += 10000019)
		assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, t) - true_time(t, 0))) <
			    1000);
}

/* The machine sleeps: the counter goes on and CLOCK_MONOTONIC does not, or the counter begins
 * again. */
static void test_tsc_sleep(void **state) {
	for (int again = 0; again < 2; again++) {
		struct tsc_clock clock = { .usable = true,
					   .first_tsc = 5,
					   .first_ns = true_time(5, 0) };
		uint64_t tsc = 0, real = 0, last = 0;

		for (unsigned int second = 1; second < 20; second++) {
			tsc = (uint64_t)(second * TSC_HZ);
			real = true_time(tsc, 0);
			tsc_clock_feed(&clock, tsc, real);
		}
		last = tsc;
		tsc = again ? 0 : tsc + (uint64_t)(3600 * TSC_HZ);
		for (unsigned int second = 0; second < 20; second++) {
			tsc += (uint64_t)TSC_HZ;
			real += SECOND;
			tsc_clock_feed(&clock, tsc, real);
			assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, tsc) - real)) <
				    1000);
			assert_true(llabs((int64_t)(tsc_clock_nanoseconds(
							    &clock, tsc + (uint64_t)TSC_HZ / 2) -
						    real - SECOND / 2)) < 1000);
			if (!again && second < 10) { /* a call from before, and one that began
							before the line did, and ended after that */
				assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, last) -
							    true_time(last, 0))) < 1000);
				assert_true(tsc_clock_nanoseconds(
						    &clock, tsc - (second + 1) * (uint64_t)TSC_HZ +
								    (uint64_t)TSC_HZ / 2) <=
					    tsc_clock_nanoseconds(&clock, tsc));
			}
		}
	}
}

/* The same before the first session. */
static void test_tsc_sleep_first(void **state) {
	struct tsc_clock clock;

	tsc_clock_init(&clock);
	if (!clock.usable)
		skip();
	for (int again = 0; again < 2; again++) {
		clock.n = 0;
		clock.first_tsc = again ? tsc_now() + UINT64_C(1000000000000000) : 1;
		clock.first_ns = monotonic_now() - (again ? 0 : 5 * SECOND);
		tsc_clock_start(&clock);
		assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock, tsc_now()) -
					    monotonic_now())) < 20000);
		assert_in_range(tsc_clock_steps(&clock, SECOND), SECOND / 100, 100 * SECOND);
	}
}

static void test_tsc_real(void **state) {
	struct tsc_clock clock;

	tsc_clock_init(&clock);
	if (!clock.usable)
		skip();
	tsc_clock_start(&clock);
	assert_int_equal(clock.n, 1);
	for (int i = 0; i < 1000; i++) {
		uint64_t before = monotonic_now(), now = tsc_clock_nanoseconds(&clock, tsc_now()),
			 after = monotonic_now();

		assert_true(now + 20000 > before && now < after + 20000);
	}
	/* there and back */
	assert_true(llabs((int64_t)(tsc_clock_nanoseconds(&clock,
							  clock.segments[0].tsc +
								  tsc_clock_steps(&clock, SECOND)) -
				    clock.segments[0].nanoseconds - SECOND)) < 100);
}

static void test_gpu_drift(void **state) {
	struct gpu_clock clock = {};
	const double drift = 37e-6;

	for (unsigned int i = 0; i < 200; i++) {
		uint64_t gpu = UINT64_C(1700000000000000000) + i * SECOND / 2,
			 half = 300 + (uint64_t)(rand() % 3000);
		double host = 1e12 + (double)i * SECOND / 2 * (1 + drift);
		/* the reading lies anywhere in what is known */
		int64_t off = rand() % (int64_t)(2 * half) - (int64_t)half;

		gpu_clock_add(&clock, gpu, (uint64_t)(host + (double)off), half);
		if (i < 10)
			continue;
		assert_true(llabs(gpu_clock_drift_ppb(&clock) - 37000) < 3000);
		for (uint64_t ahead = 0; ahead < SECOND; ahead += SECOND / 7) {
			double real = 1e12 + ((double)i * SECOND / 2 + (double)ahead) * (1 + drift);
			double miss =
				fabs((double)gpu_clock_nanoseconds(&clock, gpu + ahead) - real);

			assert_true(miss < 3000);
			assert_true(miss <
				    4 * (double)clock.error); /* the estimate is not a boast */
		}
		assert_true(clock.error > 100 && clock.error < 5000);
	}
}

static void test_gpu_few(void **state) {
	struct gpu_clock clock = {};

	gpu_clock_add(&clock, 1000, 5000, 70);
	assert_int_equal(gpu_clock_nanoseconds(&clock, 1000), 5000);
	assert_int_equal(gpu_clock_nanoseconds(&clock, 3000), 7000);
	assert_int_equal(gpu_clock_nanoseconds(&clock, 500), 4500);
	assert_int_equal(gpu_clock_drift_ppb(&clock), 0);
	assert_int_equal(clock.error, 70);
	/* too close together for a drift: 200 ns of jitter would be 20% of it */
	gpu_clock_add(&clock, 2000, 6200, 70);
	assert_int_equal(gpu_clock_drift_ppb(&clock), 0);
	/* back, and far away: begins anew */
	gpu_clock_add(&clock, 10, 7000, 70);
	assert_int_equal(clock.n, 1);
	assert_int_equal(gpu_clock_nanoseconds(&clock, 10), 7000);
	gpu_clock_add(&clock, UINT64_C(1) << 63, 8000, 70);
	assert_int_equal(clock.n, 1);
	assert_int_equal(gpu_clock_nanoseconds(&clock, UINT64_C(1) << 63), 8000);
	/* nonsense stays finite */
	gpu_clock_add(&clock, UINT64_MAX, UINT64_MAX, UINT64_MAX / 2);
	gpu_clock_nanoseconds(&clock, 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tsc_follows),     cmocka_unit_test(test_tsc_bends),
		cmocka_unit_test(test_tsc_pause),       cmocka_unit_test(test_tsc_sleep),
		cmocka_unit_test(test_tsc_sleep_first), cmocka_unit_test(test_tsc_real),
		cmocka_unit_test(test_gpu_drift),       cmocka_unit_test(test_gpu_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
