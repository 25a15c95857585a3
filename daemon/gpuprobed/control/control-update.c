/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The methods UpdateMap, DeleteMap and ShowMap.
 *
 * UpdateMap, DeleteMap and ShowMap: writes by the host, and the types that a writer needs. Before a
 * write the processes copy their instances out, as for a dump: a map to which programs only add is
 * set by what it holds now.
 */

#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "daemon/gpuprobed/clients/client.h"
#include "lib/json.h"

#define UPDATE_SYNC_MS 200
#define UPDATE_LARGE_MAX (16 << 20) /* bytes of a map that has inputs: map-start.c */

struct update {
	struct control_work work;
	struct control_context *context;
	struct sync_request *sync;
	uint64_t map;
	uint64_t flags;
	unsigned char *key, *value; /* value NULL: to be deleted */
};

static void update_free(void *userdata) {
	struct update *update = userdata;

	if (update->sync)
		client_sync_cancel(update->sync);
	free(update->key);
	free(update->value);
	free(update);
}

/* Why there is no write while processes run, and what would help. */
static int update_running(struct varlink_call *call, const struct map *map) {
	if (map->spec.layout.kind == MAP_KIND_HASH)
		return control_error_reason(
			call, "Unavailable",
			"%u processes have the hash map %s: it can be changed while none has it; "
			"an array in host memory can at any time "
			"(type 1513, or attach --shared)",
			map->n_instances, map->name);
	return control_error_reason(
		call, "Unavailable",
		"%u processes have the map %s in the memory of a device: it can be "
		"changed while none has it, or at any time in host memory (type 1513, "
		"or attach --shared)",
		map->n_instances, map->name);
}

/* Answers with what became of a write. */
static int update_answer(struct varlink_call *call, const struct control_context *context,
			 const struct map *map, int r) {
	switch (r) {
	case 0:
		return varlink_call_reply(call, NULL);
	case MAP_E_RUNNING:
		return update_running(call, map);
	case MAP_E_AGAIN:
		return control_error_reason(call, "Unavailable",
					    "what processes that have just ended left behind is "
					    "still being added up: try again");
	case MAP_E_QUOTA:
		return control_error_limit(call, "bytes of the maps of one user (quota-map-bytes)",
					   context->image->config->quota_map_bytes);
	case MAP_E_LARGE:
		return control_error_limit(call, "bytes of a map that the host writes to",
					   UPDATE_LARGE_MAX);
	case MAP_E_FULL:
		return control_error_limit(call, "elements of the map", map->spec.max_entries);
	case MAP_E_EXISTS:
		return control_error_argument(call, "flags",
					      "noexist, and the map has such an element");
	case MAP_E_NO_KEY:
		return control_error_not_found(call, "an element with that key");
	case MAP_E_RING:
		return control_error_argument(call, "map", "it is a ring, which the host reads");
	case MAP_E_ARRAY:
		return control_error_argument(
			call, "map", "elements of arrays cannot be deleted: set them to zeros");
	default:
		return control_error_reason(call, "Internal", "%s", strerror(r < 0 ? -r : EIO));
	}
}

static void update_run(void *userdata) {
	struct update *update = userdata;
	struct registry *registry = update->context->image->registry;
	struct map *map = registry_map(registry, update->map, NULL);
	struct varlink_call *call = update->work.call;
	int r;

	update->sync = NULL;
	if (!map)
		r = control_error_not_found(call, "the map: it was detached meanwhile");
	else if (update->value)
		r = update_answer(call, update->context, map,
				  map_update(map, update->key, update->value, update->flags,
					     ++registry->last_instance));
	else
		r = update_answer(call, update->context, map, map_delete(map, update->key));
	if (r)
		control_error_reason(call, "Internal", "the answer could not be sent");
	control_work_end(&update->work, 0);
}

/* Bytes of exactly this size from base64. A line if they are not. */
static const char *update_bytes(json_object *parameters, const char *key, size_t size,
				unsigned char **bytesp, char text[static 96]) {
	json_object *member = json_member(parameters, key);
	size_t n = 0;

	if (base64_decode(json_object_get_string(member),
			  (size_t)json_object_get_string_len(member), bytesp, &n))
		return "not base64";
	if (n == size)
		return NULL;
	snprintf(text, 96, "it has %zu bytes, %ss of the map have %zu", n, key, size);
	return text;
}

/* Reads what is to be written. A line about *parameterp if that cannot be. */
static const char *update_read(struct update *update, const struct map *map,
			       json_object *parameters, bool deletes, const char **parameterp,
			       char text[static 96]) {
	static const char *const names[] = { "any", "noexist", "exist" };
	const char *flags = json_string_of(parameters, "flags"), *why;

	*parameterp = "map";
	if (map->spec.layout.kind == MAP_KIND_RING)
		return "it is a ring, which the host reads";
	if (strncmp(map->name, ".rodata", strlen(".rodata")) == 0)
		return "programs are compiled for what is in it: it does not change";
	*parameterp = "flags";
	for (; flags && update->flags < 3 && strcmp(flags, names[update->flags]) != 0;)
		update->flags++;
	if (update->flags == 3)
		return "expected any, noexist or exist";
	*parameterp = "key";
	why = update_bytes(parameters, "key", map->spec.key_size, &update->key, text);
	if (why || deletes)
		return why;
	*parameterp = "value";
	return update_bytes(parameters, "value", map->spec.value_size, &update->value, text);
}

static int update_start(struct varlink_call *call, json_object *parameters,
			struct control_context *context, bool deletes) {
	const char *why, *parameter = NULL;
	struct update *update;
	struct map *map;
	char text[96];
	int r = 0;

	map = control_find_map(context, call, json_string_of(parameters, "map"), &r);
	if (!map)
		return r;
	update = calloc(1, sizeof(*update));
	if (!update)
		return -ENOMEM;
	update->context = context;
	control_work_begin(&update->work, call, update_free);
	update->map = map->id;
	why = update_read(update, map, parameters, deletes, &parameter, text);
	if (why)
		return control_work_end(&update->work,
					control_error_argument(call, parameter, why));
	update->sync = client_sync(context->client, map, UPDATE_SYNC_MS, update_run, update, &r);
	if (r < 0)
		return control_work_end(&update->work, r);
	if (!update->sync)
		update_run(update);
	return 0;
}

int control_update_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	return update_start(call, parameters, userdata, false);
}

int control_delete_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	return update_start(call, parameters, userdata, true);
}

int control_show_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct object *object = NULL;
	json_object *json;
	struct map *map;
	int r = 0;

	map = control_find_map(context, call, json_string_of(parameters, "map"), &r);
	if (!map)
		return r;
	registry_map(context->image->registry, map->id, &object);
	json = json_object_new_object();
	json_add(json, "map", control_map_json(map, object));
	if (object->btf)
		control_add_base64(json, "btf", object->btf, object->n_btf);
	json_add_int(json, "btf_key_type", map->spec.btf_key_type);
	json_add_int(json, "btf_value_type", map->spec.btf_value_type);
	return varlink_call_reply(call, json);
}
