/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads a worker's reply to a job `image` and turns it into a result. Workers read what users send,
 * so the daemon checks every member of a reply.
 */

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "image-result.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

enum {
	_IMAGE_REPLY_E_SUCCESS,
	IMAGE_REPLY_E_INVALID,
};

/* Descriptors of an `image` job, by index. */
#define IMAGE_REPLY_OUTPUT 1
#define IMAGE_REPLY_INSTRUCTIONS 2

/* What was asked for. Borrowed. */
struct image_reply_request {
	const struct registry *registry;
	const uint64_t *attachments; /* the reply may name no other */
	size_t n_attachments;
	uint32_t image;
};

/* Adds the kernels of a reply to the result. 0, or as below. */
int image_reply_kernels(struct image_result *result, json_object *reply,
			const struct image_reply_request *request);

/*
 * Turns a worker's reply into a result; takes the twin's image and the instructions from the task.
 * 0, IMAGE_REPLY_E_INVALID, or -ENOMEM.
 */
int image_reply_parse(struct image_result **resultp, json_object *reply, struct worker_task *task,
		      const struct image_reply_request *request);
