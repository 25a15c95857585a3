/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interface description language of varlink: its model, its parser, and the validation of
 * values against it.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	_VARLINK_IDL_E_SUCCESS,
	VARLINK_IDL_E_SYNTAX, /* the text is not an interface description */
	VARLINK_IDL_E_UNKNOWN, /* a member that the type does not have */
	VARLINK_IDL_E_TYPE, /* a value of another type */
	VARLINK_IDL_E_MISSING, /* no value, or null, where the type is not nullable */
};

#define VARLINK_IDL_TEXT_MAX (1024 * 1024)
#define VARLINK_IDL_DEPTH 32
#define VARLINK_IDL_FIELD_MAX 256

enum varlink_kind {
	VARLINK_BOOL,
	VARLINK_INT,
	VARLINK_FLOAT,
	VARLINK_STRING,
	VARLINK_OBJECT,
	VARLINK_ARRAY, /* of element */
	VARLINK_MAP, /* from strings to element */
	VARLINK_STRUCT, /* fields with their types */
	VARLINK_ENUM, /* fields without types */
	VARLINK_NAMED, /* another type of the interface: resolved */
};

struct varlink_field {
	struct varlink_field *next;
	const char *name;
	struct varlink_type *type; /* NULL in an enum */
};

struct varlink_type {
	enum varlink_kind kind;
	bool nullable;
	struct varlink_type *element; /* of ARRAY and MAP */
	struct varlink_field *fields; /* of STRUCT and ENUM */
	const char *name; /* of NAMED */
	const struct varlink_type *resolved; /* of NAMED */
};

enum varlink_member_kind {
	VARLINK_MEMBER_TYPE,
	VARLINK_MEMBER_METHOD,
	VARLINK_MEMBER_ERROR,
};

struct varlink_member {
	struct varlink_member *next;
	enum varlink_member_kind kind;
	const char *name;
	struct varlink_type *type; /* a type's, an error's parameters, what a method takes */
	struct varlink_type *reply; /* what a method returns, else NULL */
};

struct varlink_interface;

/* Where a text or a value is wrong. */
struct varlink_fault {
	unsigned int line; /* of a text */
	char field[VARLINK_IDL_FIELD_MAX]; /* of a value, as in "filter.pid" or "ids[2]" */
	const char *reason; /* a few words */
};

int varlink_interface_new(struct varlink_interface **interfacep, const char *text,
			  struct varlink_fault *fault);
struct varlink_interface *varlink_interface_free(struct varlink_interface *interface);

const char *varlink_interface_name(const struct varlink_interface *interface);
const char *varlink_interface_text(const struct varlink_interface *interface);
const struct varlink_member *varlink_interface_members(const struct varlink_interface *interface);
const struct varlink_member *varlink_interface_find(const struct varlink_interface *interface,
						    enum varlink_member_kind kind,
						    const char *name);

int varlink_type_validate(const struct varlink_type *type, json_object *value,
			  struct varlink_fault *fault);
int varlink_type_validate_open(const struct varlink_type *type, json_object *value,
			       struct varlink_fault *fault);
