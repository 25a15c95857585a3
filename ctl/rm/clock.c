/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads pairs of times, of a GPU's timer and of the host's clock, from the driver (clock.h).
 *
 * The driver reads the host's clock, the lower half of the GPU's timer, the host's clock and so on,
 * three times, and answers with the GPU's reading between the two nearest ones of the host and with
 * the middle of these. It does not say how far apart they were: as far as one reading of a register
 * takes, which the bus decides (1.05 us on an H200, where answers repeat within 20 ns). That is
 * found out by samples of another kind, which the driver takes one after another: whole readings of
 * the timer, each of which is three of a register, as the upper half must be the same before and
 * after the lower one. Should something have come between the two readings of the host, the call
 * took longer: the shortest of some calls is taken.
 *
 * The host's clock is CLOCK_MONOTONIC_RAW; what it lacks to CLOCK_MONOTONIC is read behind the
 * call.
 */

#include <time.h>

#include "clock.h"
#include "lib/base/clock.h"

#define COMMAND_TIME_CORRELATION \
	0x20800406 /* NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO */
#define SOURCE_TSC 2
#define SOURCE_PLATFORM 3 /* CLOCK_MONOTONIC_RAW */
#define SAMPLES_MAX 16
#define REGISTERS 3 /* readings of one in a reading of the timer */
#define TICK 32 /* nanoseconds, of the timer */
#define CALLS 4
#define DIFFERENCES 3
#define SECOND UINT64_C(1000000000)

struct correlation { /* NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS */
	uint8_t source, n;
	struct {
		uint64_t host, gpu;
	} samples[SAMPLES_MAX];
};

_Static_assert(sizeof(struct correlation) == 264, "as the driver checks");

/* CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW, read within some ten nanoseconds: the closest of some
 * readings. */
static uint64_t read_difference(void) {
	uint64_t difference = 0, closest = UINT64_MAX;

	for (unsigned int i = 0; i < DIFFERENCES; i++) {
		const uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW),
			       monotonic = clock_ns(CLOCK_MONOTONIC),
			       after = clock_ns(CLOCK_MONOTONIC_RAW);

		if (after - before < closest) {
			closest = after - before;
			difference = monotonic - before - closest / 2;
		}
	}
	return difference;
}

/* How long one reading of a register takes; what cannot be found out is unlimited. */
static void measure(struct rm_gpu *gpu) {
	struct correlation answer = { .source = SOURCE_TSC, .n = SAMPLES_MAX };
	uint64_t shortest = UINT64_MAX;

	if (rm_control(gpu->client, gpu->subdevice, COMMAND_TIME_CORRELATION, &answer,
		       sizeof(answer)) == 0)
		for (size_t i = 1; i < SAMPLES_MAX; i++)
			if (answer.samples[i].gpu > answer.samples[i - 1].gpu &&
			    answer.samples[i].gpu - answer.samples[i - 1].gpu < shortest)
				shortest = answer.samples[i].gpu - answer.samples[i - 1].gpu;
	gpu->read_ns = shortest == UINT64_MAX ? shortest : shortest / REGISTERS + TICK;
}

int rm_clock_pair(struct rm_gpu *gpu, struct rm_pair *pair) {
	uint64_t shortest = UINT64_MAX, width;

	if (!gpu->read_ns)
		measure(gpu);
	for (unsigned int i = 0; i < CALLS; i++) {
		/* only the first sample is one of this source, however many are asked for */
		struct correlation answer = { .source = SOURCE_PLATFORM, .n = 1 };
		const uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);
		int r = rm_control(gpu->client, gpu->subdevice, COMMAND_TIME_CORRELATION, &answer,
				   sizeof(answer));
		const uint64_t after = clock_ns(CLOCK_MONOTONIC_RAW);

		if (r)
			return r;
		if (answer.samples[0].host < before || answer.samples[0].host > after ||
		    after - before >= shortest)
			continue;
		shortest = after - before;
		width = shortest < gpu->read_ns ? shortest : gpu->read_ns;
		*pair = (struct rm_pair){ answer.samples[0].gpu,
					  answer.samples[0].host + read_difference(),
					  (width + 1) / 2 };
	}
	return shortest == UINT64_MAX
		       ? rm_answer_wrong(gpu->client, "RM_CONTROL 0x20800406: times that cannot be")
		       : 0;
}
