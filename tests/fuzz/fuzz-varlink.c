/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. The parsers of varlink. The input is texts that NULs separate: the first is parsed
 * as an interface description, and in any case each other one as a call and as a reply. Parameters
 * are validated against all members of the interface, and of io.gpuprobe.control. What is accepted
 * must print, and parse again to the same.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/varlink/varlink-json.h"
#include "lib/varlink/varlink-message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct varlink_interface *parse(const char *text) {
	struct varlink_interface *interface;
	struct varlink_fault fault;
	int r;

	r = varlink_interface_new(&interface, text, &fault);
	if (r > 0 && (!fault.reason || !fault.line))
		abort();
	return r ? NULL : interface;
}

static void validate(const struct varlink_interface *interface, json_object *parameters) {
	struct varlink_fault fault;

	for (const struct varlink_member *member = varlink_interface_members(interface); member;
	     member = member->next) {
		if (varlink_type_validate(member->type, parameters, &fault) && !fault.reason)
			abort();
		if (member->reply)
			varlink_type_validate(member->reply, parameters, &fault);
	}
}

static void round_trip(json_object *value) {
	json_object *again;
	const char *text;
	size_t n_text;

	if (varlink_json_print(value, &text, &n_text))
		abort();
	if (varlink_json_parse(&again, text, n_text) || !json_object_equal(value, again))
		abort();
	json_object_put(again);
}

static void try_message(const struct varlink_interface *interface,
			const struct varlink_interface *control, const char *text, size_t n_text) {
	struct varlink_call_message call;
	struct varlink_reply_message reply;
	json_object *value;
	size_t n;

	if (!varlink_json_parse(&value, text, n_text)) {
		round_trip(value);
		if (interface)
			validate(interface, value);
		validate(control, value);
		json_object_put(value);
	}
	if (!varlink_call_message_parse(&call, text, n_text)) {
		if (varlink_name_split(call.method, &n) && call.method[n] != '.')
			abort();
		validate(control, call.parameters);
		json_object_put(call.root);
	}
	if (!varlink_reply_message_parse(&reply, text, n_text))
		json_object_put(reply.root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static struct varlink_interface *control;
	struct varlink_interface *interface;
	char *text = malloc(size + 1);

	if (!control)
		control = parse(varlink_io_gpuprobe_control);
	memcpy(text, data, size);
	text[size] = '\0';
	interface = parse(text);
	for (size_t i = 0, n; i <= size; i += n + 1) {
		n = strlen(text + i);
		try_message(interface, control, text + i, n);
	}
	varlink_interface_free(interface);
	free(text);
	return 0;
}
