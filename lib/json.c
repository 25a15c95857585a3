/* SPDX-License-Identifier: Apache-2.0 */

#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- writers ---- */

/* A serializer of json-c: there is no text. */
static int print_nothing(json_object *value, struct printbuf *buffer, int level, int flags) {
	return -1;
}

static const char incomplete; /* its address marks what lacks a part */

static void set_incomplete(json_object *value) {
	json_object_set_serializer(value, print_nothing, (void *)&incomplete, NULL);
}

bool json_incomplete(json_object *value) {
	return !value || json_object_get_userdata(value) == &incomplete;
}

void json_add(json_object *object, const char *key, json_object *consumed) {
	if (object && !json_incomplete(consumed) && !json_object_object_add(object, key, consumed))
		return;
	json_object_put(consumed);
	if (object)
		set_incomplete(object);
}

void json_append(json_object *array, json_object *consumed) {
	if (array && !json_incomplete(consumed) && !json_object_array_add(array, consumed))
		return;
	json_object_put(consumed);
	if (array)
		set_incomplete(array);
}

json_object *json_string(const char *text) {
	size_t length = strlen(text), n_copy = 0;
	json_object *value;
	char *copy;

	if (length > INT32_MAX / 3)
		return NULL;
	if (utf8_valid(text, length))
		return json_object_new_string_len(text, (int)length);
	copy = malloc(length * 3);
	if (!copy)
		return NULL;
	for (size_t i = 0, n; i < length; i += n ?: 1) {
		n = utf8_length(text + i, length - i);
		memcpy(copy + n_copy, n ? text + i : UTF8_REPLACEMENT, n ?: 3);
		n_copy += n ?: 3;
	}
	value = json_object_new_string_len(copy, (int)n_copy);
	free(copy);
	return value;
}

void json_add_int(json_object *object, const char *key, int64_t value) {
	json_add(object, key, json_object_new_int64(value));
}

void json_add_uint(json_object *object, const char *key, uint64_t value) {
	json_add_int(object, key, value < INT64_MAX ? (int64_t)value : INT64_MAX);
}

void json_add_bool(json_object *object, const char *key, bool value) {
	json_add(object, key, json_object_new_boolean(value));
}

void json_add_string(json_object *object, const char *key, const char *text) {
	json_add(object, key, json_object_new_string(text));
}

void json_add_null(json_object *object, const char *key) {
	if (object && json_object_object_add(object, key, NULL))
		set_incomplete(object);
}

void json_add_text(json_object *object, const char *key, const char *text) {
	json_add(object, key, json_string(text));
}

void json_append_int(json_object *array, int64_t value) {
	json_append(array, json_object_new_int64(value));
}

void json_append_string(json_object *array, const char *text) {
	json_append(array, json_object_new_string(text));
}

/* Puts it into the object; NULL if it is not there afterwards. */
static json_object *add_container(json_object *object, const char *key, json_object *consumed) {
	json_add(object, key, consumed);
	return json_incomplete(object) ? NULL : consumed;
}

json_object *json_add_object(json_object *object, const char *key) {
	return add_container(object, key, json_object_new_object());
}

json_object *json_add_array(json_object *object, const char *key) {
	return add_container(object, key, json_object_new_array());
}

json_object *json_append_object(json_object *array) {
	json_object *object = json_object_new_object();

	json_append(array, object);
	return json_incomplete(array) ? NULL : object;
}

void json_clear(json_object *object) {
	struct json_object_iterator member = json_object_iter_begin(object);
	struct json_object_iterator end = json_object_iter_end(object);

	while (!json_object_iter_equal(&member, &end)) {
		json_object_object_del(object, json_object_iter_peek_name(&member));
		member = json_object_iter_begin(object);
		end = json_object_iter_end(object);
	}
	json_object_set_serializer(object, NULL, NULL, NULL);
}

/* ---- readers ---- */

json_object *json_get(json_object *object, const char *key, enum json_type type) {
	json_object *member = NULL;

	return json_object_object_get_ex(object, key, &member) && json_object_is_type(member, type)
		       ? member
		       : NULL;
}

json_object *json_member(json_object *object, const char *key) {
	json_object *member = NULL;

	json_object_object_get_ex(object, key, &member);
	return member;
}

bool json_has(json_object *object, const char *key) {
	return json_object_object_get_ex(object, key, NULL);
}

static bool read_int(json_object *value, int64_t min, int64_t max, int64_t *numberp) {
	const int64_t number = json_object_get_int64(value);

	if (!json_object_is_type(value, json_type_int) || number < min || number > max)
		return false;
	*numberp = number;
	return true;
}

static const char *read_string(json_object *value) {
	const char *text =
		json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;

	/* with a NUL inside it would be another one to us */
	return text && strlen(text) == (size_t)json_object_get_string_len(value) ? text : NULL;
}

bool json_get_int(json_object *object, const char *key, int64_t min, int64_t max, int64_t *value) {
	return read_int(json_get(object, key, json_type_int), min, max, value);
}

bool json_get_u32(json_object *object, const char *key, uint32_t min, uint32_t max,
		  uint32_t *value) {
	int64_t number;

	if (!json_get_int(object, key, min, max, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

bool json_get_bool(json_object *object, const char *key, bool *value) {
	json_object *member = json_get(object, key, json_type_boolean);

	if (member)
		*value = json_object_get_boolean(member);
	return member;
}

bool json_get_string(json_object *object, const char *key, const char **textp) {
	const char *text = json_string_of(object, key);

	if (text)
		*textp = text;
	return text;
}

bool json_get_array(json_object *object, const char *key, size_t max, json_object **array) {
	json_object *member = json_get(object, key, json_type_array);

	if (!member || json_object_array_length(member) > max)
		return false;
	*array = member;
	return true;
}

bool json_get_object(json_object *object, const char *key, json_object **member) {
	json_object *found = json_get(object, key, json_type_object);

	if (found)
		*member = found;
	return found;
}

bool json_int_at(json_object *array, size_t i, int64_t min, int64_t max, int64_t *value) {
	return read_int(json_object_array_get_idx(array, i), min, max, value);
}

const char *json_string_at(json_object *array, size_t i) {
	return read_string(json_object_array_get_idx(array, i));
}

const char *json_string_of(json_object *object, const char *key) {
	return read_string(json_get(object, key, json_type_string));
}

int64_t json_int_of(json_object *object, const char *key) {
	return json_object_get_int64(json_get(object, key, json_type_int));
}

bool json_bool_of(json_object *object, const char *key) {
	return json_object_get_boolean(json_get(object, key, json_type_boolean));
}

size_t json_length_of(json_object *array) {
	return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}

void json_add_fields(json_object *object, const struct json_field *fields, size_t n,
		     const void *from) {
	for (size_t i = 0; i < n; i++) {
		const void *member = (const char *)from + fields[i].offset;

		if (fields[i].type == json_type_string)
			json_add_string(object, fields[i].key, member);
		else if (fields[i].type == json_type_boolean)
			json_add_bool(object, fields[i].key, *(const bool *)member);
		else if (fields[i].size == sizeof(uint32_t))
			json_add_int(object, fields[i].key, *(const uint32_t *)member);
		else
			json_add_int(object, fields[i].key, (int64_t)*(const uint64_t *)member);
	}
}

static bool read_field(json_object *value, const struct json_field *field, void *member) {
	const uint64_t number = (uint64_t)json_object_get_int64(value);
	const char *text = read_string(value);

	if (field->type == json_type_string) {
		if (!text || strlen(text) >= field->size)
			return false;
		strcpy(member, text);
	} else if (!value || number > field->max) {
		return false;
	} else if (field->type == json_type_boolean) {
		*(bool *)member = number;
	} else if (field->size == sizeof(uint32_t)) {
		*(uint32_t *)member = (uint32_t)number;
	} else {
		*(uint64_t *)member = number;
	}
	return true;
}

const struct json_field *json_get_fields(json_object *object, const struct json_field *fields,
					 size_t n, void *to) {
	for (size_t i = 0; i < n; i++)
		if (!read_field(json_get(object, fields[i].key, fields[i].type), &fields[i],
				(char *)to + fields[i].offset))
			return &fields[i];
	return NULL;
}

json_object *json_parse(const char *text, size_t length, int depth) {
	struct json_tokener *tokener;
	json_object *object;

	if (!length || length > INT32_MAX || memchr(text, '\0', length))
		return NULL;
	tokener = json_tokener_new_ex(depth);
	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	object = json_tokener_parse_ex(tokener, text, (int)length);
	if (json_tokener_get_error(tokener) != json_tokener_success ||
	    json_tokener_get_parse_end(tokener) != length ||
	    !json_object_is_type(object, json_type_object)) {
		json_object_put(object);
		object = NULL;
	}
	json_tokener_free(tokener);
	return object;
}
