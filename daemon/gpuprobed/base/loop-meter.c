/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Measures how long the turns of the event loop take (loop-meter.h), with a prepare and a check
 * handle of libuv. It keeps the longest turn of each of the last 60 seconds.
 */

#include "loop-meter.h"

#include <errno.h>
#include <stdlib.h>

#define SECONDS 60

struct loop_meter {
	uv_prepare_t prepare;
	uv_check_t check;
	unsigned int n_open; /* of these */
	uint64_t begun,
		idle; /* nanoseconds: when this turn began, and what the loop had waited by then */
	uint64_t woken; /* nanoseconds, of uv_now(): when it had waited */
	uint64_t turns;
	uint64_t second[SECONDS],
		longest[SECONDS]; /* which second, and its longest turn in nanoseconds */
};

static void loop_meter_on_woken(uv_check_t *check) {
	struct loop_meter *meter = check->data;

	meter->woken = uv_now(check->loop) * 1000000;
}

/*
 * The end of a turn, before the loop waits; what it waited in this turn was at its beginning. libuv
 * forgets what it waited before a signal came: so no turn is longer than since the clock was read
 * when the loop woke up, which is not as exact.
 */
static void loop_meter_on_turn(uv_prepare_t *prepare) {
	struct loop_meter *meter = prepare->data;
	uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(prepare->loop),
		 took = now - meter->begun;
	uint64_t waited = idle - meter->idle, second = now / 1000000000, i = second % SECONDS;

	took = took > waited ? took - waited : 0;
	if (now > meter->woken && took > now - meter->woken)
		took = now - meter->woken;
	if (meter->second[i] != second) {
		meter->second[i] = second;
		meter->longest[i] = 0;
	}
	if (took > meter->longest[i])
		meter->longest[i] = took;
	meter->begun = now;
	meter->idle = idle;
	meter->turns++;
}

int loop_meter_new(struct loop_meter **meterp, uv_loop_t *loop) {
	struct loop_meter *meter = calloc(1, sizeof(*meter));
	int r;

	if (!meter)
		return -ENOMEM;
	r = uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
	if (r < 0) {
		free(meter);
		return r;
	}
	uv_prepare_init(loop, &meter->prepare);
	meter->prepare.data = meter;
	meter->begun = uv_hrtime();
	meter->idle = uv_metrics_idle_time(loop);
	uv_prepare_start(&meter->prepare, loop_meter_on_turn);
	uv_unref((uv_handle_t *)&meter->prepare);
	uv_check_init(loop, &meter->check);
	meter->check.data = meter;
	meter->woken = meter->begun;
	uv_check_start(&meter->check, loop_meter_on_woken);
	uv_unref((uv_handle_t *)&meter->check);
	meter->n_open = 2;
	*meterp = meter;
	return 0;
}

static void loop_meter_on_closed(uv_handle_t *handle) {
	struct loop_meter *meter = handle->data;

	if (!--meter->n_open)
		free(meter);
}

struct loop_meter *loop_meter_free(struct loop_meter *meter) {
	if (!meter)
		return NULL;
	uv_close((uv_handle_t *)&meter->prepare, loop_meter_on_closed);
	uv_close((uv_handle_t *)&meter->check, loop_meter_on_closed);
	return NULL;
}

uint64_t loop_meter_longest(const struct loop_meter *meter) {
	uint64_t second = uv_hrtime() / 1000000000, longest = 0;

	for (unsigned int i = 0; i < SECONDS; i++)
		if (meter->second[i] + SECONDS > second && meter->longest[i] > longest)
			longest = meter->longest[i];
	return longest / 1000;
}

uint64_t loop_meter_turns(const struct loop_meter *meter) {
	return meter->turns;
}
