/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The registry of objects and attachments (registry.h). There are hundreds of attachments at most,
 * so lists are walked. Ids grow and are never reused. Attachments are looked up for each of many
 * modules, so they are in an array, too.
 */

#include "registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"

void registry_init(struct registry *registry) {
	memset(registry, 0, sizeof(*registry));
	TAILQ_INIT(&registry->objects);
	TAILQ_INIT(&registry->attachments);
	LIST_INIT(&registry->prefixes);
}

void registry_deinit(struct registry *registry) {
	while (!TAILQ_EMPTY(&registry->attachments))
		registry_remove(registry, TAILQ_FIRST(&registry->attachments));
}

static bool registry_has_prefix(const struct registry *registry, const char *text) {
	const struct prefix *prefix;

	LIST_FOREACH(prefix, &registry->prefixes, link)
		if (strcmp(prefix->text, text) == 0)
			return true;
	return false;
}

int registry_prefix_new(struct registry *registry, const char *text, struct prefix **prefixp) {
	struct prefix *prefix = calloc(1, sizeof(*prefix));
	unsigned int number = 1;

	if (!prefix)
		return -ENOMEM;
	snprintf(prefix->text, sizeof(prefix->text), "%s", text);
	while (registry_has_prefix(registry, prefix->text))
		snprintf(prefix->text, sizeof(prefix->text), "%.*sx%u", REGISTRY_PREFIX_SIZE - 12,
			 text, ++number);
	LIST_INSERT_HEAD(&registry->prefixes, prefix, link);
	*prefixp = prefix;
	return 0;
}

struct prefix *prefix_free(struct prefix *prefix) {
	if (prefix)
		LIST_REMOVE(prefix, link);
	free(prefix);
	return NULL;
}

int object_new(struct object **objectp, uint64_t id, uid_t owner) {
	struct object *object;

	object = calloc(1, sizeof(*object));
	if (!object)
		return -ENOMEM;
	object->id = id;
	object->owner = owner;
	*objectp = object;
	return 0;
}

struct object *object_free(struct object *object) {
	if (!object)
		return NULL;
	for (size_t i = 0; i < object->n_maps; i++)
		map_free(object->maps[i]);
	host_free(object->host);
	prefix_free(object->prefix);
	free(object->btf);
	free(object);
	return NULL;
}

void gpu_program_init(struct gpu_program *program) {
	*program = (struct gpu_program){ .fd = -1, .patch_fd = -1 };
}

uint32_t gpu_program_words(const struct gpu_program *program) {
	uint32_t words = 0;

	for (size_t i = 0; i < program->n_context; i++)
		if (point_is_thread(program->context[i]))
			words |= UINT32_C(1) << (program->context[i] - POINT_THREAD) / 8;
	return words;
}

void gpu_program_deinit(struct gpu_program *program) {
	program->fd = fd_close(program->fd);
	program->patch_fd = fd_close(program->patch_fd);
}

int attachment_new(struct attachment **attachmentp, struct object *object,
		   enum attachment_kind kind) {
	struct attachment *attachment;

	attachment = calloc(1, sizeof(*attachment));
	if (!attachment)
		return -ENOMEM;
	attachment->object = object;
	attachment->kind = kind;
	if (kind == ATTACHMENT_GPU)
		gpu_program_init(&attachment->of.gpu);
	*attachmentp = attachment;
	return 0;
}

struct attachment *attachment_free(struct attachment *attachment) {
	if (!attachment)
		return NULL;
	if (attachment->kind == ATTACHMENT_GPU)
		gpu_program_deinit(&attachment->of.gpu);
	free(attachment);
	return NULL;
}

const struct gpu_program *attachment_gpu(const struct attachment *attachment) {
	return attachment && attachment->kind == ATTACHMENT_GPU ? &attachment->of.gpu : NULL;
}

const struct host_program *attachment_host(const struct attachment *attachment) {
	return attachment && attachment->kind == ATTACHMENT_HOST ? &attachment->of.host : NULL;
}

size_t registry_owned(const struct registry *registry, uid_t owner) {
	const struct attachment *attachment;
	size_t n = 0;

	TAILQ_FOREACH(attachment, &registry->attachments, link)
		n += attachment->object->owner == owner;
	return n;
}

int registry_room(const struct registry *registry, uid_t owner, size_t n) {
	size_t max = REGISTRY_ATTACHMENTS_MAX;

	if (owner != 0 && owner != geteuid())
		max -= REGISTRY_KEPT_FOR_ROOT + (registry_owned(registry, owner) + n > REGISTRY_FEW
							 ? REGISTRY_KEPT_FOR_FEW
							 : 0);
	return registry->n_attachments + n > max ? REGISTRY_E_LIMIT : 0;
}

/* The place of the id in the array, or of the next one above. */
static unsigned int registry_place(const struct registry *registry, uint64_t id) {
	unsigned int low = 0, high = registry->n_attachments;

	while (low < high) {
		const unsigned int middle = (low + high) / 2;

		if (registry->sorted[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void registry_insert(struct registry *registry, struct attachment *attachment) {
	const unsigned int at = registry_place(registry, attachment->id);

	if (at)
		TAILQ_INSERT_AFTER(&registry->attachments, registry->sorted[at - 1], attachment,
				   link);
	else
		TAILQ_INSERT_HEAD(&registry->attachments, attachment, link);
	memmove(&registry->sorted[at + 1], &registry->sorted[at],
		(registry->n_attachments++ - at) * sizeof(registry->sorted[0]));
	registry->sorted[at] = attachment;
}

void registry_link(struct registry *registry, struct object *object,
		   struct attachment *attachments[], size_t n) {
	TAILQ_INSERT_TAIL(&registry->objects, object, link);
	for (size_t i = 0; i < n; i++) {
		attachments[i]->id = ++registry->last_attachment;
		registry_insert(registry, attachments[i]);
		object->n_attachments++;
	}
}

/* What the symbols of an object that was compiled before begin with is its own from now on. */
static void registry_adopt_prefix(struct registry *registry, struct object *object,
				  const struct gpu_program *program) {
	const char *end = program ? strrchr(program->symbol, '_') : NULL;
	char text[REGISTRY_PREFIX_SIZE];

	if (object->prefix || !end || end - program->symbol >= (ptrdiff_t)sizeof(text))
		return;
	snprintf(text, sizeof(text), "%.*s", (int)(end - program->symbol), program->symbol);
	registry_prefix_new(registry, text, &object->prefix);
}

void registry_adopt(struct registry *registry, struct object *object,
		    struct attachment *attachments[], size_t n) {
	TAILQ_INSERT_TAIL(&registry->objects, object, link);
	for (size_t i = 0; i < n; i++) {
		registry_adopt_prefix(registry, object, attachment_gpu(attachments[i]));
		registry_insert(registry, attachments[i]);
		object->n_attachments++;
	}
}

void registry_remove(struct registry *registry, struct attachment *attachment) {
	struct object *object = attachment->object;
	const struct host_program *host = attachment_host(attachment);
	const unsigned int at = registry_place(registry, attachment->id);

	TAILQ_REMOVE(&registry->attachments, attachment, link);
	memmove(&registry->sorted[at], &registry->sorted[at + 1],
		(--registry->n_attachments - at) * sizeof(registry->sorted[0]));
	if (host)
		host_detach(object->host, host->index);
	attachment_free(attachment);
	if (--object->n_attachments == 0) {
		TAILQ_REMOVE(&registry->objects, object, link);
		for (size_t i = 0; i < object->n_maps; i++)
			if (object->maps[i]) {
				registry->ring_written += map_written(object->maps[i]);
				registry->ring_lost += map_lost(object->maps[i]);
			}
		object_free(object);
	}
}

struct attachment *registry_attachment(const struct registry *registry, uint64_t id) {
	const unsigned int at = registry_place(registry, id);

	return at < registry->n_attachments && registry->sorted[at]->id == id ? registry->sorted[at]
									      : NULL;
}

struct map *registry_map(const struct registry *registry, uint64_t id, struct object **objectp) {
	struct registry_place place = {};
	struct map *map;

	while ((map = registry_next_map(registry, &place)))
		if (map->id == id) {
			if (objectp)
				*objectp = place.object;
			return map;
		}
	return NULL;
}

struct object *registry_object(const struct registry *registry, uint64_t id) {
	struct object *object;

	TAILQ_FOREACH(object, &registry->objects, link)
		if (object->id == id)
			return object;
	return NULL;
}

struct map *registry_next_map(const struct registry *registry, struct registry_place *place) {
	if (!place->object)
		place->object = TAILQ_FIRST(&registry->objects);
	for (; place->object; place->object = TAILQ_NEXT(place->object, link), place->next = 0)
		while (place->next < place->object->n_maps) {
			struct map *map = place->object->maps[place->next++];

			if (map)
				return map;
		}
	return NULL;
}

bool attachment_on_ptx(const struct attachment *attachment) {
	const struct gpu_program *program = attachment_gpu(attachment);

	return program && program->engine != ENGINE_SANITIZER &&
	       !section_needs_sass(&attachment->section);
}

bool attachment_on_sass(const struct attachment *attachment) {
	const struct gpu_program *program = attachment_gpu(attachment);

	return program && program->engine != ENGINE_PTX && program->patch_fd >= 0;
}

size_t attachment_patch_slots(const struct attachment *attachment) {
	return 1 + attachment_gpu(attachment)->n_patch_maps;
}

bool attachment_uses(const struct attachment *attachment, const struct map *map) {
	const struct gpu_program *program = attachment_gpu(attachment);

	for (size_t i = 0; program && i < attachment->object->n_maps; i++)
		if (attachment->object->maps[i] == map && program->maps >> i & 1)
			return true;
	return false;
}

bool registry_map_used(const struct registry *registry, const struct map *map) {
	const struct attachment *attachment;

	TAILQ_FOREACH(attachment, &registry->attachments, link)
		if (attachment_uses(attachment, map))
			return true;
	return false;
}

size_t registry_rules(const struct registry *registry,
		      struct interest_rule rules[static REGISTRY_ATTACHMENTS_MAX]) {
	const struct attachment *attachment;
	size_t n = 0;

	TAILQ_FOREACH(attachment, &registry->attachments, link)
		if (attachment_gpu(attachment))
			filter_to_rule(&attachment->filter, &rules[n++]);
	return n;
}

void registry_announce(const struct registry *registry, struct interest_writer *writer) {
	struct interest_rule rules[REGISTRY_ATTACHMENTS_MAX];

	interest_writer_set(writer, rules, registry_rules(registry, rules));
}
