/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One image on its way through the image workers: the jobs `image` of worker/job.md, in one stage
 * or several. */

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "image-result.h"
#include "plan-image.h"
#include "daemon/gpuprobed/workers/worker-pool.h"
#include "proto/job.h"

struct image_context;
struct job_cache_use;

#define IMAGE_KEEP_ALWAYS UINT64_MAX
#define IMAGE_KEEP_BAD_MS 30000 /* a failure that may be the worker's and not the image's */

/*
 * The end: result is NULL if there is no memory, else a reference that is handed over; keep says
 * for how many milliseconds it holds for the same image (0: not at all, as what another user may
 * have had a hand in).
 */
typedef void (*image_work_fn)(struct image_result *result, uint64_t keep, void *userdata);

struct image_work {
	struct image_context *context;
	uint32_t kind, capability; /* kind: WIRE_IMAGE_NAMES for a plan (plan-work.h) */
	enum job_twins twins; /* from what twins are made */
	uint32_t image; /* upper half of instruction ids */
	uint32_t isa, target; /* of the edited text; 0: there is none yet */
	const uint64_t *attachments; /* borrowed: good until the end */
	size_t n_attachments;
	int fd; /* the image, sealed */
	uint64_t deadline; /* uv_now() until which a process waits for it */
	uint64_t limit; /* uv_now(): work that is under way at the deadline goes on until then */
	uid_t uid; /* whose image it is */
	void (*on_compile)(void *userdata); /* it is not on the disk; may be called more than once,
					       and from within image_work_start() */
	image_work_fn fn;
	void *userdata;
	/* image-work.c's */
	struct worker_task *task; /* NULL: no image worker has it */
	bool mixed; /* a worker that has had another user's bytes said some of it */
	worker_task_fn stage_fn;
	void *stage_userdata;
	struct plan_waiter waiter; /* of a plan */
};

/* Takes a copy of the struct (fd is duplicated) and starts; fn is called once, never from within.
 * *workp is good until then. 0 or -errno: nothing was started. */
int image_work_start(struct image_work **workp, const struct image_work *work);

/* A compiler, or a pass of the user, has to work on it; an argument for struct job_cache_use. */
void image_work_compiles(void *work);

/* It is not wanted any more: ends it soon, if an image worker has it. */
void image_work_cancel(struct image_work *work);

/*
 * Submits the job of one stage; text (consumed; -1: none) is what all stages but EXTRACT and ALL
 * work on. 0 or -errno: fn will not be called. image_work_start() submits JOB_STAGE_ALL, unless
 * there are passes of the user (pass.h); stages of others end in image_work_take() or
 * image_work_fail().
 */
int image_work_submit(struct image_work *work, enum job_stage stage, int text, worker_task_fn fn,
		      void *userdata);

/*
 * Hands a job of the work to the pool: fn, with the work as its userdata unless said otherwise, is
 * called once it is done. use: how the disk may know it; NULL: it is done anew each time.
 */
void image_work_submit_task(struct image_work *work, struct worker_task *task,
			    const struct job_cache_use *use, worker_task_fn fn, void *userdata);
/* The function of such a task. */
void image_work_on_task(struct worker_task *task, int result, json_object *reply,
			const char *message, void *userdata);

/* The last stage has answered (a worker_task_fn; userdata: the work): its fn is told, and the work
 * is gone. */
void image_work_take(struct worker_task *task, int result, json_object *reply, const char *message,
		     void *userdata);

/* The end with a result, which is handed over; NULL: no memory. The work is gone. */
void image_work_end(struct image_work *work, struct image_result *result, uint64_t keep);

/* The same for a job that failed, with the pool's message. */
void image_work_fail_job(struct image_work *work, int result, json_object *reply,
			 const char *message);

/* The own image, because something went wrong; printf-like. The work is gone. */
void image_work_fail(struct image_work *work, uint64_t keep, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
