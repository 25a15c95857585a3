/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plans of proto/patch.h: writes them for the shim, and reads an earlier one to save a compilation.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/patch.h"

/* All borrowed. */
struct patch_plan_parts {
	const uint8_t *image;
	size_t image_size;
	uint64_t image_id;
	const struct patch_point *points;
	uint32_t n_points;
	const struct patch_kernel *kernels;
	size_t n_kernels;
	uint32_t data_size;
};

/*
 * A plan in memory of the caller's; *image_offset says where its image begins. 0, -ENOMEM, -EFBIG.
 */
int patch_plan_make(const struct patch_plan_parts *parts, uint8_t **plan, size_t *size,
		    uint64_t *image_offset);

/*
 * Finds image and points of a plan; kernels are left out. The plan stays the caller's and lies at a
 * multiple of 8. False: it is no plan.
 */
bool patch_plan_read(const void *plan, size_t size, struct patch_plan_parts *parts);
