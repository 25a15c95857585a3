/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The stage of an attach that makes an object of the registry from what was chosen and compiled
 * (attach-register.h): the whole object, or nothing.
 */

#include "attach-register.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach-private.h"
#include "proto/job.h"

/* Whether what the pass gives the program comes from the process slot (proto/gpuprobe.bpf.h:
 * device, pid). */
static bool attach_needs_process(const struct gpu_program *compiled, enum point_kind point) {
	for (size_t i = 0;
	     point_context_of(point) == POINT_KERNEL_CONTEXT && i < compiled->n_context; i++)
		if (compiled->context[i] == 8 || compiled->context[i] == 16)
			return true;
	return compiled->process;
}

/* The attachment of one compiled program; takes its descriptors. 0 or -errno. */
static int attach_make(const struct attach *attach, struct object *object, size_t i,
		       struct gpu_program *compiled, struct attachment **attachmentp) {
	const struct attach_choice *choice = &attach->choices.programs[i];
	struct attachment *attachment;
	int r;

	r = attachment_new(&attachment, object, ATTACHMENT_GPU);
	if (r < 0)
		return r;
	strcpy(attachment->program, attach->linked->programs[choice->program].name);
	attachment->section = choice->section;
	snprintf(attachment->section_text, sizeof(attachment->section_text), "%s", choice->text);
	attachment->spaces = attach->wish.spaces ?: POINT_SPACES_DEFAULT;
	attachment->filter = attach->filter;
	attachment->of.gpu = *compiled;
	attachment->of.gpu.process = attach_needs_process(compiled, choice->section.point);
	_Static_assert(POINT_FIELDS <= REGISTRY_CONTEXT_MAX, "each field once");
	attachment->of.gpu.engine = attach->wish.engine;
	gpu_program_init(compiled);
	*attachmentp = attachment;
	return 0;
}

/* The attachment of a program on the host. 0 or -errno. */
static int attach_make_host(const struct attach *attach, struct object *object, size_t program,
			    struct attachment **attachmentp) {
	const struct linked_program *linked = &attach->linked->programs[program];
	const char *where = strchr(linked->section, '/');
	struct attachment *attachment;
	int r;

	r = attachment_new(&attachment, object, ATTACHMENT_HOST);
	if (r < 0)
		return r;
	strcpy(attachment->program, linked->name);
	strcpy(attachment->section_text, linked->section);
	snprintf(attachment->section.kernel, sizeof(attachment->section.kernel), "%.*s",
		 SECTION_KERNEL_SIZE - 1,
		 attach->host_targets[program]
			 ?: where ? where + 1
				  : linked->section);
	attachment->of.host.index = program;
	*attachmentp = attachment;
	return 0;
}

/* One map of the object. 0, MAP_E_*, or -errno. */
static int attach_map(const struct attach *attach, struct object *object, size_t i,
		      const struct map_layout *layout) {
	const struct linked_map *linked = &attach->linked->maps[i];
	bool kernel = layout->place == MAP_PLACE_KERNEL;
	struct map_spec spec = {
		.name = linked->name,
		.type = linked->type,
		.key_size = linked->key_size,
		.value_size = linked->value_size,
		.max_entries = linked->max_entries,
		.flags = linked->flags,
		.btf_key_type = linked->btf_key_type,
		.btf_value_type = linked->btf_value_type,
		.layout = *layout,
		.kernel_fd = kernel ? host_map_fd(attach->host, i) : -1,
	};
	const char *bytes = attach->blob;

	_Static_assert(sizeof(struct map_lane) == sizeof(struct linked_lane), "the same records");
	if (linked->initial.count && !kernel) { /* a kernel's map has them already */
		spec.initial = bytes + linked->initial.offset;
		spec.n_initial = linked->initial.count;
	}
	if (linked->has_lanes) { /* none at all, perhaps: nothing is added */
		spec.lanes = (const struct map_lane *)(bytes + linked->lanes.offset);
		spec.n_lanes = linked->lanes.count;
	}
	return map_new(&object->maps[i], ++attach->context->image->registry->last_map, object->id,
		       object->owner, &spec, attach->context->client->map_accounts);
}

/* Whether map i is an array that programs on the host alone use; then its layout. */
static bool attach_host_layout(const struct attach *attach, size_t i, struct map_layout *layout) {
	const struct linked_map *linked = &attach->linked->maps[i];
	const struct map_shape shape = {
		.type = linked->type,
		.key_size = linked->key_size,
		.value_size = linked->value_size,
		.max_entries = linked->max_entries,
		.place = MAP_PLACE_KERNEL,
	};

	return attach->host && host_map_fd(attach->host, i) >= 0 &&
	       linked->internal != LINKED_MAP_RODATA && !map_layout_init(layout, &shape);
}

/* The object with its maps. 0, MAP_E_*, or -errno. */
static int attach_object(struct attach *attach, const struct compiled *compiled,
			 struct object **objectp) {
	const struct linked *linked = attach->linked;
	struct map_layout layout;
	struct object *object;
	uint64_t used = 0;
	int r;

	for (size_t i = 0; i < compiled->n_programs; i++)
		used |= compiled->programs[i].maps;
	r = object_new(&object, attach->object_id, attach->owner);
	if (r < 0)
		return r;
	object->prefix = attach->prefix;
	attach->prefix = NULL;
	object->n_maps = linked->n_maps;
	object->shared = attach->shared;
	if (linked->btf.count) {
		object->n_btf = linked->btf.count;
		object->btf = malloc(object->n_btf);
		if (!object->btf)
			r = -ENOMEM;
		else
			memcpy(object->btf, (const char *)attach->blob + linked->btf.offset,
			       object->n_btf);
	}
	for (size_t i = 0; r == 0 && i < linked->n_maps; i++) {
		compiled_slot_symbol(object->slots[i], object->prefix->text, i);
		if (compiled->maps[i].resident)
			object->resident |= UINT64_C(1) << i;
		if (used >> i & 1)
			r = attach_map(attach, object, i, &compiled->maps[i].layout);
		else if (attach_host_layout(attach, i, &layout))
			r = attach_map(attach, object, i, &layout);
	}
	if (r) {
		object_free(object);
		return r;
	}
	*objectp = object;
	return 0;
}

int attach_register(struct attach *attach, struct compiled *compiled, struct object **objectp) {
	struct attachment *attachments[JOB_COMPILE_PROGRAMS_MAX + LINKED_PROGRAMS_MAX] = {};
	size_t n = 0, n_gpu = attach->choices.n, n_all = n_gpu + attach->choices.n_hosts;
	struct object *object = NULL;
	int r;

	if (registry_room(attach->context->image->registry, attach->owner, n_all))
		return ATTACH_REGISTER_E_LIMIT;
	if (registry_owned(attach->context->image->registry, attach->owner) + n_all >
	    attach->context->image->config->quota_attachments)
		return ATTACH_REGISTER_E_QUOTA;
	r = attach_object(attach, compiled, &object);
	if (r > 0)
		r = r == MAP_E_QUOTA ? ATTACH_REGISTER_E_MAP_QUOTA : ATTACH_REGISTER_E_MAP;
	while (r == 0 && n < n_all) {
		r = n < n_gpu ? attach_make(attach, object, n, &compiled->programs[n],
					    &attachments[n])
			      : attach_make_host(attach, object, attach->choices.hosts[n - n_gpu],
						 &attachments[n]);
		if (r == 0)
			n++;
	}
	if (r == 0 && attach->host) {
		r = host_attach(attach->host, attach->host_targets, &attach->host_report);
		if (r > 0)
			r = ATTACH_REGISTER_E_HOST;
	}
	if (r) {
		while (n)
			attachment_free(attachments[--n]);
		object_free(object);
		return r;
	}
	object->host = attach->host;
	attach->host = NULL;
	registry_link(attach->context->image->registry, object, attachments, n);
	*objectp = object;
	return 0;
}
