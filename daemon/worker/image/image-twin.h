/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes the image of a twin: proto/twin.h. */

#include "image-build.h"
#include "image-target.h"

#define IMAGE_TWIN_REASON_MAX 400
#define IMAGE_TWIN_NONE "no twin can be made: " /* what reasons in replies begin with */

/*
 * Makes global variables of the __constant__ ones of a text, and global loads of their loads: a
 * twin reads the original's, which have addresses in global memory. *out is the caller's to free();
 * NULL: the text stays as it is. 0; 1: it has something that cannot be changed so, and `reason`
 * says what; -ENOMEM.
 */
int image_twin_constants(char **out, size_t *size, const char *text, size_t length,
			 char reason[IMAGE_TWIN_REASON_MAX]);

/* Can a module have a twin made from its PTX? False: `reason` says in one line why not. */
bool image_twin_possible(const struct ptx_module *original, char reason[IMAGE_TWIN_REASON_MAX]);

/* Leaves out the kernels that cannot run in a twin (image-pointer.h), and the device functions that
 * only they call. 0 or -ENOMEM. */
int image_twin_leave_out(struct image_targets *targets, const struct ptx_module *original);

/*
 * The text of a twin: of an edited module, the kernels that a target means, and what they call;
 * where a target is a device function, all kernels that can run in a twin. *text is the caller's to
 * free. 0; 1: what was put in cannot run in a twin, and `reason` says why; -ENOMEM.
 */
int image_twin_cut(const struct ptx_module *edited, const struct ptx_module *original,
		   const struct image_targets *targets, char **text, size_t *length,
		   char reason[IMAGE_TWIN_REASON_MAX]);

/*
 * Frees the built image of all addresses of the original's variables, and puts the table of their
 * slots behind it. `edited` is what the image was compiled from. 0; 1: it cannot be done, and
 * `reason` says why; -ENOMEM.
 */
int image_twin_finish(struct image_built *result, const struct ptx_module *original,
		      const struct ptx_module *edited, char reason[IMAGE_TWIN_REASON_MAX]);
