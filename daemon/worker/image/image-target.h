/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The functions of an image that attachments mean, and what a reply says about them. */

#include "image-request.h"
#include "lib/kernel-name.h"

/* A kernel, or a device function. */
struct image_target {
	struct kernel_name name; /* the mangled name is owned by who gave it */
	bool device_function;
	/* Owned, one each, in calling order: indexes of attachments, and what they put there. */
	uint32_t *attachments;
	struct probe_use *uses;
	uint32_t count;
	char *reason; /* owned: why it is left out; NULL if it is not */
};

struct image_targets {
	struct image_target *targets; /* owned */
	size_t n;
	size_t n_allocated;
	struct image_target *left; /* owned: nothing is put there, which replies say */
	size_t n_left;
};

/* Adds the function if an attachment means it. `mangled` outlives *targets. 0 or -ENOMEM. */
int image_targets_match(struct image_targets *targets, const struct image_request *request,
			const char *mangled, bool device_function);
void image_targets_deinit(struct image_targets *targets);

/*
 * Leaves out what `why` gives a reason for: *reason is malloc()ed, or NULL. Once. 0, -ENOMEM, or
 * what `why` returns that is not 0.
 */
int image_targets_leave_out(struct image_targets *targets,
			    int (*why)(char **reason, const struct image_target *target,
				       void *userdata),
			    void *userdata);

/* Places where something stands now, of all functions. */
uint64_t image_targets_sites(const struct image_targets *targets);

/*
 * "kernels" of a reply, at most as many as a message can hold, else "truncated" too. With
 * only_applied those attachments of each that stand there, and as "missing" those that named it and
 * found no place; else all that mean it. Of those that are left out all are
 * missing, with the reason.
 */
int image_targets_add_kernels(struct image_targets *targets, const struct image_request *request,
			      struct json_object *reply, bool only_applied);

/* "applied": ids of the attachments that stand somewhere. */
int image_targets_add_applied(const struct image_targets *targets,
			      const struct image_request *request, struct json_object *reply);

/* A point for a person: "entry", "line x.cu:12". Fits 192 bytes. */
void image_point_format(const struct probe_use *use, char *text, size_t size);
