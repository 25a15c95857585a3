/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Members of a JSON object. `text` is UTF-8; varlink_json_string() makes a value of other bytes.
 * These are not checked: without memory json-c makes the member null or leaves it out, and the
 * caller does not hear of it.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

static inline void json_add_int(json_object *object, const char *key, int64_t value) {
	json_object_object_add(object, key, json_object_new_int64(value));
}

static inline void json_add_bool(json_object *object, const char *key, bool value) {
	json_object_object_add(object, key, json_object_new_boolean(value));
}

static inline void json_add_string(json_object *object, const char *key, const char *text) {
	json_object_object_add(object, key, json_object_new_string(text));
}
