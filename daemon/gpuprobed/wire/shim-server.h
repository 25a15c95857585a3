/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The socket that shims connect to (proto/wire.h). Every peer is hostile: what reaches the handlers
 * has passed shim_wire_check(), and a peer that sends anything else, or does not read, loses its
 * connection.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/gpuprobed/settings/account.h"
#include "daemon/gpuprobed/base/closer.h"
#include "shim-wire.h"

#define SHIM_CONNECTIONS_MAX 4096
#define SHIM_KEPT_FOR_FEW                                                                     \
	256 /* of these, for users who have fewer than SHIM_FEW, so that some cannot shut all \
	       others out */
#define SHIM_KEPT_FOR_ROOT 64 /* ... and for root */
#define SHIM_FEW 8
#define SHIM_GREETING_MS 5000 /* a peer that has not sent HELLO by then is disconnected */
#define SHIM_QUEUE_MAX (WIRE_SLOTS_MAX + 64) /* messages that wait for one peer */

struct shim_server;
struct shim_output;

TAILQ_HEAD(shim_output_list, shim_output);

struct shim_connection {
	TAILQ_ENTRY(shim_connection) link; /* of the server */
	struct shim_server *server;
	enum shim_state state;
	pid_t pid; /* of the peer, when it connected */
	uid_t uid; /* effective, when it connected */
	int pidfd; /* -1: the kernel does not tell */
	struct account *account;
	void *userdata; /* the handlers' */
	/* private */
	uv_poll_t poll;
	int fd;
	int foreign_fd; /* received with what ended the connection, or -1 */
	int events;
	uint64_t since; /* uv_now(): it was accepted */
	struct shim_output_list output;
	unsigned int n_output;
	bool refused; /* it is over a quota: it is not served */
	bool held; /* this user has too many descriptors in flight: output waits for a timer */
};

struct shim_server_handlers {
	/* HELLO. Negative closes the connection. */
	int (*hello)(struct shim_connection *connection, const struct wire_hello *hello,
		     void *userdata);
	/* Any other message. fd is -1 or to be consumed. Negative closes the connection. */
	int (*message)(struct shim_connection *connection, const union wire_message *message,
		       int fd, void *userdata);
	/* The connection ends, for whatever reason; only after a successful hello. */
	void (*closed)(struct shim_connection *connection, void *userdata);
};

/* What may be left out is for tests. All is borrowed. */
struct shim_server_options {
	struct account_table *accounts;
	const struct shim_server_handlers *handlers;
	void *userdata; /* of the handlers, breach() and other() */
	/* what closes sockets of peers and what they sent; NULL: that is done on the loop */
	struct closer *closer;
	/* a peer was thrown out, or not served, for this reason; NULL: not called */
	void (*breach)(const struct shim_connection *connection, const char *why, void *userdata);
	/* a peer has sent HELLO in another version, and is disconnected; NULL: not called */
	void (*other)(const struct shim_connection *connection,
		      const struct shim_greeting *greeting, void *userdata);
	/* -errno when there is no descriptor for a connection or what it sent, -EUSERS when there
	 * are as many connections as there may be; NULL: not called */
	void (*exhausted)(int error, void *userdata);
	void *exhausted_userdata;
};

/* Consumes the listening socket. 0 or -errno. */
int shim_server_new(struct shim_server **serverp, uv_loop_t *loop, int listen_fd,
		    const struct shim_server_options *options);

/* Closes everything; memory goes once the loop has closed its handles. */
struct shim_server *shim_server_free(struct shim_server *server);

/* A listening SOCK_SEQPACKET socket at path, in place of what is there. The descriptor, or -errno.
 */
int shim_server_listen(const char *path, mode_t mode);

unsigned int shim_server_connections(const struct shim_server *server);

/* So far. */
struct shim_server_counters {
	uint64_t connections; /* that were served */
	uint64_t refused; /* that were not, by a quota */
	uint64_t
		exhausted; /* times that there was no descriptor for a connection or what it sent */
	uint64_t breaches; /* peers that were thrown out */
	uint64_t messages;
	uint64_t other_versions; /* peers that greeted in another version of the protocol */
};
const struct shim_server_counters *shim_server_counters(const struct shim_server *server);

/*
 * Sends a message, header but magic, version, size filled in by the caller; fd (or -1) is borrowed.
 * Never blocks: what does not go now waits, and a peer that lets too much wait is thrown out later.
 * 0 or -errno.
 */
int shim_connection_send(struct shim_connection *connection, union wire_message *message, int fd);

/* Throws the peer out; its closed() handler is called. Nothing if that happened already. */
void shim_connection_close(struct shim_connection *connection);
