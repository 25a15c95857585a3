/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A plan on its way: the patch image, if need be, then a worker that matches names. */

#include <json-c/json.h>
#include <stdint.h>

#include "image-result.h"
#include "image-reply.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

struct image_context;
struct image_work;

/* Of a work whose image is a list of names. Ends as any work does. 0 or -errno: nothing was
 * started. */
int plan_work_start(struct image_work *work);

/*
 * Turns the reply of a job `patch` with names into a result; takes the plan from the task. 0,
 * IMAGE_REPLY_E_INVALID, -ESTALE: an attachment went away meanwhile, or -ENOMEM.
 */
int plan_reply_parse(struct image_result **resultp, json_object *reply, struct worker_task *task,
		     const struct image_context *context,
		     const struct image_reply_request *request);
