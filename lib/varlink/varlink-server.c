/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The service: what it serves, where it listens, who uses how much of it, and the sweep.
 *
 * Memory follows libuv: a handle is closed at once but its memory is needed until the loop has told
 * so. Therefore the server counts its handles (listeners, connections, the timer), and the one that
 * is closed last frees it.
 *
 * The sweep is a timer that runs only while a connection has something to watch: output that its
 * client does not take, or a running call whose connection is not read (the client sent ahead too
 * much, or shut its side down), so that reading cannot tell that the client has gone.
 *
 * Calls are answered on the loop, so whoever keeps it keeps all others waiting. In a turn a user
 * has turn_per_uid of it, and all users together TURN_USERS times that. Who has used that up waits,
 * with all his connections, for the next turn, in which those who waited longest come first. A turn
 * ends with the idle handle, which runs only while somebody waits; before that, time adds up over
 * turns, and no more comes of it than one wait.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "varlink-interfaces.h"
#include "varlink-json.h"
#include "varlink-server-private.h"
#include "lib/json.h"

#define LISTEN_BACKLOG 256
#define ACCEPTS_PER_TURN 16
#define PAUSE_MS 100
#define BEHIND_MS 10 /* while too many sockets are being closed */
#define TURN_PER_UID_US 2000
#define TURN_USERS 5

/* The service whose interface has this name, or NULL. */
struct varlink_service *server_find_service(struct varlink_server *server, const char *name,
					    size_t n_name) {
	for (struct varlink_service *service = server->services; service; service = service->next) {
		const char *other = varlink_interface_name(service->interface);

		if (strlen(other) == n_name && !memcmp(other, name, n_name))
			return service;
	}
	return NULL;
}

/* Counts a connection of @uid. Returns 0, -EDQUOT if it is one too many, or -ENOMEM. */
int server_user_acquire(struct varlink_server *server, uid_t uid, struct varlink_user **userp) {
	struct varlink_user *user;

	for (user = server->users; user; user = user->next)
		if (user->uid == uid)
			break;
	if (!user) {
		user = calloc(1, sizeof(*user));
		if (!user)
			return -ENOMEM;
		user->uid = uid;
		TAILQ_INIT(&user->waiting);
		TAILQ_INIT(&user->gathering);
		user->next = server->users;
		server->users = user;
	} else if (user->n_connections >= server->connections_per_uid_max) {
		return -EDQUOT;
	}
	user->n_connections++;
	*userp = user;
	return 0;
}

void server_user_release(struct varlink_server *server, struct varlink_user *user) {
	struct varlink_user **linkp = &server->users;

	if (--user->n_connections)
		return;
	while (*linkp != user)
		linkp = &(*linkp)->next;
	*linkp = user->next;
	free(user);
}

/* Whether the rest is for the next turn. */
bool server_turn_over(struct varlink_server *server, struct varlink_user *user) {
	if (user->turn != server->turn) {
		user->turn = server->turn;
		user->used = 0;
	}
	return user->used >= server->turn_per_uid ||
	       server->used >= TURN_USERS * server->turn_per_uid;
}

void server_turn_used(struct varlink_server *server, struct varlink_user *user,
		      uint64_t nanoseconds) {
	user->used += nanoseconds;
	server->used += nanoseconds;
}

/* Goes on with those that wait, from user to user; who waits again comes behind the others. */
static void on_turn(uv_idle_t *idle) {
	struct varlink_server *server = idle->data;
	struct varlink_connection *connection;
	struct varlink_user *user;

	server->turn++;
	server->used = 0;
	while ((user = TAILQ_FIRST(&server->waiting)) && !server_turn_over(server, user)) {
		while ((connection = TAILQ_FIRST(&user->waiting)) &&
		       !server_turn_over(server, user)) {
			server_unwait(connection);
			connection_process(connection);
		}
		if (!TAILQ_EMPTY(&user->waiting)) {
			TAILQ_REMOVE(&server->waiting, user, waiting_link);
			TAILQ_INSERT_TAIL(&server->waiting, user, waiting_link);
		}
	}
	if (TAILQ_EMPTY(&server->waiting))
		uv_idle_stop(idle);
}

/* Lets the connection go on in the next turn. */
void server_wait(struct varlink_connection *connection) {
	struct varlink_server *server = connection->server;
	struct varlink_user *user = connection->user;

	connection->waiting = true;
	if (TAILQ_EMPTY(&user->waiting))
		TAILQ_INSERT_TAIL(&server->waiting, user, waiting_link);
	TAILQ_INSERT_TAIL(&user->waiting, connection, waiting_link);
	if (!server->closing)
		uv_idle_start(&server->turns, on_turn);
}

void server_unwait(struct varlink_connection *connection) {
	struct varlink_user *user = connection->user;

	if (!connection->waiting)
		return;
	connection->waiting = false;
	TAILQ_REMOVE(&user->waiting, connection, waiting_link);
	if (TAILQ_EMPTY(&user->waiting))
		TAILQ_REMOVE(&connection->server->waiting, user, waiting_link);
}

static void on_sweep(uv_timer_t *timer) {
	struct varlink_server *server = timer->data;
	bool needed = false;

	for (struct varlink_connection *connection = server->connections, *next; connection;
	     connection = next) {
		next = connection->next;
		connection_sweep(connection, uv_now(server->loop));
	}
	for (struct varlink_connection *connection = server->connections; connection;
	     connection = connection->next)
		needed = needed || connection_needs_sweep(connection);
	if (!needed && !server->closing)
		uv_timer_stop(timer);
}

/* A connection needs the sweep: it runs from now on, until none does. */
void server_watch(struct varlink_server *server) {
	uint64_t period = server->stall_ms / 4 < 1000 ? server->stall_ms / 4 + 1 : 1000;

	if (!server->closing && !uv_is_active((uv_handle_t *)&server->sweep))
		uv_timer_start(&server->sweep, on_sweep, period, period);
}

static int get_info(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct varlink_server *server = userdata;
	json_object *interfaces = json_object_new_array();

	for (struct varlink_service *service = server->services; service; service = service->next)
		json_append_string(interfaces, varlink_interface_name(service->interface));
	return varlink_call_reply(
		call, varlink_json_pack("vendor", json_object_new_string(server->vendor), "product",
					json_object_new_string(server->product), "version",
					json_object_new_string(server->version), "url",
					json_object_new_string(server->url), "interfaces",
					interfaces, NULL));
}

static int get_interface_description(struct varlink_call *call, json_object *parameters,
				     void *userdata) {
	struct varlink_service *service;
	json_object *value = NULL;
	const char *name;

	json_object_object_get_ex(parameters, "interface", &value);
	name = json_object_get_string(value);
	service = server_find_service(userdata, name, strlen(name));
	if (!service)
		return varlink_call_error(call, "org.varlink.service.InterfaceNotFound",
					  varlink_json_pack("interface",
							    json_object_new_string(name), NULL));
	return varlink_call_reply(
		call,
		varlink_json_pack(
			"description",
			json_object_new_string(varlink_interface_text(service->interface)), NULL));
}

static const struct varlink_method service_methods[] = {
	{ "GetInfo", get_info },
	{ "GetInterfaceDescription", get_interface_description },
	{},
};

static void server_destroy(struct varlink_server *server) {
	for (struct varlink_service *service = server->services, *next; service; service = next) {
		next = service->next;
		varlink_interface_free(service->interface);
		free(service);
	}
	free(server->vendor);
	free(server->product);
	free(server->version);
	free(server->url);
	free(server->limit_error);
	if (server->reserve_fd >= 0)
		close(server->reserve_fd);
	free(server);
}

/* A handle of the server is closed for good. */
void server_handle_closed(struct varlink_server *server) {
	if (!--server->n_handles)
		server_destroy(server);
}

/* Keeps a descriptor for when there is no other one, if it was given up. */
void server_reserve(struct varlink_server *server) {
	if (server->reserve_fd < 0)
		server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_handle_closed(uv_handle_t *handle) {
	server_handle_closed(handle->data);
}

static char *copy(const char *text) {
	return strdup(text ?: "");
}

/*
 * A server without interfaces but org.varlink.service and without sockets; ignores SIGPIPE. Returns
 * 0 or negative errno.
 */
int varlink_server_new(struct varlink_server **serverp, uv_loop_t *loop,
		       const struct varlink_server_options *options) {
	struct varlink_server *server;
	struct varlink_fault fault;
	int r;

	if (options->size != sizeof(*options))
		return -EINVAL;
	/*
	 * libuv writes with write(): a client that goes at the wrong time must not end the process
	 */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	server = calloc(1, sizeof(*server));
	if (!server)
		return -ENOMEM;
	server->loop = loop;
	server->vendor = copy(options->vendor);
	server->product = copy(options->product);
	server->version = copy(options->version);
	server->url = copy(options->url);
	server->connections_max = options->connections_max ?: 4096;
	server->connections_per_uid_max = options->connections_per_uid_max ?: 128;
	server->limit_error = options->limit_error ? copy(options->limit_error) : NULL;
	server->message_max = options->message_max ?: VARLINK_MESSAGE_MAX;
	server->output_mark = options->output_mark ?: 256 * 1024;
	server->bytes_per_uid_max = options->bytes_per_uid_max ?: VARLINK_BYTES_PER_UID_MAX;
	server->stall_ms = options->stall_ms ?: 10000;
	server->turn_per_uid = UINT64_C(1000) * (options->turn_per_uid_us ?: TURN_PER_UID_US);
	TAILQ_INIT(&server->waiting);
	server->close_socket = options->close_socket;
	server->is_behind = options->is_behind;
	server->exhausted = options->exhausted;
	server->userdata = options->userdata;
	server->reserve_fd = -1;
	server_reserve(server);
	if (!server->vendor || !server->product || !server->version || !server->url)
		r = -ENOMEM;
	else
		r = varlink_server_add_interface(server, varlink_org_varlink_service,
						 service_methods, server, &fault);
	if (!r)
		r = uv_timer_init(loop, &server->sweep);
	if (r) {
		server_destroy(server);
		return r < 0 ? r : -EINVAL;
	}
	uv_idle_init(loop, &server->turns);
	server->sweep.data = server->turns.data = server;
	server->n_handles = 3;
	/* with its first stream libuv takes a descriptor for good: now, so that nobody looks for it
	 * later */
	uv_pipe_init(loop, &server->first, 0);
	server->first.data = server;
	uv_close((uv_handle_t *)&server->first, on_handle_closed);
	*serverp = server;
	return 0;
}

void varlink_server_set_connections_per_uid_max(struct varlink_server *server, unsigned int max) {
	server->connections_per_uid_max = max;
}

static void on_listener_closed(uv_handle_t *handle) {
	struct varlink_listener *listener = handle->data;
	struct varlink_server *server = listener->server;

	if (--listener->n_handles == 0) {
		close(listener->fd);
		free(listener->path);
		free(listener);
	}
	server_handle_closed(server);
}

static void listener_close(struct varlink_listener *listener) {
	struct stat st;

	if (listener->path && lstat(listener->path, &st) >= 0 && st.st_dev == listener->device &&
	    st.st_ino == listener->inode)
		unlink(listener->path);
	uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
	uv_close((uv_handle_t *)&listener->pause, on_listener_closed);
}

/*
 * Closes all sockets, removes their paths and cancels running calls, before it returns; the memory
 * goes when the loop has run once more. Takes NULL. Returns NULL.
 */
struct varlink_server *varlink_server_free(struct varlink_server *server) {
	if (!server || server->closing)
		return NULL;
	server->closing = true;
	for (struct varlink_listener *listener = server->listeners, *next; listener;
	     listener = next) {
		next = listener->next;
		listener_close(listener);
	}
	server->listeners = NULL;
	while (server->connections)
		connection_close(server->connections);
	uv_close((uv_handle_t *)&server->sweep, on_handle_closed);
	uv_close((uv_handle_t *)&server->turns, on_handle_closed);
	return NULL;
}

/*
 * Serves an interface; @text is copied, @methods is not. Returns 0; VARLINK_E_INVALID with *@fault
 * if the text is not valid; -EINVAL if @methods names one that is not in it; -EEXIST; -ENOMEM.
 */
int varlink_server_add_interface(struct varlink_server *server, const char *text,
				 const struct varlink_method *methods, void *userdata,
				 struct varlink_fault *fault) {
	struct varlink_interface *interface;
	struct varlink_service *service, **linkp;
	const char *name;
	int r;

	r = varlink_interface_new(&interface, text, fault);
	if (r)
		return r < 0 ? r : VARLINK_E_INVALID;
	name = varlink_interface_name(interface);
	if (server_find_service(server, name, strlen(name)))
		r = -EEXIST;
	for (const struct varlink_method *method = methods; !r && method->name; method++)
		if (!varlink_interface_find(interface, VARLINK_MEMBER_METHOD, method->name))
			r = -EINVAL;
	service = r ? NULL : calloc(1, sizeof(*service));
	if (!service) {
		varlink_interface_free(interface);
		return r ?: -ENOMEM;
	}
	*service = (struct varlink_service){ .interface = interface,
					     .methods = methods,
					     .userdata = userdata };
	for (linkp = &server->services; *linkp; linkp = &(*linkp)->next)
		;
	*linkp = service;
	return 0;
}

static void on_connections(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer) {
	struct varlink_listener *listener = timer->data;

	server_reserve(listener->server);
	uv_poll_start(&listener->poll, UV_READABLE, on_connections);
}

/* Clients wait in the queue for a while. */
static void listener_pause(struct varlink_listener *listener, uint64_t ms) {
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->pause, on_pause_over, ms, 0);
}

/*
 * There is no descriptor for the next client: one that is kept for this tells it so. Without that
 * one clients wait in the queue, as accept(2) would fail again and again.
 */
static void refuse_exhausted(struct varlink_listener *listener, int error) {
	struct varlink_server *server = listener->server;
	struct rlimit limit = {};
	char text[256];
	int fd = -1, n;

	server->counters.exhausted++;
	if (server->exhausted)
		server->exhausted(-error, server->userdata);
	if (server->reserve_fd >= 0) {
		close(server->reserve_fd);
		server->reserve_fd =
			-1; /* again after the pause: who was refused may not be closed before */
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	if (fd >= 0 && server->limit_error) {
		getrlimit(RLIMIT_NOFILE, &limit);
		n = snprintf(text, sizeof(text),
			     "{\"error\":\"%s\",\"parameters\":{\"what\":\"descriptors of the "
			     "daemon (LimitNOFILE=)\",\"limit\":%llu}}",
			     server->limit_error, (unsigned long long)limit.rlim_cur);
		if (n < (int)sizeof(text) &&
		    send(fd, text, (size_t)n + 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			n = 0; /* it has gone */
	}
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	if (fd >= 0 && server->close_socket)
		server->close_socket(fd, server->userdata);
	else if (fd >= 0)
		close(fd);
	listener_pause(listener, PAUSE_MS);
}

static void on_connections(uv_poll_t *poll, int status, int events) {
	struct varlink_listener *listener = poll->data;
	const struct varlink_server *server = listener->server;

	if (server->is_behind && server->is_behind(server->userdata)) {
		listener_pause(listener, BEHIND_MS);
		return;
	}
	for (unsigned int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			connection_new(listener->server, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			   errno == ENOBUFS) {
			refuse_exhausted(listener, errno);
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}

/* Listens on @fd, which it takes in any case; @path is taken on success only. */
static int listen_on(struct varlink_server *server, int fd, char *path) {
	struct varlink_listener *listener;
	struct stat st = {};
	int r;

	if (path && lstat(path, &st) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	listener = calloc(1, sizeof(*listener));
	if (!listener) {
		close(fd);
		return -ENOMEM;
	}
	listener->server = server;
	listener->fd = fd;
	r = listen(fd, LISTEN_BACKLOG) < 0 ? -errno
					   : uv_poll_init(server->loop, &listener->poll, fd);
	if (r < 0) {
		close(fd);
		free(listener);
		return r;
	}
	uv_timer_init(server->loop, &listener->pause);
	listener->poll.data = listener->pause.data = listener;
	listener->n_handles = 2;
	server->n_handles += 2;
	uv_poll_start(&listener->poll, UV_READABLE, on_connections);
	listener->path = path;
	listener->device = st.st_dev;
	listener->inode = st.st_ino;
	listener->next = server->listeners;
	server->listeners = listener;
	return 0;
}

/*
 * Listens on a socket that is bound already, e.g. one that systemd passed. Takes @fd in any case.
 * Returns 0 or negative errno.
 */
int varlink_server_listen_consume(struct varlink_server *server, int fd) {
	return listen_on(server, fd, NULL);
}

/*
 * Removes a socket that nobody listens on. Returns 0, -EADDRINUSE if somebody does, or another
 * negative errno.
 */
static int remove_stale(const struct sockaddr_un *address, socklen_t n_address) {
	struct stat st;
	int fd, r;

	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = connect(fd, (const struct sockaddr *)address, n_address) < 0 ? -errno : 0;
	close(fd);
	if (r != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(address->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

/*
 * Makes a socket at @path with permissions @mode. A stale socket in its place is removed. Returns
 * 0, -EADDRINUSE if another process listens there or it is no socket, or another negative errno.
 */
int varlink_server_listen(struct varlink_server *server, const char *path, mode_t mode) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t n_address = sizeof(address);
	char *copied;
	int fd, r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	r = remove_stale(&address, n_address);
	if (r)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/*
	 * the inode is made with the mode of the unbound socket, less the umask, so it never allows
	 * more than @mode
	 */
	if (fchmod(fd, mode) < 0 || bind(fd, (struct sockaddr *)&address, n_address) < 0 ||
	    chmod(path, mode) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	copied = strdup(path);
	if (!copied) {
		close(fd);
		return -ENOMEM;
	}
	r = listen_on(server, fd, copied);
	if (r)
		free(copied);
	return r;
}

/* How many clients are connected. */
unsigned int varlink_server_connections(const struct varlink_server *server) {
	return server->n_connections;
}

const struct varlink_server_counters *varlink_server_counters(const struct varlink_server *server) {
	return &server->counters;
}

void varlink_server_each_error(const struct varlink_server *server,
			       void (*take)(const char *name, uint64_t n, void *userdata),
			       void *userdata) {
	for (size_t i = 0; i < VARLINK_ERRORS_MAX && server->errors[i].name; i++)
		take(server->errors[i].name, server->errors[i].n, userdata);
}
