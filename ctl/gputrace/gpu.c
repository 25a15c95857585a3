/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attaches the object of a script, reads its maps, and detaches it (gpu.h). What a map holds
 * becomes elements of a store, with names in place of ids.
 */

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"
#include "ctl/session/session.h"
#include "ctl/trace/decode/demangle.h"
#include "gpu.h"
#include "lib/base64.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"
#include "operate.h"

/* ---- attaching ---- */

/* The object in base64. Returns the exit status. */
static int put_object(const struct script *script, json_object *parameters) {
	struct code *code = calloc(1, sizeof(*code));
	void *object = NULL;
	char *text = NULL;
	size_t n = 0;
	int r = CTL_OK;

	if (code && !code_make(code, script)) {
		r = ctl_fail(CTL_ERROR, "%s", code->error);
	} else if (code) {
		object = object_make(code, &n);
		text = object ? malloc(base64_encoded_size(n)) : NULL;
	}
	if (text) {
		base64_encode(text, object, n);
		json_add_string(parameters, "object", text);
	} else if (!r) {
		r = ctl_fail(CTL_ERROR, "out of memory");
	}
	if (code)
		code_deinit(code);
	free(code);
	free(object);
	free(text);
	return r;
}

/* The maps of the script, by their names in the object. */
static void note_ids(struct gpu *gpu) {
	json_object *maps = json_member(gpu->attached, "maps");
	char name[24];

	for (size_t i = 0; i < json_length_of(maps); i++) {
		json_object *map = json_object_array_get_idx(maps, i);
		const char *its = ctl_string(map, "name");

		for (size_t j = 0; j < gpu->script->n_maps; j++) {
			snprintf(name, sizeof(name), "m%zu", j);
			if (!strcmp(its, name))
				gpu->ids[j] = json_int_of(map, "id");
		}
		if (!strcmp(its, CODE_PRINT_MAP))
			gpu->print_id = json_int_of(map, "id");
		if (!strcmp(its, CODE_LOST_MAP))
			gpu->ids[SCRIPT_MAPS_MAX] = json_int_of(map, "id");
	}
}

int gpu_attach(struct gpu *gpu, pid_t pid) {
	json_object *parameters = json_object_new_object();
	int r;

	r = put_object(gpu->script, parameters);
	if (r) {
		json_object_put(parameters);
		return r;
	}
	if (pid)
		ctl_put(parameters, "filter.pid", json_object_new_int64(pid));
	gpu->seen = attached_seen(gpu->ctl);
	r = attached_new(gpu->ctl, parameters, gpu->script->name, &gpu->attached);
	if (!r)
		note_ids(gpu);
	return r;
}

void gpu_detach(struct gpu *gpu) {
	gpu_print_deinit(gpu);
	attached_free(gpu->ctl, gpu->attached);
	json_object_put(gpu->kernels);
	json_object_put(gpu->lines);
	gpu->attached = gpu->kernels = gpu->lines = NULL;
}

/* ---- names of ids ---- */

static void ask_kernels(struct gpu *gpu) {
	unsigned int failures = 0;
	struct varlink_reply reply;
	json_object *list;

	json_object_put(gpu->kernels);
	gpu->kernels = json_object_new_object();
	if (ctl_call(gpu->ctl, "ListKernels", NULL, "", CTL_TIMEOUT_MS, &reply))
		return;
	list = json_member(reply.parameters, "kernels");
	for (size_t i = 0; i < json_length_of(list); i++) {
		json_object *kernel = json_object_array_get_idx(list, i);
		char *name = demangle(ctl_string(kernel, "name"), &failures);

		json_add_text(gpu->kernels, ctl_string(kernel, "id"),
			      name ? name : ctl_string(kernel, "name"));
		free(name);
	}
	varlink_reply_deinit(&reply);
}

static const char *kernel_name(struct gpu *gpu, const char *hex) {
	if (!gpu->kernels || !json_member(gpu->kernels, hex))
		ask_kernels(gpu);
	if (!json_member(gpu->kernels, hex))
		json_add_text(gpu->kernels, hex, hex);
	return ctl_string(gpu->kernels, hex);
}

/* What an instruction moves, by the last part of its name in PTX: st.global.v2.f32. */
static void type_of(const char *text, char type[static 16]) {
	const size_t n = strcspn(text, " ;");
	const char *last = text;

	for (const char *c = text; c < text + n; c++)
		if (*c == '.')
			last = c + 1;
	snprintf(type, 16, "%.*s", (int)(text + n - last), last);
	if (!strchr("bsuf", *type) || type[strspn(type, "bsufx0123456789")] ||
	    !strpbrk(type, "0123456789"))
		strcpy(type, "?");
}

/* Asks for what is known of an instruction: its line, or its text; its kernel; its type. */
static json_object *ask_instruction(struct gpu *gpu, const char *hex) {
	json_object *known = json_object_new_object(), *instruction = NULL, *list;
	struct varlink_reply reply = {};
	char text[1024], type[16] = "?";

	snprintf(text, sizeof(text), "%s", hex);
	if (!ctl_call(gpu->ctl, "ShowKernel",
		      varlink_json_pack("instruction", json_object_new_string(hex), NULL), hex,
		      CTL_TIMEOUT_MS, &reply)) {
		list = json_member(reply.parameters, "instructions");
		instruction = json_length_of(list) ? json_object_array_get_idx(list, 0) : NULL;
	}
	if (instruction && json_member(instruction, "file"))
		snprintf(text, sizeof(text), "%s:%" PRId64, ctl_string(instruction, "file"),
			 json_int_of(instruction, "line"));
	else if (instruction)
		snprintf(text, sizeof(text), "%s", ctl_string(instruction, "text"));
	if (instruction)
		type_of(ctl_string(instruction, "text"), type);
	json_add_text(known, "line", text);
	json_add_string(known, "type", type);
	json_add_text(known, "insn", instruction ? ctl_string(instruction, "text") : hex);
	json_add_text(known, "kernel", instruction ? ctl_string(instruction, "kernel") : "?");
	varlink_reply_deinit(&reply);
	return known;
}

static const char *instruction_name(struct gpu *gpu, enum type type, const char *hex) {
	unsigned int failures = 0;
	json_object *known;
	char *name;

	if (!gpu->lines)
		gpu->lines = json_object_new_object();
	known = json_member(gpu->lines, hex);
	if (!known) {
		known = ask_instruction(gpu, hex);
		name = demangle(ctl_string(known, "kernel"), &failures);
		if (name)
			json_add_text(known, "kernel", name);
		free(name);
		json_add(gpu->lines, hex, known);
	}
	return ctl_string(known, type == TYPE_LINE        ? "line"
				 : type == TYPE_LINE_INSN ? "insn"
				 : type == TYPE_LINE_TYPE ? "type"
							  : "kernel");
}

/* ---- reading ---- */

static uint64_t value_word(const unsigned char *bytes, size_t i) {
	uint64_t word;

	memcpy(&word, bytes + 8 * i, sizeof(word));
	return le64toh(word);
}

const char *gpu_id_name(struct gpu *gpu, enum type type, uint64_t id) {
	char hex[17];

	snprintf(hex, sizeof(hex), "%016" PRIx64, id);
	return type == TYPE_KERNEL ? kernel_name(gpu, hex) : instruction_name(gpu, type, hex);
}

static void add_key(struct gpu *gpu, struct store_key *key, enum type type, uint64_t word) {
	struct value value = { .type = TYPE_NUMBER, .number = (int64_t)word };

	if (type >= TYPE_KERNEL)
		value = (struct value){ .type = TYPE_TEXT, .text = gpu_id_name(gpu, type, word) };
	store_key_add(key, value);
}

/* What one element of the GPU's map means for that of the script. */
static void take_value(struct store *store, struct store_entry *entry, const unsigned char *value,
		       uint64_t bucket) {
	const int64_t first = (int64_t)value_word(value, 0);

	if (map_sums_floats(store->map)) {
		entry->real += float_real(first);
		entry->count += store->map->kind == MAP_SUM ? 1 : (int64_t)value_word(value, 1);
		return;
	}

	switch (store->map->kind) {
	case MAP_HIST:
	case MAP_LHIST:
		if (!entry->buckets)
			entry->buckets = calloc(map_buckets(store->map), sizeof(*entry->buckets));
		if (entry->buckets && bucket < map_buckets(store->map))
			entry->buckets[bucket] += (uint64_t)first;
		entry->count += first;
		break;
	case MAP_COUNT:
		entry->count += first;
		break;
	case MAP_AVG:
	case MAP_STATS:
		entry->sum += first;
		entry->count += (int64_t)value_word(value, 1);
		break;
	case MAP_MIN:
	case MAP_MAX:
		store_take(store, entry,
			   store->map->value == TYPE_FLOAT ? float_unorder(first) : first);
		break;
	default: /* what is 0 is there, too */
		entry->sum += first;
		entry->kept = 1;
	}
}

static bool take_entry(struct gpu *gpu, struct store *store, const unsigned char *key, size_t n_key,
		       const unsigned char *value, size_t n_value) {
	const struct map *map = store->map;
	const bool array = code_map_is_array(map);
	const size_t words = map->n_keys + code_map_has_bucket(map) + code_map_has_device(map);
	struct store_key keys = {};
	struct store_entry *entry;
	uint64_t bucket = 0;
	uint32_t index = 0;

	if (array)
		memcpy(&index, key, n_key < sizeof(index) ? n_key : sizeof(index));
	if (n_value < 8 * (map->kind == MAP_AVG || map->kind == MAP_STATS ? 2u : 1u) ||
	    (!array && n_key != 8 * words))
		return false;
	if (code_map_has_bucket(map))
		bucket = array ? le32toh(index) : value_word(key, map->n_keys);
	for (size_t i = 0; i < map->n_keys; i++)
		add_key(gpu, &keys, map->gpu_keys[i], value_word(key, i));
	entry = store_add(store, &keys);
	store_key_deinit(&keys);
	if (entry)
		take_value(store, entry, value, bucket);
	return true;
}

/* One element of a reply, whose keys and values are base64. */
static bool take_json(struct gpu *gpu, struct store *store, json_object *element) {
	json_object *values = json_member(element, "values");
	unsigned char *key, *value = NULL;
	size_t n_key = 0, n_value = 0;
	bool fine;

	key = ctl_decode(json_member(element, "key"), &n_key);
	if (json_length_of(values))
		value = ctl_decode(json_object_array_get_idx(values, 0), &n_value);
	fine = key && value;
	if (fine && store)
		fine = take_entry(gpu, store, key, n_key, value, n_value);
	else if (fine && n_key == 4 && n_value == 8) { /* of what was lost */
		const uint32_t which = (uint32_t)key[0] | (uint32_t)key[1] << 8;

		if (which < SCRIPT_MAPS_MAX)
			gpu->evaluator->gpu[which].lost = value_word(value, 0);
		if (which == gpu->script->n_maps)
			gpu->unknown_starts = value_word(value, 0);
	}
	free(key);
	free(value);
	return fine;
}

/* The elements of a map. NULL: of that which counts what was lost. */
static void read_elements(struct gpu *gpu, int64_t id, const struct map *map,
			  json_object *elements) {
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	char text[24];
	bool more = true;

	snprintf(text, sizeof(text), "%" PRId64, id);
	json_add_string(parameters, "map", text);
	json_add_bool(parameters, "nonzero",
		      !map || (map->kind != MAP_SUM && map->kind != MAP_SCALAR &&
			       !code_map_has_device(map)));
	json_add_bool(parameters, "per_process", map && code_map_has_device(map));
	if (map && map->stored)
		json_add_string(parameters, "merge", "latest");
	gpu->failed |= ctl_call_more(gpu->ctl, "DumpMap", parameters) != CTL_OK;
	while (more && !gpu->failed) {
		json_object *entries;

		if (ctl_next(gpu->ctl, "DumpMap", map ? map->name : "", &reply)) {
			gpu->failed = true;
			return;
		}
		entries = json_member(reply.parameters, "entries");
		more = reply.continues;
		for (size_t i = 0; i < json_length_of(entries); i++)
			json_append(elements,
				    json_object_get(json_object_array_get_idx(entries, i)));
		varlink_reply_deinit(&reply);
	}
}

/* Names are asked on the same connection, so after the last reply has come. */
static void read_map(struct gpu *gpu, int64_t id, struct store *store) {
	json_object *elements = json_object_new_array();

	read_elements(gpu, id, store ? store->map : NULL, elements);
	for (size_t i = 0; i < json_length_of(elements); i++)
		gpu->failed |= !take_json(gpu, store, json_object_array_get_idx(elements, i));
	json_object_put(elements);
}

void gpu_refresh(void *userdata) {
	struct gpu *gpu = userdata;

	for (size_t i = 0; i < gpu->script->n_maps; i++) {
		if (!gpu->ids[i] || !gpu->script->maps[i].gpu_writes.line)
			continue;
		store_clear(&gpu->evaluator->gpu[i]);
		read_map(gpu, gpu->ids[i], &gpu->evaluator->gpu[i]);
	}
	if (gpu->ids[SCRIPT_MAPS_MAX])
		read_map(gpu, gpu->ids[SCRIPT_MAPS_MAX], NULL);
}

void gpu_share(void *userdata, size_t map, int64_t number) {
	json_object *parameters = json_object_new_object();
	const uint64_t word = htole64((uint64_t)number);
	const uint32_t index = 0;
	struct gpu *gpu = userdata;
	struct varlink_reply reply;
	char text[32];

	snprintf(text, sizeof(text), "%" PRId64, gpu->ids[map]);
	json_add_string(parameters, "map", text);
	base64_encode(text, &index, sizeof(index));
	json_add_string(parameters, "key", text);
	base64_encode(text, &word, sizeof(word));
	json_add_string(parameters, "value", text);
	if (ctl_call(gpu->ctl, "UpdateMap", parameters, gpu->script->maps[map].name, CTL_TIMEOUT_MS,
		     &reply))
		gpu->failed = true;
	else
		varlink_reply_deinit(&reply);
}
