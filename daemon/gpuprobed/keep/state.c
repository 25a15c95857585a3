/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the state file (state.h).
 *
 * The file is written anew when something is attached or detached, and takes the place of the old
 * one by rename(2): whenever a daemon is killed, there is one or the other. It lies beside the
 * sockets, in memory: like the descriptors that it names, it does not outlive a reboot, so nothing
 * is ever waited for to reach a disk.
 */

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/registry/attachment-json.h"
#include "lib/json.h"
#include "proto/patch.h"
#include "state-fields.h"

/* What the engines need of a program on the GPU. */
static void add_gpu(json_object *json, const struct gpu_program *program) {
	json_object *list;

	json_add_fields(json, STATE_FIELDS(state_gpu_fields), program);
	json_add_string(json, "engine", engine_name(program->engine));
	list = json_add_array(json, "context");
	for (size_t i = 0; i < program->n_context; i++)
		json_append_int(list, program->context[i]);
	json_add_int(json, "patch", program->patch_slot);
	json_add_string(json, "patch_reason", program->patch_reason);
	list = json_add_array(json, "patch_maps");
	for (size_t i = 0; i < program->n_patch_maps; i++)
		json_append_int(list, program->patch_maps[i]);
}

static void add_attachment(json_object *json, const struct attachment *attachment) {
	const struct gpu_program *gpu = attachment_gpu(attachment);
	const struct host_program *host = attachment_host(attachment);

	json_add_int(json, "id", attachment->id);
	json_add_string(json, "program", attachment->program);
	json_add_fields(json_add_object(json, "section"), STATE_FIELDS(state_section_fields),
			&attachment->section);
	json_add_string(json, "section_text", attachment->section_text);
	json_add_int(json, "spaces", attachment->spaces);
	json_add(json, "filter", filter_json(&attachment->filter, true));
	json_add_bool(json, "on_host", host);
	json_add_int(json, "host_program", host ? host->index : 0);
	json_add_int(json, "fd", attachment->slot);
	if (gpu)
		add_gpu(json, gpu);
}

static void add_layout(json_object *json, const struct map_layout *layout) {
	const uint64_t numbers[] = {
		layout->kind,         layout->place,    layout->merge,        layout->shards,
		layout->threads,      layout->rings,    layout->value_stride, layout->shard_stride,
		layout->entry_stride, layout->capacity, layout->ring_size,    layout->data_size,
		layout->host_size
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		json_append_int(json, numbers[i]);
}

static void add_map(json_object *json, const struct object *object, size_t i) {
	const struct map *map = object->maps[i];

	json_add_string(json, "slot", object->slots[i]);
	if (!map)
		return;
	json_add_int(json, "id", map->id);
	json_add_string(json, "name", map->name);
	json_add_fields(json, STATE_FIELDS(state_map_fields), &map->spec);
	add_layout(json_add_array(json, "layout"), &map->spec.layout);
	json_add_int(json, "initial", map->spec.n_initial);
	if (map->spec.lanes)
		json_add_int(json, "lanes", map->spec.n_lanes);
	json_add_int(json, "fd", object->kernel_slots[i]);
}

static void add_object(json_object *json, const struct registry *registry,
		       const struct object *object) {
	const struct attachment *attachment;
	json_object *list;

	json_add_int(json, "id", object->id);
	json_add_int(json, "owner", object->owner);
	json_add_fields(json, STATE_FIELDS(state_object_fields), object);
	json_add_bool(json, "host", object->host);
	json_add_int(json, "fd", object->slot);
	json_add_int(json, "btf", object->n_btf);
	json_add_int(json, "resident", object->resident);
	list = json_add_array(json, "maps");
	for (size_t i = 0; i < object->n_maps; i++)
		add_map(json_append_object(list), object, i);
	list = json_add_array(json, "attachments");
	TAILQ_FOREACH(attachment, &registry->attachments, link)
		if (attachment->object == object && !attachment->leaving)
			add_attachment(json_append_object(list), attachment);
}

json_object *state_to_json(const struct registry *registry, const struct state_numbers *numbers) {
	json_object *state = json_object_new_object(), *inner;
	const struct object *object;

	json_add_int(state, "version", STATE_VERSION);
	json_add_string(state, "daemon", PROJECT_VERSION);
	json_add_int(state, "layout", MAP_LAYOUT_VERSION);
	json_add_int(state, "patch", PATCH_VERSION);
	json_add_int(state, "session", numbers->session);
	json_add_int(state, "starts", numbers->starts);
	inner = json_add_object(state, "last");
	json_add_int(inner, "object", registry->last_object);
	json_add_int(inner, "attachment", registry->last_attachment);
	json_add_int(inner, "map", registry->last_map);
	inner = json_add_array(state, "objects");
	TAILQ_FOREACH(object, &registry->objects, link)
		if (object->kept)
			add_object(json_append_object(inner), registry, object);
	return state;
}

/* ---- bytes ---- */

static int write_bytes(int fd, const void *data, size_t size) {
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		data = (const char *)data + n;
		size -= (size_t)n;
	}
	return 0;
}

/* Followed by zeros up to 8 bytes. */
static int write_padded(int fd, const void *data, size_t size) {
	static const char zeros[8];
	int r = write_bytes(fd, data, size);

	return r < 0 || size % 8 == 0 ? r : write_bytes(fd, zeros, 8 - size % 8);
}

int state_blob(const struct object *object) {
	_cleanup_fd int fd = memfd_new("gpuprobe-object-data");
	int r = 0;

	if (fd < 0)
		return fd;
	r = write_padded(fd, object->btf, object->n_btf);
	for (size_t i = 0; r == 0 && i < object->n_maps; i++) {
		const struct map *map = object->maps[i];

		if (!map)
			continue;
		r = write_padded(fd, map->spec.initial, map->spec.n_initial);
		if (r == 0)
			r = write_padded(fd, map->spec.lanes,
					 map->spec.n_lanes * sizeof(map->spec.lanes[0]));
	}
	if (r == 0)
		r = memfd_seal(fd);
	if (r == 0) {
		r = fd;
		fd = -1;
	}
	return r;
}

/* ---- the file ---- */

int state_save(const char *path, json_object *state) {
	const char *text = json_object_to_json_string_ext(state, JSON_C_TO_STRING_PLAIN);
	_cleanup_fd int fd = -1;
	char new_path[256];
	int r;

	if (!text)
		return -ENOMEM;
	if (snprintf(new_path, sizeof(new_path), "%s.new", path) >= (int)sizeof(new_path))
		return -ENAMETOOLONG;
	unlink(new_path); /* of a daemon that was killed here */
	fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_bytes(fd, text, strlen(text));
	if (r == 0)
		r = write_bytes(fd, "\n", 1);
	if (r == 0 && rename(new_path, path) < 0)
		r = -errno;
	if (r < 0)
		unlink(new_path);
	return r;
}

/* The bytes of the file, with a NUL behind. 0, STATE_E_NONE, STATE_E_REFUSED or -errno. */
static int state_read(const char *path, char **textp, char error[static STATE_ERROR_SIZE]) {
	_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat status;
	size_t n;

	if (fd < 0)
		return errno == ENOENT ? STATE_E_NONE : -errno;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) ||
	    (size_t)status.st_size > STATE_SIZE_MAX) {
		snprintf(error, STATE_ERROR_SIZE,
			 "not a file that this daemon alone writes, of at most 64 MiB");
		return STATE_E_REFUSED;
	}
	return file_load(fd, STATE_SIZE_MAX, textp, &n);
}

int state_load(const char *path, json_object **statep, char error[static STATE_ERROR_SIZE]) {
	json_object *state;
	char *text = NULL;
	int r;

	r = state_read(path, &text, error);
	if (r)
		return r;
	state = json_parse(text, strlen(text), JSON_TOKENER_DEFAULT_DEPTH);
	if (!state) {
		snprintf(error, STATE_ERROR_SIZE, "it is damaged: no JSON object");
		r = STATE_E_REFUSED;
	}
	free(text);
	if (r == 0)
		r = state_convert(state, error);
	if (r) {
		json_object_put(state);
		return r;
	}
	*statep = state;
	return 0;
}
