/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon: makes its parts and ends them. One of them, made by main(). */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/gpuprobed/keep/store.h"
#include "daemon/gpuprobed/settings/config.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

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

struct daemon;

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

/* The pool of image workers; NULL when it has stopped. */
struct worker_pool *daemon_image_pool(const struct daemon *daemon);
