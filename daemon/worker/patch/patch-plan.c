/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes plans (proto/patch.h) for the shim, and reads an earlier one (patch-plan.h). The order of
 * the parts is header, points, kernels, image: the shim looks at the first ones most often. All
 * sizes but the image's are multiples of 8.
 */

#include "patch-plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Header, points, kernels, image: what the shim looks at most often comes first. All sizes but the
 * image's are multiples of 8.
 */
int patch_plan_make(const struct patch_plan_parts *parts, uint8_t **out, size_t *size,
		    uint64_t *image_offset) {
	const size_t points = parts->n_points * sizeof(*parts->points),
		     kernels = parts->n_kernels * sizeof(*parts->kernels);
	struct patch_plan plan = {
		.magic = PATCH_MAGIC,
		.version = PATCH_VERSION,
		.image_size = parts->image_size,
		.image_id = parts->image_id,
		.points = sizeof(plan),
		.point_count = parts->n_points,
		.data_size = parts->data_size,
	};
	uint8_t *bytes;

	if (sizeof(plan) + points + kernels > UINT32_MAX)
		return -EFBIG;
	plan.kernels = (uint32_t)(plan.points + points);
	plan.kernel_count = (uint32_t)parts->n_kernels;
	plan.image = plan.kernels + kernels;
	plan.size = (plan.image + plan.image_size + 7) & ~UINT64_C(7);
	bytes = calloc(1, plan.size);
	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, &plan, sizeof(plan));
	memcpy(bytes + plan.points, parts->points, points);
	if (kernels)
		memcpy(bytes + plan.kernels, parts->kernels, kernels);
	memcpy(bytes + plan.image, parts->image, parts->image_size);
	*out = bytes;
	*size = plan.size;
	*image_offset = plan.image;
	return 0;
}

bool patch_plan_read(const void *data, size_t size, struct patch_plan_parts *parts) {
	const uint8_t *bytes = data;
	struct patch_plan plan;

	if (size < sizeof(plan))
		return false;
	memcpy(&plan, data, sizeof(plan));
	if (plan.magic != PATCH_MAGIC || plan.version != PATCH_VERSION || plan.size != size ||
	    plan.image > size || plan.image_size > size - plan.image || !plan.image_size ||
	    plan.points > size || plan.points % 8 || !plan.image_id ||
	    plan.point_count > (size - plan.points) / sizeof(struct patch_point))
		return false;
	*parts = (struct patch_plan_parts){
		.image = bytes + plan.image,
		.image_size = plan.image_size,
		.image_id = plan.image_id,
		.points = (const struct patch_point *)(bytes + plan.points),
		.n_points = plan.point_count,
		.data_size = plan.data_size,
	};
	return true;
}
