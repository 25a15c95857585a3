/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Exports of maps in JSON, as the interface's type Export: for callers, and in the state file for
 * the next daemon.
 */

#include "map-export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/gpuprobed/registry/registry.h"
#include "lib/json.h"

json_object *map_export_json(const struct map_export *export) {
	json_object *json = json_object_new_object(), *labels = json_object_new_object(),
		    *families = json_object_new_array();

	json_add_int(json, "map", export->map);
	json_add_string(json, "map_name", export->map_name);
	json_add_int(json, "object", export->object);
	json_add_int(json, "owner", export->owner);
	json_add_string(json, "name", export->name);
	json_add_string(json, "kind", map_export_kind_name(export->kind));
	json_add_string(json, "help", export->help);
	json_add_string(json, "unit", export->unit);
	for (size_t i = 0; i < export->n_labels; i++)
		json_add_string(labels, export->labels[i].name, export->labels[i].value);
	json_add(json, "labels", labels);
	json_add_bool(json, "per_sm", export->per_sm);
	json_add_string(json, "merge", export->latest ? "latest" : "sum");
	json_add_bool(json, "nonzero", export->nonzero);
	if (export->bucket)
		json_add_string(json, "bucket", export->bucket->name);
	for (size_t i = 0; i < export->n_families; i++)
		json_append_string(families, export->families[i].name);
	json_add(json, "families", families);
	return json;
}

static int refuse(struct map_export_refusal *refusal, const char *parameter, const char *reason) {
	refusal->parameter = parameter;
	snprintf(refusal->reason, sizeof(refusal->reason), "%s", reason);
	return MAP_EXPORT_E_INVALID;
}

static int read_labels(json_object *json, struct map_export_options *options,
		       struct map_export_refusal *refusal) {
	char reason[128];

	if (!json)
		return 0;
	json_object_object_foreach(json, name, value) {
		struct map_export_label *label = &options->labels[options->n_labels];
		const char *text = json_object_is_type(value, json_type_string)
					   ? json_object_get_string(value)
					   : "";

		if (options->n_labels == MAP_EXPORT_LABELS_MAX) {
			snprintf(reason, sizeof(reason), "more than %d of them",
				 MAP_EXPORT_LABELS_MAX);
			return refuse(refusal, "labels", reason);
		}
		if (strlen(name) >= sizeof(label->name) || strlen(text) >= sizeof(label->value)) {
			snprintf(reason, sizeof(reason),
				 "%.40s: a name has at most %zu bytes, a value %zu", name,
				 sizeof(label->name) - 1, sizeof(label->value) - 1);
			return refuse(refusal, "labels", reason);
		}
		strcpy(label->name, name);
		strcpy(label->value, text);
		options->n_labels++;
	}
	return 0;
}

int map_export_options_from_json(struct map_export_options *options, json_object *json,
				 struct map_export_refusal *refusal) {
	const char *kind = json_string_of(json, "kind"), *merge = json_string_of(json, "merge");

	*options = (struct map_export_options){
		.name = json_string_of(json, "name"),
		.help = json_string_of(json, "help"),
		.unit = json_string_of(json, "unit"),
		.bucket = json_string_of(json, "bucket"),
		.per_sm = json_object_get_boolean(json_get(json, "per_sm", json_type_boolean)),
		.nonzero = json_object_get_boolean(json_get(json, "nonzero", json_type_boolean)),
		.latest = merge && !strcmp(merge, "latest"),
	};
	if (kind && !map_export_kind_from_name(kind, &options->kind))
		return refuse(refusal, "kind", "expected auto, counter, gauge or histogram");
	if (merge && !options->latest && strcmp(merge, "sum") != 0)
		return refuse(refusal, "merge", "it is sum or latest");
	return read_labels(json_get(json, "labels", json_type_object), options, refusal);
}

json_object *map_exports_json(const struct map_exports *exports) {
	json_object *json = json_object_new_array();
	const struct map_export *export;

	TAILQ_FOREACH(export, &exports->list, link)
		json_append(json, map_export_json(export));
	return json;
}

unsigned int map_exports_restore(struct map_exports *exports, const struct registry *registry,
				 json_object *json) {
	unsigned int n_failed = 0;

	for (size_t i = 0;
	     json_object_is_type(json, json_type_array) && i < json_object_array_length(json);
	     i++) {
		json_object *one = json_object_array_get_idx(json, i),
			    *id = json_get(one, "map", json_type_int);
		struct map_export_refusal refusal;
		struct map_export_options options;
		const struct map_export *export;
		struct object *object;
		struct map *map =
			id ? registry_map(registry, (uint64_t)json_object_get_int64(id), &object)
			   : NULL;

		if (!map)
			continue; /* it was detached with the daemon's last breath */
		if (map_export_options_from_json(&options, one, &refusal) ||
		    map_exports_add(exports, map, object, &options, &export, &refusal))
			n_failed++;
	}
	return n_failed;
}
