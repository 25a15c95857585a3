/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks a plan that a worker wrote (plan-check.h) before it is sent, because the process patches
 * its kernels as the plan says. Which names of its list a plan means is checked by the process: the
 * daemon does not read the list.
 */

#include "plan-check.h"

#include <stdbool.h>
#include <string.h>

#include "proto/patch.h"

static bool plan_inside(uint64_t offset, uint64_t size, uint64_t total) {
	return offset >= sizeof(struct patch_plan) && offset % 8 == 0 && offset <= total &&
	       size <= total - offset;
}

static bool plan_instruction_known(uint32_t instruction) {
	return (instruction >= PATCH_BLOCK_ENTER && instruction <= PATCH_FREE) ||
	       instruction == PATCH_REMOTE_SHARED_MEMORY;
}

static const char *plan_check_points(const char *bytes, const struct patch_plan *plan) {
	struct patch_point point;

	if (!plan->point_count || plan->point_count > PLAN_POINTS_MAX ||
	    !plan_inside(plan->points, plan->point_count * sizeof(point), plan->size))
		return "its points lie outside, or are none or too many";
	for (uint32_t i = 0; i < plan->point_count; i++) {
		memcpy(&point, bytes + plan->points + i * sizeof(point), sizeof(point));
		if (!plan_instruction_known(point.instruction) || point.reserved)
			return "a point has no class of instructions";
		if (!point.symbol[0] || memchr(point.symbol, '\0', sizeof(point.symbol)) == NULL)
			return "a point has no function";
	}
	return NULL;
}

static const char *plan_check_kernels(const char *bytes, const struct patch_plan *plan,
				      size_t n_attachments, uint64_t *meant) {
	const uint64_t all = n_attachments >= 64 ? UINT64_MAX : (UINT64_C(1) << n_attachments) - 1;
	struct patch_kernel kernel;

	if (plan->kernel_count > PLAN_KERNELS_MAX ||
	    (plan->kernel_count &&
	     !plan_inside(plan->kernels, plan->kernel_count * sizeof(kernel), plan->size)))
		return "its kernels lie outside, or are too many";
	for (uint32_t i = 0; i < plan->kernel_count; i++) {
		memcpy(&kernel, bytes + plan->kernels + i * sizeof(kernel), sizeof(kernel));
		if (!kernel.attachments || kernel.attachments & ~all)
			return "a kernel is meant by no attachment, or by one that is not there";
		*meant |= kernel.attachments;
	}
	return NULL;
}

const char *plan_check(const void *bytes, size_t size, size_t n_attachments, uint32_t data_size,
		       uint64_t *meant) {
	struct patch_plan plan;
	const char *why;

	*meant = 0;
	if (size < sizeof(plan))
		return "it is too short";
	memcpy(&plan, bytes, sizeof(plan));
	if (plan.magic != PATCH_MAGIC || plan.version != PATCH_VERSION || plan.reserved ||
	    plan.size != size)
		return "it does not begin as one";
	if (!plan.image_size || !plan_inside(plan.image, plan.image_size, size) || !plan.image_id)
		return "its image lies outside, or is none";
	if (plan.data_size != data_size)
		return "its slots are others than were asked for";
	why = plan_check_points(bytes, &plan);
	return why ?: plan_check_kernels(bytes, &plan, n_attachments, meant);
}
