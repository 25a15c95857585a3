/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Patch images: what the programs of some attachments are on the sanitizer engine, for one compute
 * capability. Made by a job `patch` without names, at attach already, and kept, so that a plan
 * needs only names to be matched.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "proto/patch.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

struct image_context;
struct attachment;

#define PLAN_IMAGES_MAX 128 /* kept */
#define PLAN_FUNCTIONS_MAX 16
#define PLAN_OUTPUT 0 /* of a job `patch`: index of the descriptor */

enum plan_state {
	PLAN_IN_WORK,
	PLAN_READY,
	PLAN_FAILED, /* for a while, or for good */
};

struct plan_function {
	uint32_t instruction; /* enum patch_instruction */
	uint32_t registers, spill_stores, spill_loads, stack;
};

struct plan_image;

/* A waiter for a patch image. Taken back with plan_waiter_cancel(). */
struct plan_waiter {
	LIST_ENTRY(plan_waiter) link;
	struct plan_image *image; /* that it waits for; NULL: none */
	/* Called once, when it is ready or has failed; it may be gone afterwards. */
	void (*fn)(struct plan_waiter *waiter, const struct plan_image *image);
};

LIST_HEAD(plan_waiter_list, plan_waiter);

struct plan_image {
	TAILQ_ENTRY(plan_image) link;
	struct image_context *context;
	uint32_t capability;
	uid_t payer; /* the user for whom it was made first */
	size_t n_attachments;
	uint64_t attachments[PATCH_ATTACHMENTS_MAX]; /* in order */
	enum plan_state state;
	bool program_failed; /* it is the programs that cannot be compiled so */
	uint64_t expires; /* FAILED: uv_now */
	char reason[192]; /* FAILED */
	struct worker_task *task; /* IN_WORK */
	int fd; /* READY: a plan without kernels, sealed */
	struct plan_function functions[PLAN_FUNCTIONS_MAX];
	size_t n_functions;
	bool telling; /* its waiters are being told */
	bool doomed; /* an attachment of it went away meanwhile */
	struct plan_waiter_list waiters;
};

TAILQ_HEAD(plan_image_list, plan_image);

struct plan_images {
	struct plan_image_list list; /* most recently used first */
	unsigned int n;
};

void plan_images_init(struct plan_images *images);
void plan_images_deinit(struct plan_images *images);

/* Forgets what was made with this attachment. */
void plan_images_forget(struct plan_images *images, uint64_t attachment);

/* The one there is, in any state, or NULL. */
struct plan_image *plan_image_find(struct image_context *context, uint32_t capability,
				   const uint64_t *attachments, size_t n);

/*
 * The one there is, or a new one in work, at the cost of the payer: who has asked for it, as a
 * process says itself what devices it has. One in work is done at the turn of whoever of its payers
 * comes first. 0 or -errno.
 */
int plan_image_get(struct plan_image **imagep, struct image_context *context, uid_t payer,
		   uint32_t capability, const uint64_t *attachments, size_t n);

/* How many are in work. */
unsigned int plan_images_busy(const struct plan_images *images);

/* Of one in work. */
void plan_image_wait(struct plan_image *image, struct plan_waiter *waiter);
void plan_waiter_cancel(struct plan_waiter *waiter);

/* A job `patch`; descriptors are borrowed, -1: none. */
struct plan_job {
	struct image_context *context;
	uint32_t capability;
	const uint64_t *attachments;
	size_t n_attachments;
	int names, patch;
};
/* 0; -ESTALE: an attachment is gone; -errno. */
int plan_job_task(struct worker_task **taskp, const struct plan_job *job, worker_task_fn fn,
		  void *userdata);

/* Bytes of a struct patch_data with the slots of these attachments; 0: one of them is gone. */
uint32_t plan_data_size(const struct image_context *context, const uint64_t *attachments, size_t n);
