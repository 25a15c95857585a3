/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The request of the job `image`, read and checked: job.md. */

#include "kprobe-entry.h"
#include "worker.h"

#define IMAGE_PROGRAMS_MAX WORKER_FDS_MAX
#define IMAGE_ATTACHMENTS_MAX 1024

enum image_kind {
	IMAGE_FATBIN,
	IMAGE_PTX,
	IMAGE_CUBIN,
};

struct image_attachment {
	int64_t id;
	const char *kernel; /* a pattern */
	uint32_t program; /* index */
	bool supported; /* its point is one that the PTX engine has */
};

struct image_request {
	enum image_kind kind;
	int64_t flags; /* enum wire_image_flags */
	unsigned int capability; /* 90 */
	const uint8_t *data; /* the image, mapped */
	size_t size;
	int output;
	struct kprobe_entry_program *programs; /* owned; their texts mapped */
	size_t n_programs;
	/* Owned; in calling order; strings belong to the request's JSON. */
	struct image_attachment *attachments;
	size_t n_attachments;
};

/*
 * Reads job->request. 0; 1: something is wrong, and `reply` is an error that says what; -ENOMEM.
 * *request needs image_request_deinit() in any case.
 */
int image_request_read(struct image_request *request, const struct worker_job *job,
		       struct json_object *reply);
void image_request_deinit(struct image_request *request);
