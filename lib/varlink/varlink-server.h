/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A varlink service on a libuv loop, for one thread. The process ignores SIGPIPE from
 * varlink_server_new() on.
 *
 *     varlink_server_new(&server, loop, &(struct varlink_server_options){
 *             .size = sizeof(struct varlink_server_options), .vendor = ..., .product = ...,
 * .version = ..., .url = ... }); varlink_server_add_interface(server, varlink_io_gpuprobe_control,
 * methods, userdata); varlink_server_listen(server, path, 0666);      or
 * varlink_server_listen_consume(server, fd) uv_run(loop, UV_RUN_DEFAULT);
 *
 * A handler is called with parameters that are valid by the interface file: every member is known
 * and of its type, and those that are not nullable are there. A nullable one may be absent or null:
 * json_object_object_get_ex() then gives NULL in both cases if its out parameter was NULL before.
 * The handler answers at once, or takes a reference of the call and answers later. What it answers
 * is checked against the interface file too.
 *
 * Calls of one connection run one after the other. When the client goes, a running call is
 * cancelled: its cancel function is called once, and answers are ignored from then on.
 */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum {
	_VARLINK_E_SUCCESS,
	VARLINK_E_DISCONNECTED, /* the client is gone; nothing was sent, there is nothing to do */
	VARLINK_E_FULL, /* varlink_call_continue: the client must read first; nothing was sent */
	VARLINK_E_SINGLE, /* varlink_call_continue: the client did not ask for more replies */
	VARLINK_E_DONE, /* the call has its final answer already; nothing was sent */
	VARLINK_E_INVALID, /* reply or interface does not fit: see the fault; nothing was sent, the
			      call can be answered */
};

struct varlink_fault; /* varlink-idl.h */
struct varlink_server;
struct varlink_call;

/* The process at the other end, as it was when it connected. */
struct varlink_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;
};

#define VARLINK_BYTES_PER_UID_MAX ((size_t)256 * 1024 * 1024)

struct varlink_server_options {
	size_t size; /* of this struct */
	const char *vendor, *product, *version, *url; /* GetInfo; copied */
	unsigned int connections_max; /* 0: 4096 */
	unsigned int connections_per_uid_max; /* 0: 128 */
	/* an error with members what and limit, as which the first call of a connection too many of
	 * one uid is answered; NULL: it is closed without a word */
	const char *limit_error;
	size_t message_max; /* bytes of a call; 0: 16 MiB */
	size_t output_mark; /* bytes queued to a client above which producers and further calls
			       wait; 0: 256 KiB */
	size_t bytes_per_uid_max; /* in both directions, of all connections of a uid, and what their
				     calls hold; 0: VARLINK_BYTES_PER_UID_MAX */
	unsigned int stall_ms; /* a client that has not read for so long is dropped; 0: 10 s */
	unsigned int turn_per_uid_us; /* calls and producers of a uid in one turn of the loop: what
					 is left goes on in the next one; 0: 2 ms */
	/*
	 * closes a socket in which a client may have left descriptors; closing those may take as
	 * long as the client wants. NULL: sockets are closed on the loop
	 */
	void (*close_socket)(int consumed_fd, void *userdata);
	/*
	 * returns whether so many of these sockets are still open that no connection should be
	 * accepted now. NULL: never
	 */
	bool (*is_behind)(void *userdata);
	/*
	 * called when a client cannot be served, because there are no descriptors or no memory
	 * (-errno). NULL: not called
	 */
	void (*exhausted)(int error, void *userdata);
	void *userdata;
};

/*
 * Answers @call, or refers it for later; @parameters is never NULL and belongs to the call. A
 * negative return closes the connection. One that returns without an answer and without a reference
 * closes the connection as well.
 */
typedef int (*varlink_handler)(struct varlink_call *call, json_object *parameters, void *userdata);

enum {
	VARLINK_METHOD_MORE_ONLY = 1 << 0, /* ExpectedMore without `more` */
};

struct varlink_method {
	const char *name; /* without interface; NULL ends the list. A method that is not listed:
			     MethodNotImplemented */
	varlink_handler handler;
	unsigned int flags;
};

int varlink_server_new(struct varlink_server **serverp, uv_loop_t *loop,
		       const struct varlink_server_options *options);
struct varlink_server *varlink_server_free(struct varlink_server *server);
int varlink_server_add_interface(struct varlink_server *server, const char *text,
				 const struct varlink_method *methods, void *userdata,
				 struct varlink_fault *fault);
int varlink_server_listen(struct varlink_server *server, const char *path, mode_t mode);
int varlink_server_listen_consume(struct varlink_server *server, int fd);
/* From now on; connections that there are stay. */
void varlink_server_set_connections_per_uid_max(struct varlink_server *server, unsigned int max);
unsigned int varlink_server_connections(const struct varlink_server *server);

/* So far. */
struct varlink_server_counters {
	uint64_t connections; /* that were served */
	uint64_t refused; /* that were not: there were too many */
	uint64_t exhausted; /* that were not: there was no descriptor, or no memory */
	uint64_t calls;
};
const struct varlink_server_counters *varlink_server_counters(const struct varlink_server *server);

/* Errors that were answered so far, by their names without the interface. */
void varlink_server_each_error(const struct varlink_server *server,
			       void (*take)(const char *name, uint64_t n, void *userdata),
			       void *userdata);

struct varlink_call *varlink_call_ref(struct varlink_call *call);
struct varlink_call *varlink_call_unref(struct varlink_call *call);

const char *varlink_call_method(const struct varlink_call *call);
json_object *varlink_call_parameters(const struct varlink_call *call);
bool varlink_call_more(const struct varlink_call *call);
bool varlink_call_oneway(const struct varlink_call *call);
const struct varlink_peer *varlink_call_peer(const struct varlink_call *call);
bool varlink_call_peer_in_group(const struct varlink_call *call, gid_t gid);

int varlink_call_reply(struct varlink_call *call, json_object *consume_parameters);
int varlink_call_error(struct varlink_call *call, const char *error,
		       json_object *consume_parameters);
int varlink_call_invalid_parameter(struct varlink_call *call, const char *parameter);
int varlink_call_permission_denied(struct varlink_call *call);
int varlink_call_continue(struct varlink_call *call, json_object *consume_parameters);
int varlink_call_continue_with(struct varlink_call *call, json_object *consume_parameters, int fd);
const struct varlink_fault *varlink_call_fault(const struct varlink_call *call);

void varlink_call_set_userdata(struct varlink_call *call, void *userdata);
void varlink_call_on_cancel(struct varlink_call *call,
			    void (*cancel)(struct varlink_call *call, void *userdata));

/*
 * For streams of much, perhaps to a pager: as long as the call runs, a client that does not read is
 * not dropped (what waits for it is bounded all the same), and its socket takes more at a time.
 */
void varlink_call_be_patient(struct varlink_call *call);

/*
 * A stream with back-pressure: @produce is called from the loop as long as less than output_mark
 * bytes wait for the client and the call is not finished; it sends one reply, or a few, with
 * varlink_call_continue, or ends the call with varlink_call_reply or varlink_call_error; or it does
 * a part of a long work, a millisecond's at most, and sends nothing. It returns 0;
 * VARLINK_PRODUCE_IDLE if it has nothing now: it is asked again after varlink_call_wake; negative
 * closes the connection. The server holds a reference for the time of the stream.
 */
enum {
	VARLINK_PRODUCE_AGAIN = 0,
	VARLINK_PRODUCE_IDLE = 1,
};
typedef int (*varlink_producer)(struct varlink_call *call, void *userdata);
int varlink_call_stream(struct varlink_call *call, varlink_producer produce);
/* The same for a call without `more`, too: one whose only reply takes more than a turn of the loop.
 */
int varlink_call_work(struct varlink_call *call, varlink_producer produce);
/* The same for one whose only reply is large and gathered in memory: of a user's such calls one at
 * a time is worked on, in the order in which they came. */
int varlink_call_gather(struct varlink_call *call, varlink_producer produce);
void varlink_call_wake(struct varlink_call *call);

/*
 * Charges n_bytes of memory to the call's user until the call is over. False, and nothing changes:
 * the user has reached the limit for this, half of bytes_per_uid_max (messages need room, too).
 */
bool varlink_call_hold(struct varlink_call *call, size_t n_bytes);
