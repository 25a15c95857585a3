/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the state file and makes objects from it when a daemon starts (state.h).
 *
 * Objects out of the state file. The daemon wrote it for itself; all the same each number has a
 * range and each descriptor is looked at, because a daemon that trips over its state would do so at
 * every start. An object is restored as a whole, or not at all.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/gpuprobed/verify/host.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/registry/attachment-json.h"
#include "state.h"
#include "proto/job.h"
#include "state-fields.h"

#define STATE_LAYOUT_NUMBERS 13
#define STATE_ATTACHMENTS_MAX (JOB_COMPILE_PROGRAMS_MAX + LINKED_PROGRAMS_MAX)

/* What is being read; the first thing that is wrong is kept. */
struct reading {
	struct store *store;
	char *error; /* STATE_ERROR_SIZE */
	bool bad;
};

__attribute__((format(printf, 2, 3))) static void reading_fail(struct reading *reading,
							       const char *format, ...) {
	va_list arguments;

	if (reading->bad)
		return;
	reading->bad = true;
	va_start(arguments, format);
	vsnprintf(reading->error, STATE_ERROR_SIZE, format, arguments);
	va_end(arguments);
}

static json_object *read_member(struct reading *reading, json_object *json, const char *key,
				enum json_type type) {
	json_object *member = json_get(json, key, type);

	if (!member)
		reading_fail(reading, "\"%s\" is missing or of another type", key);
	return member;
}

static void read_fields(struct reading *reading, json_object *json, const struct json_field *fields,
			size_t n, void *to) {
	const struct json_field *wrong = json_get_fields(json, fields, n, to);

	if (wrong && read_member(reading, json, wrong->key, wrong->type))
		reading_fail(reading, "\"%s\" is %s", wrong->key,
			     wrong->type == json_type_string ? "too long" : "out of range");
}

/* One number, flag or text. */
static uint64_t read_int(struct reading *reading, json_object *json, const char *key,
			 uint64_t max) {
	const struct json_field field = { key, json_type_int, 0, sizeof(uint64_t), max };
	uint64_t value = 0;

	read_fields(reading, json, &field, 1, &value);
	return value;
}

static bool read_bool(struct reading *reading, json_object *json, const char *key) {
	return json_object_get_boolean(read_member(reading, json, key, json_type_boolean));
}

static void read_text(struct reading *reading, json_object *json, const char *key, char *text,
		      size_t size) {
	const struct json_field field = { key, json_type_string, 0, size, 0 };

	read_fields(reading, json, &field, 1, text);
}

/* The descriptor in a slot, which is of this kind; borrowed. -1: failed. */
static int read_slot(struct reading *reading, json_object *json, const char *key,
		     enum store_kind kind, uint32_t *slotp) {
	const uint32_t slot = (uint32_t)read_int(reading, json, key, STORE_SLOTS_MAX);
	const struct store_record *record = store_record(reading->store, slot);
	const int fd = store_fd(reading->store, slot);

	if (!record || fd < 0 || record->kind != kind) {
		reading_fail(reading, "a descriptor of it is not there any more "
				      "(FileDescriptorStoreMax= may be too low)");
		return -1;
	}
	*slotp = slot;
	return fd;
}

/* The same, of a sealed memfd of this size; stolen. */
static int read_memfd(struct reading *reading, json_object *json, const char *key,
		      enum store_kind kind, uint64_t size, uint32_t *slotp) {
	const char *why;
	int fd = read_slot(reading, json, key, kind, slotp);

	if (fd < 0)
		return -1;
	if (memfd_check(fd, size, &why)) {
		reading_fail(reading, "\"%s\": %s", key, why);
		return -1;
	}
	return store_steal_fd(reading->store, *slotp);
}

/* A list of numbers up to `max` each. How many. */
static size_t read_list(struct reading *reading, json_object *json, const char *key, uint64_t max,
			uint64_t *numbers, size_t n_max) {
	json_object *list = read_member(reading, json, key, json_type_array);
	size_t n = list ? json_object_array_length(list) : 0;

	if (n > n_max) {
		reading_fail(reading, "\"%s\" is too long", key);
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		if (!json_int_at(list, i, 0, (int64_t)max, (int64_t *)&numbers[i]))
			reading_fail(reading, "\"%s\" is out of range", key);
	return n;
}

static void read_gpu(struct reading *reading, json_object *json, struct gpu_program *program,
		     uint32_t *slotp) {
	uint64_t context[REGISTRY_CONTEXT_MAX] = {}, maps[REGISTRY_OBJECT_MAPS_MAX] = {};
	char engine[16] = "";

	read_fields(reading, json, STATE_FIELDS(state_gpu_fields), program);
	read_text(reading, json, "engine", engine, sizeof(engine));
	if (!engine_from_name(engine, false, &program->engine))
		reading_fail(reading, "\"engine\" is none");
	program->n_context =
		read_list(reading, json, "context", UINT16_MAX, context, REGISTRY_CONTEXT_MAX);
	for (size_t i = 0; i < program->n_context; i++)
		program->context[i] = (uint16_t)context[i];
	program->n_patch_maps = read_list(reading, json, "patch_maps", REGISTRY_OBJECT_MAPS_MAX - 1,
					  maps, REGISTRY_OBJECT_MAPS_MAX);
	for (size_t i = 0; i < program->n_patch_maps; i++)
		program->patch_maps[i] = (uint8_t)maps[i];
	read_text(reading, json, "patch_reason", program->patch_reason,
		  sizeof(program->patch_reason));
	program->fd = read_memfd(reading, json, "fd", STORE_PTX, program->size, slotp);
	if (!reading->bad && read_int(reading, json, "patch", STORE_SLOTS_MAX)) {
		int fd = read_slot(reading, json, "patch", STORE_PATCH, &program->patch_slot);

		program->patch_fd =
			fd < 0 ? -1 : store_steal_fd(reading->store, program->patch_slot);
	}
}

/* NULL: failed. */
static struct attachment *read_attachment(struct reading *reading, json_object *json,
					  struct object *object) {
	json_object *section = read_member(reading, json, "section", json_type_object),
		    *filter = read_member(reading, json, "filter", json_type_object);
	struct attachment *attachment = NULL;
	const bool on_host = read_bool(reading, json, "on_host");
	const char *wrong;
	size_t program;
	int fd;

	if (reading->bad ||
	    attachment_new(&attachment, object, on_host ? ATTACHMENT_HOST : ATTACHMENT_GPU) < 0) {
		reading_fail(reading, "no memory");
		return NULL;
	}
	attachment->id = read_int(reading, json, "id", INT64_MAX);
	read_text(reading, json, "program", attachment->program, sizeof(attachment->program));
	read_fields(reading, section, STATE_FIELDS(state_section_fields), &attachment->section);
	if (!section_point(&attachment->section))
		reading_fail(reading, "no point has instruction %u",
			     attachment->section.instruction);
	read_text(reading, json, "section_text", attachment->section_text,
		  sizeof(attachment->section_text));
	attachment->spaces = (uint32_t)read_int(reading, json, "spaces", UINT32_MAX);
	wrong = filter_from_json(&attachment->filter, filter, true);
	if (wrong)
		reading_fail(reading, "\"%s\" makes no sense", wrong);
	program = read_int(reading, json, "host_program", LINKED_PROGRAMS_MAX - 1);
	if (!on_host) {
		read_gpu(reading, json, &attachment->of.gpu, &attachment->slot);
	} else if (!object->host) {
		reading_fail(reading, "a program on the host, of an object without any");
	} else {
		attachment->of.host.index = program;
		fd = read_slot(reading, json, "fd", STORE_LINK, &attachment->slot);
		if (fd >= 0)
			host_adopt_link(object->host, program,
					store_steal_fd(reading->store, attachment->slot));
	}
	return reading->bad ? attachment_free(attachment) : attachment;
}

static void read_layout(struct reading *reading, json_object *json, struct map_layout *layout) {
	uint64_t n[STATE_LAYOUT_NUMBERS] = {};

	if (read_list(reading, json, "layout", INT64_MAX, n, STATE_LAYOUT_NUMBERS) !=
	    STATE_LAYOUT_NUMBERS)
		reading_fail(reading, "\"layout\" is too short");
	*layout = (struct map_layout){
		.kind = (uint32_t)n[0],
		.place = (uint32_t)n[1],
		.merge = (uint32_t)n[2],
		.shards = (uint32_t)n[3],
		.threads = (uint32_t)n[4],
		.rings = (uint32_t)n[5],
		.value_stride = n[6],
		.shard_stride = n[7],
		.entry_stride = n[8],
		.capacity = n[9],
		.ring_size = n[10],
		.data_size = n[11],
		.host_size = n[12],
	};
}

/* The bytes of an object, from one after the other. */
struct blob {
	const char *bytes;
	size_t size, at;
};

/* The next `n` bytes; NULL: there are none, or not so many. */
static const void *blob_take(struct reading *reading, struct blob *blob, uint64_t n) {
	const char *bytes;

	if (n > blob->size - blob->at) {
		reading_fail(reading, "its data is shorter than it should be");
		return NULL;
	}
	bytes = n ? blob->bytes + blob->at : NULL;
	blob->at += n;
	blob->at += map_round_up(n, 8) - n <= blob->size - blob->at ? map_round_up(n, 8) - n : 0;
	return bytes;
}

static void read_map(struct reading *reading, json_object *json, struct object *object, size_t i,
		     struct map_accounts *accounts, struct blob *blob) {
	static const struct map_lane none[1]; /* that there are none is known */
	struct map_spec spec = { .kernel_fd = -1 };
	char name[MAP_NAME_SIZE] = "";
	int r;

	read_text(reading, json, "slot", object->slots[i], REGISTRY_SYMBOL_SIZE);
	if (!json_has(json, "id"))
		return;
	read_text(reading, json, "name", name, sizeof(name));
	spec.name = name;
	read_fields(reading, json, STATE_FIELDS(state_map_fields), &spec);
	read_layout(reading, json, &spec.layout);
	spec.n_initial = read_int(reading, json, "initial", MAP_VALUE_SIZE_MAX);
	spec.initial = blob_take(reading, blob, spec.n_initial);
	if (json_has(json, "lanes")) {
		spec.n_lanes = read_int(reading, json, "lanes", MAP_VALUE_SIZE_MAX);
		spec.lanes =
			blob_take(reading, blob, spec.n_lanes * sizeof(struct map_lane)) ?: none;
	}
	if (spec.layout.place == MAP_PLACE_KERNEL)
		spec.kernel_fd =
			read_slot(reading, json, "fd", STORE_KERNEL_MAP, &object->kernel_slots[i]);
	if (reading->bad)
		return;
	r = map_new(&object->maps[i], read_int(reading, json, "id", INT64_MAX), object->id,
		    object->owner, &spec, accounts);
	if (r)
		reading_fail(reading, "map %s: %s", name,
			     r < 0              ? strerror(-r)
			     : r == MAP_E_QUOTA ? "quota"
						: "it makes no sense");
	else if (spec.kernel_fd >= 0)
		close(store_steal_fd(reading->store,
				     object->kernel_slots[i])); /* the map has a copy */
}

/* Maps and what else the object's own bytes are. */
static void read_maps(struct reading *reading, json_object *json, struct object *object,
		      struct map_accounts *accounts) {
	json_object *maps = read_member(reading, json, "maps", json_type_array);
	const uint64_t limit = map_accounts_limit(accounts);
	const int fd = read_slot(reading, json, "fd", STORE_BLOB, &object->slot);
	const void *bytes = NULL, *btf;
	struct blob blob = {};
	uint64_t size = 0;

	if (fd < 0 || !maps || memfd_size(fd, &size) < 0 ||
	    (size && memfd_map(fd, size, &bytes) < 0)) {
		reading_fail(reading, "its data cannot be read");
		return;
	}
	blob = (struct blob){ .bytes = bytes, .size = size };
	object->n_btf = read_int(reading, json, "btf", INT64_MAX);
	btf = blob_take(reading, &blob, object->n_btf);
	object->btf = btf ? malloc(object->n_btf) : NULL;
	if (object->btf)
		memcpy(object->btf, btf, object->n_btf);
	else if (object->n_btf)
		reading_fail(reading, "no memory");
	object->n_maps = json_object_array_length(maps);
	if (object->n_maps > REGISTRY_OBJECT_MAPS_MAX)
		reading_fail(reading, "it has too many maps");
	if (reading->bad)
		object->n_maps = 0;
	map_accounts_set_limit(accounts, UINT64_MAX); /* who has them keeps them */
	for (size_t i = 0; !reading->bad && i < object->n_maps; i++)
		read_map(reading, json_object_array_get_idx(maps, i), object, i, accounts, &blob);
	map_accounts_set_limit(accounts, limit);
	if (bytes)
		munmap((void *)bytes, size);
	close(store_steal_fd(reading->store, object->slot));
}

/* Checks that the object has the maps that its program uses. */
static void check_maps(struct reading *reading, const struct object *object,
		       const struct gpu_program *program) {
	for (size_t i = 0; i < REGISTRY_OBJECT_MAPS_MAX; i++)
		if (program->maps >> i & 1 && (i >= object->n_maps || !object->maps[i]))
			reading_fail(reading, "a program uses a map that it does not have");
	for (size_t i = 0; i < program->n_patch_maps; i++)
		if (!(program->maps >> program->patch_maps[i] & 1))
			reading_fail(reading, "a program uses a map that it does not have");
}

/* Whether no other one has a number of the object's. */
static void check_numbers(struct reading *reading, const struct registry *registry,
			  const struct object *object, struct attachment *const attachments[],
			  size_t n) {
	const struct object *other;

	TAILQ_FOREACH(other, &registry->objects, link)
		if (other->id == object->id)
			reading_fail(reading, "there are two objects %" PRIu64, object->id);
	for (size_t i = 0; i < object->n_maps; i++)
		for (size_t j = 0; object->maps[i] && j <= i; j++)
			if (j == i ? registry_map(registry, object->maps[i]->id, NULL) != NULL
				   : object->maps[j] && object->maps[j]->id == object->maps[i]->id)
				reading_fail(reading, "there are two maps %" PRIu64,
					     object->maps[i]->id);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j <= i; j++)
			if (j == i ? registry_attachment(registry, attachments[i]->id) != NULL
				   : attachments[j]->id == attachments[i]->id)
				reading_fail(reading, "there are two attachments %" PRIu64,
					     attachments[i]->id);
}

int state_take_object(json_object *state, size_t i, struct registry *registry,
		      struct map_accounts *accounts, struct store *store,
		      char error[static STATE_ERROR_SIZE]) {
	struct reading reading = { .store = store, .error = error };
	json_object *json = json_object_array_get_idx(
			    read_member(&reading, state, "objects", json_type_array), i),
		    *list;
	struct attachment *attachments[STATE_ATTACHMENTS_MAX];
	const struct gpu_program *program;
	struct object *object;
	size_t n = 0;

	if (object_new(&object, read_int(&reading, json, "id", INT64_MAX),
		       (uid_t)read_int(&reading, json, "owner", UINT32_MAX)) < 0)
		return -ENOMEM;
	read_fields(&reading, json, STATE_FIELDS(state_object_fields), object);
	object->resident = read_int(&reading, json, "resident", UINT64_MAX);
	if (read_bool(&reading, json, "host") && host_adopt(&object->host) < 0)
		reading_fail(&reading, "no memory");
	read_maps(&reading, json, object, accounts);
	list = read_member(&reading, json, "attachments", json_type_array);
	if (!reading.bad && (!json_object_array_length(list) ||
			     json_object_array_length(list) > STATE_ATTACHMENTS_MAX ||
			     registry_room(registry, 0, json_object_array_length(list))))
		reading_fail(&reading, "it has too many attachments, or none");
	while (!reading.bad && n < json_object_array_length(list)) {
		attachments[n] =
			read_attachment(&reading, json_object_array_get_idx(list, n), object);
		program = attachment_gpu(attachments[n]);
		if (program)
			check_maps(&reading, object, program);
		n += attachments[n] != NULL;
	}
	if (!reading.bad)
		check_numbers(&reading, registry, object, attachments, n);
	if (reading.bad) {
		while (n)
			attachment_free(attachments[--n]);
		object_free(object);
		return STATE_E_OBJECT;
	}
	object->kept = true;
	registry_adopt(registry, object, attachments, n);
	return 0;
}

size_t state_objects(json_object *state) {
	return json_length_of(json_member(state, "objects"));
}

int state_take_numbers(json_object *state, struct registry *registry, struct state_numbers *numbers,
		       char error[static STATE_ERROR_SIZE]) {
	struct reading reading = { .error = error };
	json_object *last = read_member(&reading, state, "last", json_type_object);

	numbers->session = read_int(&reading, state, "session", UINT64_MAX);
	numbers->starts = read_int(&reading, state, "starts", UINT32_MAX);
	registry->last_object = read_int(&reading, last, "object", INT64_MAX);
	registry->last_attachment = read_int(&reading, last, "attachment", INT64_MAX);
	registry->last_map = read_int(&reading, last, "map", INT64_MAX);
	if (!numbers->session)
		reading_fail(&reading, "\"session\" is 0");
	return reading.bad ? STATE_E_REFUSED : 0;
}
