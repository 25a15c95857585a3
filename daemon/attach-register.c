/* SPDX-License-Identifier: Apache-2.0 */

/* The last stage: what was chosen and compiled becomes an object of the registry, or nothing at
 * all. */

#include "attach-register.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"

/* Whether what the pass gives the program comes from the process slot (proto/gpuprobe.bpf.h:
 * device, pid). */
static bool attach_needs_process(const struct compiled_program *compiled,
				 enum section_point point) {
	for (size_t i = 0; point != SECTION_MEMORY && i < compiled->n_context; i++)
		if (compiled->context[i] == 8 || compiled->context[i] == 16)
			return true;
	return compiled->process;
}

/* The attachment of one compiled program; takes its descriptor. 0 or -errno. */
static int attach_make(const struct attach_plan *plan, struct object *object, size_t i,
		       struct compiled_program *compiled, struct attachment **attachmentp) {
	const struct attach_choice *choice = &plan->choices->programs[i];
	struct attachment *attachment;
	int r;

	r = attachment_new(&attachment, object);
	if (r < 0)
		return r;
	strcpy(attachment->program, plan->linked->programs[choice->program].name);
	attachment->section = choice->section;
	snprintf(attachment->section_text, sizeof(attachment->section_text), "%s", choice->text);
	attachment->spaces = plan->spaces ?: SECTION_SPACES_DEFAULT;
	strcpy(attachment->symbol, compiled->symbol);
	attachment->filter = *plan->filter;
	attachment->maps = compiled->maps;
	attachment->isa = compiled->isa;
	attachment->target = compiled->target;
	attachment->process = attach_needs_process(compiled, choice->section.point);
	_Static_assert(COMPILED_KERNEL_CONTEXT_SIZE / 8 <= REGISTRY_CONTEXT_MAX, "each field once");
	attachment->n_context = compiled->n_context;
	memcpy(attachment->context, compiled->context, compiled->n_context * sizeof(uint16_t));
	attachment->fd = compiled->fd;
	compiled->fd = -1;
	*attachmentp = attachment;
	return 0;
}

/* One map of the object. 0, MAP_E_*, or -errno. */
static int attach_map(const struct attach_plan *plan, struct object *object, size_t i,
		      const struct compiled_map *compiled) {
	const struct linked_map *linked = &plan->linked->maps[i];
	struct map_spec spec = {
		.name = linked->name,
		.type = linked->type,
		.key_size = linked->key_size,
		.value_size = linked->value_size,
		.max_entries = linked->max_entries,
		.flags = linked->flags,
		.btf_key_type = linked->btf_key_type,
		.btf_value_type = linked->btf_value_type,
		.layout = compiled->layout,
		.kernel_fd = -1,
	};
	const char *bytes = plan->blob;

	_Static_assert(sizeof(struct map_lane) == sizeof(struct linked_lane), "the same records");
	if (linked->initial.count) {
		spec.initial = bytes + linked->initial.offset;
		spec.n_initial = linked->initial.count;
	}
	if (linked->has_lanes) { /* none at all, perhaps: nothing is added */
		spec.lanes = (const struct map_lane *)(bytes + linked->lanes.offset);
		spec.n_lanes = linked->lanes.count;
	}
	return map_new(&object->maps[i], ++plan->daemon->registry.last_map, object->id,
		       object->owner, &spec, plan->daemon->map_accounts);
}

/* The object with its maps. 0, MAP_E_*, or -errno. */
static int attach_object(const struct attach_plan *plan, const struct compiled *compiled,
			 struct object **objectp) {
	const struct linked *linked = plan->linked;
	struct object *object;
	uint64_t used = 0;
	int r;

	for (size_t i = 0; i < compiled->n_programs; i++)
		used |= compiled->programs[i].maps;
	r = object_new(&object, plan->object_id, plan->owner);
	if (r < 0)
		return r;
	object->n_maps = linked->n_maps;
	object->shared = plan->shared;
	if (linked->btf.count) {
		object->n_btf = linked->btf.count;
		object->btf = malloc(object->n_btf);
		if (!object->btf)
			r = -ENOMEM;
		else
			memcpy(object->btf, (const char *)plan->blob + linked->btf.offset,
			       object->n_btf);
	}
	for (size_t i = 0; r == 0 && i < linked->n_maps; i++) {
		compiled_slot_symbol(object->slots[i], plan->object_id, i);
		if (compiled->maps[i].resident)
			object->resident |= UINT64_C(1) << i;
		if (used >> i & 1)
			r = attach_map(plan, object, i, &compiled->maps[i]);
	}
	if (r) {
		object_free(object);
		return r;
	}
	*objectp = object;
	return 0;
}

int attach_register(const struct attach_plan *plan, struct compiled *compiled,
		    struct object **objectp) {
	struct attachment *attachments[ATTACH_PROGRAMS_MAX] = {};
	struct object *object = NULL;
	size_t n = 0;
	int r;

	if (registry_room(&plan->daemon->registry, plan->choices->n))
		return ATTACH_REGISTER_E_LIMIT;
	r = attach_object(plan, compiled, &object);
	while (r == 0 && n < plan->choices->n) {
		r = attach_make(plan, object, n, &compiled->programs[n], &attachments[n]);
		if (r == 0)
			n++;
	}
	if (r) {
		while (n)
			attachment_free(attachments[--n]);
		object_free(object);
		return r < 0 ? r : ATTACH_REGISTER_E_MAP;
	}
	registry_link(&plan->daemon->registry, object, attachments, n);
	daemon_announce(plan->daemon);
	*objectp = object;
	return 0;
}
