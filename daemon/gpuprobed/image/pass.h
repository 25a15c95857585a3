/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Passes of the user on the way of an image. The image worker hands out the PTX, passes whose order
 * is below that of ours work on it, the image worker puts the programs in, the other passes work on
 * that, and the image worker makes the twin of it. What a pass made is checked by the image
 * worker before anybody goes on with it; a pass that fails, or made what cannot be used, is left
 * out, and the outcome says so.
 */

#include "image-work.h"
#include "lib/pass/pass-definition.h"
#include "lib/pass/section.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

/* Are there passes of the user at all? */
bool pass_set_runs_programs(const struct pass_set *set);

/* The pass that is built in for the point; NULL: there are definitions, and none of them is for it.
 */
const struct pass_definition *pass_set_builtin(const struct pass_set *set,
					       const struct section *section,
					       const char *section_text);

/* Parameters of the passes that are built in: stubs are added to the array; spaces of memory
 * points, as bits of point_space(). */
void pass_set_add_stubs(const struct pass_set *set, json_object *array);
uint32_t pass_set_spaces(const struct pass_set *set);

/*
 * Drives the work through all its stages; the end is that of image_work_start(). 0 or -errno:
 * nothing was started.
 */
int pass_start(struct image_work *work);
