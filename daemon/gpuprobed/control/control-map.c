/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the methods about maps share: writing the type Map of the interface, and finding the map
 * that a caller means.
 */

#include "control.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "lib/json.h"

json_object *control_map_json(const struct map *map, const struct object *object) {
	const struct map_layout *layout = &map->spec.layout;
	json_object *json = json_object_new_object();
	char buffer[16];

	json_add_int(json, "id", map->id);
	json_add_int(json, "object", object->id);
	json_add_text(json, "name", map->name);
	json_add_text(json, "type", map_type_name(map->spec.type, buffer));
	json_add_int(json, "key_size", map->spec.key_size);
	json_add_int(json, "value_size", map->spec.value_size);
	json_add_int(json, "max_entries", map->spec.max_entries);
	json_add_text(json, "kind", map_kind_name(layout->kind));
	json_add_text(json, "place", map_place_name(layout->place));
	json_add_int(json, "shards", layout->shards);
	json_add_text(json, "merge", map_merge_name(layout->merge));
	if (layout->kind == MAP_KIND_THREADS)
		json_add_int(json, "threads", layout->threads);
	if (layout->kind == MAP_KIND_RING) {
		json_add_uint(json, "written", map_written(map));
		json_add_uint(json, "lost", map_lost(map));
	} else if (map->lost) {
		json_add_int(json, "lost", map->lost);
	}
	json_add_int(json, "instances", map->n_instances);
	json_add_bool(json, "carried", map_was_carried(map));
	json_add_int(json, "bytes", map_bytes(map));
	return json;
}

void control_add_base64(json_object *json, const char *key, const void *data, size_t n) {
	char *text = malloc(base64_encoded_size(n));

	if (!text)
		return;
	base64_encode(text, data, n);
	json_add_text(json, key, text);
	free(text);
}

struct map *control_find_map(const struct control_context *context, struct varlink_call *call,
			     const char *name, int *rp) {
	struct map *found = NULL, *map;
	json_object *ids = json_object_new_array();
	struct registry_place place = {};
	size_t n = 0;
	char *end;
	unsigned long long id = strtoull(name, &end, 10);
	bool by_id = name[0] >= '0' && name[0] <= '9' && !*end;

	while ((map = registry_next_map(context->image->registry, &place))) {
		if (!control_may_see(call, map->owner) ||
		    (by_id ? map->id != id : strcmp(map->name, name) != 0))
			continue;
		found = map;
		n++;
		json_append_int(ids, map->id);
	}
	if (n > 1) {
		json_object *json = json_object_new_object();

		json_add_text(json, "what", name);
		json_add(json, "ids", ids);
		*rp = varlink_call_error(call, CONTROL_INTERFACE "Ambiguous", json);
		return NULL;
	}
	json_object_put(ids);
	if (!found)
		*rp = control_error_not_found(call, "%s", name);
	return found;
}
