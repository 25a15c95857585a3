/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One connection at the varlink server: reads calls, runs them, writes replies.
 *
 * One client of the server.
 *
 * Everything that may let a connection go on ends in connection_process(): bytes came in, bytes
 * went out, a call was answered, a producer was woken. It runs calls and producers in turn, as long
 * as less than output_mark bytes wait for the client. It is not entered twice, so a handler that
 * answers at once returns to the loop in it and the stack stays flat however many calls were
 * pipelined. The time that takes is the user's, whatever number of connections he has: when he has
 * used up what he may use of a turn, they wait for the next one (varlink-server.c).
 *
 * Bounds: input is one message, and while a call runs INPUT_AHEAD bytes; output is output_mark
 * bytes and one message. Both are charged to the uid of the client.
 *
 * No call has descriptors, and who sends one is dropped; it is not even read (peek.h). A reply may
 * have one.
 *
 * A client that shuts down its sending side only still gets its answers. One that closes the socket
 * is gone: its call is cancelled, unless it is a oneway call, for which nobody waits.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peek.h"
#include "varlink-json.h"
#include "varlink-server-private.h"

#define INPUT_CHUNK ((size_t)64 * 1024)
#define INPUT_AHEAD ((size_t)64 * 1024)

/* Bytes on their way to the client. */
struct output {
	uv_write_t request;
	struct varlink_connection *connection;
	size_t n_text;
	char text[];
};

/* Charges @n_bytes to the user. False if that is too much. */
static bool charge(struct varlink_connection *connection, size_t n_bytes) {
	size_t max = connection->server->bytes_per_uid_max;

	if (n_bytes > max || connection->user->n_bytes > max - n_bytes)
		return false;
	connection->user->n_bytes += n_bytes;
	return true;
}

static void discharge(struct varlink_connection *connection, size_t n_bytes) {
	connection->user->n_bytes -= n_bytes;
}

/* Whether the client has closed its socket, not just shut down its sending side. */
static bool is_hung_up(struct varlink_connection *connection) {
	struct pollfd pollfd = {};

	if (uv_fileno((uv_handle_t *)&connection->pipe, &pollfd.fd) < 0)
		return true;
	return poll(&pollfd, 1, 0) > 0 && (pollfd.revents & (POLLHUP | POLLERR));
}

static void on_closed(uv_handle_t *handle) {
	struct varlink_connection *connection = handle->data;
	struct varlink_server *server = connection->server;

	if (connection->user) {
		discharge(connection, connection->n_input_max);
		server_user_release(server, connection->user);
	}
	free(connection->input);
	free(connection);
	server_handle_closed(server);
}

/* A second descriptor of the socket, if that is not to be closed here; -1: it is. The reserve is
 * for when there is none left. */
static int dup_for_closer(struct varlink_connection *connection) {
	struct varlink_server *server = connection->server;
	int fd, copy;

	if (!server->close_socket || uv_fileno((uv_handle_t *)&connection->pipe, &fd) < 0)
		return -1;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy >= 0 || server->reserve_fd < 0)
		return copy;
	close(server->reserve_fd);
	server->reserve_fd = -1;
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* Closes the socket; what lies unread in it is for who closes it. */
static void close_pipe(struct varlink_connection *connection) {
	struct varlink_server *server = connection->server;
	int fd = dup_for_closer(connection);

	if (fd >= 0)
		shutdown(fd, SHUT_RDWR); /* the client sees it now */
	uv_close((uv_handle_t *)&connection->pipe, on_closed);
	server_reserve(server);
	if (fd >= 0)
		server->close_socket(fd, server->userdata); /* the last one */
}

/*
 * Closes at once: what is not written is lost, a running call is cancelled. The memory goes later,
 * by the loop.
 */
void connection_close(struct varlink_connection *connection) {
	struct varlink_server *server = connection->server;

	if (connection->state == CONNECTION_CLOSED)
		return;
	connection->state = CONNECTION_CLOSED;
	if (connection->next)
		connection->next->previous = connection->previous;
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		server->connections = connection->next;
	server->n_connections--;
	server_unwait(connection);
	close_pipe(connection);
	if (connection->call)
		call_cancel(connection->call);
}

static void on_written(uv_write_t *request, int status) {
	struct output *output = request->data;
	struct varlink_connection *connection = output->connection;

	connection->n_output -= output->n_text;
	connection->last_progress = uv_now(connection->server->loop);
	discharge(connection, output->n_text);
	free(output);
	if (connection->state == CONNECTION_CLOSED)
		return;
	if (status < 0)
		connection_close(connection);
	else
		connection_process(connection);
}

/* Sends what there is room for, with a descriptor; nothing else waits to be sent. Returns the
 * number of bytes, or negative errno. */
static ssize_t send_with(struct varlink_connection *connection, const char *text, size_t n_text,
			 int fd) {
	struct iovec part = { (void *)text, n_text };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t n;
	int to, r;

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	r = uv_fileno((uv_handle_t *)&connection->pipe, &to);
	if (r < 0)
		return r;
	n = sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}

/* Hands the message to the loop; what was sent already is left out. */
static int queue(struct varlink_connection *connection, struct output *output, size_t sent) {
	uv_buf_t buffer = uv_buf_init(output->text + sent, (unsigned int)(output->n_text - sent));

	if (!connection->n_output) {
		connection->last_progress = uv_now(connection->server->loop);
		connection->last_queue_size = 0;
	}
	connection->n_output += output->n_text;
	return uv_write(&output->request, (uv_stream_t *)&connection->pipe, &buffer, 1, on_written);
}

/*
 * Queues a message, which it takes in any case; NULL stands for one that there was no memory for.
 * @fd: a descriptor that goes with it, which is borrowed; -1: none. Returns 0, VARLINK_E_INVALID
 * with *@fault if it cannot be sent, or negative errno after it has closed the connection.
 */
int connection_send(struct varlink_connection *connection, json_object *consume_message, int fd,
		    struct varlink_fault *fault) {
	struct output *output = NULL;
	const char *text;
	ssize_t sent = 0;
	size_t n_text;
	int r;

	r = consume_message ? varlink_json_print(consume_message, &text, &n_text) : -ENOMEM;
	if (r == -EILSEQ || (!r && n_text > VARLINK_MESSAGE_MAX)) {
		*fault = (struct varlink_fault){ .reason = r ? "a string is not UTF-8"
							     : "longer than a message may be" };
		json_object_put(consume_message);
		return VARLINK_E_INVALID;
	}
	if (!r) {
		output = malloc(sizeof(*output) + n_text + 1);
		r = !output ? -ENOMEM : !charge(connection, n_text + 1) ? -EDQUOT : 0;
	}
	if (r) {
		free(output);
		json_object_put(consume_message);
		connection_close(connection);
		return r;
	}
	memcpy(output->text, text, n_text);
	output->text[n_text] = '\0';
	output->n_text = n_text + 1;
	output->connection = connection;
	output->request.data = output;
	json_object_put(consume_message);

	if (fd >= 0) {
		sent = send_with(connection, output->text, output->n_text, fd);
		if (sent == (ssize_t)output->n_text) {
			discharge(connection, output->n_text);
			free(output);
			return 0;
		}
	}
	if (sent < 0) {
		discharge(connection, output->n_text);
		free(output);
		connection_close(connection);
		return (int)sent;
	}
	r = queue(connection, output, (size_t)sent);
	if (r < 0) {
		connection->n_output -= output->n_text;
		discharge(connection, output->n_text);
		free(output);
		connection_close(connection);
		return r;
	}
	server_watch(connection->server);
	return 0;
}

/* Makes room at the end of the input. False if there is none to be had. */
static bool input_reserve(struct varlink_connection *connection) {
	size_t n = connection->input_end - connection->input_begin, n_max;
	char *input;

	if (connection->input_begin > 0 && connection->input_end == connection->n_input_max) {
		memmove(connection->input, connection->input + connection->input_begin, n);
		connection->input_begin = 0;
		connection->input_end = n;
	}
	if (connection->input_end < connection->n_input_max)
		return true;
	n_max = connection->n_input_max ? connection->n_input_max * 2 : INPUT_CHUNK;
	if (!charge(connection, n_max - connection->n_input_max))
		return false;
	input = realloc(connection->input, n_max);
	if (!input) {
		discharge(connection, n_max - connection->n_input_max);
		return false;
	}
	connection->input = input;
	connection->n_input_max = n_max;
	return true;
}

/* Forgets consumed input; gives memory back when there is nothing left. */
static void input_consume(struct varlink_connection *connection, size_t n) {
	connection->input_begin += n;
	connection->input_scanned = 0;
	if (connection->input_begin < connection->input_end)
		return;
	connection->input_begin = connection->input_end = 0;
	discharge(connection, connection->n_input_max);
	free(connection->input);
	connection->input = NULL;
	connection->n_input_max = 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
	struct varlink_connection *connection = handle->data;
	size_t n;

	connection->nothing = false;
	*buffer = uv_buf_init(NULL, 0); /* comes back as UV_ENOBUFS */
	if (!input_reserve(connection))
		return;
	n = connection->n_input_max - connection->input_end;
	connection->nothing = peek_input(handle, connection->input + connection->input_end,
					 n < INPUT_CHUNK ? n : INPUT_CHUNK, buffer);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer) {
	struct varlink_connection *connection = stream->data;

	if (n_read > 0) {
		connection->input_end += n_read;
	} else if (n_read == UV_EOF || n_read == UV_ECONNRESET) {
		uv_read_stop(stream);
		connection->reading = false;
		connection->read_ended = true;
	} else if (n_read == UV_ENOBUFS && connection->nothing) {
		return;
	} else if (n_read < 0) {
		connection_close(connection);
		return;
	}
	connection_process(connection);
}

/* Finds the next message. False if it is not complete. */
static bool input_next(struct varlink_connection *connection, const char **textp, size_t *n_textp) {
	size_t n = connection->input_end - connection->input_begin;
	const char *begin, *nul = NULL;

	if (!connection->input)
		return false;
	begin = connection->input + connection->input_begin;
	if (n > connection->input_scanned)
		nul = memchr(begin + connection->input_scanned, '\0',
			     n - connection->input_scanned);
	if (!nul) {
		connection->input_scanned = n;
		return false;
	}
	*textp = begin;
	*n_textp = nul - begin;
	return true;
}

/* Nothing will be read or run any more. */
static void drain(struct varlink_connection *connection) {
	connection->state = CONNECTION_DRAINING;
	input_consume(connection, connection->input_end - connection->input_begin);
}

/* Runs the next call of the input. False if there is none. */
static bool process_input(struct varlink_connection *connection) {
	struct varlink_call_message message;
	const char *text;
	size_t n_text;
	int r;

	if (!input_next(connection, &text, &n_text)) {
		if (connection->input_end - connection->input_begin >
			    connection->server->message_max ||
		    connection->read_ended)
			drain(connection);
		return false;
	}
	if (n_text > connection->server->message_max) {
		drain(connection);
		return false;
	}
	r = varlink_call_message_parse(&message, text, n_text);
	input_consume(connection, n_text + 1);
	if (r > 0) {
		drain(connection);
		return false;
	}
	if (!r)
		r = call_dispatch(connection, &message);
	if (r < 0)
		connection_close(connection);
	return r >= 0;
}

/* Lets the producer of the running call send something. False if it has nothing now. */
static bool process_call(struct varlink_connection *connection) {
	struct varlink_call *call = connection->call;
	int r;

	if (!call_can_produce(call))
		return false;
	r = call_produce(call);
	if (r < 0) {
		connection_close(connection);
		return false;
	}
	return connection->state != CONNECTION_RUNNING || connection->call != call ||
	       r == VARLINK_PRODUCE_AGAIN;
}

static bool is_blocked(const struct varlink_connection *connection) {
	return connection->state == CONNECTION_RUNNING || connection->waiting ||
	       connection->n_output >= connection->server->output_mark;
}

/* Reads unless there is enough to do. */
static void update_reading(struct varlink_connection *connection) {
	bool want = !connection->read_ended && connection->state != CONNECTION_DRAINING;

	if (is_blocked(connection) &&
	    connection->input_end - connection->input_begin >= INPUT_AHEAD)
		want = false;
	if (want == connection->reading)
		return;
	connection->reading = want;
	if (!want)
		uv_read_stop((uv_stream_t *)&connection->pipe);
	else if (uv_read_start((uv_stream_t *)&connection->pipe, on_alloc, on_read) < 0)
		connection_close(connection);
}

/* Does what comes next, in its user's time. False if there is nothing. */
static bool process_step(struct varlink_connection *connection) {
	uint64_t began;
	bool more;

	if (connection->state != CONNECTION_IDLE && connection->state != CONNECTION_RUNNING)
		return false;
	if (server_turn_over(connection->server, connection->user)) {
		server_wait(connection);
		return false;
	}
	began = uv_hrtime();
	more = connection->state == CONNECTION_IDLE ? process_input(connection)
						    : process_call(connection);
	server_turn_used(connection->server, connection->user, uv_hrtime() - began);
	return more;
}

/* Goes on with whatever can go on. */
void connection_process(struct varlink_connection *connection) {
	bool more = true;

	if (connection->processing || connection->state == CONNECTION_CLOSED)
		return;
	connection->processing = true;
	while (more && !connection->waiting &&
	       connection->n_output < connection->server->output_mark)
		more = process_step(connection);
	connection->processing = false;

	if (connection->state == CONNECTION_RUNNING && connection->read_ended &&
	    !connection->call->message.oneway && is_hung_up(connection))
		connection_close(connection);
	if (connection->state == CONNECTION_DRAINING && !connection->n_output)
		connection_close(connection);
	if (connection->state == CONNECTION_CLOSED)
		return;
	update_reading(connection);
	if (connection->state != CONNECTION_CLOSED && connection_needs_sweep(connection))
		server_watch(connection->server);
}

/* Whether something can happen to the connection that no event tells. */
bool connection_needs_sweep(const struct varlink_connection *connection) {
	return connection->n_output ||
	       (connection->state == CONNECTION_RUNNING && !connection->reading);
}

/*
 * Drops the client if it does not read, or has gone unnoticed. Messages that were written are
 * progress (on_written), and so is a part of a long one, which shows in the loop's queue.
 */
void connection_sweep(struct varlink_connection *connection, uint64_t now) {
	size_t queue_size = uv_stream_get_write_queue_size((uv_stream_t *)&connection->pipe);

	if (connection->n_output && !(connection->call && connection->call->patient)) {
		if (queue_size != connection->last_queue_size) {
			connection->last_queue_size = queue_size;
			connection->last_progress = now;
		} else if (now - connection->last_progress >= connection->server->stall_ms) {
			connection_close(connection);
			return;
		}
	}
	if (connection->state == CONNECTION_RUNNING && !connection->reading &&
	    !connection->call->message.oneway && is_hung_up(connection))
		connection_close(connection);
}

/* Notes who is at the other end. */
static int read_peer(struct varlink_connection *connection) {
	struct ucred credentials;
	socklen_t n_credentials = sizeof(credentials);
	int fd, r;

	r = uv_fileno((uv_handle_t *)&connection->pipe, &fd);
	if (r < 0)
		return r;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &n_credentials) < 0)
		return -errno;
	connection->peer =
		(struct varlink_peer){ credentials.uid, credentials.gid, credentials.pid };
	return 0;
}

/* Answers, as far as it can be done at once, the call that a client one too many is about to make.
 */
static void refuse_connection(struct varlink_connection *connection) {
	const struct varlink_server *server = connection->server;
	char text[256];
	uv_buf_t buffer;
	int n;

	if (!server->limit_error)
		return;
	n = snprintf(text, sizeof(text),
		     "{\"error\":\"%s\",\"parameters\":{\"what\":\"connections of one "
		     "user\",\"limit\":%u}}",
		     server->limit_error, server->connections_per_uid_max);
	buffer = uv_buf_init(text, (unsigned int)n + 1);
	if (n < (int)sizeof(text))
		uv_try_write((uv_stream_t *)&connection->pipe, &buffer, 1);
}

/*
 * Serves a client that was accepted. One too many is sent away.
 */
void connection_new(struct varlink_server *server, int consumed_fd) {
	struct varlink_connection *connection;
	int r;

	connection = calloc(1, sizeof(*connection));
	r = connection ? uv_pipe_init(server->loop, &connection->pipe, 0) : -ENOMEM;
	if (r < 0) {
		close(consumed_fd);
		free(connection);
		return;
	}
	connection->server = server;
	connection->pipe.data = connection;
	server->n_handles++;
	r = uv_pipe_open(&connection->pipe, consumed_fd);
	if (r < 0)
		close(consumed_fd);
	else
		r = read_peer(connection);
	if (!r && server->n_connections >= server->connections_max)
		r = -EDQUOT;
	if (!r) {
		r = server_user_acquire(server, connection->peer.uid, &connection->user);
		if (r == -EDQUOT)
			refuse_connection(connection);
	}
	if (r) {
		server->counters.refused += r == -EDQUOT;
		connection->state = CONNECTION_CLOSED;
		close_pipe(connection);
		return;
	}
	connection->next = server->connections;
	if (connection->next)
		connection->next->previous = connection;
	server->connections = connection;
	server->n_connections++;
	server->counters.connections++;
	connection_process(connection);
}
