/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The server of the socket to which shims connect (shim-server.h).
 *
 * libuv's pipes cannot receive descriptors that are no sockets, so this is uv_poll_t and
 * recvmsg(2). While a peer has not taken what we sent it, we read nothing from it: its requests
 * bound its replies. One wake-up handles a few datagrams only, then others have their turn.
 *
 * Closing is in two steps: shim_connection_close() takes the connection out of the world, the
 * memory goes when libuv has let go of the handle. Who sent a descriptor that may not come is
 * charged for the connection until that is closed.
 */

#include "shim-server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/base/send-fds.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define SHIM_DATAGRAMS_PER_TURN 16
#define SHIM_USER_NS                                                                             \
	(UINT64_C(4) * 1000000) /* of a turn, for all messages of a user; the next ones wait for \
				   the next turn */
#define SHIM_ACCEPTS_PER_TURN 16
/* Bytes with what the kernel adds, which doubles it: 11 messages with descriptors at most, so all
 * connections together stay below LimitNOFILE. */
#define SHIM_SEND_BUFFER 4096
#define SHIM_PAUSE_MS 100
#define SHIM_BEHIND_MS 10 /* the same while too many sockets are being closed */

struct shim_output {
	TAILQ_ENTRY(shim_output) link;
	size_t size;
	int fd; /* a duplicate, or -1 */
	union wire_message message;
};

TAILQ_HEAD(shim_connection_list, shim_connection);

struct shim_server {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t pause; /* after accept(2) failed for want of descriptors, or while too many
			     sockets are being closed */
	uv_timer_t retry; /* of connections that are held */
	uv_timer_t greeting; /* of connections that have not greeted */
	int fd;
	unsigned int n_handles;
	bool freed;
	struct shim_server_options options;
	struct shim_server_counters counters;
	struct shim_connection_list list;
	unsigned int n_connections; /* with those that are being closed */
};

static void shim_connection_on_poll(uv_poll_t *poll, int status, int events);

/* ---- sending ---- */

static void shim_output_free(struct shim_connection *connection, struct shim_output *output) {
	TAILQ_REMOVE(&connection->output, output, link);
	connection->n_output--;
	fd_close(output->fd);
	free(output);
}

/* Watches for what can be done next. */
static void shim_connection_watch(struct shim_connection *connection) {
	int events = connection->held       ? UV_DISCONNECT
		     : connection->n_output ? UV_WRITABLE
					    : UV_READABLE;

	if (events != connection->events && connection->state != SHIM_CLOSED) {
		connection->events = events;
		uv_poll_start(&connection->poll, events, shim_connection_on_poll);
	}
}

static void shim_server_retry(uv_timer_t *timer);

/* Nothing goes for a while, though the socket has room: others have to take their descriptors
 * first. */
static void shim_connection_hold(struct shim_connection *connection) {
	connection->held = true;
	if (!uv_is_active((uv_handle_t *)&connection->server->retry))
		uv_timer_start(&connection->server->retry, shim_server_retry, SHIM_PAUSE_MS, 0);
}

int shim_connection_send(struct shim_connection *connection, union wire_message *message, int fd) {
	size_t size = wire_size(message->header.type);
	struct shim_output *output;
	int r;

	if (connection->state == SHIM_CLOSED)
		return -ENOTCONN;
	message->header.magic = WIRE_MAGIC;
	message->header.version = WIRE_VERSION;
	message->header.size = (uint32_t)size;
	if (!connection->n_output) {
		r = send_fds(connection->fd, message, size, &fd, fd >= 0);
		if (r == -ETOOMANYREFS)
			shim_connection_hold(connection);
		else if (r != -EAGAIN)
			return r;
	}
	if (connection->n_output >= SHIM_QUEUE_MAX)
		return -ENOBUFS;
	output = calloc(1, sizeof(*output));
	if (!output)
		return -ENOMEM;
	output->fd = -1;
	if (fd >= 0) {
		output->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (output->fd < 0) {
			r = -errno;
			free(output);
			return r;
		}
	}
	output->size = size;
	memcpy(&output->message, message, size);
	TAILQ_INSERT_TAIL(&connection->output, output, link);
	connection->n_output++;
	shim_connection_watch(connection);
	return 0;
}

/* Sends what waits. 0 or -errno. */
static int shim_connection_flush(struct shim_connection *connection) {
	struct shim_output *output;

	while ((output = TAILQ_FIRST(&connection->output))) {
		int r = send_fds(connection->fd, &output->message, output->size, &output->fd,
				 output->fd >= 0);

		if (r == -ETOOMANYREFS)
			shim_connection_hold(connection);
		if (r == -EAGAIN || r == -ETOOMANYREFS)
			return 0;
		if (r < 0)
			return r;
		shim_output_free(connection, output);
	}
	return 0;
}

static void shim_server_retry(uv_timer_t *timer) {
	struct shim_server *server = timer->data;
	struct shim_connection *connection, *next;

	for (connection = TAILQ_FIRST(&server->list); connection; connection = next) {
		next = TAILQ_NEXT(connection, link);
		if (!connection->held)
			continue;
		connection->held = false;
		if (shim_connection_flush(connection) < 0)
			shim_connection_close(connection);
		else
			shim_connection_watch(connection);
	}
}

/* ---- receiving ---- */

/* Looks at the next datagram, which stays where it is, and at its first descriptor if fdp is given.
 * As recvmsg(2); *flagsp as its msg_flags. */
static ssize_t shim_peek(int socket_fd, union wire_message *message, int *fdp, int *flagsp) {
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec vector = { message, sizeof(*message) };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t n;

	if (fdp) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_LEN(sizeof(int)); /* CMSG_SPACE() has room for two */
	}
	n = recvmsg(socket_fd, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	c = fdp ? CMSG_FIRSTHDR(&header) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fdp, CMSG_DATA(c), sizeof(int));
	*flagsp = header.msg_flags;
	return n;
}

/*
 * One datagram, with at most one descriptor in *fdp. Bytes received (0: the end), or -errno:
 * -EMSGSIZE if it is too large, -EBADF if its descriptors are not what may come, -EMFILE if there
 * is none left for it.
 *
 * Who takes a datagram off the queue lets go of what comes with it, and that may take as long as
 * the sender wants (closer.h). So it is looked at first, and taken only if it has no descriptor or
 * one memfd; another one stays where it is, until the socket is closed.
 */
static ssize_t shim_receive(int socket_fd, union wire_message *message, int *fdp, int *foreignp) {
	int flags;
	ssize_t n;

	n = shim_peek(socket_fd, message, NULL, &flags);
	if (n < 0)
		return n;
	if (flags & MSG_CTRUNC) {
		n = shim_peek(socket_fd, message, foreignp, &flags);
		if (n < 0)
			return n;
		if (*foreignp < 0)
			return -EMFILE;
		if (flags & MSG_CTRUNC || fcntl(*foreignp, F_GET_SEALS) < 0)
			return -EBADF;
	}
	if (flags & MSG_TRUNC)
		return -EMSGSIZE;
	n = recv(socket_fd, message, sizeof(*message), MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	*fdp = *foreignp;
	*foreignp = -1;
	return n;
}

/* Tells that somebody is not served: -EUSERS or -errno. */
static void shim_server_refuse(const struct shim_server *server, int error) {
	if (server->options.exhausted)
		server->options.exhausted(error, server->options.exhausted_userdata);
}

static void shim_server_exhausted(struct shim_server *server, int error) {
	server->counters.exhausted++;
	shim_server_refuse(server, error);
}

/* Tells why a peer is thrown out, or not served. */
static void shim_server_breach(const struct shim_connection *connection, const char *why) {
	const struct shim_server_options *options = &connection->server->options;

	if (options->breach)
		options->breach(connection, why, options->userdata);
}

/* Handles one datagram. 0, -EAGAIN if there is none, or negative: the connection is to be closed.
 */
static int shim_connection_receive(struct shim_connection *connection) {
	struct shim_server *server = connection->server;
	union wire_message message = {};
	struct shim_greeting greeting;
	const char *why;
	ssize_t n;
	int fd = -1, r;

	n = shim_receive(connection->fd, &message, &fd, &connection->foreign_fd);
	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n == -EMFILE)
		shim_server_exhausted(server, -EMFILE);
	if (n == 0 && fd < 0)
		return -ENOTCONN;
	if (n < 0 && n != -EMSGSIZE && n != -EBADF)
		return (int)n;
	if (n > 0 && connection->state == SHIM_NEW &&
	    shim_wire_other(&message, (size_t)n, fd >= 0, &greeting)) {
		server->counters.other_versions++;
		if (server->options.other)
			server->options.other(connection, &greeting, server->options.userdata);
		return -EPROTO;
	}
	why = n == -EMSGSIZE ? "a datagram that is too large"
	      : n == -EBADF  ? "a surplus descriptor, or one that is not a memfd"
			     : shim_wire_check(connection->state, &message, (size_t)n, fd >= 0);
	if (why) {
		if (fd >= 0)
			connection->foreign_fd = fd;
		server->counters.breaches++;
		shim_server_breach(connection, why);
		return -EPROTO;
	}
	server->counters.messages++;
	if (connection->state == SHIM_NEW) {
		r = server->options.handlers->hello(connection, &message.hello,
						    server->options.userdata);
		if (r == 0 && connection->state != SHIM_CLOSED)
			connection->state = shim_wire_next(SHIM_NEW, &message);
		return r;
	}
	connection->state = shim_wire_next(connection->state, &message);
	return server->options.handlers->message(connection, &message, fd,
						 server->options.userdata);
}

/* Receives a message, unless its user has had his part of this turn: -EAGAIN then, too. */
static int shim_connection_receive_in_turn(struct shim_connection *connection) {
	const uint64_t turn = uv_now(connection->server->loop), start = uv_hrtime();
	struct account *account = connection->account;
	int r;

	if (account->turn != turn) {
		account->turn = turn;
		account->turn_ns = 0;
	}
	if (account->turn_ns >= SHIM_USER_NS)
		return -EAGAIN;
	r = shim_connection_receive(connection);
	account->turn_ns += uv_hrtime() - start;
	return r;
}

static void shim_connection_on_poll(uv_poll_t *poll, int status, int events) {
	struct shim_connection *connection = poll->data;
	int r = status < 0 ? status : 0;

	if (r == 0 && events & UV_DISCONNECT)
		r = -ENOTCONN;
	if (r == 0 && events & UV_WRITABLE)
		r = shim_connection_flush(connection);
	for (unsigned int i = 0; r == 0 && events & UV_READABLE && i < SHIM_DATAGRAMS_PER_TURN;
	     i++) {
		if (connection->n_output || connection->state == SHIM_CLOSED)
			break;
		r = shim_connection_receive_in_turn(connection);
	}
	if (r < 0 && r != -EAGAIN)
		shim_connection_close(connection);
	else
		shim_connection_watch(connection);
}

/* ---- connections ---- */

static void shim_server_maybe_destroy(struct shim_server *server) {
	if (server->freed && !server->n_handles && !server->n_connections)
		free(server);
}

static void shim_connection_closed(uv_handle_t *handle) {
	struct shim_connection *connection = handle->data;
	struct shim_server *server = connection->server;

	fd_close(connection->pidfd);
	server->n_connections--;
	if (connection->foreign_fd < 0)
		account_discharge_connection(connection->account);
	account_unref(connection->account);
	free(connection);
	shim_server_maybe_destroy(server);
}

static void shim_foreign_closed(void *userdata) {
	account_discharge_connection(userdata);
	account_unref(userdata);
}

void shim_connection_close(struct shim_connection *connection) {
	struct shim_server *server = connection->server;
	enum shim_state state = connection->state;

	if (state == SHIM_CLOSED)
		return;
	connection->state = SHIM_CLOSED;
	TAILQ_REMOVE(&server->list, connection, link);
	while (!TAILQ_EMPTY(&connection->output))
		shim_output_free(connection, TAILQ_FIRST(&connection->output));
	shutdown(connection->fd, SHUT_RDWR); /* the peer sees it now */
	uv_close((uv_handle_t *)&connection->poll, shim_connection_closed);
	closer_socket(server->options.closer, connection->fd);
	if (connection->foreign_fd >= 0)
		closer_foreign(server->options.closer, connection->foreign_fd, shim_foreign_closed,
			       account_ref(connection->account));
	if (state != SHIM_NEW)
		server->options.handlers->closed(connection, server->options.userdata);
}

/* Whether the peer has sent nothing. What it has sent may lie there for long where the machine or
 * its user is busy. */
static bool shim_connection_is_silent(const struct shim_connection *connection) {
	char byte;

	return recv(connection->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       errno == EAGAIN;
}

/* Lets go of those who have not greeted in time. */
static void shim_server_on_greeting(uv_timer_t *timer) {
	const uint64_t now = uv_now(timer->loop);
	struct shim_server *server = timer->data;
	struct shim_connection *connection, *next;
	bool more = false;

	for (connection = TAILQ_FIRST(&server->list); connection; connection = next) {
		next = TAILQ_NEXT(connection, link);
		if (connection->state != SHIM_NEW)
			continue;
		if (now - connection->since < SHIM_GREETING_MS ||
		    !shim_connection_is_silent(connection)) {
			more = true;
			continue;
		}
		server->counters.breaches++;
		shim_server_breach(connection, "no greeting within 5 seconds");
		shim_connection_close(connection);
	}
	if (more)
		uv_timer_start(timer, shim_server_on_greeting, SHIM_GREETING_MS / 5, 0);
}

/* How many connections there may be for one more of this user's. */
static unsigned int shim_server_room(const struct account *account) {
	if (account->uid == 0)
		return SHIM_CONNECTIONS_MAX;
	return SHIM_CONNECTIONS_MAX - SHIM_KEPT_FOR_ROOT -
	       (account->connections < SHIM_FEW ? 0 : SHIM_KEPT_FOR_FEW);
}

/* Charges it to its user. NULL, or why it is not served. */
static const char *shim_server_refusal(struct shim_server *server, struct account *account) {
	if (server->n_connections >= shim_server_room(account)) {
		shim_server_refuse(server, -EUSERS);
		return "as many connections as the programs of all users may have";
	}
	return account_charge_connection(account) ? "quota: as many connections as the programs of "
						    "one user may have (quota-connections)"
						  : NULL;
}

/* A connection for this socket, or NULL: a peer over a quota is not served. */
static struct shim_connection *shim_connection_new(struct shim_server *server, int fd) {
	struct shim_connection *connection;
	struct account *account = NULL;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	const char *why;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
		return NULL;
	if (account_get(server->options.accounts, peer.uid, &account) < 0)
		return NULL;
	connection = calloc(1, sizeof(*connection));
	if (!connection) {
		account_unref(account);
		return NULL;
	}
	connection->server = server;
	connection->account = account;
	connection->pid = peer.pid;
	connection->uid = peer.uid;
	why = shim_server_refusal(server, account);
	if (why) {
		connection->refused = true;
		server->counters.refused++;
		shim_server_breach(connection, why);
		free(connection);
		account_unref(account);
		return NULL;
	}
	connection->state = SHIM_NEW;
	connection->since = uv_now(server->loop);
	connection->poll.data = connection;
	connection->fd = fd;
	connection->foreign_fd = -1;
	TAILQ_INIT(&connection->output);
	size = sizeof(connection->pidfd);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &connection->pidfd, &size) < 0)
		connection->pidfd = -1;
	if (uv_poll_init(server->loop, &connection->poll, fd) < 0) {
		fd_close(connection->pidfd);
		account_discharge_connection(account);
		account_unref(account);
		free(connection);
		return NULL;
	}
	return connection;
}

/* Consumes fd. A peer that is not served finds its connection closed. */
static void shim_server_add(struct shim_server *server, int consumed_fd) {
	const int size = SHIM_SEND_BUFFER;
	struct shim_connection *connection;

	/* a stranger does not say how much of ours lies unread in his socket */
	if (setsockopt(consumed_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0)
		connection = NULL;
	else
		connection = shim_connection_new(server, consumed_fd);
	if (!connection) {
		closer_socket(server->options.closer, consumed_fd);
		return;
	}
	TAILQ_INSERT_TAIL(&server->list, connection, link);
	server->n_connections++;
	server->counters.connections++;
	if (!uv_is_active((uv_handle_t *)&server->greeting))
		uv_timer_start(&server->greeting, shim_server_on_greeting, SHIM_GREETING_MS, 0);
	shim_connection_watch(connection);
}

static void shim_server_on_poll(uv_poll_t *poll, int status, int events);

static void shim_server_resume(uv_timer_t *timer) {
	struct shim_server *server = timer->data;

	uv_poll_start(&server->poll, UV_READABLE, shim_server_on_poll);
}

/* Nobody is accepted for a while. */
static void shim_server_pause(struct shim_server *server, uint64_t ms) {
	uv_poll_stop(&server->poll); /* else this would spin */
	uv_timer_start(&server->pause, shim_server_resume, ms, 0);
}

static void shim_server_on_poll(uv_poll_t *poll, int status, int events) {
	struct shim_server *server = poll->data;

	if (closer_is_behind(server->options.closer)) {
		shim_server_pause(server, SHIM_BEHIND_MS);
		return;
	}
	for (unsigned int i = 0; i < SHIM_ACCEPTS_PER_TURN; i++) {
		int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			shim_server_add(server, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			   errno == ENOBUFS) {
			shim_server_exhausted(server, -errno);
			shim_server_pause(server, SHIM_PAUSE_MS);
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}

/* ---- the server ---- */

int shim_server_listen(const char *path, mode_t mode) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_fd int fd = -1;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || chmod(path, mode) < 0 ||
	    listen(fd, 1024) < 0)
		return -errno;
	r = fd;
	fd = -1;
	return r;
}

static void shim_server_closed(uv_handle_t *handle) {
	struct shim_server *server = handle->data;

	if (--server->n_handles == 0)
		fd_close(server->fd);
	shim_server_maybe_destroy(server);
}

int shim_server_new(struct shim_server **serverp, uv_loop_t *loop, int listen_fd,
		    const struct shim_server_options *options) {
	struct shim_server *server;
	int r;

	server = calloc(1, sizeof(*server));
	if (!server) {
		fd_close(listen_fd);
		return -ENOMEM;
	}
	TAILQ_INIT(&server->list);
	server->loop = loop;
	server->fd = listen_fd;
	server->options = *options;
	server->poll.data = server->pause.data = server->retry.data = server->greeting.data =
		server;
	r = uv_poll_init(loop, &server->poll, listen_fd);
	if (r < 0) {
		fd_close(listen_fd);
		free(server);
		return r;
	}
	uv_timer_init(loop, &server->pause);
	uv_timer_init(loop, &server->retry);
	uv_timer_init(loop, &server->greeting);
	server->n_handles = 4;
	uv_poll_start(&server->poll, UV_READABLE, shim_server_on_poll);
	*serverp = server;
	return 0;
}

struct shim_server *shim_server_free(struct shim_server *server) {
	if (!server)
		return NULL;
	server->freed = true;
	while (!TAILQ_EMPTY(&server->list))
		shim_connection_close(TAILQ_FIRST(&server->list));
	uv_close((uv_handle_t *)&server->poll, shim_server_closed);
	uv_close((uv_handle_t *)&server->pause, shim_server_closed);
	uv_close((uv_handle_t *)&server->retry, shim_server_closed);
	uv_close((uv_handle_t *)&server->greeting, shim_server_closed);
	return NULL;
}

unsigned int shim_server_connections(const struct shim_server *server) {
	return server->n_connections;
}

const struct shim_server_counters *shim_server_counters(const struct shim_server *server) {
	return &server->counters;
}
