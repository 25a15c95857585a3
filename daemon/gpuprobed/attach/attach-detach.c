/* SPDX-License-Identifier: Apache-2.0 */

/* The end of an attachment, in the order in which others hear of it. */

#include "attach.h"

#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/daemon.h"
#include "daemon/gpuprobed/image/plan-prepare.h"
#include "daemon/gpuprobed/keep/keep.h"

void attach_detach(struct daemon *daemon, struct attachment *attachment) {
	struct object *object = attachment->object;
	uint64_t maps = attachment->maps, id = attachment->id, unused = 0;
	struct keep_slots slots;

	keep_leaving(daemon->keep, attachment, &slots);
	attachment->maps = 0;
	for (size_t i = 0; i < object->n_maps; i++)
		if (maps >> i & 1 && !registry_map_used(&daemon->registry, object->maps[i]))
			unused |= UINT64_C(1) << i;
	client_disarm(&daemon->client, object, unused);
	registry_remove(&daemon->registry, attachment);
	keep_left(daemon->keep, &slots);
	map_exports_sweep(&daemon->exports, &daemon->registry);
	image_cache_forget(&daemon->image.images, id);
	plan_images_forget(&daemon->image.plans, id);
	client_retire(&daemon->client, id);
	registry_announce(&daemon->registry, daemon->interest);
	plan_prepare_again(&daemon->image);
}
