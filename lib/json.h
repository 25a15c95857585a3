/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * JSON, checked, for the whole tree: json-c makes a member null when there is no memory for it, and
 * its getters convert between types.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writers. They return no error: an object or array that lacks a part for want of memory remembers
 * so, and no text can be made of it, nor of anything that it is in. Whoever prints, sends or saves
 * the text sees NULL or -ENOMEM; json_incomplete() tells before that.
 *
 * `consumed` is taken in any case; NULL stands for a value that there was no memory for. An object
 * or array that is NULL is let alone. _string() keeps the bytes of the text, and varlink refuses to
 * send what is not UTF-8; _text() is for texts of other programs: what is not UTF-8 becomes U+FFFD.
 */
void json_add(json_object *object, const char *key, json_object *consumed);
void json_add_int(json_object *object, const char *key, int64_t value);
void json_add_uint(json_object *object, const char *key,
		   uint64_t value); /* what does not fit is INT64_MAX */
void json_add_bool(json_object *object, const char *key, bool value);
void json_add_string(json_object *object, const char *key, const char *text);
void json_add_null(json_object *object, const char *key);
void json_add_text(json_object *object, const char *key, const char *text);
void json_append(json_object *array, json_object *consumed);
void json_append_int(json_object *array, int64_t value);
void json_append_string(json_object *array, const char *text);

/* A new object or array in one, which owns it. NULL without memory. */
json_object *json_add_object(json_object *object, const char *key);
json_object *json_add_array(json_object *object, const char *key);
json_object *json_append_object(json_object *array);

json_object *json_string(const char *text);
void json_clear(json_object *object); /* takes all members out; it is complete then */
bool json_incomplete(json_object *value);

/*
 * Readers: members of a type. Absent, null, of another type, out of range and a string with a NUL
 * inside are the same to them: false, and the output is untouched; or NULL. `object` may be
 * anything, NULL too.
 */
json_object *json_get(json_object *object, const char *key, enum json_type type);
bool json_get_int(json_object *object, const char *key, int64_t min, int64_t max, int64_t *value);
bool json_get_u32(json_object *object, const char *key, uint32_t min, uint32_t max,
		  uint32_t *value);
bool json_get_bool(json_object *object, const char *key, bool *value);
bool json_get_string(json_object *object, const char *key, const char **text);
bool json_get_array(json_object *object, const char *key, size_t max, json_object **array);
bool json_get_object(json_object *object, const char *key, json_object **member);
bool json_has(json_object *object, const char *key);

/* Elements of an array. */
bool json_int_at(json_object *array, size_t i, int64_t min, int64_t max, int64_t *value);
const char *json_string_at(json_object *array, size_t i);

/* The same, where one value stands for all that is not so: NULL, 0, false; length 0. */
json_object *json_member(json_object *object, const char *key); /* of any type */
const char *json_string_of(json_object *object, const char *key);
int64_t json_int_of(json_object *object, const char *key);
bool json_bool_of(json_object *object, const char *key);
size_t json_length_of(json_object *array);

/*
 * Members of a struct that are members of an object by the same names: one table for the writer and
 * the reader. Integers are unsigned and of 32 or 64 bits; `max` bounds what is read, as an int64_t:
 * JSON_ANY lets all pass, those that were written as negative numbers too. A text that does not fit
 * is out of range. json_get_fields() returns the key of the first that is not as it should be;
 * NULL: all are.
 */
struct json_field {
	const char *key;
	enum json_type type;
	size_t offset, size;
	uint64_t max;
};

#define JSON_ANY UINT64_MAX
#define JSON_FIELD(type, member, kind, max) \
	{ #member, kind, offsetof(type, member), sizeof(((type *)0)->member), max }
#define JSON_INT(type, member, max) JSON_FIELD(type, member, json_type_int, max)
#define JSON_BOOL(type, member) JSON_FIELD(type, member, json_type_boolean, 1)
#define JSON_TEXT(type, member) JSON_FIELD(type, member, json_type_string, 0)

void json_add_fields(json_object *object, const struct json_field *fields, size_t n,
		     const void *from);
const struct json_field *json_get_fields(json_object *object, const struct json_field *fields,
					 size_t n, void *to);

/* The one object that fills the text, white space aside; NULL: it is something else, or there is no
 * memory. */
json_object *json_parse(const char *text, size_t length, int depth);
