/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Envelopes. Only the specified keys are accepted, each with its type; `parameters` may be absent,
 * null or an object, and is printed as an object always, since some clients insist on one. An error
 * is final, so it does not continue.
 */

#include <errno.h>
#include <string.h>

#include "varlink-json.h"
#include "varlink-message.h"

static bool get_bool(json_object *value, bool *outp) {
	if (!json_object_is_type(value, json_type_boolean))
		return false;
	*outp = json_object_get_boolean(value);
	return true;
}

static bool get_string(json_object *value, const char **outp) {
	if (!json_object_is_type(value, json_type_string))
		return false;
	*outp = json_object_get_string(value);
	return true;
}

static bool get_parameters(json_object *value, json_object **outp) {
	if (value && !json_object_is_type(value, json_type_object))
		return false;
	*outp = value;
	return true;
}

/*
 * Where the name of the member begins in interface.Member: *@n_interfacep is the length of what is
 * before the dot.
 */
bool varlink_name_split(const char *name, size_t *n_interfacep) {
	const char *dot = strrchr(name, '.');

	if (!dot || dot == name || !dot[1])
		return false;
	*n_interfacep = dot - name;
	return true;
}

static bool call_message_read(struct varlink_call_message *message) {
	if (!json_object_is_type(message->root, json_type_object))
		return false;
	json_object_object_foreach(message->root, key, value) {
		if (!strcmp(key, "method")       ? !get_string(value, &message->method)
		    : !strcmp(key, "parameters") ? !get_parameters(value, &message->parameters)
		    : !strcmp(key, "oneway")     ? !get_bool(value, &message->oneway)
		    : !strcmp(key, "more")       ? !get_bool(value, &message->more)
		    : !strcmp(key, "upgrade")    ? !get_bool(value, &message->upgrade)
						 : true)
			return false;
	}
	return message->method && message->oneway + message->more + message->upgrade <= 1;
}

/*
 * Reads a call. On 0 the caller puts @message->root. Returns 0, VARLINK_MESSAGE_E_INVALID or
 * -ENOMEM.
 */
int varlink_call_message_parse(struct varlink_call_message *message, const char *text,
			       size_t n_text) {
	struct varlink_call_message new = {};
	int r;

	r = varlink_json_parse_bounded(&new.root, text, n_text, VARLINK_CALL_VALUES_MAX);
	if (r < 0)
		return r;
	if (r || !call_message_read(&new)) {
		json_object_put(new.root);
		return VARLINK_MESSAGE_E_INVALID;
	}
	*message = new;
	return 0;
}

static bool reply_message_read(struct varlink_reply_message *message) {
	size_t n;

	if (!json_object_is_type(message->root, json_type_object))
		return false;
	json_object_object_foreach(message->root, key, value) {
		if (!strcmp(key, "parameters")  ? !get_parameters(value, &message->parameters)
		    : !strcmp(key, "error")     ? !get_string(value, &message->error)
		    : !strcmp(key, "continues") ? !get_bool(value, &message->continues)
						: true)
			return false;
	}
	return !message->error || (!message->continues && varlink_name_split(message->error, &n));
}

/*
 * Reads a reply. On 0 the caller puts @message->root. Returns 0, VARLINK_MESSAGE_E_INVALID or
 * -ENOMEM.
 */
int varlink_reply_message_parse(struct varlink_reply_message *message, const char *text,
				size_t n_text) {
	struct varlink_reply_message new = {};
	int r;

	r = varlink_json_parse(&new.root, text, n_text);
	if (r < 0)
		return r;
	if (r || !reply_message_read(&new)) {
		json_object_put(new.root);
		return VARLINK_MESSAGE_E_INVALID;
	}
	*message = new;
	return 0;
}

/* Adds to @object, which it frees when that fails. */
static json_object *add(json_object *object, const char *key, json_object *value) {
	if (object && value && json_object_object_add(object, key, value) == 0)
		return object;
	json_object_put(value);
	json_object_put(object);
	return NULL;
}

/*
 * A call. Takes @consume_parameters, which may be NULL, in any case; returns NULL without memory.
 */
json_object *varlink_call_message_new(const char *method, json_object *consume_parameters,
				      bool oneway, bool more) {
	json_object *message = json_object_new_object();

	if (!consume_parameters)
		consume_parameters = json_object_new_object();
	message = add(message, "method", json_object_new_string(method));
	message = add(message, "parameters", consume_parameters);
	if (oneway)
		message = add(message, "oneway", json_object_new_boolean(true));
	if (more)
		message = add(message, "more", json_object_new_boolean(true));
	return message;
}

/*
 * A reply; an error if @error. Takes @consume_parameters, which may be NULL, in any case; returns
 * NULL without memory.
 */
json_object *varlink_reply_message_new(const char *error, json_object *consume_parameters,
				       bool continues) {
	json_object *message = json_object_new_object();

	if (!consume_parameters)
		consume_parameters = json_object_new_object();
	if (error)
		message = add(message, "error", json_object_new_string(error));
	message = add(message, "parameters", consume_parameters);
	if (continues)
		message = add(message, "continues", json_object_new_boolean(true));
	return message;
}
