/* SPDX-License-Identifier: Apache-2.0 */

/* The type Map of the interface. */

#include "control.h"
#include "registry.h"

/* Counts of records may be anything a process says: they stay within what JSON's readers take. */
static int64_t records(uint64_t n) {
	return n < INT64_MAX ? (int64_t)n : INT64_MAX;
}

json_object *control_map_json(const struct map *map, const struct object *object) {
	const struct map_layout *layout = &map->spec.layout;
	json_object *json = json_object_new_object();
	char buffer[16];

	control_add_int(json, "id", (int64_t)map->id);
	control_add_int(json, "object", (int64_t)object->id);
	control_add_string(json, "name", map->name);
	control_add_string(json, "type", map_type_name(map->spec.type, buffer));
	control_add_int(json, "key_size", map->spec.key_size);
	control_add_int(json, "value_size", map->spec.value_size);
	control_add_int(json, "max_entries", map->spec.max_entries);
	control_add_string(json, "kind", map_kind_name(layout->kind));
	control_add_string(json, "place", map_place_name(layout->place));
	control_add_int(json, "shards", layout->shards);
	control_add_string(json, "merge", map_merge_name(layout->merge));
	if (layout->kind == MAP_KIND_THREADS)
		control_add_int(json, "threads", layout->threads);
	if (layout->kind == MAP_KIND_RING) {
		control_add_int(json, "written", records(map_written(map)));
		control_add_int(json, "lost", records(map_lost(map)));
	}
	control_add_int(json, "instances", map->n_instances);
	control_add_int(json, "bytes", (int64_t)map_bytes(map));
	return json;
}
