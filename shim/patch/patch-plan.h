/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A plan (proto/patch.h) as the daemon sent it, checked. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/module/load.h"
#include "proto/patch.h"

/* The parts of a plan; pointers point into what it was read from. */
struct patch_view {
	const void *image;
	uint64_t image_id;
	const struct patch_point *points;
	const struct patch_kernel *kernels;
	uint32_t point_count, kernel_count, data_size;
	uint64_t epoch; /* of the daemon that the ids are of */
	uint64_t ids[PATCH_ATTACHMENTS_MAX]; /* which attachment each bit is; 0: none, or not known
					      */
};

/*
 * Checks everything that can be checked without knowing the modules, with the slots that came
 * with it. Returns why it is none, or NULL.
 */
const char *patch_plan_read(struct patch_view *view, const struct load *plan);
