/* SPDX-License-Identifier: Apache-2.0 */

/*
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

#include "daemon/gpuprobed/base/memfd.h"
#include "lib/json.h"
#include "proto/patch.h"

static json_object *filter_json(const struct filter *filter) {
	json_object *json = json_object_new_object();

	if (filter->has_pid)
		json_add_int(json, "pid", (uint64_t)filter->pid);
	if (filter->start_time)
		json_add_int(json, "start_time", filter->start_time);
	if (filter->has_uid)
		json_add_int(json, "uid", filter->uid);
	if (filter->own)
		json_add_bool(json, "own", true);
	if (filter->has_comm)
		json_add_string(json, "comm", filter->comm);
	if (filter->has_exe)
		json_add_string(json, "exe", filter->exe);
	if (filter->has_cgroup)
		json_add_string(json, "cgroup", filter->cgroup);
	return json;
}

static json_object *section_json(const struct section *section) {
	json_object *json = json_object_new_object();

	json_add_int(json, "point", section->point);
	json_add_bool(json, "known", section->known);
	json_add_bool(json, "device_function", section->device_function);
	json_add_string(json, "kernel", section->kernel);
	json_add_string(json, "file", section->file);
	json_add_int(json, "line", section->line);
	json_add_int(json, "block", section->block);
	json_add_int(json, "instruction", section->instruction);
	return json;
}

/* What the engines need of a program on the GPU. */
static void add_gpu(json_object *json, const struct attachment *attachment) {
	json_object *context = json_object_new_array(), *maps = json_object_new_array();

	json_add_int(json, "maps", attachment->maps);
	json_add_bool(json, "process", attachment->process);
	json_add_int(json, "size", attachment->size);
	json_add_int(json, "local_bytes", attachment->local_bytes);
	json_add_string(json, "symbol", attachment->symbol);
	json_add_int(json, "isa", attachment->isa);
	json_add_int(json, "target", attachment->target);
	json_add_string(json, "engine", engine_name(attachment->engine));
	for (size_t i = 0; i < attachment->n_context; i++)
		json_append_int(context, attachment->context[i]);
	json_add(json, "context", context);
	json_add_int(json, "patch", attachment->patch_slot);
	json_add_string(json, "patch_reason", attachment->patch_reason);
	for (size_t i = 0; i < attachment->n_patch_maps; i++)
		json_append_int(maps, attachment->patch_maps[i]);
	json_add(json, "patch_maps", maps);
}

static json_object *attachment_state_json(const struct attachment *attachment) {
	json_object *json = json_object_new_object();

	json_add_int(json, "id", attachment->id);
	json_add_string(json, "program", attachment->program);
	json_add(json, "section", section_json(&attachment->section));
	json_add_string(json, "section_text", attachment->section_text);
	json_add_int(json, "spaces", attachment->spaces);
	json_add(json, "filter", filter_json(&attachment->filter));
	json_add_bool(json, "on_host", attachment->on_host);
	json_add_int(json, "host_program", attachment->host_program);
	json_add_int(json, "fd", attachment->slot);
	if (!attachment->on_host)
		add_gpu(json, attachment);
	return json;
}

static json_object *layout_json(const struct map_layout *layout) {
	json_object *json = json_object_new_array();
	const uint64_t numbers[] = {
		layout->kind,         layout->place,    layout->merge,        layout->shards,
		layout->threads,      layout->rings,    layout->value_stride, layout->shard_stride,
		layout->entry_stride, layout->capacity, layout->ring_size,    layout->data_size,
		layout->host_size
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		json_append_int(json, numbers[i]);
	return json;
}

static json_object *map_json(const struct object *object, size_t i) {
	json_object *json = json_object_new_object();
	const struct map *map = object->maps[i];

	json_add_string(json, "slot", object->slots[i]);
	if (!map)
		return json;
	json_add_int(json, "id", map->id);
	json_add_string(json, "name", map->name);
	json_add_int(json, "type", map->spec.type);
	json_add_int(json, "key_size", map->spec.key_size);
	json_add_int(json, "value_size", map->spec.value_size);
	json_add_int(json, "max_entries", map->spec.max_entries);
	json_add_int(json, "flags", map->spec.flags);
	json_add_int(json, "btf_key_type", map->spec.btf_key_type);
	json_add_int(json, "btf_value_type", map->spec.btf_value_type);
	json_add(json, "layout", layout_json(&map->spec.layout));
	json_add_int(json, "initial", map->spec.n_initial);
	if (map->spec.lanes)
		json_add_int(json, "lanes", map->spec.n_lanes);
	json_add_int(json, "fd", object->kernel_slots[i]);
	return json;
}

static json_object *object_json(const struct registry *registry, const struct object *object) {
	json_object *json = json_object_new_object(), *maps = json_object_new_array(),
		    *attachments = json_object_new_array();
	const struct attachment *attachment;

	json_add_int(json, "id", object->id);
	json_add_int(json, "owner", object->owner);
	json_add_bool(json, "shared", object->shared);
	json_add_bool(json, "has_kernel_user", object->has_kernel_user);
	json_add_int(json, "kernel_user", object->kernel_user);
	json_add_bool(json, "host", object->host);
	json_add_int(json, "fd", object->slot);
	json_add_int(json, "btf", object->n_btf);
	json_add_int(json, "resident", object->resident);
	for (size_t i = 0; i < object->n_maps; i++)
		json_append(maps, map_json(object, i));
	json_add(json, "maps", maps);
	TAILQ_FOREACH(attachment, &registry->attachments, link)
		if (attachment->object == object && !attachment->leaving)
			json_append(attachments, attachment_state_json(attachment));
	json_add(json, "attachments", attachments);
	return json;
}

json_object *state_to_json(const struct registry *registry, const struct state_numbers *numbers) {
	json_object *state = json_object_new_object(), *last = json_object_new_object(),
		    *objects = json_object_new_array();
	const struct object *object;

	json_add_int(state, "version", STATE_VERSION);
	json_add_string(state, "daemon", PROJECT_VERSION);
	json_add_int(state, "layout", MAP_LAYOUT_VERSION);
	json_add_int(state, "patch", PATCH_VERSION);
	json_add_int(state, "session", numbers->session);
	json_add_int(state, "starts", numbers->starts);
	json_add_int(last, "object", registry->last_object);
	json_add_int(last, "attachment", registry->last_attachment);
	json_add_int(last, "map", registry->last_map);
	json_add(state, "last", last);
	TAILQ_FOREACH(object, &registry->objects, link)
		if (object->kept)
			json_append(objects, object_json(registry, object));
	json_add(state, "objects", objects);
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
	size_t n = 0;
	char *text;

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
	text = malloc((size_t)status.st_size + 1);
	if (!text)
		return -ENOMEM;
	while (n < (size_t)status.st_size) {
		ssize_t got = read(fd, text + n, (size_t)status.st_size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	text[n] = '\0';
	*textp = text;
	return 0;
}

int state_load(const char *path, json_object **statep, char error[static STATE_ERROR_SIZE]) {
	struct json_tokener *tokener;
	json_object *state = NULL;
	char *text = NULL;
	int r;

	r = state_read(path, &text, error);
	if (r)
		return r;
	tokener = json_tokener_new();
	if (tokener) {
		json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
		state = json_tokener_parse_ex(tokener, text, (int)strlen(text) + 1);
		if (json_tokener_get_error(tokener) != json_tokener_success ||
		    !json_object_is_type(state, json_type_object)) {
			json_object_put(state);
			state = NULL;
			snprintf(error, STATE_ERROR_SIZE, "it is damaged: no JSON object");
			r = STATE_E_REFUSED;
		}
		json_tokener_free(tokener);
	} else {
		r = -ENOMEM;
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
