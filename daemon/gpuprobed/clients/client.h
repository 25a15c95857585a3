/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Handles the messages of shims. */

#include "daemon/gpuprobed/image/image-context.h"
#include "daemon/gpuprobed/image/process.h"
#include "daemon/gpuprobed/wire/shim-server.h"

struct map;
struct object;
struct client_resume;
struct keep;
struct map_accounts;
struct other_shims;
struct sync_request;
struct trace_table;

LIST_HEAD(sync_list, sync_request);

/* What the files of this room share, and need of others: one of them, which daemon.c fills in. */
struct client_context {
	struct image_context *image;
	struct keep *keep;
	struct map_accounts *map_accounts;
	struct trace_table *traces; /* NULL: not yet */
	struct other_shims *other_shims;
	struct sync_list syncs;
	uv_timer_t *folding; /* NULL: no map has anything to be folded */
	uint32_t last_sequence;
};

extern const struct shim_server_handlers client_handlers; /* userdata: a struct client_context */

/*
 * Asks all processes that have instances of these maps to copy them out now. done is called once,
 * from the loop: when all have answered or after timeout_ms. NULL with *rp 0: there is nobody to
 * ask, done is not called; with *rp negative: -errno.
 */
struct sync_request *client_sync(struct client_context *context, const struct map *map,
				 unsigned int timeout_ms, void (*done)(void *userdata),
				 void *userdata, int *rp);

/* done will not be called. */
void client_sync_cancel(struct sync_request *request);

/*
 * When a process ends, what its instances hold goes into the totals, of large maps between other
 * work; this ends that for good.
 */
void client_stop_folding(struct client_context *context);

/* Begins with that, where there is something to be folded. */
void client_fold_gone(struct client_context *context);

/* The process has ended, or its last connection: what its instances hold is kept in the totals, and
 * it is freed. */
void client_process_gone(struct process *process, void *userdata);

/* Tells processes that copy maps how often they do so now. */
void client_welcome_mirrors(struct client_context *context);

/* Tells all processes that use them to stop using these maps of the object: bit i is
 * object->maps[i]. */
void client_disarm(struct client_context *context, const struct object *object, uint64_t maps);
