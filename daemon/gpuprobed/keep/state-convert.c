/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Converts older state files to the present version (state.h).
 *
 * Versions of the state file. A daemon reads its own and all before: from each version there is one
 * step to the next. Members that it does not know are passed over, so that a member more needs no
 * new version if it may be missing.
 *
 *   1  what is attached
 *   2  `session` and `starts`, by which processes know the state again (1: none did); `last`, so
 *      that no id is given out twice (1: the highest that is there)
 *   3  the engine that was "sass" is "sanitizer"
 */

#include "state.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "lib/json.h"
#include "proto/patch.h"

/* The highest id among an object's maps or attachments. */
static int64_t highest(json_object *object, const char *key) {
	json_object *list = json_member(object, key);
	int64_t best = 0;

	for (size_t i = 0; i < json_length_of(list); i++) {
		int64_t id = json_int_of(json_object_array_get_idx(list, i), "id");

		best = id > best ? id : best;
	}
	return best;
}

static int convert_1(json_object *state) {
	json_object *last = json_object_new_object(), *objects = json_member(state, "objects");
	int64_t object_id = 0, attachment = 0, map = 0;
	uint64_t session = 0;

	for (size_t i = 0; i < json_length_of(objects); i++) {
		json_object *object = json_object_array_get_idx(objects, i);
		int64_t maps = highest(object, "maps"),
			attachments = highest(object, "attachments"),
			id = json_int_of(object, "id");

		object_id = id > object_id ? id : object_id;
		attachment = attachments > attachment ? attachments : attachment;
		map = maps > map ? maps : map;
	}
	json_add_int(last, "object", object_id);
	json_add_int(last, "attachment", attachment);
	json_add_int(last, "map", map);
	json_add(state, "last", last);
	if (getrandom(&session, sizeof(session), 0) != sizeof(session))
		return -1;
	json_add_int(state, "session", (int64_t)(session | 1));
	json_add_int(state, "starts", 1);
	return 0;
}

static int convert_2(json_object *state) {
	json_object *objects = json_member(state, "objects");

	for (size_t i = 0; i < json_length_of(objects); i++) {
		json_object *list =
			json_member(json_object_array_get_idx(objects, i), "attachments");

		for (size_t j = 0; j < json_length_of(list); j++) {
			json_object *attachment = json_object_array_get_idx(list, j);
			const char *engine = json_string_of(attachment, "engine");

			if (engine && !strcmp(engine, "sass"))
				json_add_string(attachment, "engine", "sanitizer");
		}
	}
	return 0;
}

/* From version i + 1 to the next. */
static int (*const converters[STATE_VERSION - 1])(json_object *state) = { convert_1, convert_2 };

int state_convert(json_object *state, char error[static STATE_ERROR_SIZE]) {
	int64_t version = json_int_of(state, "version");

	if (version < 1) {
		snprintf(error, STATE_ERROR_SIZE, "it is damaged: it has no version");
		return STATE_E_REFUSED;
	}
	if (version > STATE_VERSION) {
		snprintf(error, STATE_ERROR_SIZE,
			 "it is of version %lld, written by gpuprobed %.64s; this one reads up to "
			 "%d",
			 (long long)version, json_string_of(state, "daemon") ?: "?", STATE_VERSION);
		return STATE_E_REFUSED;
	}
	for (; version < STATE_VERSION; version++)
		if (converters[version - 1](state)) {
			snprintf(error, STATE_ERROR_SIZE,
				 "it is of version %lld, which could not be converted",
				 (long long)version);
			return STATE_E_REFUSED;
		}
	json_add_int(state, "version", STATE_VERSION);
	if (json_int_of(state, "layout") != MAP_LAYOUT_VERSION) {
		snprintf(error, STATE_ERROR_SIZE,
			 "maps are laid out as of version %lld, which this daemon does not read",
			 (long long)json_int_of(state, "layout"));
		return STATE_E_REFUSED;
	}
	if (json_has(state, "patch") && json_int_of(state, "patch") != PATCH_VERSION) {
		snprintf(error, STATE_ERROR_SIZE,
			 "programs are compiled for patches of version %lld, which this daemon "
			 "does not make",
			 (long long)json_int_of(state, "patch"));
		return STATE_E_REFUSED;
	}
	return 0;
}
