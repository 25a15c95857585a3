/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method DumpMap.
 *
 * DumpMap: ask the processes to copy their instances out now, wait a moment for them, then stream
 * the entries. A stream keeps only the map's id and a cursor: the map may grow, shrink or go away
 * between two replies. With `more` it is a stream, which waits for a slow reader. Without,
 * everything is gathered for one reply, as text, in parts as well, and refused when it gets too
 * large; of a user one at a time.
 */

#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "daemon/gpuprobed/clients/client.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"

#define DUMP_SYNC_MS 200
#define DUMP_NS \
	1000000 /* of one turn: an element takes the longer the more processes have the map */
#define DUMP_CHUNK_BYTES (64 * 1024) /* of one reply; also of one turn */
#define DUMP_REPLY_MAX (12 * 1024 * 1024) /* of text, so that the message stays below 16 MiB */

#define DUMP_TOO_LARGE \
	"bytes of hash maps that are read at one time: ask when no other is, or per process"

struct dump {
	struct control_work work;
	struct control_context *context;
	struct sync_request *sync;
	struct map_cursor cursor;
	uint64_t map;
	bool more;
	bool started; /* the first reply, with the BTF, is out */
	struct varlink_json_list entries; /* gathered, not sent yet */
	size_t n_bytes; /* of text in entries, about */
};

static void dump_free(void *userdata) {
	struct dump *dump = userdata;

	if (dump->sync)
		client_sync_cancel(dump->sync);
	map_cursor_deinit(&dump->cursor);
	varlink_json_list_deinit(&dump->entries);
	free(dump);
}

/* Bytes as a string, which is ready: json-c would look for what it has to escape, for long. NULL
 * without memory. */
static json_object *dump_bytes(const void *data, size_t size, size_t *n_bytes) {
	char *text = malloc(base64_encoded_size(size) + 2);
	json_object *json = text ? json_object_new_string("") : NULL;

	if (!json) {
		free(text);
		return NULL;
	}
	text[0] = '"';
	base64_encode(text + 1, data, size);
	strcpy(text + base64_encoded_size(size), "\"");
	json_object_set_serializer(json, json_object_userdata_to_json_string, text,
				   json_object_free_userdata);
	*n_bytes += base64_encoded_size(size) + 3;
	return json;
}

/* One element as the type Entry. NULL without memory. */
static json_object *dump_entry(const struct map *map, const struct map_entry *entry,
			       bool per_process, size_t *n_bytes) {
	json_object *json = json_object_new_object(), *values = json_object_new_array();
	json_object *key = dump_bytes(entry->key, map->spec.key_size, n_bytes), *value = key;
	size_t size = map->spec.value_size;

	for (uint32_t i = 0; value && i < entry->n_values; i++) {
		value = dump_bytes(entry->values + i * size, size, n_bytes);
		json_append(values, value);
	}
	json_add(json, "key", key);
	json_add(json, "values", values);
	if (per_process && entry->pid)
		json_add_int(json, "pid", entry->pid);
	if (map->spec.layout.kind == MAP_KIND_THREADS)
		json_add_int(json, "thread", entry->thread);
	*n_bytes += 64;
	if (value)
		return json;
	json_object_put(json);
	return NULL;
}

/* The parameters of a reply with the entries gathered so far. */
static json_object *dump_reply(struct dump *dump, const struct map *map,
			       const struct object *object) {
	json_object *json = json_object_new_object();

	json_add(json, "map", control_map_json(map, object));
	json_add(json, "entries", varlink_json_list_steal(&dump->entries));
	dump->n_bytes = 0;
	if (!dump->started && object->btf)
		control_add_base64(json, "btf", object->btf, object->n_btf);
	json_add_int(json, "btf_key_type", map->spec.btf_key_type);
	json_add_int(json, "btf_value_type", map->spec.btf_value_type);
	dump->started = true;
	return json;
}

/* A part: gathers entries, sends a reply when there are enough. */
static int dump_produce(struct varlink_call *call, void *userdata) {
	struct dump *dump = userdata;
	struct object *object = NULL;
	struct map *map = registry_map(dump->context->image->registry, dump->map, &object);
	const uint64_t end = uv_hrtime() + DUMP_NS;
	size_t start = dump->n_bytes;
	struct map_entry entry;
	int r;

	if (!map)
		return control_work_end(
			&dump->work,
			control_error_not_found(call, "the map: it was detached meanwhile"));
	do {
		r = map_next(map, &dump->cursor, &entry);
		if (r)
			break;
		if (base64_encoded_size((size_t)entry.n_values * map->spec.value_size) >
		    DUMP_REPLY_MAX)
			return control_work_end(&dump->work,
						control_error_limit(call,
								    "bytes of text of one element",
								    DUMP_REPLY_MAX));
		r = varlink_json_list_add(&dump->entries,
					  dump_entry(map, &entry, dump->cursor.order.per_process,
						     &dump->n_bytes));
		if (r < 0)
			break;
	} while (dump->n_bytes - start < DUMP_CHUNK_BYTES && uv_hrtime() < end);
	if (r < 0)
		return control_work_end(&dump->work,
					control_error_reason(call, "Internal", "%s", strerror(-r)));
	if (r == MAP_E_QUOTA)
		return control_work_end(
			&dump->work,
			control_error_limit(call, DUMP_TOO_LARGE,
					    MAP_SNAPSHOT_BYTES_MAX /
						    (dump->cursor.order.reader ? 2 : 1)));
	if (r == MAP_E_END)
		return control_work_end(&dump->work,
					varlink_call_reply(call, dump_reply(dump, map, object)));
	if (!dump->more && dump->n_bytes > DUMP_REPLY_MAX)
		return control_work_end(
			&dump->work,
			control_error_limit(
				call,
				"bytes of one reply: ask with `more`, or for nonzero elements only",
				DUMP_REPLY_MAX));
	if (dump->more && dump->n_bytes >= DUMP_CHUNK_BYTES) {
		r = varlink_call_continue(call, dump_reply(dump, map, object));
		if (r < 0 || r == VARLINK_E_INVALID)
			return control_work_end(&dump->work, r);
	}
	return VARLINK_PRODUCE_AGAIN;
}

static void dump_start(void *userdata) {
	struct dump *dump = userdata;

	dump->sync = NULL;
	control_work_run(&dump->work, dump->more ? varlink_call_work : varlink_call_gather,
			 dump_produce);
}

/* What the caller asks for. False: *rp is the answer. */
static bool dump_order(struct varlink_call *call, json_object *parameters, const struct map *map,
		       struct map_order *order, int *rp) {
	const char *merge = json_string_of(parameters, "merge");

	*order = (struct map_order){
		.per_process = json_bool_of(parameters, "per_process"),
		.nonzero = json_bool_of(parameters, "nonzero"),
		.latest = merge && !strcmp(merge, "latest"),
		.reader = varlink_call_peer(call)->uid,
	};
	if (map->spec.layout.kind == MAP_KIND_RING)
		*rp = control_error_argument(
			call, "map", "it is a ring: gpuprobectl ring read takes its records");
	else if (merge && !order->latest && strcmp(merge, "sum") != 0)
		*rp = control_error_argument(call, "merge", "it is sum or latest");
	else
		return true;
	return false;
}

int control_dump_map(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct map_order order;
	struct dump *dump;
	struct map *map;
	int r = 0;

	map = control_find_map(context, call, json_string_of(parameters, "map"), &r);
	if (!map || !dump_order(call, parameters, map, &order, &r))
		return r;
	dump = calloc(1, sizeof(*dump));
	if (!dump)
		return -ENOMEM;
	dump->context = context;
	dump->map = map->id;
	dump->more = varlink_call_more(call);
	map_cursor_init(&dump->cursor, &order);
	control_work_begin(&dump->work, call, dump_free);
	dump->sync = client_sync(context->client, map, DUMP_SYNC_MS, dump_start, dump, &r);
	if (r < 0)
		return control_work_end(&dump->work, r);
	if (!dump->sync)
		dump_start(dump);
	return 0;
}
