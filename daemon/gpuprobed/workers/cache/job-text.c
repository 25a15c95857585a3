/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Converts jobs and replies to and from the form in which the cache keeps them (job-text.h). What
 * comes from a disk is trusted no more than what comes from a worker: it is parsed strictly here,
 * and the owner of the job checks it.
 */

#include "job-text.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/json.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

#define JOB_DEPTH_MAX 16 /* as worker-pool.c takes it */

/* Turns an id into another number. False: it is none of those. */
typedef bool (*job_id_fn)(const struct job_ids *ids, int64_t id, int64_t *number);

static bool job_id_to_position(const struct job_ids *ids, int64_t id, int64_t *number) {
	for (size_t i = 0; i < ids->n; i++)
		if (ids->ids[i] == id) {
			*number = (int64_t)i;
			return true;
		}
	return false;
}

static bool job_id_from_position(const struct job_ids *ids, int64_t position, int64_t *number) {
	if (position < 0 || (size_t)position >= ids->n)
		return false;
	*number = ids->ids[position];
	return true;
}

static bool job_convert_id(json_object *id, const struct job_ids *ids, job_id_fn fn) {
	int64_t number;

	if (!json_object_is_type(id, json_type_int) || !fn(ids, json_object_get_int64(id), &number))
		return false;
	return json_object_set_int64(id, number);
}

/* The ids in an array; key: they are that member of its elements. Absent is fine. */
static bool job_convert_array(json_object *object, const char *name, const char *key,
			      const struct job_ids *ids, job_id_fn fn) {
	json_object *array = json_get(object, name, json_type_array), *id;

	if (!array)
		return !json_has(object, name);
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		id = json_object_array_get_idx(array, i);
		if (!job_convert_id(key ? json_member(id, key) : id, ids, fn))
			return false;
	}
	return true;
}

/* All ids of a reply, in place. */
static bool job_convert_reply(json_object *reply, const struct job_ids *ids, job_id_fn fn) {
	json_object *kernels = json_get(reply, JOB_KEY_KERNELS, json_type_array), *kernel;

	if (!job_convert_array(reply, JOB_KEY_APPLIED, NULL, ids, fn))
		return false;
	if (!kernels)
		return !json_has(reply, JOB_KEY_KERNELS);
	for (size_t i = 0; i < json_object_array_length(kernels); i++) {
		kernel = json_object_array_get_idx(kernels, i);
		if (!json_object_is_type(kernel, json_type_object) ||
		    !job_convert_array(kernel, JOB_KEY_ATTACHMENTS, NULL, ids, fn) ||
		    !job_convert_array(kernel, JOB_KEY_MISSING, JOB_KEY_ID, ids, fn))
			return false;
	}
	return true;
}

/* A copy that shares nothing. NULL: no memory. */
static json_object *job_copy(json_object *object) {
	json_object *copy = NULL;

	return json_object_deep_copy(object, &copy, NULL) < 0 ? NULL : copy;
}

static char *job_string(json_object *object, size_t *sizep) {
	const char *text = json_object_to_json_string_length(object, JSON_C_TO_STRING_PLAIN, sizep);

	return text && *sizep ? strdup(text) : NULL;
}

char *job_text_request(json_object *request, struct job_ids *ids) {
	json_object *copy = job_copy(request), *attachments = NULL;
	char *text = NULL;
	bool fits = copy;
	size_t size;

	*ids = (struct job_ids){};
	if (fits && json_has(copy, JOB_KEY_ATTACHMENTS))
		fits = json_get_array(copy, JOB_KEY_ATTACHMENTS, JOB_IDS_MAX, &attachments);
	for (size_t i = 0; fits && i < json_length_of(attachments); i++) {
		json_object *id = json_get(json_object_array_get_idx(attachments, i), JOB_KEY_ID,
					   json_type_int);

		fits = id;
		ids->ids[ids->n++] = json_object_get_int64(id);
		json_object_set_int64(id, (int64_t)i);
	}
	if (fits) {
		json_object_object_del(copy, JOB_KEY_ID);
		json_object_object_del(copy, JOB_KEY_IMAGE);
		json_object_object_del(copy, JOB_KEY_TIMEOUT);
		text = job_string(copy, &size);
	}
	json_object_put(copy);
	return text;
}

char *job_text_keep_reply(json_object *reply, const struct job_ids *ids, size_t *sizep) {
	json_object *copy = job_copy(reply);
	char *text = NULL;

	if (copy && job_convert_reply(copy, ids, job_id_to_position)) {
		json_object_object_del(copy, JOB_KEY_ID);
		text = job_string(copy, sizep);
	}
	json_object_put(copy);
	if (text && *sizep > CACHE_ENTRY_REPLY_MAX) {
		free(text);
		text = NULL;
	}
	return text;
}

json_object *job_text_take_reply(const char *text, size_t size, const struct job_ids *ids) {
	json_object *reply = json_parse(text, size, JOB_DEPTH_MAX);
	if (json_string_of(reply, JOB_KEY_STATUS) && job_status_of(reply) != JOB_ERROR &&
	    job_convert_reply(reply, ids, job_id_from_position))
		return reply;
	json_object_put(reply);
	return NULL;
}

/* A text of the first element of an array, or NULL. */
static const char *job_first(json_object *object, const char *array_key, const char *key) {
	json_object *array = json_get(object, array_key, json_type_array);

	return json_length_of(array) ? json_string_of(json_object_array_get_idx(array, 0), key)
				     : NULL;
}

void job_text_name(json_object *request, json_object *reply, struct cache_entry *entry) {
	const char *name = job_first(reply, JOB_KEY_KERNELS, JOB_KEY_DEMANGLED);

	if (!name)
		name = json_string_of(request, JOB_KEY_EXECUTABLE);
	if (!name)
		name = job_first(request, JOB_KEY_ATTACHMENTS, JOB_KEY_KERNEL);
	if (!name)
		name = job_first(request, JOB_KEY_PROGRAMS, JOB_KEY_NAME);
	if (!name)
		name = job_first(reply, JOB_KEY_PROGRAMS, JOB_KEY_NAME);
	strncpy(entry->job, json_string_of(request, JOB_KEY_JOB) ?: "", sizeof(entry->job) - 1);
	strncpy(entry->name, name ?: "", sizeof(entry->name) - 1);
	text_make_printable(entry->name);
}
