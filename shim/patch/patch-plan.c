/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks a plan that the daemon sent and fills in a view of it (patch-plan.h). It only reads the
 * plan.
 */

#include "patch-plan.h"

#include <string.h>

#include "shim/module/image.h"

#define POINTS_MAX 64

/* Do `count` records lie inside, where records may? */
static bool lies_inside(const struct patch_plan *plan, uint32_t offset, uint32_t count,
			size_t size) {
	return offset % 8 == 0 && offset >= sizeof(*plan) && offset <= plan->size &&
	       count <= (plan->size - offset) / size;
}

/* The image must end inside of itself; behind a plan there is a page of zeros (load-ask.c). */
static bool is_image(const struct patch_plan *plan) {
	struct image image;
	const char *start;

	if (plan->image % 8 || plan->image < sizeof(*plan) || plan->image > plan->size ||
	    plan->image_size > plan->size - plan->image)
		return false;
	start = (const char *)plan + plan->image;
	return image_recognise(&image, start, plan->size - plan->image + IMAGE_TAIL) &&
	       image.data == start && image.size <= plan->image_size &&
	       (image.kind == WIRE_IMAGE_CUBIN || image.kind == WIRE_IMAGE_FATBIN);
}

static bool is_instruction(uint32_t instruction) {
	return (instruction >= PATCH_BLOCK_ENTER && instruction <= PATCH_FREE) ||
	       instruction == PATCH_REMOTE_SHARED_MEMORY;
}

static bool are_points(const struct patch_point *points, uint32_t count) {
	for (uint32_t i = 0; i < count; i++)
		if (!is_instruction(points[i].instruction) || points[i].reserved ||
		    !points[i].symbol[0] || !memchr(points[i].symbol, 0, sizeof(points[i].symbol)))
			return false;
	return true;
}

static bool are_kernels(const struct patch_kernel *kernels, uint32_t count) {
	for (uint32_t i = 0; i < count; i++)
		if (!kernels[i].attachments || kernels[i].attachments >> PATCH_ATTACHMENTS_MAX)
			return false;
	return true;
}

/* The plan's attachments are those that some kernel has, in the order of their bits. */
static void take_ids(struct patch_view *view, const struct load *load) {
	uint64_t meant = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < view->kernel_count; i++)
		meant |= view->kernels[i].attachments;
	if ((uint32_t)__builtin_popcountll(meant) != load->attachment_count)
		return;
	for (unsigned bit = 0; bit < PATCH_ATTACHMENTS_MAX; bit++)
		if (meant >> bit & 1)
			view->ids[bit] = load->attachments[count++];
}

const char *patch_plan_read(struct patch_view *view, const struct load *load) {
	const struct patch_plan *plan = load->image;

	if (load->length < sizeof(*plan) || plan->magic != PATCH_MAGIC ||
	    plan->version != PATCH_VERSION || plan->size != load->length || plan->reserved)
		return "the daemon's plan is none";
	if (plan->data_size % 16 || plan->data_size < sizeof(struct patch_data) ||
	    plan->data_size > PATCH_DATA_MAX || !plan->image_id)
		return "the daemon's plan has no data that patches could use";
	if (!is_image(plan))
		return "the daemon's plan has no image";
	if (!plan->point_count || plan->point_count > POINTS_MAX ||
	    !lies_inside(plan, plan->points, plan->point_count, sizeof(struct patch_point)) ||
	    !lies_inside(plan, plan->kernels, plan->kernel_count, sizeof(struct patch_kernel)))
		return "the daemon's plan ends too early";
	*view = (struct patch_view){
		.image = (const char *)plan + plan->image,
		.image_id = plan->image_id,
		.points = (const void *)((const char *)plan + plan->points),
		.kernels = (const void *)((const char *)plan + plan->kernels),
		.point_count = plan->point_count,
		.kernel_count = plan->kernel_count,
		.data_size = plan->data_size,
		.epoch = load->epoch,
	};
	for (uint32_t i = 0; i < load->slot_count; i++)
		if (load->slots[i].offset > plan->data_size - sizeof(uint64_t))
			return "the daemon's plan has a slot outside of its data";
	if (!are_points(view->points, view->point_count))
		return "the daemon's plan has a point that is none";
	if (!are_kernels(view->kernels, view->kernel_count))
		return "the daemon's plan has a kernel that nothing means";
	take_ids(view, load);
	return NULL;
}
