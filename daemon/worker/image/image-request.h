/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The request of the job `image`, read and checked: job.md. */

#include "passes/probe.h"
#include "daemon/worker/base/worker.h"
#include "proto/wire.h"

#define IMAGE_ATTACHMENTS_MAX 1024
#define IMAGE_STUBS_MAX 64
#define IMAGE_CONTEXT_MAX 32 /* fields that a program reads */

struct image_attachment {
	int64_t id;
	const char *kernel; /* a pattern */
	bool device_function; /* it means functions that are no kernels */
	bool prefixed; /* it begins with IMAGE_PREFIX, which is left out where no kernel has the
			  name with it */
	bool literal; /* such a one: there is a kernel that has */
	struct probe_use use; /* what is put there */
};

struct image_request {
	enum wire_image_kind kind;
	enum job_stage stage;
	unsigned int capability; /* 90 */
	const uint8_t *data; /* the image, mapped */
	size_t size;
	const uint8_t *text; /* from CHECK on: the foreign text, mapped */
	size_t text_size;
	bool one_thread; /* compile with one */
	enum job_twins twins; /* from what */
	uint32_t isa, target; /* the most that the foreign text may ask for; 0: as the image and the
				 programs */
	int output, text_output, instructions; /* -1: not wanted */
	struct probe_program *programs; /* owned; their texts mapped, their contexts owned */
	size_t n_programs;
	/* Owned; in calling order; strings belong to the request's JSON. */
	struct image_attachment *attachments;
	size_t n_attachments;
	struct probe_options options; /* stubs: owned array, strings of the JSON */
};

/*
 * Reads job->request. 0; 1: something is wrong, and `reply` is an error that says what; -ENOMEM.
 * *request needs image_request_deinit() in any case.
 */
int image_request_read(struct image_request *request, const struct worker_job *job,
		       struct json_object *reply);
void image_request_deinit(struct image_request *request);

/*
 * Parts that the job `patch` shares. Reads one member of "programs" into the next of
 * request->programs; without a text if `bare` and it has no "fd". Returns as image_request_read().
 */
int image_request_read_program(struct image_request *request, const struct worker_job *job,
			       struct json_object *object, bool bare, struct json_object *reply);

/* The index of the program of that name. -ENOENT. */
int image_request_find_program(const struct image_request *request, const char *name,
			       uint32_t *index);

/* "spaces" of an attachment at memory instructions. False if it is there and not a list of them. */
bool image_request_read_spaces(struct probe_use *use, struct json_object *object);

/*
 * Patterns with a prefix: seen() for each kernel that there is, then decide() once, which leaves
 * the prefix out of those that are not literal. 0 or -ENOMEM.
 */
#define IMAGE_PREFIX "cuda_"
bool image_request_prefixed(const struct image_request *request);
int image_request_prefix_seen(struct image_request *request, const char *mangled);
void image_request_prefix_decide(struct image_request *request);

/* Reads "prefixed" of an attachment, if it is there. False: it cannot be. */
bool image_request_read_prefixed(struct image_attachment *attachment, struct json_object *object);

/* Is a text to be checked, and that is all? */
bool image_request_checks(const struct image_request *request);

/* Does an attachment mean device functions? */
bool image_request_device_functions(const struct image_request *request);
