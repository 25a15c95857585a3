/* SPDX-License-Identifier: Apache-2.0 */

/* The end of an attachment, in the order in which others hear of it. */

#include "attach.h"

#include "daemon/gpuprobed/image/plan-prepare.h"
#include "daemon/gpuprobed/keep/keep.h"

void attach_detach(struct attach_context *context, struct attachment *attachment) {
	struct object *object = attachment->object;
	uint64_t id = attachment->id, maps = 0, unused = 0;
	struct keep_slots slots;

	keep_leaving(context->client->keep, attachment, &slots);
	if (attachment->kind == ATTACHMENT_GPU) {
		maps = attachment->of.gpu.maps;
		attachment->of.gpu.maps = 0;
	}
	for (size_t i = 0; i < object->n_maps; i++)
		if (maps >> i & 1 && !registry_map_used(context->image->registry, object->maps[i]))
			unused |= UINT64_C(1) << i;
	client_disarm(context->client, object, unused);
	registry_remove(context->image->registry, attachment);
	keep_left(context->client->keep, &slots);
	map_exports_sweep(context->exports, context->image->registry);
	image_cache_forget(&context->image->images, id);
	plan_images_forget(&context->image->plans, id);
	registry_announce(context->image->registry, context->interest);
	plan_prepare_again(context->image);
}
