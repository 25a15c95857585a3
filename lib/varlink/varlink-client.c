/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The varlink client (varlink-client.h).
 *
 * The client. The socket is non-blocking, and poll() with the time that is left is the only place
 * where it waits, so that a timeout covers a whole call: what is sent and what comes back. After a
 * failure the state is DEAD, for a reply that comes late would be taken for that of the next call.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "varlink-client.h"
#include "varlink-json.h"
#include "varlink-message.h"
#include "lib/base/clock.h"

#define INPUT_CHUNK ((size_t)64 * 1024)

enum client_state {
	CLIENT_IDLE,
	CLIENT_AWAITING_REPLY, /* one */
	CLIENT_AWAITING_MORE, /* one that does not continue, perhaps after some that do */
	CLIENT_DEAD,
};

struct varlink_client {
	int fd;
	int timeout_ms; /* negative: none */
	enum client_state state;
	char *input;
	size_t input_begin, input_end, n_input_max;
	size_t input_scanned; /* from input_begin: no NUL there */
	int received; /* the descriptor that came last; -1: none, or it was taken */
};

static int64_t deadline_of(const struct varlink_client *client) {
	return client->timeout_ms < 0 ? INT64_MAX : clock_ms(CLOCK_MONOTONIC) + client->timeout_ms;
}

/* Waits for @events. Returns 0, -ETIMEDOUT, or another negative errno. */
static int wait_for(struct varlink_client *client, short events, int64_t deadline) {
	struct pollfd pollfd = { .fd = client->fd, .events = events };
	int64_t left;
	int r;

	do {
		left = deadline == INT64_MAX ? -1 : deadline - clock_ms(CLOCK_MONOTONIC);
		if (deadline != INT64_MAX && left < 0)
			left = 0;
		r = poll(&pollfd, 1, left > INT32_MAX ? INT32_MAX : (int)left);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

static int send_all(struct varlink_client *client, const char *text, size_t n_text,
		    int64_t deadline) {
	ssize_t n;
	int r;

	while (n_text > 0) {
		n = send(client->fd, text, n_text, MSG_NOSIGNAL);
		if (n >= 0) {
			text += n;
			n_text -= n;
		} else if (errno == EAGAIN) {
			r = wait_for(client, POLLOUT, deadline);
			if (r)
				return r;
		} else if (errno != EINTR) {
			return errno == EPIPE ? -ECONNRESET : -errno;
		}
	}
	return 0;
}

/* Sends a call. Takes the parameters in any case. */
static int client_send(struct varlink_client *client, const char *method,
		       json_object *consume_parameters, bool oneway, bool more, int64_t deadline) {
	json_object *message;
	const char *text;
	size_t n_text;
	int r;

	if (client->state != CLIENT_IDLE) {
		json_object_put(consume_parameters);
		return client->state == CLIENT_DEAD ? -ENOTCONN : -EBUSY;
	}
	message = varlink_call_message_new(method, consume_parameters, oneway, more);
	if (!message)
		return -ENOMEM;
	r = varlink_json_print(message, &text, &n_text);
	if (!r && n_text > VARLINK_MESSAGE_MAX)
		r = -EMSGSIZE;
	if (!r) {
		r = send_all(client, text, n_text + 1, deadline);
		client->state = r        ? CLIENT_DEAD
				: oneway ? CLIENT_IDLE
				: more   ? CLIENT_AWAITING_MORE
					 : CLIENT_AWAITING_REPLY;
	}
	json_object_put(message);
	return r;
}

/* Keeps the descriptor that came last, so that a service can fill nobody's table. */
static void take_descriptors(struct varlink_client *client, struct msghdr *message) {
	for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control;
	     control = CMSG_NXTHDR(message, control)) {
		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (control->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			if (client->received >= 0)
				close(client->received);
			memcpy(&client->received, CMSG_DATA(control) + i * sizeof(int),
			       sizeof(int));
		}
	}
}

static ssize_t receive_some(struct varlink_client *client) {
	char control[CMSG_SPACE(4 * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { client->input + client->input_end, INPUT_CHUNK };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(client->fd, &message, MSG_CMSG_CLOEXEC);

	if (n >= 0)
		take_descriptors(client, &message);
	return n;
}

int varlink_client_take_descriptor(struct varlink_client *client) {
	const int fd = client->received;

	client->received = -1;
	return fd;
}

/* Appends what has come to the input. Returns 0 or negative errno. */
static int receive(struct varlink_client *client, int64_t deadline) {
	ssize_t n;
	int r;

	if (client->input_begin > 0) {
		memmove(client->input, client->input + client->input_begin,
			client->input_end - client->input_begin);
		client->input_end -= client->input_begin;
		client->input_begin = 0;
	}
	if (client->n_input_max - client->input_end < INPUT_CHUNK) {
		size_t n_max = client->n_input_max * 2 + INPUT_CHUNK;
		char *input = realloc(client->input, n_max);

		if (!input)
			return -ENOMEM;
		client->input = input;
		client->n_input_max = n_max;
	}
	for (;;) {
		n = receive_some(client);
		if (n > 0) {
			client->input_end += n;
			return 0;
		}
		if (n == 0)
			return -ECONNRESET;
		if (errno == EAGAIN) {
			r = wait_for(client, POLLIN, deadline);
			if (r)
				return r;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
}

/* Reads one reply. *@reply is untouched on failure. */
static int receive_reply(struct varlink_client *client, struct varlink_reply *reply,
			 int64_t deadline) {
	struct varlink_reply_message message;
	const char *begin, *nul;
	size_t n_input;
	int r;

	for (;;) {
		begin = client->input + client->input_begin;
		n_input = client->input_end - client->input_begin;
		nul = n_input > client->input_scanned ? memchr(begin + client->input_scanned, '\0',
							       n_input - client->input_scanned)
						      : NULL;
		if (nul)
			break;
		client->input_scanned = n_input;
		if (n_input > VARLINK_MESSAGE_MAX)
			return -EBADMSG;
		r = receive(client, deadline);
		if (r)
			return r;
	}
	r = varlink_reply_message_parse(&message, begin, nul - begin);
	if (r)
		return r < 0 ? r : -EBADMSG;
	client->input_begin += nul + 1 - begin;
	client->input_scanned = 0;

	if (!message.parameters) {
		message.parameters = json_object_new_object();
		if (!message.parameters ||
		    json_object_object_add(message.root, "parameters", message.parameters) < 0) {
			json_object_put(message.parameters);
			json_object_put(message.root);
			return -ENOMEM;
		}
	}
	*reply = (struct varlink_reply){ message.root, message.error, message.parameters,
					 message.continues };
	return 0;
}

/*
 * Waits until a reply begins to come, which varlink_client_next() then reads, or until @other_fd is
 * readable, which goes before it. @timeout_ms: negative for ever. Returns 0,
 * VARLINK_CLIENT_E_OTHER, VARLINK_CLIENT_E_AGAIN, or negative errno.
 */
int varlink_client_wait(struct varlink_client *client, int other_fd, int timeout_ms) {
	struct pollfd pollfds[] = { { .fd = client->fd, .events = POLLIN },
				    { .fd = other_fd, .events = POLLIN } };
	const bool buffered = client->input_end > client->input_begin;
	int r;

	r = poll(pollfds, 2, buffered ? 0 : timeout_ms);
	if (r < 0 && errno != EINTR)
		return -errno;
	if (r > 0 && pollfds[1].revents)
		return VARLINK_CLIENT_E_OTHER;
	return buffered || r > 0 ? 0 : VARLINK_CLIENT_E_AGAIN;
}

/* Waits for a reply and brings the state forward. */
static int client_receive(struct varlink_client *client, struct varlink_reply *reply,
			  int64_t deadline) {
	struct varlink_reply received;
	int r;

	r = receive_reply(client, &received, deadline);
	if (!r && received.continues && client->state != CLIENT_AWAITING_MORE) {
		varlink_reply_deinit(&received);
		r = -EBADMSG;
	}
	if (r) {
		client->state = CLIENT_DEAD;
		return r;
	}
	if (!received.continues)
		client->state = CLIENT_IDLE;
	*reply = received;
	return received.error ? VARLINK_CLIENT_E_ERROR : 0;
}

/*
 * Connects; the wait for room in the queue of the service is bounded as well. Returns 0 or negative
 * errno.
 */
static int client_dial(struct varlink_client *client, const struct sockaddr_un *address) {
	struct timeval timeout = { client->timeout_ms / 1000, client->timeout_ms % 1000 * 1000 };
	int r;

	if (client->timeout_ms > 0 &&
	    setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	do
		r = connect(client->fd, (const struct sockaddr *)address, sizeof(*address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return fcntl(client->fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/*
 * Connects to the socket at @path. @timeout_ms bounds each call; negative: wait for ever. Returns 0
 * or negative errno.
 */
int varlink_client_connect(struct varlink_client **clientp, const char *path, int timeout_ms) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct varlink_client *client;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->timeout_ms = timeout_ms;
	client->received = -1;
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = client->fd < 0 ? -errno : client_dial(client, &address);
	if (r) {
		varlink_client_free(client);
		return r;
	}
	*clientp = client;
	return 0;
}

/* Hangs up; takes NULL. Returns NULL. */
struct varlink_client *varlink_client_free(struct varlink_client *client) {
	if (!client)
		return NULL;
	if (client->fd >= 0)
		close(client->fd);
	if (client->received >= 0)
		close(client->received);
	free(client->input);
	free(client);
	return NULL;
}

/*
 * Calls and waits for the reply. Takes @consume_parameters, which may be NULL, in any case. Returns
 * 0 or VARLINK_CLIENT_E_ERROR with *@reply, to be freed with varlink_reply_deinit(), or negative
 * errno.
 */
int varlink_client_call(struct varlink_client *client, const char *method,
			json_object *consume_parameters, struct varlink_reply *reply) {
	int64_t deadline = deadline_of(client);
	int r;

	r = client_send(client, method, consume_parameters, false, false, deadline);
	return r ?: client_receive(client, reply, deadline);
}

/*
 * Calls and asks for more than one reply: get them with varlink_client_next(). Returns 0 or
 * negative errno.
 */
int varlink_client_call_more(struct varlink_client *client, const char *method,
			     json_object *consume_parameters) {
	return client_send(client, method, consume_parameters, false, true, deadline_of(client));
}

/*
 * The next reply of varlink_client_call_more(). Returns as varlink_client_call(); -ENODATA after
 * the last one.
 */
int varlink_client_next(struct varlink_client *client, struct varlink_reply *reply) {
	if (client->state != CLIENT_AWAITING_MORE)
		return client->state == CLIENT_DEAD ? -ENOTCONN : -ENODATA;
	return client_receive(client, reply, deadline_of(client));
}

/* Calls and lets the service not answer. Returns 0 or negative errno. */
int varlink_client_call_oneway(struct varlink_client *client, const char *method,
			       json_object *consume_parameters) {
	return client_send(client, method, consume_parameters, true, false, deadline_of(client));
}

/* Frees what a reply owns and clears it. */
void varlink_reply_deinit(struct varlink_reply *reply) {
	json_object_put(reply->root);
	*reply = (struct varlink_reply){};
}
