/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes and reads the metadata of a linked object (linked.h) as JSON.
 *
 * The metadata of a linked object as JSON, both ways. The writer is a worker that has seen a
 * stranger's ELF file, so the reader takes each number with its range and each name with its
 * alphabet, and a table only if it lies inside the blob. json-c's getters convert between types and
 * saturate, so types are checked first.
 */

#include "linked.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_SIZE 192

static const char *const internal_names[] = {
	[LINKED_MAP_DECLARED] = NULL, [LINKED_MAP_RODATA] = "rodata", [LINKED_MAP_DATA] = "data",
	[LINKED_MAP_BSS] = "bss",     [LINKED_MAP_LOG] = "log",
};

#define N_INTERNAL_NAMES (sizeof(internal_names) / sizeof(internal_names[0]))

/* Says that a member is wrong; returns LINKED_E_INVALID. */
static int wrong(char *error, const char *what, const char *key) {
	snprintf(error, ERROR_SIZE, "linked object: %s \"%s\"", what, key);
	return LINKED_E_INVALID;
}

/* An integer member within [min, max]. */
static int get_int(struct json_object *object, const char *key, int64_t min, int64_t max,
		   int64_t *value, char *error) {
	struct json_object *member;
	int64_t v;

	if (!json_object_object_get_ex(object, key, &member) ||
	    !json_object_is_type(member, json_type_int))
		return wrong(error, "no integer", key);
	v = json_object_get_int64(member);
	if (v < min || v > max)
		return wrong(error, "out of range:", key);
	*value = v;
	return 0;
}

static int get_u32(struct json_object *object, const char *key, uint32_t *value, char *error) {
	int64_t v;
	int r;

	r = get_int(object, key, 0, UINT32_MAX, &v, error);
	if (r)
		return r;
	*value = (uint32_t)v;
	return 0;
}

/* A string member of printable ASCII that fits into `size` bytes with its NUL. */
static int get_name(struct json_object *object, const char *key, char *text, size_t size,
		    char *error) {
	struct json_object *member;
	const char *s;
	size_t n;

	if (!json_object_object_get_ex(object, key, &member) ||
	    !json_object_is_type(member, json_type_string))
		return wrong(error, "no string", key);
	s = json_object_get_string(member);
	n = (size_t)json_object_get_string_len(member);
	if (n >= size)
		return wrong(error, "too long:", key);
	for (size_t i = 0; i < n; i++)
		if (s[i] < 0x20 || s[i] > 0x7e)
			return wrong(error, "strange character in", key);
	memcpy(text, s, n);
	text[n] = '\0';
	return 0;
}

/*
 * A table: an object with "offset" and a count under `count_key`. record_size 0: the member
 * "record_size" says. The member may be absent or null: an empty table.
 */
static int get_table(struct json_object *object, const char *key, const char *count_key,
		     uint32_t record_size, int64_t count_max, uint64_t blob_size,
		     struct linked_table *table, char *error) {
	struct json_object *member;
	int64_t offset, count, record = record_size;
	int r;

	*table = (struct linked_table){ .record_size = record_size };
	if (!json_object_object_get_ex(object, key, &member) || !member)
		return 0;
	if (!json_object_is_type(member, json_type_object))
		return wrong(error, "no object", key);
	r = get_int(member, "offset", 0, (int64_t)blob_size, &offset, error);
	if (!r)
		r = get_int(member, count_key, 0, count_max, &count, error);
	if (!r && !record_size)
		r = get_int(member, "record_size", count ? 8 : 0, LINKED_RECORD_MAX, &record,
			    error);
	if (r)
		return r;
	if (offset % 8 || (uint64_t)count * (uint64_t)record > blob_size - (uint64_t)offset)
		return wrong(error, "outside of the data:", key);
	*table = (struct linked_table){
		.offset = (uint64_t)offset,
		.count = (uint32_t)count,
		.record_size = (uint32_t)record,
	};
	return 0;
}

static int get_internal(struct json_object *object, enum linked_internal *internal, char *error) {
	struct json_object *member;

	*internal = LINKED_MAP_DECLARED;
	if (!json_object_object_get_ex(object, "internal", &member) || !member)
		return 0;
	if (json_object_is_type(member, json_type_string))
		for (size_t i = 1; i < N_INTERNAL_NAMES; i++)
			if (!strcmp(json_object_get_string(member), internal_names[i])) {
				*internal = (enum linked_internal)i;
				return 0;
			}
	return wrong(error, "unknown value of", "internal");
}

int linked_map_from_json(struct linked_map *map, struct json_object *object, uint64_t blob_size,
			 char error[static ERROR_SIZE]) {
	struct linked_map m = {};
	int r;

	if (!json_object_is_type(object, json_type_object))
		return wrong(error, "no object in", "maps");
	if ((r = get_name(object, "name", m.name, sizeof(m.name), error)) ||
	    (r = get_u32(object, "type", &m.type, error)) ||
	    (r = get_u32(object, "key_size", &m.key_size, error)) ||
	    (r = get_u32(object, "value_size", &m.value_size, error)) ||
	    (r = get_u32(object, "max_entries", &m.max_entries, error)) ||
	    (r = get_u32(object, "flags", &m.flags, error)) ||
	    (r = get_u32(object, "btf_key_type", &m.btf_key_type, error)) ||
	    (r = get_u32(object, "btf_value_type", &m.btf_value_type, error)) ||
	    (r = get_internal(object, &m.internal, error)) ||
	    (r = get_table(object, "initial", "size", 1, LINKED_BLOB_MAX, blob_size, &m.initial,
			   error)) ||
	    (r = get_table(object, "lanes", "count", sizeof(struct linked_lane), LINKED_LANES_MAX,
			   blob_size, &m.lanes, error)))
		return r;
	m.has_lanes = json_object_object_get(object, "lanes");
	if (m.initial.count && m.initial.count != m.value_size)
		return wrong(error, "not of the value's size:", "initial");
	*map = m;
	return 0;
}

int linked_insns_from_json(struct linked_table *insns, struct json_object *object,
			   uint64_t blob_size, char error[static ERROR_SIZE]) {
	return get_table(object, "insns", "count", sizeof(struct bpf_insn), LINKED_INSNS_MAX,
			 blob_size, insns, error);
}

int linked_lines_from_json(struct linked_table *lines, struct json_object *object,
			   uint64_t blob_size, char error[static ERROR_SIZE]) {
	return get_table(object, "line_info", "count", 0, LINKED_INSNS_MAX, blob_size, lines,
			 error);
}

int linked_btf_from_json(struct linked_table *btf, struct json_object *object, uint64_t blob_size,
			 char error[static ERROR_SIZE]) {
	return get_table(object, "btf", "size", 1, LINKED_BLOB_MAX, blob_size, btf, error);
}

int linked_program_from_json(struct linked_program *program, struct json_object *object,
			     uint64_t blob_size, char error[static ERROR_SIZE]) {
	struct linked_program p = {};
	struct json_object *gpu;
	int r;

	if (!json_object_is_type(object, json_type_object))
		return wrong(error, "no object in", "programs");
	if ((r = get_name(object, "name", p.name, sizeof(p.name), error)) ||
	    (r = get_name(object, "section", p.section, sizeof(p.section), error)) ||
	    (r = get_name(object, "context", p.context, sizeof(p.context), error)) ||
	    (r = linked_insns_from_json(&p.insns, object, blob_size, error)) ||
	    (r = get_table(object, "func_info", "count", 0, LINKED_INSNS_MAX, blob_size,
			   &p.func_info, error)) ||
	    (r = linked_lines_from_json(&p.line_info, object, blob_size, error)) ||
	    (r = get_u32(object, "relocated_subprograms", &p.n_subprograms, error)))
		return r;
	if (!json_object_object_get_ex(object, "gpu", &gpu) ||
	    !json_object_is_type(gpu, json_type_boolean))
		return wrong(error, "no boolean", "gpu");
	p.gpu = json_object_get_boolean(gpu);
	*program = p;
	return 0;
}

/* An array member of at most `max` elements. */
static int get_array(struct json_object *object, const char *key, size_t max,
		     struct json_object **array, char *error) {
	if (!json_object_object_get_ex(object, key, array) ||
	    !json_object_is_type(*array, json_type_array))
		return wrong(error, "no array", key);
	if (json_object_array_length(*array) > max)
		return wrong(error, "too many", key);
	return 0;
}

int linked_from_json(struct linked **linkedp, struct json_object *reply,
		     char error[static ERROR_SIZE]) {
	struct json_object *maps, *programs;
	struct linked *linked;
	int64_t size;
	int r;

	linked = calloc(1, sizeof(*linked));
	if (!linked)
		return -ENOMEM;
	if ((r = get_int(reply, "size", 0, LINKED_BLOB_MAX, &size, error)) ||
	    (r = get_name(reply, "license", linked->license, sizeof(linked->license), error)) ||
	    (r = get_array(reply, "maps", LINKED_MAPS_MAX, &maps, error)) ||
	    (r = get_array(reply, "programs", LINKED_PROGRAMS_MAX, &programs, error)) ||
	    (r = linked_btf_from_json(&linked->btf, reply, (uint64_t)size, error)))
		goto out;
	linked->size = (uint64_t)size;
	if (linked->btf.count) {
		struct json_object *btf;

		json_object_object_get_ex(reply, "btf", &btf);
		r = get_u32(btf, "helper_stub_type", &linked->helper_stub_type, error);
		if (r)
			goto out;
	}
	linked->n_maps = json_object_array_length(maps);
	for (size_t i = 0; i < linked->n_maps; i++)
		if ((r = linked_map_from_json(&linked->maps[i], json_object_array_get_idx(maps, i),
					      linked->size, error)))
			goto out;
	linked->n_programs = json_object_array_length(programs);
	for (size_t i = 0; i < linked->n_programs; i++)
		if ((r = linked_program_from_json(&linked->programs[i],
						  json_object_array_get_idx(programs, i),
						  linked->size, error)))
			goto out;
	*linkedp = linked;
	return 0;
out:
	free(linked);
	return r;
}

/* Puts `value` (consumed; NULL means out of memory) into object. */
static int add(struct json_object *object, const char *key, struct json_object *value) {
	if (!value)
		return -ENOMEM;
	if (json_object_object_add(object, key, value) < 0) {
		json_object_put(value);
		return -ENOMEM;
	}
	return 0;
}

static int add_int(struct json_object *object, const char *key, uint64_t value) {
	return add(object, key, json_object_new_int64((int64_t)value));
}

/* A table, or null. The record size is said where it may vary, under func_info and line_info. */
static int add_table(struct json_object *object, const char *key, const char *count_key,
		     bool present, const struct linked_table *table) {
	struct json_object *o;

	if (!present)
		return json_object_object_add(object, key, NULL) < 0 ? -ENOMEM : 0;
	o = json_object_new_object();
	if (add(object, key, o) || add_int(o, "offset", table->offset) ||
	    add_int(o, count_key, table->count))
		return -ENOMEM;
	return strstr(key, "_info") ? add_int(o, "record_size", table->record_size) : 0;
}

static int map_to_json(const struct linked_map *map, struct json_object *o) {
	const char *internal = internal_names[map->internal];

	if (add(o, "name", json_object_new_string(map->name)) || add_int(o, "type", map->type) ||
	    add_int(o, "key_size", map->key_size) || add_int(o, "value_size", map->value_size) ||
	    add_int(o, "max_entries", map->max_entries) || add_int(o, "flags", map->flags) ||
	    add_int(o, "btf_key_type", map->btf_key_type) ||
	    add_int(o, "btf_value_type", map->btf_value_type) ||
	    add_table(o, "initial", "size", map->initial.count, &map->initial) ||
	    add_table(o, "lanes", "count", map->has_lanes, &map->lanes))
		return -ENOMEM;
	if (!internal)
		return json_object_object_add(o, "internal", NULL) < 0 ? -ENOMEM : 0;
	return add(o, "internal", json_object_new_string(internal));
}

static int program_to_json(const struct linked_program *program, struct json_object *o) {
	if (add(o, "name", json_object_new_string(program->name)) ||
	    add(o, "section", json_object_new_string(program->section)) ||
	    add(o, "context", json_object_new_string(program->context)) ||
	    add(o, "gpu", json_object_new_boolean(program->gpu)) ||
	    add_table(o, "insns", "count", program->insns.count, &program->insns) ||
	    add_table(o, "func_info", "count", program->func_info.count, &program->func_info) ||
	    add_table(o, "line_info", "count", program->line_info.count, &program->line_info) ||
	    add_int(o, "relocated_subprograms", program->n_subprograms))
		return -ENOMEM;
	return 0;
}

/* Appends a new object to array; NULL when out of memory. */
static struct json_object *append(struct json_object *array) {
	struct json_object *o = json_object_new_object();

	if (o && json_object_array_add(array, o) < 0) {
		json_object_put(o);
		return NULL;
	}
	return o;
}

int linked_to_json(const struct linked *linked, struct json_object *reply) {
	struct json_object *array, *o;

	if (add_int(reply, "size", linked->size) ||
	    add(reply, "license", json_object_new_string(linked->license)) ||
	    add_table(reply, "btf", "size", linked->btf.count, &linked->btf))
		return -ENOMEM;
	if (linked->btf.count && (!json_object_object_get_ex(reply, "btf", &o) ||
				  add_int(o, "helper_stub_type", linked->helper_stub_type)))
		return -ENOMEM;

	if (add(reply, "maps", array = json_object_new_array()))
		return -ENOMEM;
	for (size_t i = 0; i < linked->n_maps; i++)
		if (!(o = append(array)) || map_to_json(&linked->maps[i], o))
			return -ENOMEM;

	if (add(reply, "programs", array = json_object_new_array()))
		return -ENOMEM;
	for (size_t i = 0; i < linked->n_programs; i++)
		if (!(o = append(array)) || program_to_json(&linked->programs[i], o))
			return -ENOMEM;
	return 0;
}
