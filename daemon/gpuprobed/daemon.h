/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon: what its parts share. One of them, made by main(); no part knows another but through
 * this. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/gpuprobed/settings/account.h"
#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/control/control.h"
#include "daemon/gpuprobed/registry/interest-page.h"
#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/export/map-export.h"
#include "daemon/gpuprobed/registry/outcome.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/wire/shim-server.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

struct varlink_server;

struct daemon_options {
	const struct config *config; /* stays */
	const char *control_path; /* NULL: control_fd is given */
	const char *shim_path; /* NULL: shim_fd is given */
	const char *interest_path;
	const char *state_path;
	struct store *store; /* consumed */
	int control_fd, shim_fd; /* consumed; -1: listen at the path */
	mode_t socket_mode;
	struct worker_pool_options image_pool, program_pool; /* path, arguments, environment */
	struct worker_pool_options pass_pool; /* likewise; path NULL: its worker is missing */
};

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

/* Starts everything on the loop. 0, or negative errno after it has logged what failed. */
int daemon_new(struct daemon **daemonp, uv_loop_t *loop, const struct daemon_options *options);

/*
 * Closes everything; run the loop until it ends, then daemon_free(). hand_over: the next daemon
 * goes on with what this one has, if somebody keeps it (keep.h); else nothing stays attached.
 * Whether it hands over: then the interest page and the state stay.
 */
bool daemon_stop(struct daemon *daemon, bool hand_over);
struct daemon *daemon_free(struct daemon *daemon);

/* Goes on with another configuration, which stays: what changes live (CONFIG_LIVE) does so at once,
 * in processes, too. */
void daemon_configure(struct daemon *daemon, const struct config *config);

/* Gives the rooms what they have in common, once the loop, the configuration and what daemon_new()
 * makes first are there. For daemon.c, and tests. */
void daemon_connect_rooms(struct daemon *daemon);
