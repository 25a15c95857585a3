/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A client on a blocking socket, without a loop. One call at a time:
 *
 *     varlink_client_connect(&client, path, timeout_ms);
 *     r = varlink_client_call(client, "io.gpuprobe.control.List", NULL, &reply);
 *     if (r == VARLINK_CLIENT_E_ERROR)
 *             ... reply.error, reply.parameters
 *     varlink_reply_deinit(&reply);
 *
 * Or with `more`: varlink_client_call_more() once, then varlink_client_next() until reply.continues
 * is false. A negative errno leaves the connection useless: -ECONNRESET the service hung up,
 * -ETIMEDOUT, -EBADMSG it does not talk varlink.
 */

#include <json-c/json.h>
#include <stdbool.h>

enum {
	_VARLINK_CLIENT_E_SUCCESS,
	VARLINK_CLIENT_E_ERROR, /* the service answered with an error */
	VARLINK_CLIENT_E_OTHER, /* varlink_client_wait: the other descriptor is readable */
	VARLINK_CLIENT_E_AGAIN, /* varlink_client_wait: nothing came so far */
};

struct varlink_client;

struct varlink_reply {
	json_object *root; /* owns the rest */
	const char *error; /* a qualified name, or NULL */
	json_object *parameters; /* never NULL */
	bool continues;
};

int varlink_client_connect(struct varlink_client **clientp, const char *path, int timeout_ms);
struct varlink_client *varlink_client_free(struct varlink_client *client);
int varlink_client_call(struct varlink_client *client, const char *method,
			json_object *consume_parameters, struct varlink_reply *reply);
int varlink_client_call_more(struct varlink_client *client, const char *method,
			     json_object *consume_parameters);
int varlink_client_next(struct varlink_client *client, struct varlink_reply *reply);
int varlink_client_wait(struct varlink_client *client, int other_fd, int timeout_ms);
int varlink_client_call_oneway(struct varlink_client *client, const char *method,
			       json_object *consume_parameters);
/* The descriptor that came last, with the reply before at the latest: the caller's; -1: none. */
int varlink_client_take_descriptor(struct varlink_client *client);
void varlink_reply_deinit(struct varlink_reply *reply);
