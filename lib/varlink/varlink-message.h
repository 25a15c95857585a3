/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two kinds of message: calls and replies. On the wire each is JSON text and a NUL byte. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	_VARLINK_MESSAGE_E_SUCCESS,
	VARLINK_MESSAGE_E_INVALID, /* no message of this kind */
};

#define VARLINK_MESSAGE_MAX (16 * 1024 * 1024) /* bytes, without the NUL */
#define VARLINK_CALL_VALUES_MAX 65536 /* JSON values in a call */

struct varlink_call_message {
	json_object *root; /* owns the rest */
	const char *method; /* not checked further */
	json_object *parameters; /* an object, or NULL */
	bool oneway, more, upgrade;
};

struct varlink_reply_message {
	json_object *root; /* owns the rest */
	const char *error; /* a qualified name, or NULL */
	json_object *parameters; /* an object, or NULL */
	bool continues;
};

int varlink_call_message_parse(struct varlink_call_message *message, const char *text,
			       size_t n_text);
int varlink_reply_message_parse(struct varlink_reply_message *message, const char *text,
				size_t n_text);
json_object *varlink_call_message_new(const char *method, json_object *consume_parameters,
				      bool oneway, bool more);
json_object *varlink_reply_message_new(const char *error, json_object *consume_parameters,
				       bool continues);
bool varlink_name_split(const char *name, size_t *n_interfacep);
