/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The driver reads the host's clock, the GPU's timer, the host's clock and so on, three times, and answers with the GPU's reading between
 * the two nearest ones of the host and with the middle of these. It does not say how far apart they were, but the call cannot have been
 * shorter than what lies between them: the shortest of some calls is taken, as one that nothing came between. The host's clock is
 * CLOCK_MONOTONIC_RAW; what it lacks to CLOCK_MONOTONIC is read around the call.
 */

#include <time.h>

#include "clock.h"

#define COMMAND_TIME_CORRELATION 0x20800406 /* NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO */
#define SOURCE_PLATFORM 3 /* CLOCK_MONOTONIC_RAW */
#define SAMPLES_MAX 16
#define CALLS 8
#define SECOND UINT64_C(1000000000)

struct correlation { /* NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS */
	uint8_t source, n;
	struct {
		uint64_t host, gpu;
	} samples[SAMPLES_MAX];
};

_Static_assert(sizeof(struct correlation) == 264, "as the driver checks");

static uint64_t read_clock(clockid_t id) {
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

int rm_clock_pair(struct rm_gpu *gpu, struct rm_pair *pair) {
	uint64_t shortest = UINT64_MAX;

	for (unsigned int i = 0; i < CALLS; i++) {
		/* only the first sample is one of this source, however many are asked for */
		struct correlation answer = { .source = SOURCE_PLATFORM, .n = 1 };
		const uint64_t before = read_clock(CLOCK_MONOTONIC_RAW);
		int r = rm_control(gpu->client, gpu->subdevice, COMMAND_TIME_CORRELATION, &answer, sizeof(answer));
		const uint64_t after = read_clock(CLOCK_MONOTONIC_RAW), monotonic = read_clock(CLOCK_MONOTONIC);

		if (r)
			return r;
		/* half of a reading between two others, which are not the call's ends */
		if (answer.samples[0].host < before || answer.samples[0].host > after || after - before >= shortest)
			continue;
		shortest = after - before;
		*pair = (struct rm_pair){ answer.samples[0].gpu, answer.samples[0].host + monotonic - after, shortest / 2 };
	}
	return shortest == UINT64_MAX ? RM_E_ANSWER : 0;
}
