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
#include "lib/json.h"
#include "thread-section.h"

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

static const struct json_field map_fields[] = {
	JSON_INT(struct linked_map, type, UINT32_MAX),
	JSON_INT(struct linked_map, key_size, UINT32_MAX),
	JSON_INT(struct linked_map, value_size, UINT32_MAX),
	JSON_INT(struct linked_map, max_entries, UINT32_MAX),
	JSON_INT(struct linked_map, flags, UINT32_MAX),
	JSON_INT(struct linked_map, btf_key_type, UINT32_MAX),
	JSON_INT(struct linked_map, btf_value_type, UINT32_MAX),
};

#define N_MAP_FIELDS (sizeof(map_fields) / sizeof(map_fields[0]))

/* Says that a member is wrong; returns LINKED_E_INVALID. */
static int wrong(char *error, const char *what, const char *key) {
	snprintf(error, ERROR_SIZE, "linked object: %s \"%s\"", what, key);
	return LINKED_E_INVALID;
}

/* Says what is wrong with a member that should be of that type. */
static int wrong_member(char *error, struct json_object *object, const char *key,
			enum json_type type) {
	return wrong(error,
		     json_get(object, key, type) ? "out of range:"
		     : type == json_type_int     ? "no integer"
		     : type == json_type_boolean ? "no boolean"
						 : "no array",
		     key);
}

/* An integer member within [min, max]. */
static int get_int(struct json_object *object, const char *key, int64_t min, int64_t max,
		   int64_t *value, char *error) {
	return json_get_int(object, key, min, max, value)
		       ? 0
		       : wrong_member(error, object, key, json_type_int);
}

static int get_u32(struct json_object *object, const char *key, uint32_t *value, char *error) {
	return json_get_u32(object, key, 0, UINT32_MAX, value)
		       ? 0
		       : wrong_member(error, object, key, json_type_int);
}

/* A string member of printable ASCII that fits into `size` bytes with its NUL. */
static int get_name(struct json_object *object, const char *key, char *text, size_t size,
		    char *error) {
	struct json_object *member = json_get(object, key, json_type_string);
	const char *s;
	size_t n;

	if (!member)
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
	const struct json_field *field;
	int r;

	if (!json_object_is_type(object, json_type_object))
		return wrong(error, "no object in", "maps");
	r = get_name(object, "name", m.name, sizeof(m.name), error);
	if (r)
		return r;
	field = json_get_fields(object, map_fields, N_MAP_FIELDS, &m);
	if (field)
		return wrong_member(error, object, field->key, json_type_int);
	if ((r = get_internal(object, &m.internal, error)) ||
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

int linked_thread_from_json(uint32_t *thread, struct json_object *object,
			    char error[static ERROR_SIZE]) {
	int64_t size = 0;
	int r = json_has(object, "thread")
			? get_int(object, "thread", 0, THREAD_BYTES_MAX, &size, error)
			: 0;

	if (!r)
		*thread = (uint32_t)size;
	return r;
}

int linked_program_from_json(struct linked_program *program, struct json_object *object,
			     uint64_t blob_size, char error[static ERROR_SIZE]) {
	struct linked_program p = {};
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
	if (!json_get_bool(object, "gpu", &p.gpu))
		return wrong_member(error, object, "gpu", json_type_boolean);
	*program = p;
	return 0;
}

/* An array member of at most `max` elements. */
static int get_array(struct json_object *object, const char *key, size_t max,
		     struct json_object **array, char *error) {
	if (json_get_array(object, key, max, array))
		return 0;
	return json_get(object, key, json_type_array)
		       ? wrong(error, "too many", key)
		       : wrong_member(error, object, key, json_type_array);
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
	r = linked_thread_from_json(&linked->thread, reply, error);
	if (r)
		goto out;
	if (linked->btf.count) {
		r = get_u32(json_get(reply, "btf", json_type_object), "helper_stub_type",
			    &linked->helper_stub_type, error);
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

/* A table, or null. The record size is said where it may vary, under func_info and line_info. */
static struct json_object *add_table(struct json_object *object, const char *key,
				     const char *count_key, bool present,
				     const struct linked_table *table) {
	struct json_object *o = NULL;

	if (!present) {
		json_add_null(object, key);
		return NULL;
	}
	o = json_add_object(object, key);
	json_add_int(o, "offset", table->offset);
	json_add_int(o, count_key, table->count);
	if (strstr(key, "_info"))
		json_add_int(o, "record_size", table->record_size);
	return o;
}

static void map_to_json(const struct linked_map *map, struct json_object *o) {
	const char *internal = internal_names[map->internal];

	json_add_string(o, "name", map->name);
	json_add_fields(o, map_fields, N_MAP_FIELDS, map);
	add_table(o, "initial", "size", map->initial.count, &map->initial);
	add_table(o, "lanes", "count", map->has_lanes, &map->lanes);
	if (internal)
		json_add_string(o, "internal", internal);
	else
		json_add_null(o, "internal");
}

static void program_to_json(const struct linked_program *program, struct json_object *o) {
	json_add_string(o, "name", program->name);
	json_add_string(o, "section", program->section);
	json_add_string(o, "context", program->context);
	json_add_bool(o, "gpu", program->gpu);
	add_table(o, "insns", "count", program->insns.count, &program->insns);
	add_table(o, "func_info", "count", program->func_info.count, &program->func_info);
	add_table(o, "line_info", "count", program->line_info.count, &program->line_info);
	json_add_int(o, "relocated_subprograms", program->n_subprograms);
}

int linked_to_json(const struct linked *linked, struct json_object *reply) {
	struct json_object *array, *o;

	json_add_int(reply, "size", linked->size);
	json_add_string(reply, "license", linked->license);
	o = add_table(reply, "btf", "size", linked->btf.count, &linked->btf);
	json_add_int(o, "helper_stub_type", linked->helper_stub_type);
	json_add_int(reply, "thread", linked->thread);
	array = json_add_array(reply, "maps");
	for (size_t i = 0; i < linked->n_maps; i++)
		map_to_json(&linked->maps[i], json_append_object(array));
	array = json_add_array(reply, "programs");
	for (size_t i = 0; i < linked->n_programs; i++)
		program_to_json(&linked->programs[i], json_append_object(array));
	return json_incomplete(reply) ? -ENOMEM : 0;
}
