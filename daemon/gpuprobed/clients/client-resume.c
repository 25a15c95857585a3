/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles what a process tells about modules and instances from an earlier daemon
 * (client-resume.h).
 *
 * A process is believed no more than it was by the earlier daemon: a module may use maps of
 * attachments alone that mean the process, and an instance is its own if the store says so. The
 * name that a process gives itself may have changed since, and is not asked for again.
 *
 * Only what a module may use and which attachments it has is remembered, not its kernels: many
 * modules share that. A process that says otherwise has a bound.
 */

#include "client-resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/settings/exclude.h"

#define CLIENT_RESUMED_IDS_MAX 16384 /* that a process may have remembered for its modules */

struct client_resume {
	uint64_t module_id;
	uint32_t sequence;
	bool armed, plan;
	size_t n_attachments, n; /* ids: attachments, then maps; all of them */
	size_t n_read;
	uint64_t ids[WIRE_ATTACHMENTS_MAX + WIRE_SLOTS_MAX];
};

/* Whether the attachment may be in a module of the process. */
static bool client_resume_may(const struct process *process, const struct attachment *attachment) {
	struct filter filter = attachment->filter;

	filter.has_comm = false;
	return attachment_gpu(attachment) && filter_matches(&filter, &process->facts);
}

/* Maps of attachments, each object's once. */
struct client_resume_maps {
	const struct object *objects[WIRE_ATTACHMENTS_MAX];
	size_t n_objects, n;
	uint64_t ids[WIRE_ATTACHMENTS_MAX * REGISTRY_OBJECT_MAPS_MAX];
};

static void client_resume_add_maps(struct client_resume_maps *maps, const struct object *object) {
	for (size_t i = 0; i < maps->n_objects; i++)
		if (maps->objects[i] == object)
			return;
	maps->objects[maps->n_objects++] = object;
	for (size_t i = 0; i < object->n_maps; i++)
		if (object->maps[i])
			maps->ids[maps->n++] = object->maps[i]->id;
}

static bool client_resume_uses(const struct client_resume_maps *maps, uint64_t map) {
	for (size_t i = 0; i < maps->n; i++)
		if (maps->ids[i] == map)
			return true;
	return false;
}

/* What is left of the module. 0 or -ENOMEM. */
static int client_resume_result(const struct client_context *context, const struct process *process,
				const struct client_resume *resume, struct image_result **resultp) {
	const size_t n_maps = resume->n - resume->n_attachments;
	const bool excluded = exclude_find(context->image->config, &process->facts);
	struct client_resume_maps maps;
	struct image_result *result;

	maps.n = maps.n_objects = 0;
	if (image_result_new(&result) < 0)
		return -ENOMEM;
	result->made = true;
	result->plan = resume->plan;
	result->attachments = calloc(resume->n_attachments, sizeof(result->attachments[0]));
	result->slots = calloc(n_maps ? n_maps : 1, sizeof(result->slots[0]));
	if (!result->attachments || !result->slots) {
		image_result_unref(result);
		return -ENOMEM;
	}
	for (size_t i = 0; !excluded && i < resume->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(context->image->registry, resume->ids[i]);

		if (!attachment || !client_resume_may(process, attachment) ||
		    image_result_applies(result, attachment->id))
			continue;
		result->attachments[result->n_attachments++] = attachment->id;
		client_resume_add_maps(&maps, attachment->object);
	}
	for (size_t i = resume->n_attachments; i < resume->n; i++)
		if (client_resume_uses(&maps, resume->ids[i]))
			result->slots[result->n_slots++] =
				(struct image_slot){ .map = resume->ids[i],
						     .kind = WIRE_SLOT_POINTER };
	*resultp = result;
	return 0;
}

static bool client_resume_same(const struct image_result *a, const struct image_result *b) {
	if (a->n_attachments != b->n_attachments || a->n_slots != b->n_slots ||
	    a->plan != b->plan || a->fd >= 0 || b->fd >= 0 || a->n_kernels || b->n_kernels)
		return false;
	for (size_t i = 0; i < a->n_slots; i++)
		if (a->slots[i].map != b->slots[i].map)
			return false;
	return memcmp(a->attachments, b->attachments,
		      a->n_attachments * sizeof(a->attachments[0])) == 0;
}

/* A module that the process has is not known any more, because of a bound: once for `why`. */
static void client_resume_refused(struct client_context *context, const struct process *process,
				  const struct image_result *result, int error) {
	const struct outcome_subject subject = { .attachments = result->attachments,
						 .n_attachments = result->n_attachments };
	char reason[128];

	process_module_refusal(reason, process, result, error);
	outcome_tell_once(context->image->outcomes, &process->facts, OUTCOME_NOT_PROBED, &subject,
			  reason);
}

/* The process has the module, with this, which is consumed. Whether it is known from now on. */
static bool client_resume_module(struct client_context *context, struct process *process,
				 const struct client_resume *resume, struct image_result *result) {
	const unsigned int n = (unsigned int)(result->n_attachments + result->n_slots);
	struct module *module = NULL, *other;
	int r;

	LIST_FOREACH(other, &process->modules, link)
		if (client_resume_same(other->result, result))
			break;
	if (other) {
		image_result_unref(result);
		result = image_result_ref(other->result);
	} else if (n > CLIENT_RESUMED_IDS_MAX - process->n_resumed) {
		image_result_unref(result);
		return false;
	} else {
		process->n_resumed += n;
	}
	r = process_module_adopt(process, resume->module_id, result, &module);
	if (r > 0)
		client_resume_refused(context, process, result, r);
	if (module)
		module->armed = resume->armed;
	image_result_unref(result);
	return module;
}

/* All ids are there. */
static int client_resume_end(struct client_context *context, struct client *client) {
	union wire_message message = { .header = { .type = WIRE_RESUMED,
						   .sequence = client->resume->sequence } };
	const struct client_resume *resume = client->resume;
	struct image_result *result = NULL;
	bool known;
	int r;

	message.resumed.module_id = resume->module_id;
	known = process_module(client->process, resume->module_id);
	if (!known) {
		r = client_resume_result(context, client->process, resume, &result);
		if (r < 0)
			return r;
		known = result->n_attachments;
		if (!known)
			image_result_unref(result);
		else
			known = client_resume_module(context, client->process, resume, result);
	}
	free(client->resume);
	client->resume = NULL;
	message.resumed.known = known;
	return shim_connection_send(client->connection, &message, -1);
}

int client_resume(struct client_context *context, struct client *client,
		  const struct wire_resume *resume) {
	struct client_resume *begun;

	if (!resume->module_id)
		return -EPROTO;
	begun = calloc(1, sizeof(*begun));
	if (!begun)
		return -ENOMEM;
	begun->module_id = resume->module_id;
	begun->sequence = resume->header.sequence;
	begun->armed = resume->flags & WIRE_RESUME_ARMED;
	begun->plan = resume->flags & WIRE_RESUME_PLAN;
	begun->n_attachments = resume->attachment_count;
	begun->n = resume->attachment_count + resume->map_count;
	client->resume = begun;
	return 0;
}

int client_resume_ids(struct client_context *context, struct client *client,
		      const struct wire_ids *ids) {
	struct client_resume *resume = client->resume;
	const size_t left = resume ? resume->n - resume->n_read : 0;

	if (!resume || ids->module_id != resume->module_id ||
	    ids->count != (left < WIRE_IDS_MAX ? left : WIRE_IDS_MAX))
		return -EPROTO;
	memcpy(resume->ids + resume->n_read, ids->ids, ids->count * sizeof(ids->ids[0]));
	resume->n_read += ids->count;
	return resume->n_read < resume->n ? 0 : client_resume_end(context, client);
}

/* Whether the process has that instance of the map. */
static bool client_resume_has(const struct process *process, const struct object *object,
			      const struct map *map, uint64_t instance) {
	if (map->spec.layout.place == MAP_PLACE_KERNEL)
		return object->has_kernel_user && object->kernel_user == process->uid;
	for (const struct map_instance *i = map->instances; i; i = i->next)
		if (i->id == instance)
			return !i->gone && (i->process == process->number ||
					    i->process == process_shared_number(process->uid));
	return false;
}

int client_resume_keep(struct client_context *context, struct client *client,
		       const struct wire_keep *keep) {
	union wire_message message = { .header = { .type = WIRE_KEPT,
						   .sequence = keep->header.sequence } };
	struct object *object = NULL;
	const struct map *map = registry_map(context->image->registry, keep->map_id, &object);

	message.kept.map_id = keep->map_id;
	message.kept.instance_id = keep->instance_id;
	message.kept.known =
		map && client_resume_has(client->process, object, map, keep->instance_id);
	return shim_connection_send(client->connection, &message, -1);
}
