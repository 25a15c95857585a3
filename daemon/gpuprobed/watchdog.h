/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shows that the daemon works: that its loop goes round, and that a worker answers. */

#include <stdint.h>
#include <uv.h>

#include "daemon/gpuprobed/workers/worker-pool.h"

struct watchdog;

/* Calls beat() from the loop several times in each timeout_ms, as long as workers of the pool
 * answer. 0 or -ENOMEM. */
int watchdog_new(struct watchdog **watchdogp, uv_loop_t *loop, struct worker_pool *pool,
		 uint64_t timeout_ms, void (*beat)(void *userdata), void *userdata);

/* Before the pool goes. Memory goes once the loop has closed its handle. NULL is fine. */
struct watchdog *watchdog_free(struct watchdog *watchdog);
