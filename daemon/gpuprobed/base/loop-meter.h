/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Measures how long the turns of the loop take. While a turn runs, all clients wait. The time that
 * the loop itself waits for events does not count. */

#include <stdint.h>
#include <uv.h>

struct loop_meter;

/* 0 or -errno. */
int loop_meter_new(struct loop_meter **meterp, uv_loop_t *loop);
struct loop_meter *loop_meter_free(
	struct loop_meter *meter); /* its memory goes once the loop has closed it */

/* The longest turn of the last minute, in microseconds. */
uint64_t loop_meter_longest(const struct loop_meter *meter);
uint64_t loop_meter_turns(const struct loop_meter *meter);
