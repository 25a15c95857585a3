/* SPDX-License-Identifier: Apache-2.0 */

#include "attachment-json.h"

#include "registry.h"
#include "lib/json.h"

json_object *attachment_program_json(const struct attachment *attachment, int fd) {
	json_object *program = json_object_new_object(), *context = json_object_new_array();

	json_add_string(program, "name", attachment->symbol);
	json_add_string(program, "label", attachment->program);
	json_add_int(program, "fd", fd);
	json_add_int(program, "isa", attachment->isa);
	json_add_int(program, "target", attachment->target);
	for (size_t i = 0; i < attachment->n_context; i++)
		json_append_int(context, attachment->context[i]);
	json_add(program, "context", context);
	return program;
}

json_object *attachment_patch_json(const struct attachment *attachment, int fd) {
	json_object *program = attachment_program_json(attachment, fd);

	/* slots are loaded as PTX can from sm_70 on */
	json_add_int(program, "target", attachment->target > 70 ? attachment->target : 70);
	json_add_int(program, "maps", attachment_patch_slots(attachment));
	json_add_bool(program, "process", true);
	return program;
}

json_object *attachment_json(const struct attachment *attachment, uint32_t default_spaces) {
	const struct section *section = &attachment->section;
	uint32_t wanted =
		attachment->spaces == SECTION_SPACES_DEFAULT ? default_spaces : attachment->spaces;
	json_object *json = json_object_new_object(), *spaces;

	json_add_int(json, "id", attachment->id);
	json_add_string(json, "kernel", section->kernel);
	if (section_prefixed(section, attachment->section_text))
		json_add_bool(json, "prefixed", true);
	json_add_bool(json, "device_function", section->device_function);
	json_add_string(json, "point", section_point_name(section));
	json_add_string(json, "program", attachment->symbol);
	if (section->point == SECTION_LINE) {
		json_add_string(json, "file", section->file);
		json_add_int(json, "line", section->line);
	} else if (section->point == SECTION_BLOCK) {
		json_add_int(json, "block", section->block);
	} else if (section->point == SECTION_MEMORY && wanted != SECTION_SPACES_DEFAULT) {
		spaces = json_object_new_array();
		for (unsigned int i = 0; section_space_name(i); i++)
			if (wanted >> i & 1)
				json_append_string(spaces, section_space_name(i));
		json_add(json, "spaces", spaces);
	}
	return json;
}
