/* SPDX-License-Identifier: Apache-2.0 */

#include "attachment-json.h"

#include "registry.h"

static void add_string(json_object *object, const char *key, const char *text) {
	json_object_object_add(object, key, json_object_new_string(text));
}

static void add_int(json_object *object, const char *key, int64_t value) {
	json_object_object_add(object, key, json_object_new_int64(value));
}

json_object *attachment_program_json(const struct attachment *attachment, int fd) {
	json_object *program = json_object_new_object(), *context = json_object_new_array();

	add_string(program, "name", attachment->symbol);
	add_string(program, "label", attachment->program);
	add_int(program, "fd", fd);
	add_int(program, "isa", attachment->isa);
	add_int(program, "target", attachment->target);
	for (size_t i = 0; i < attachment->n_context; i++)
		json_object_array_add(context, json_object_new_int(attachment->context[i]));
	json_object_object_add(program, "context", context);
	return program;
}

json_object *attachment_patch_json(const struct attachment *attachment, int fd) {
	json_object *program = attachment_program_json(attachment, fd);

	/* slots are loaded as PTX can from sm_70 on */
	add_int(program, "target", attachment->target > 70 ? attachment->target : 70);
	add_int(program, "maps", (int64_t)attachment_patch_slots(attachment));
	json_object_object_add(program, "process", json_object_new_boolean(true));
	return program;
}

json_object *attachment_json(const struct attachment *attachment, uint32_t default_spaces) {
	const struct section *section = &attachment->section;
	uint32_t wanted =
		attachment->spaces == SECTION_SPACES_DEFAULT ? default_spaces : attachment->spaces;
	json_object *json = json_object_new_object(), *spaces;

	add_int(json, "id", (int64_t)attachment->id);
	add_string(json, "kernel", section->kernel);
	if (section_prefixed(section, attachment->section_text))
		json_object_object_add(json, "prefixed", json_object_new_boolean(true));
	json_object_object_add(json, "device_function",
			       json_object_new_boolean(section->device_function));
	add_string(json, "point", section_point_name(section));
	add_string(json, "program", attachment->symbol);
	if (section->point == SECTION_LINE) {
		add_string(json, "file", section->file);
		add_int(json, "line", section->line);
	} else if (section->point == SECTION_BLOCK) {
		add_int(json, "block", section->block);
	} else if (section->point == SECTION_MEMORY && wanted != SECTION_SPACES_DEFAULT) {
		spaces = json_object_new_array();
		for (unsigned int i = 0; section_space_name(i); i++)
			if (wanted >> i & 1)
				json_object_array_add(
					spaces, json_object_new_string(section_space_name(i)));
		json_object_object_add(json, "spaces", spaces);
	}
	return json;
}
