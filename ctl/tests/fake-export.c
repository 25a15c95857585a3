/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The exports of maps in the fake daemon. An export is what the request says; a map called `none`
 * does not exist, and one called `ring` cannot be exported.
 */

#include <string.h>

#include "lib/varlink/varlink-json.h"
#include "lib/varlink/varlink-server.h"

#include "fake-daemon.h"

#define ERROR(name) "io.gpuprobe.control." name

static const char *text(json_object *parameters, const char *key, const char *otherwise) {
	json_object *value = NULL;

	json_object_object_get_ex(parameters, key, &value);
	return value ? json_object_get_string(value) : otherwise;
}

static bool truth(json_object *parameters, const char *key) {
	json_object *value = NULL;

	json_object_object_get_ex(parameters, key, &value);
	return json_object_get_boolean(value);
}

static json_object *export_of(json_object *parameters) {
	json_object *labels = NULL, *families = json_object_new_array();

	json_object_object_get_ex(parameters, "labels", &labels);
	json_object_array_add(families, json_object_new_string("a"));
	json_object_array_add(families, json_object_new_string("b"));
	return varlink_json_pack("map", json_object_new_int(1), "map_name",
				 json_object_new_string(text(parameters, "map", "m")), "object",
				 json_object_new_int(1), "owner", json_object_new_int(0), "name",
				 json_object_new_string(text(parameters, "name", "-")), "kind",
				 json_object_new_string(text(parameters, "kind", "auto")), "help",
				 json_object_new_string(text(parameters, "help", "")), "unit",
				 json_object_new_string(text(parameters, "unit", "")), "labels",
				 labels ? json_object_get(labels) : json_object_new_object(),
				 "per_sm", json_object_new_boolean(truth(parameters, "per_sm")),
				 "merge", json_object_new_string(text(parameters, "merge", "sum")),
				 "nonzero", json_object_new_boolean(truth(parameters, "nonzero")),
				 "bucket", json_object_new_string(text(parameters, "bucket", "")),
				 "families", families, NULL);
}

int fake_export_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *map = text(parameters, "map", "");

	if (!strcmp(map, "none"))
		return varlink_call_error(call, ERROR("NotFound"),
					  varlink_json_pack("what", json_object_new_string(map),
							    NULL));
	if (!strcmp(map, "ring"))
		return varlink_call_error(
			call, ERROR("InvalidArgument"),
			varlink_json_pack("parameter", json_object_new_string("map"), "reason",
					  json_object_new_string("it is a ring"), NULL));
	if (!strncmp(map, "wrong-", strlen("wrong-")))
		return varlink_call_error(
			call, ERROR("InvalidArgument"),
			varlink_json_pack("parameter",
					  json_object_new_string(map + strlen("wrong-")), "reason",
					  json_object_new_string("no"), NULL));
	return varlink_call_reply(call, varlink_json_pack("export", export_of(parameters), NULL));
}

int fake_unexport_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	if (!strcmp(text(parameters, "map", ""), "none"))
		return varlink_call_error(call, ERROR("NotFound"),
					  varlink_json_pack("what", json_object_new_string("none"),
							    NULL));
	if (!strcmp(text(parameters, "map", ""), "quiet"))
		return varlink_call_error(
			call, ERROR("NotFound"),
			varlink_json_pack("what", json_object_new_string("an export of map quiet"),
					  NULL));
	return varlink_call_reply(call, NULL);
}

int fake_list_exports(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *exports = json_object_new_array();

	json_object_array_add(exports, export_of(parameters));
	return varlink_call_reply(call, varlink_json_pack("exports", exports, NULL));
}

int fake_metrics(struct varlink_call *call, json_object *parameters, void *userdata) {
	return varlink_call_reply(
		call, varlink_json_pack("text",
					json_object_new_string(truth(parameters, "prometheus")
								       ? "a 1\n"
								       : "a 1\n# EOF\n"),
					NULL));
}
