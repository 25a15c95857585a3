/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One call at the varlink server (varlink-server.h): its parameters, and how its handler answers.
 *
 * A call on its way through a handler.
 *
 * The connection has one reference as long as the call runs; handlers that answer later have their
 * own. `connection` is NULL as soon as the call is done or cancelled, and everything that would
 * send something looks at it first. If all references but the connection's are gone, nobody can
 * answer any more, and the client would wait forever: then the connection is closed.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "varlink-json.h"
#include "lib/json.h"
#include "varlink-server-private.h"

#define CALL_SOCKET_SIZE (2 * 1024 * 1024)
#define SERVICE_ERROR(name) "org.varlink.service." name

struct varlink_call *varlink_call_ref(struct varlink_call *call) {
	call->n_refs++;
	return call;
}

/* A call ends: gives back what was charged for it; if it gathers, the next one of its user has its
 * turn. */
static void call_leave(struct varlink_call *call) {
	struct varlink_user *user = call->connection->user;
	struct varlink_call *next;

	user->n_bytes -= call->n_held;
	call->n_held = 0;
	if (!call->gathers)
		return;
	TAILQ_REMOVE(&user->gathering, call, gathering_link);
	call->gathers = false;
	next = TAILQ_FIRST(&user->gathering);
	if (next && !next->connection->waiting)
		server_wait(next->connection);
}

/* The call ends: the connection is free for the next one. */
static void call_finish(struct varlink_call *call) {
	struct varlink_connection *connection = call->connection;

	call_leave(call);
	call->done = true;
	call->connection = NULL;
	connection->call = NULL;
	if (connection->state == CONNECTION_RUNNING)
		connection->state = CONNECTION_IDLE;
	varlink_call_unref(call);
	connection_process(connection);
}

/* Nobody is left who could answer. */
static void call_abandon(struct varlink_call *call) {
	if (call->message.oneway)
		call_finish(call);
	else
		connection_close(call->connection);
}

/* Takes NULL. Returns NULL. */
struct varlink_call *varlink_call_unref(struct varlink_call *call) {
	if (!call)
		return NULL;
	if (--call->n_refs) {
		if (call->n_refs == 1 && call->connection && !call->dispatching && !call->produce)
			call_abandon(call);
		return NULL;
	}
	json_object_put(call->message.root);
	free(call);
	return NULL;
}

/* The connection is closed under a running call. */
void call_cancel(struct varlink_call *call) {
	call_leave(call);
	call->connection->call = NULL;
	call->connection = NULL;
	if (call->cancel)
		call->cancel(call, call->userdata);
	varlink_call_unref(call);
}

/* Answers with an error of org.varlink.service that has one string, or none. */
static int service_error(struct varlink_call *call, const char *error, const char *name,
			 const char *value) {
	return varlink_call_error(call, error,
				  name ? varlink_json_pack(name, json_string(value), NULL) : NULL);
}

/*
 * Looks the method up and checks the call against it. Returns the method, or NULL after it has
 * answered.
 */
static const struct varlink_method *call_resolve(struct varlink_call *call) {
	const struct varlink_call_message *message = &call->message;
	const struct varlink_method *method;
	char *interface;
	size_t n;

	if (!varlink_name_split(message->method, &n)) {
		service_error(call, SERVICE_ERROR("InvalidParameter"), "parameter", "method");
		return NULL;
	}
	call->member = message->method + n + 1;
	call->service = server_find_service(call->connection->server, message->method, n);
	if (!call->service) {
		interface = strndup(message->method, n);
		service_error(call, SERVICE_ERROR("InterfaceNotFound"), "interface",
			      interface ?: "");
		free(interface);
		return NULL;
	}
	call->method = varlink_interface_find(call->service->interface, VARLINK_MEMBER_METHOD,
					      call->member);
	if (!call->method) {
		service_error(call, SERVICE_ERROR("MethodNotFound"), "method", message->method);
		return NULL;
	}
	if (message->upgrade) {
		service_error(call, SERVICE_ERROR("InvalidParameter"), "parameter", "upgrade");
		return NULL;
	}
	for (method = call->service->methods; method->name; method++)
		if (!strcmp(method->name, call->member))
			break;
	if (!method->name) {
		service_error(call, SERVICE_ERROR("MethodNotImplemented"), "method",
			      message->method);
		return NULL;
	}
	if (varlink_type_validate(call->method->type, message->parameters, &call->fault)) {
		service_error(call, SERVICE_ERROR("InvalidParameter"), "parameter",
			      call->fault.field);
		return NULL;
	}
	if ((method->flags & VARLINK_METHOD_MORE_ONLY) && !message->more) {
		service_error(call, SERVICE_ERROR("ExpectedMore"), NULL, NULL);
		return NULL;
	}
	return method;
}

/*
 * Runs a call, whose message it takes in any case. Returns 0 or negative errno: then the connection
 * is to be closed.
 */
int call_dispatch(struct varlink_connection *connection,
		  struct varlink_call_message *consume_message) {
	const struct varlink_method *method;
	struct varlink_call *call;
	int r = 0;

	call = calloc(1, sizeof(*call));
	if (call && !consume_message->parameters) {
		consume_message->parameters = json_object_new_object();
		json_object_object_del(consume_message->root, "parameters");
		if (!consume_message->parameters ||
		    json_object_object_add(consume_message->root, "parameters",
					   consume_message->parameters) < 0) {
			free(call);
			call = NULL;
		}
	}
	if (!call) {
		json_object_put(consume_message->root);
		return -ENOMEM;
	}
	call->n_refs = 1;
	call->message = *consume_message;
	call->connection = connection;
	call->peer = connection->peer;
	connection->call = varlink_call_ref(call);
	connection->state = CONNECTION_RUNNING;

	connection->server->counters.calls++;
	call->dispatching = true;
	method = call_resolve(call);
	if (method)
		r = method->handler(call, call->message.parameters, call->service->userdata);
	if (r < 0)
		call->cancel = NULL;
	call->dispatching = false;
	varlink_call_unref(call); /* abandons it if nobody else has it */
	return r < 0 ? r : 0;
}

/* Whether the producer may be asked for more. */
bool call_can_produce(const struct varlink_call *call) {
	return call->produce && !call->idle &&
	       (!call->gathers || TAILQ_FIRST(&call->connection->user->gathering) == call);
}

/* Asks the producer for more. Returns its answer. */
int call_produce(struct varlink_call *call) {
	int r;

	varlink_call_ref(call);
	call->woken = false;
	call->dispatching = true;
	r = call->produce(call, call->userdata);
	call->dispatching = false;
	call->idle = r == VARLINK_PRODUCE_IDLE && !call->woken;
	varlink_call_unref(call);
	return r;
}

/* The full name, as the client gave it. */
const char *varlink_call_method(const struct varlink_call *call) {
	return call->message.method;
}

json_object *varlink_call_parameters(const struct varlink_call *call) {
	return call->message.parameters;
}

bool varlink_call_more(const struct varlink_call *call) {
	return call->message.more;
}

bool varlink_call_oneway(const struct varlink_call *call) {
	return call->message.oneway;
}

/* Valid as long as the call, whatever becomes of the client. */
const struct varlink_peer *varlink_call_peer(const struct varlink_call *call) {
	return &call->peer;
}

/*
 * Whether the client had @gid as its group or a supplementary one when it connected. False if it
 * has gone.
 */
bool varlink_call_peer_in_group(const struct varlink_call *call, gid_t gid) {
	socklen_t n_groups = 64 * sizeof(gid_t);
	gid_t *groups = NULL, *grown;
	bool found = false;
	int fd, r;

	if (call->peer.gid == gid)
		return true;
	if (!call->connection || uv_fileno((uv_handle_t *)&call->connection->pipe, &fd) < 0)
		return false;
	do {
		grown = realloc(groups, n_groups);
		if (!grown) {
			free(groups);
			return false;
		}
		groups = grown;
		r = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n_groups);
	} while (r < 0 && errno == ERANGE);
	for (size_t i = 0; r >= 0 && i < n_groups / sizeof(gid_t); i++)
		found = found || groups[i] == gid;
	free(groups);
	return found;
}

/* Where the last reply was wrong, after VARLINK_E_INVALID. */
const struct varlink_fault *varlink_call_fault(const struct varlink_call *call) {
	return &call->fault;
}

/* Whether something can be sent: 0, VARLINK_E_DONE or VARLINK_E_DISCONNECTED. */
static int call_check(const struct varlink_call *call) {
	if (call->done)
		return VARLINK_E_DONE;
	return call->connection ? 0 : VARLINK_E_DISCONNECTED;
}

/* Checks parameters of a reply, which may be NULL for none. */
static int validate(struct varlink_call *call, const struct varlink_type *type,
		    json_object *parameters) {
	json_object *empty = parameters ? NULL : json_object_new_object();
	int r;

	r = varlink_type_validate(type, parameters ?: empty, &call->fault);
	json_object_put(empty);
	return r ? VARLINK_E_INVALID : 0;
}

/*
 * Sends what is valid; the client of a oneway call gets nothing. If it fails, the connection is
 * closed: who answers learns that from the result, and is not cancelled, or he would let go of the
 * same things twice.
 */
static int call_send(struct varlink_call *call, const char *error, json_object *consume_parameters,
		     bool continues, int fd) {
	void (*cancel)(struct varlink_call *call, void *userdata) = call->cancel;
	int r;

	if (call->message.oneway) {
		json_object_put(consume_parameters);
		return 0;
	}
	call->cancel = NULL;
	r = connection_send(call->connection,
			    varlink_reply_message_new(error, consume_parameters, continues), fd,
			    &call->fault);
	if (r >= 0)
		call->cancel = cancel;
	return r;
}

/*
 * The final answer, {} if @consume_parameters is NULL; takes them in any case. Returns 0;
 * VARLINK_E_INVALID if they are not what the interface says, and the call can still be answered;
 * VARLINK_E_DONE; VARLINK_E_DISCONNECTED; negative errno.
 */
int varlink_call_reply(struct varlink_call *call, json_object *consume_parameters) {
	int r = call_check(call);

	if (!r)
		r = validate(call, call->method->reply, consume_parameters);
	if (r) {
		json_object_put(consume_parameters);
		return r;
	}
	r = call_send(call, NULL, consume_parameters, false, -1);
	if (!r)
		call_finish(call);
	return r;
}

/* An answer that is an error; its name is the interface's own. */
static void count_error(struct varlink_server *server, const char *name) {
	size_t i = 0;

	while (i < VARLINK_ERRORS_MAX && server->errors[i].name &&
	       strcmp(server->errors[i].name, name) != 0)
		i++;
	if (i < VARLINK_ERRORS_MAX) {
		server->errors[i].name = name;
		server->errors[i].n++;
	}
}

/* A qualified error, or NULL. */
static const struct varlink_member *find_error(struct varlink_server *server, const char *error) {
	struct varlink_service *service;
	size_t n;

	if (!varlink_name_split(error, &n))
		return NULL;
	service = server_find_service(server, error, n);
	if (!service)
		return NULL;
	return varlink_interface_find(service->interface, VARLINK_MEMBER_ERROR, error + n + 1);
}

/* The final answer as an error, by its qualified name. Otherwise as varlink_call_reply(). */
int varlink_call_error(struct varlink_call *call, const char *error,
		       json_object *consume_parameters) {
	const struct varlink_member *member = NULL;
	int r = call_check(call);

	if (!r) {
		member = find_error(call->connection->server, error);
		if (member) {
			r = validate(call, member->type, consume_parameters);
		} else {
			call->fault = (struct varlink_fault){ .reason = "no such error" };
			r = VARLINK_E_INVALID;
		}
	}
	if (r) {
		json_object_put(consume_parameters);
		return r;
	}
	count_error(call->connection->server, member->name);
	r = call_send(call, error, consume_parameters, false, -1);
	if (!r)
		call_finish(call);
	return r;
}

/* The final answer, org.varlink.service.InvalidParameter. */
int varlink_call_invalid_parameter(struct varlink_call *call, const char *parameter) {
	return service_error(call, SERVICE_ERROR("InvalidParameter"), "parameter", parameter);
}

/* The final answer, org.varlink.service.PermissionDenied. */
int varlink_call_permission_denied(struct varlink_call *call) {
	return service_error(call, SERVICE_ERROR("PermissionDenied"), NULL, NULL);
}

/*
 * An answer that is not the last one; takes the parameters in any case. Returns 0; VARLINK_E_SINGLE
 * without `more`; VARLINK_E_FULL if output_mark bytes wait for the client; otherwise as
 * varlink_call_reply().
 */
int varlink_call_continue(struct varlink_call *call, json_object *consume_parameters) {
	return varlink_call_continue_with(call, consume_parameters, -1);
}

/* The same with a descriptor, which is borrowed; VARLINK_E_FULL if anything waits for the client.
 */
int varlink_call_continue_with(struct varlink_call *call, json_object *consume_parameters, int fd) {
	int r = call_check(call);

	if (!r && !call->message.more)
		r = VARLINK_E_SINGLE;
	if (!r &&
	    call->connection->n_output >= (fd < 0 ? call->connection->server->output_mark : 1))
		r = VARLINK_E_FULL;
	if (!r)
		r = validate(call, call->method->reply, consume_parameters);
	if (r) {
		json_object_put(consume_parameters);
		return r;
	}
	return call_send(call, NULL, consume_parameters, true, fd);
}

void varlink_call_set_userdata(struct varlink_call *call, void *userdata) {
	call->userdata = userdata;
}

/*
 * @cancel is called with the call's userdata if the connection is closed before the final answer,
 * not by a failing handler, nor by an answer that fails: its result is negative.
 */
void varlink_call_on_cancel(struct varlink_call *call,
			    void (*cancel)(struct varlink_call *call, void *userdata)) {
	call->cancel = cancel;
}

void varlink_call_be_patient(struct varlink_call *call) {
	int fd, size = CALL_SOCKET_SIZE;

	call->patient = true;
	if (!call->connection || uv_fileno((uv_handle_t *)&call->connection->pipe, &fd) < 0)
		return;
	/* what the system allows, if we may not go beyond that */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

/* Returns 0, or VARLINK_E_DONE or _DISCONNECTED. */
int varlink_call_work(struct varlink_call *call, varlink_producer produce) {
	int r = call_check(call);

	if (r)
		return r;
	call->produce = produce;
	call->idle = false;
	connection_process(call->connection);
	return 0;
}

/* Returns what varlink_call_work() does. */
int varlink_call_gather(struct varlink_call *call, varlink_producer produce) {
	int r = call_check(call);

	if (r)
		return r;
	call->gathers = true;
	TAILQ_INSERT_TAIL(&call->connection->user->gathering, call, gathering_link);
	return varlink_call_work(call, produce);
}

/* Starts a stream. Returns 0, or VARLINK_E_SINGLE, _DONE or _DISCONNECTED. */
int varlink_call_stream(struct varlink_call *call, varlink_producer produce) {
	int r = call_check(call);

	if (!r && !call->message.more)
		r = VARLINK_E_SINGLE;
	return r ?: varlink_call_work(call, produce);
}

bool varlink_call_hold(struct varlink_call *call, size_t n_bytes) {
	struct varlink_user *user = call->connection ? call->connection->user : NULL;
	size_t max = call->connection ? call->connection->server->bytes_per_uid_max / 2 : 0;

	if (!user || (n_bytes > call->n_held &&
		      (n_bytes > max || user->n_bytes - call->n_held > max - n_bytes)))
		return false;
	user->n_bytes += n_bytes - call->n_held;
	call->n_held = n_bytes;
	return true;
}

/* The producer has something again. */
void varlink_call_wake(struct varlink_call *call) {
	call->woken = true;
	call->idle = false;
	if (call->connection)
		connection_process(call->connection);
}
