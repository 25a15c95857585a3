/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Handles the messages of shims. */

#include "daemon/gpuprobed/image/process.h"
#include "daemon/gpuprobed/wire/shim-server.h"

struct daemon;
struct image_request;
struct map;
struct object;
struct sync_request;

/* A connection's end in the daemon. */
struct client {
	struct shim_connection *connection;
	struct process *process;
	struct image_request *request; /* the image in work, or NULL */
	struct client_resume
		*resume; /* the module that it is telling about, or NULL (client-resume.h) */
};

/* The number of a process (process.h) that stands for all processes of a user. */
static inline uint64_t client_shared_number(uid_t uid) {
	return UINT64_C(1) << 63 | uid;
}

extern const struct shim_server_handlers client_handlers; /* userdata: the daemon */

/*
 * Asks all processes that have instances of these maps to copy them out now. done is called once,
 * from the loop: when all have answered or after timeout_ms. NULL with *rp 0: there is nobody to
 * ask, done is not called; with *rp negative: -errno.
 */
struct sync_request *client_sync(struct daemon *daemon, const struct map *map,
				 unsigned int timeout_ms, void (*done)(void *userdata),
				 void *userdata, int *rp);

/* done will not be called. */
void client_sync_cancel(struct sync_request *request);

/*
 * When a process ends, what its instances hold goes into the totals, of large maps between other
 * work; this ends that for good.
 */
void client_stop_folding(struct daemon *daemon);

/* Begins with that, where there is something to be folded. */
void client_fold_gone(struct daemon *daemon);

/* The process has ended, or its last connection: what its instances hold is kept in the totals, and
 * it is freed. */
void client_process_gone(struct daemon *daemon, struct process *process);

/* Whether an attachment that stands in it is left. */
bool client_wants(const struct daemon *daemon, const struct image_result *result);

/* Tells processes that an attachment which is gone was the last of some of their modules. */
void client_retire(struct daemon *daemon, uint64_t attachment);

/* Tells processes that copy maps how often they do so now. */
void client_welcome_mirrors(struct daemon *daemon);

/* Tells a process that none of its modules is probed any more. */
void client_retire_all(struct daemon *daemon, struct process *process);

/* Tells all processes that use them to stop using these maps of the object: bit i is
 * object->maps[i]. */
void client_disarm(struct daemon *daemon, const struct object *object, uint64_t maps);
