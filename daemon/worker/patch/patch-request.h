/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The request of the job `patch`, read and checked: job.md. */

#include "daemon/worker/image/image-request.h"
#include "patch-point.h"

/* What an attachment of the request means on the sanitizer engine. */
struct patch_meaning {
	const char *point; /* as requested */
	enum point_context context;
	uint32_t classes; /* a bit for each number; not 0 */
};

struct patch_request {
	/*
	 * What it shares with images: capability, output, programs (their texts NULL if they need
	 * not be known), attachments.
	 */
	struct image_request image;
	struct patch_meaning *meanings; /* owned, by attachment */
	uint32_t *slots; /* owned, by program: offset in struct patch_data */
	uint32_t data_size; /* of struct patch_data with all slots */
	uint32_t classes; /* of all attachments */
	const uint8_t *names; /* mapped; NULL: none */
	size_t names_size;
	const uint8_t *earlier; /* mapped, a plan; NULL: none */
	size_t earlier_size;
};

/*
 * Reads job->request. 0; 1: something is wrong, and `reply` is an error that says what; -ENOMEM.
 * *request needs patch_request_deinit() in any case.
 */
int patch_request_read(struct patch_request *request, const struct worker_job *job,
		       struct json_object *reply);
void patch_request_deinit(struct patch_request *request);
