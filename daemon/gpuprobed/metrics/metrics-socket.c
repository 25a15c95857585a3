/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Serves metrics over HTTP on a Unix socket (metrics-output.h), as far as a scraper needs: GET
 * /metrics, one answer, the end of the connection. The unit has no network; the socket's mode says
 * who may connect.
 */

#include "metrics-output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/closer.h"
#include "metrics.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "lib/varlink/peek.h"

#define REQUEST_MAX 8192
#define CONNECTIONS_MAX 16
#define TIMEOUT_MS 10000

struct connection {
	LIST_ENTRY(connection) link;
	struct metrics_socket *socket;
	uv_pipe_t pipe;
	uv_timer_t timer;
	unsigned int n_handles;
	char request[REQUEST_MAX + 1];
	size_t n_request;
	bool answered, head, closing;
	bool nothing; /* when libuv last wanted to read */
	struct metrics_run *run;
	uv_write_t write;
	char header[256];
	struct metrics_text text;
};

LIST_HEAD(connection_list, connection);

struct metrics_socket {
	struct metrics_context *context;
	uv_pipe_t pipe;
	char *path;
	bool freed;
	struct connection_list connections;
	unsigned int n_connections; /* whose memory is there */
};

static void socket_destroy(struct metrics_socket *socket) {
	if (!socket->freed || socket->n_connections || socket->path)
		return;
	free(socket);
}

/* ---- a connection ---- */

static void connection_on_closed(uv_handle_t *handle) {
	struct connection *connection = handle->data;
	struct metrics_socket *socket = connection->socket;

	if (--connection->n_handles)
		return;
	metrics_text_deinit(&connection->text);
	free(connection);
	socket->n_connections--;
	socket_destroy(socket);
}

static void connection_close(struct connection *connection) {
	int fd = -1;

	if (connection->closing)
		return;
	connection->closing = true;
	metrics_run_cancel(connection->run);
	connection->run = NULL;
	LIST_REMOVE(connection, link);
	if (uv_fileno((uv_handle_t *)&connection->pipe, &fd) == 0)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	uv_close((uv_handle_t *)&connection->pipe, connection_on_closed);
	if (fd >= 0)
		closer_socket(
			connection->socket->context->image->closer,
			fd); /* the last one: what lies unread in it is not for the loop to close */
	uv_close((uv_handle_t *)&connection->timer, connection_on_closed);
}

static void connection_on_timer(uv_timer_t *timer) {
	connection_close(timer->data);
}

static void connection_on_written(uv_write_t *write, int status) {
	connection_close(write->data);
}

/* Sends the header and what is in text. */
static void connection_answer(struct connection *connection, const char *status, const char *type) {
	uv_buf_t buffers[2];
	int n;

	n = snprintf(connection->header, sizeof(connection->header),
		     "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: "
		     "close\r\n\r\n",
		     status, type, connection->text.n);
	buffers[0] = uv_buf_init(connection->header, (unsigned int)n);
	buffers[1] = uv_buf_init(connection->text.data, (unsigned int)connection->text.n);
	connection->write.data = connection;
	if (uv_write(&connection->write, (uv_stream_t *)&connection->pipe, buffers,
		     connection->head || !connection->text.n ? 1 : 2, connection_on_written) < 0)
		connection_close(connection);
}

static void connection_refuse(struct connection *connection, const char *status, const char *line) {
	metrics_text_print(&connection->text, "%s\n", line);
	connection_answer(connection, status, "text/plain; charset=utf-8");
}

static void connection_on_text(struct metrics_text *text, void *userdata) {
	struct connection *connection = userdata;

	connection->run = NULL;
	if (!text) {
		connection_refuse(connection, "500 Internal Server Error", "no memory");
		return;
	}
	connection->text = *text;
	*text = (struct metrics_text){};
	connection_answer(connection, "200 OK",
			  connection->text.prometheus ? PROMETHEUS_CONTENT_TYPE
						      : OPENMETRICS_CONTENT_TYPE);
}

/* The header of a request is complete. */
static void connection_serve(struct connection *connection) {
	const struct config *config = connection->socket->context->image->config;
	const struct metrics_view view = { .all = true, .prometheus = config->metrics_prometheus };
	char method[8], target[256];
	int n = 0, r;

	if (sscanf(connection->request, "%7[A-Z] %255[!-~] HTTP/1.%*1[0-9]%n", method, target,
		   &n) != 2 ||
	    !n || connection->request[n] != '\r') {
		connection_refuse(connection, "400 Bad Request",
				  "this is not HTTP/1.1: GET /metrics");
		return;
	}
	connection->head = !strcmp(method, "HEAD");
	target[strcspn(target, "?#")] = '\0';
	if (!connection->head && strcmp(method, "GET") != 0) {
		connection_refuse(connection, "405 Method Not Allowed", "only GET and HEAD");
		return;
	}
	if (strcmp(target, "/metrics") != 0) {
		connection_refuse(connection, "404 Not Found", "there is /metrics only");
		return;
	}
	r = metrics_run_new(&connection->run, connection->socket->context, &view,
			    connection_on_text, connection);
	if (r < 0)
		connection_refuse(connection, "503 Service Unavailable",
				  r == -EBUSY ? "too many read metrics at the same time"
					      : "no memory");
}

static void connection_on_allocate(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
	struct connection *connection = handle->data;

	connection->nothing = peek_input(handle, connection->request + connection->n_request,
					 REQUEST_MAX - connection->n_request, buffer);
}

static void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
	struct connection *connection = stream->data;

	if (n == UV_ENOBUFS && connection->nothing)
		return;
	if (n < 0) {
		/* who has asked may have shut his side down */
		if (n != UV_EOF || !connection->answered)
			connection_close(connection);
		return;
	}
	connection->n_request += (size_t)n;
	connection->request[connection->n_request] = '\0';
	if (!strstr(connection->request, "\r\n\r\n") && connection->n_request < REQUEST_MAX)
		return;
	connection->answered = true;
	uv_read_stop(stream);
	if (connection->n_request == REQUEST_MAX)
		connection_refuse(connection, "431 Request Header Fields Too Large",
				  "8 KiB are enough");
	else
		connection_serve(connection);
}

static void socket_on_connection(uv_stream_t *stream, int status) {
	struct metrics_socket *socket = stream->data;
	struct connection *connection = status < 0 ? NULL : calloc(1, sizeof(*connection));
	int r;

	if (!connection)
		return;
	connection->socket = socket;
	connection->pipe.data = connection->timer.data = connection;
	uv_pipe_init(socket->context->image->loop, &connection->pipe, 0);
	uv_timer_init(socket->context->image->loop, &connection->timer);
	connection->n_handles = 2;
	socket->n_connections++;
	LIST_INSERT_HEAD(&socket->connections, connection, link);
	r = uv_accept(stream, (uv_stream_t *)&connection->pipe);
	if (r == 0 && socket->n_connections > CONNECTIONS_MAX)
		r = UV_EBUSY;
	if (r == 0)
		r = uv_read_start((uv_stream_t *)&connection->pipe, connection_on_allocate,
				  connection_on_read);
	if (r < 0)
		connection_close(connection);
	else
		uv_timer_start(&connection->timer, connection_on_timer, TIMEOUT_MS, 0);
}

/* ---- the socket ---- */

/* A listening socket in place of an earlier one. The descriptor, or -errno. */
static int socket_listen(const char *path, mode_t mode) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_fd int fd = -1;
	struct stat status;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	if (lstat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	unlink(path);
	/* who may read may connect, which takes the right to write */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(path, mode | (mode & 0444) >> 1) < 0 || listen(fd, 64) < 0)
		return -errno;
	r = fd;
	fd = -1;
	return r;
}

static void socket_on_closed(uv_handle_t *handle) {
	struct metrics_socket *socket = handle->data;

	free(socket->path);
	socket->path = NULL;
	socket_destroy(socket);
}

int metrics_socket_new(struct metrics_socket **socketp, struct metrics_context *context,
		       const char *path, char *error, size_t n_error) {
	struct metrics_socket *socket = calloc(1, sizeof(*socket));
	int fd = -1, r = -ENOMEM;

	if (socket)
		socket->path = strdup(path);
	if (socket && socket->path)
		fd = r = socket_listen(path, (mode_t)context->image->config->metrics_mode);
	if (r < 0) {
		snprintf(error, n_error, "--metrics=unix:%s: %s", path,
			 r == -EEXIST ? "there is something else than a socket" : strerror(-r));
		if (socket)
			free(socket->path);
		free(socket);
		return r;
	}
	socket->context = context;
	socket->pipe.data = socket;
	uv_pipe_init(context->image->loop, &socket->pipe, 0);
	r = uv_pipe_open(&socket->pipe, fd);
	if (r < 0)
		fd_close(fd);
	else
		r = uv_listen((uv_stream_t *)&socket->pipe, 64, socket_on_connection);
	if (r < 0) {
		snprintf(error, n_error, "--metrics=unix:%s: %s", path, uv_strerror(r));
		metrics_socket_free(socket);
		return r;
	}
	*socketp = socket;
	return 0;
}

struct metrics_socket *metrics_socket_free(struct metrics_socket *socket) {
	struct connection *connection, *next;

	if (!socket)
		return NULL;
	socket->freed = true;
	for (connection = LIST_FIRST(&socket->connections); connection; connection = next) {
		next = LIST_NEXT(connection, link);
		connection_close(connection);
	}
	unlink(socket->path);
	uv_close((uv_handle_t *)&socket->pipe, socket_on_closed);
	return NULL;
}
