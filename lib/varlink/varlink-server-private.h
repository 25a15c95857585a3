/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the varlink server: what its files share. */

#include <stdint.h>
#include <sys/queue.h>

#include "varlink-idl.h"
#include "varlink-message.h"
#include "varlink-server.h"

enum connection_state {
	CONNECTION_IDLE, /* waits for a call */
	CONNECTION_RUNNING, /* a call has no final answer yet */
	CONNECTION_DRAINING, /* nothing more is read or run; closed when all is written */
	CONNECTION_CLOSED, /* its handle is being closed; freed by the loop */
};

/* What connections of one uid use together. Lives as long as one of them. */
struct varlink_user {
	struct varlink_user *next;
	uid_t uid;
	unsigned int n_connections;
	size_t n_bytes;
	uint64_t turn, used; /* nanoseconds of that turn of the loop */
	TAILQ_HEAD(, varlink_connection) waiting; /* connections that go on in the next one */
	TAILQ_ENTRY(varlink_user) waiting_link; /* if there are some */
	TAILQ_HEAD(, varlink_call) gathering; /* of which the first has its turn */
};

/* An interface that is served. */
struct varlink_service {
	struct varlink_service *next;
	struct varlink_interface *interface;
	const struct varlink_method *methods;
	void *userdata;
};

struct varlink_listener {
	uv_poll_t poll;
	uv_timer_t pause; /* after accept(2) failed, or while too many sockets are being closed */
	unsigned int n_handles;
	int fd;
	struct varlink_server *server;
	struct varlink_listener *next;
	char *path; /* to be removed at the end, or NULL */
	dev_t device; /* of what was bound there */
	ino_t inode;
};

#define VARLINK_ERRORS_MAX 64 /* whose answers are counted */

struct varlink_server {
	uv_loop_t *loop;
	uv_timer_t sweep;
	uv_idle_t turns; /* as long as users wait */
	uint64_t turn, used;
	TAILQ_HEAD(, varlink_user) waiting;
	uv_pipe_t first;
	bool closing;
	unsigned int n_handles; /* not yet closed: the last one frees the server */
	unsigned int n_connections;
	struct varlink_service *services;
	struct varlink_listener *listeners;
	struct varlink_user *users;
	struct varlink_connection *connections;
	char *vendor, *product, *version, *url, *limit_error;
	unsigned int connections_max, connections_per_uid_max, stall_ms;
	void (*close_socket)(int consumed_fd, void *userdata);
	bool (*is_behind)(void *userdata);
	void (*exhausted)(int error, void *userdata);
	void *userdata;
	int reserve_fd; /* given up to tell a client that there is no other one, or to let go of
			   one; -1: it is */
	size_t message_max, output_mark, bytes_per_uid_max;
	uint64_t turn_per_uid; /* nanoseconds */
	struct varlink_server_counters counters;
	struct varlink_error_count {
		const char *name; /* of the interface's */
		uint64_t n;
	} errors[VARLINK_ERRORS_MAX];
};

struct varlink_connection {
	uv_pipe_t pipe;
	struct varlink_server *server;
	struct varlink_connection *previous, *next;
	struct varlink_user *user;
	struct varlink_peer peer;
	enum connection_state state;
	bool processing; /* connection_process() is on the stack */
	bool waiting; /* for the next turn, in its user's list */
	TAILQ_ENTRY(varlink_connection) waiting_link;
	bool reading;
	bool read_ended; /* the client shut its side down */
	bool nothing; /* when libuv last wanted to read */
	struct varlink_call *call; /* in RUNNING */

	char *input;
	size_t n_input_max, input_begin, input_end;
	size_t input_scanned; /* from input_begin: no NUL there */

	size_t n_output; /* bytes not yet written */
	size_t last_queue_size; /* as the loop told it, and since when */
	uint64_t last_progress; /* loop time, ms */
};

struct varlink_call {
	unsigned int n_refs; /* one is the connection's while the call runs */
	struct varlink_connection *connection; /* NULL when done or cancelled */
	bool done, dispatching, idle, woken, patient;
	size_t n_held; /* bytes that its user is charged for it */
	bool gathers; /* is in its user's list */
	TAILQ_ENTRY(varlink_call) gathering_link;
	struct varlink_call_message message;
	const char *member; /* the method without its interface */
	const struct varlink_service *service;
	const struct varlink_member *method;
	struct varlink_peer peer;
	struct varlink_fault fault;
	varlink_producer produce;
	void (*cancel)(struct varlink_call *call, void *userdata);
	void *userdata;
};

/* varlink-server.c */
struct varlink_service *server_find_service(struct varlink_server *server, const char *name,
					    size_t n_name);
void server_watch(struct varlink_server *server);
int server_user_acquire(struct varlink_server *server, uid_t uid, struct varlink_user **userp);
void server_user_release(struct varlink_server *server, struct varlink_user *user);
void server_handle_closed(struct varlink_server *server);
bool server_turn_over(struct varlink_server *server, struct varlink_user *user);
void server_turn_used(struct varlink_server *server, struct varlink_user *user,
		      uint64_t nanoseconds);
void server_wait(struct varlink_connection *connection);
void server_unwait(struct varlink_connection *connection);
void server_reserve(struct varlink_server *server);

/* varlink-connection.c */
void connection_new(struct varlink_server *server, int consumed_fd);
void connection_process(struct varlink_connection *connection);
int connection_send(struct varlink_connection *connection, json_object *consume_message, int fd,
		    struct varlink_fault *fault);
void connection_close(struct varlink_connection *connection);
void connection_sweep(struct varlink_connection *connection, uint64_t now);
bool connection_needs_sweep(const struct varlink_connection *connection);

/* varlink-call.c */
int call_dispatch(struct varlink_connection *connection,
		  struct varlink_call_message *consume_message);
bool call_can_produce(const struct varlink_call *call);
int call_produce(struct varlink_call *call);
void call_cancel(struct varlink_call *call);
