/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Puts programs into PTX, and checks whether PTX that a user's pass edited may stand for the
 * original.
 */

#include "image-target.h"

enum image_edit_error {
	_IMAGE_EDIT_E_SUCCESS,
	IMAGE_EDIT_E_TRANSFORM, /* struct ptx_error says what */
};

struct image_edited {
	char *text; /* owned */
	size_t length;
	struct probe_result
		probes; /* its instructions are owned; they point into the module's text */
};

/*
 * Puts what *targets say into the module; their uses' sites are filled in. 0, enum image_edit_error
 * or -ENOMEM. *edited needs image_edited_deinit() in any case.
 */
int image_edit(struct image_edited *edited, const struct ptx_module *module,
	       const struct image_request *request, struct image_targets *targets,
	       struct ptx_error *error);
void image_edited_deinit(struct image_edited *edited);

/* The instructions that got probes, as the JSON array of job.md. *out is the caller's. 0 or
 * -ENOMEM. */
int image_instructions_write(const struct probe_result *probes, const struct ptx_module *module,
			     char **out, size_t *length);

/*
 * Has the foreign module all kernels with the same parameters and all variables of the original,
 * nothing that asks for a newer device or driver, and the variables of the programs in `targets`?
 * 0, enum image_edit_error or -ENOMEM.
 */
int image_check(const struct ptx_module *foreign, const struct ptx_module *original,
		const struct image_request *request, const struct image_targets *targets,
		struct ptx_error *error);
