/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Answers of the methods (control-call.h): their errors, and who frees what a method keeps for a
 * call that it answers later.
 */

#include "control-call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/json.h"

/* An error with one text. */
static int error_text(struct varlink_call *call, const char *error, const char *key,
		      const char *format, va_list arguments) {
	json_object *json = json_object_new_object();
	char name[64], *text = NULL;

	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	snprintf(name, sizeof(name), CONTROL_INTERFACE "%s", error);
	json_add(json, key, text ? json_string(text) : NULL);
	free(text);
	return varlink_call_error(call, name, json);
}

int control_error_not_found(struct varlink_call *call, const char *format, ...) {
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = error_text(call, "NotFound", "what", format, arguments);
	va_end(arguments);
	return r;
}

int control_error_reason(struct varlink_call *call, const char *error, const char *format, ...) {
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = error_text(call, error, "reason", format, arguments);
	va_end(arguments);
	return r;
}

int control_error_argument(struct varlink_call *call, const char *parameter, const char *reason) {
	json_object *json = json_object_new_object();

	json_add_text(json, "parameter", parameter);
	json_add_text(json, "reason", reason);
	return varlink_call_error(call, CONTROL_INTERFACE "InvalidArgument", json);
}

int control_error_limit(struct varlink_call *call, const char *what, uint64_t limit) {
	json_object *json = json_object_new_object();

	json_add_text(json, "what", what);
	json_add_int(json, "limit", limit);
	return varlink_call_error(call, CONTROL_INTERFACE "LimitExceeded", json);
}

/* The client has gone. */
static void control_work_cancel(struct varlink_call *call, void *userdata) {
	struct control_work *work = userdata;

	work->free(work);
	varlink_call_unref(call);
}

void control_work_begin(struct control_work *work, struct varlink_call *call,
			void (*free)(void *work)) {
	work->call = varlink_call_ref(call);
	work->free = free;
	varlink_call_set_userdata(call, work);
	varlink_call_on_cancel(call, control_work_cancel);
}

void control_work_run(struct control_work *work,
		      int (*run)(struct varlink_call *call, varlink_producer produce),
		      varlink_producer produce) {
	if (run(work->call, produce))
		control_work_end(work, 0);
}

int control_work_end(struct control_work *work, int r) {
	struct varlink_call *call = work->call;

	varlink_call_on_cancel(call, NULL);
	if (r == VARLINK_E_INVALID)
		control_error_reason(call, "Internal", "the answer does not fit the interface");
	control_work_cancel(call, work);
	return r < 0 ? r : VARLINK_PRODUCE_AGAIN;
}
