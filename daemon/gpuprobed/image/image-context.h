/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of this room share, and need of others: one of them, which daemon.c fills in. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/gpuprobed/registry/outcome.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/settings/config.h"
#include "image-cache.h"
#include "lib/pass/pass-definition.h"
#include "plan-image.h"
#include "plan-prepare.h"
#include "process.h"

struct artifact_store;
struct closer;
struct job_cache;
struct kernel_names;
struct worker_pool;

struct image_counters {
	uint64_t images, images_made, images_own;
	uint64_t images_cached;
};

struct image_context {
	uv_loop_t *loop;
	const struct config *config; /* a reload puts another one in its place */
	bool stopping; /* the daemon ends */
	struct registry *registry;
	struct process_table *processes;
	struct outcome_log *outcomes;
	struct kernel_names *names; /* for the next daemon; NULL: they are not kept */
	struct artifact_store *artifacts; /* NULL: nothing is kept */
	struct job_cache *cache; /* on the disk; NULL: none */
	struct closer *closer; /* of sockets of strangers and what they sent */
	struct worker_pool *image_pool;
	struct worker_pool *pass_pool; /* NULL: there are no passes of the user */
	struct pass_set passes;
	struct image_cache images;
	struct plan_images plans;
	uint32_t capabilities[PLAN_CAPABILITIES_MAX]; /* of the machine's devices, and those that
							 processes asked for */
	unsigned int n_capabilities;
	struct image_counters counters;
};
