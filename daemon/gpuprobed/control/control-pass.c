/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method ListPasses: the definitions of passes that the daemon uses. Any caller may see them.
 */

#include "control.h"
#include "lib/json.h"

static json_object *control_strings(const struct pass_strings *strings) {
	json_object *array = json_object_new_array();

	for (size_t i = 0; i < strings->n; i++)
		json_append_string(array, strings->strings[i]);
	return array;
}

static json_object *control_pass_json(const struct pass_definition *definition) {
	json_object *json = json_object_new_object();

	json_add_text(json, "name", definition->name);
	json_add_text(json, "description", definition->description);
	json_add_text(json, "file", definition->file);
	json_add_text(json, "executable", definition->executable ?: "");
	json_add_int(json, "order", definition->order);
	json_add(json, "include", control_strings(&definition->include));
	json_add(json, "exclude", control_strings(&definition->exclude));
	return json;
}

int control_list_passes(struct varlink_call *call, json_object *parameters, void *userdata) {
	const struct control_context *context = userdata;
	json_object *json = json_object_new_object(), *passes = json_object_new_array(),
		    *folders = json_object_new_array();

	for (size_t i = 0; i < context->image->passes.n; i++)
		json_append(passes, control_pass_json(context->image->passes.definitions[i]));
	for (size_t i = 0; i < context->n_pass_folders; i++)
		json_append_string(folders, context->pass_folders[i]);
	json_add(json, "passes", passes);
	json_add(json, "folders", folders);
	return varlink_call_reply(call, json);
}
