/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Validation of values against types of an interface.
 *
 * Walks type and value together. The path to the present place is kept in the fault's field buffer
 * and cut back on the way out, so the place is there when something is wrong. The depth is bounded
 * by that of the value, which comes from our parser or from ourselves. json-c's getters convert
 * between types, so the type is looked at first.
 */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "varlink-idl.h"

struct path {
	struct varlink_fault *fault;
	size_t n;
	bool open; /* members that the type does not have are passed over */
};

static int validate(struct path *path, const struct varlink_type *type, json_object *value);

static int refuse(struct path *path, int error, const char *reason) {
	path->fault->reason = reason;
	return error;
}

/*
 * Validates what lies at ".@name" or, without a name, at "[@index]". The path remains where it was
 * wrong.
 */
static int validate_below(struct path *path, const char *name, size_t index,
			  const struct varlink_type *type, json_object *value) {
	size_t n = path->n, room = sizeof(path->fault->field) - n;
	int r, printed;

	if (name)
		printed = snprintf(path->fault->field + n, room, "%s%s", n ? "." : "", name);
	else
		printed = snprintf(path->fault->field + n, room, "[%zu]", index);
	path->n += (size_t)printed < room ? (size_t)printed : room - 1;
	r = type ? validate(path, type, value) : refuse(path, VARLINK_IDL_E_UNKNOWN, "unknown");
	if (r)
		return r;
	path->n = n;
	path->fault->field[n] = '\0';
	return 0;
}

static const struct varlink_field *find_field(const struct varlink_type *type, const char *name) {
	for (const struct varlink_field *field = type->fields; field; field = field->next)
		if (!strcmp(field->name, name))
			return field;
	return NULL;
}

/* Every member must be a field, and every field must be there unless nullable. */
static int validate_struct(struct path *path, const struct varlink_type *type, json_object *value) {
	int r;

	if (!json_object_is_type(value, json_type_object))
		return refuse(path, VARLINK_IDL_E_TYPE, "not an object");
	json_object_object_foreach(value, key, member) {
		const struct varlink_field *field = find_field(type, key);

		if (!field && path->open)
			continue;
		r = validate_below(path, key, 0, field ? field->type : NULL, member);
		if (r)
			return r;
	}
	for (const struct varlink_field *field = type->fields; field; field = field->next)
		if (!field->type->nullable &&
		    !json_object_object_get_ex(value, field->name, NULL)) {
			r = validate_below(path, field->name, 0, field->type, NULL);
			if (r)
				return r;
		}
	return 0;
}

static int validate_array(struct path *path, const struct varlink_type *type, json_object *value) {
	int r;

	if (!json_object_is_type(value, json_type_array))
		return refuse(path, VARLINK_IDL_E_TYPE, "not an array");
	for (size_t i = 0; i < json_object_array_length(value); i++) {
		r = validate_below(path, NULL, i, type->element,
				   json_object_array_get_idx(value, i));
		if (r)
			return r;
	}
	return 0;
}

static int validate_map(struct path *path, const struct varlink_type *type, json_object *value) {
	int r;

	if (!json_object_is_type(value, json_type_object))
		return refuse(path, VARLINK_IDL_E_TYPE, "not an object");
	json_object_object_foreach(value, key, member) {
		r = validate_below(path, key, 0, type->element, member);
		if (r)
			return r;
	}
	return 0;
}

static int validate_enum(struct path *path, const struct varlink_type *type, json_object *value) {
	if (!json_object_is_type(value, json_type_string) ||
	    !find_field(type, json_object_get_string(value)))
		return refuse(path, VARLINK_IDL_E_TYPE, "not one of the names of the enum");
	return 0;
}

static int validate(struct path *path, const struct varlink_type *type, json_object *value) {
	if (!value) {
		if (type->nullable)
			return 0;
		return refuse(path, VARLINK_IDL_E_MISSING, "missing");
	}

	switch (type->kind) {
	case VARLINK_BOOL:
		if (!json_object_is_type(value, json_type_boolean))
			return refuse(path, VARLINK_IDL_E_TYPE, "not a bool");
		return 0;
	case VARLINK_INT:
		if (!json_object_is_type(value, json_type_int))
			return refuse(path, VARLINK_IDL_E_TYPE, "not an int");
		if (json_object_get_int64(value) == INT64_MAX &&
		    json_object_get_uint64(value) > INT64_MAX)
			return refuse(path, VARLINK_IDL_E_TYPE, "an int of more than 63 bits");
		return 0;
	case VARLINK_FLOAT:
		if (!json_object_is_type(value, json_type_double) &&
		    !json_object_is_type(value, json_type_int))
			return refuse(path, VARLINK_IDL_E_TYPE, "not a number");
		return 0;
	case VARLINK_STRING:
		if (!json_object_is_type(value, json_type_string))
			return refuse(path, VARLINK_IDL_E_TYPE, "not a string");
		return 0;
	case VARLINK_OBJECT:
		if (!json_object_is_type(value, json_type_object))
			return refuse(path, VARLINK_IDL_E_TYPE, "not an object");
		return 0;
	case VARLINK_ARRAY:
		return validate_array(path, type, value);
	case VARLINK_MAP:
		return validate_map(path, type, value);
	case VARLINK_STRUCT:
		return validate_struct(path, type, value);
	case VARLINK_ENUM:
		return validate_enum(path, type, value);
	case VARLINK_NAMED:
		return validate(path, type->resolved, value);
	}
	__builtin_unreachable();
}

/*
 * Whether @value, which may be NULL for null, is one of @type. Returns 0, or VARLINK_IDL_E_UNKNOWN,
 * _TYPE or _MISSING with the place and the reason in *@fault.
 */
int varlink_type_validate(const struct varlink_type *type, json_object *value,
			  struct varlink_fault *fault) {
	struct path path = { .fault = fault };

	*fault = (struct varlink_fault){};
	return validate(&path, type, value);
}

/*
 * The same for what a service of a later version may have said: it may have members that we do not
 * know.
 */
int varlink_type_validate_open(const struct varlink_type *type, json_object *value,
			       struct varlink_fault *fault) {
	struct path path = { .fault = fault, .open = true };

	*fault = (struct varlink_fault){};
	return validate(&path, type, value);
}
