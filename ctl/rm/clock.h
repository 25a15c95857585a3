/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pairs of readings of a GPU's timer (PTIMER: what %globaltimer shows, and what stamps context
 * switches) and of the host's clock, which the driver takes by RM_CONTROL 0x20800406. No context
 * and no kernel on the GPU is needed for that.
 */

#include "rm-client.h"

struct rm_pair {
	uint64_t gpu; /* nanoseconds */
	uint64_t host; /* of CLOCK_MONOTONIC */
	uint64_t half; /* the host's clock was within host +- half, as far as is known */
};

/* The best of some. */
int rm_clock_pair(struct rm_gpu *gpu, struct rm_pair *pair);
