/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What daemon.c alone knows, and tests. */

#include "daemon/gpuprobed/settings/account.h"
#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/control/control.h"
#include "daemon/gpuprobed/registry/interest-writer.h"
#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/export/map-export.h"
#include "daemon/gpuprobed/registry/outcome.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/wire/shim-server.h"
#include "daemon/gpuprobed/workers/worker-pool.h"
#include "daemon.h"

struct daemon {
	struct image_context image;
	struct client_context client;
	struct attach_context attach;
	struct metrics_context metrics;
	struct control_context control;
	uv_loop_t *loop;
	const struct config *config; /* a reload puts another one in its place */
	bool handing_over; /* it ends, and the next daemon goes on with what it has */
	struct keep *keep;
	struct registry registry;
	struct map_accounts *map_accounts;
	struct map_exports exports;
	struct account_table accounts;
	struct account_limits account_limits; /* of them */
	struct process_table processes;
	struct outcome_log outcomes;
	uint64_t exhausted; /* uv_now(), when it was said that descriptors are missing; 0: never */
	struct shim_server *shims;
	struct varlink_server *control_server;
};

/* Gives the rooms what they have in common, once the loop, the configuration and what daemon_new()
 * makes first are there. */
void daemon_connect_rooms(struct daemon *daemon);
