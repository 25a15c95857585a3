/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/wire.h"

/*
 * One connection to a daemon. It also notices when its descriptor no longer belongs to the shim:
 * programs close descriptors that they do not know, and reuse the number.
 */
struct wire_client {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
	uint32_t sequence;
};

#define WIRE_CLIENT_NONE { .fd = -1 }

/*
 * Connects to the daemon of a folder and says hello. false: no connection, and the client has none.
 * It has the descriptor from the beginning: a child that is forked meanwhile can close it.
 */
bool wire_client_open(struct wire_client *client, const char *folder, enum wire_role role,
		      uint32_t driver_version, uint64_t deadline_ms, struct wire_welcome *welcome);

/* Closes the descriptor if it is still ours. */
void wire_client_close(struct wire_client *client);

/* Is the connection open, and its descriptor still ours? */
bool wire_client_is_open(const struct wire_client *client);

/*
 * Is it open, with nothing to be read? For connections where only we begin: else the daemon is
 * gone, or out of step.
 */
bool wire_client_is_alive(const struct wire_client *client);

/* Fills in a header; a new sequence number unless one is given. */
void wire_client_prepare(struct wire_client *client, union wire_message *message,
			 enum wire_type type, uint32_t sequence);

/* Sends one message, with a descriptor unless it is -1. false: the connection is broken. */
bool wire_client_send(struct wire_client *client, const union wire_message *message, int fd,
		      uint64_t deadline_ms);

/*
 * Receives one well-formed message of that type (0: any type). *fd: its descriptor or -1, the
 * caller's to close; with fd NULL a descriptor is an error. false: late, closed, or not what it
 * should be.
 */
bool wire_client_receive(struct wire_client *client, union wire_message *message,
			 enum wire_type type, int *fd, uint64_t deadline_ms);

/* Sends a request and receives its reply into the same message. */
bool wire_client_call(struct wire_client *client, union wire_message *message, int send_fd,
		      enum wire_type reply, int *fd, uint64_t deadline_ms);

/* A descriptor moved out of the way of programs that count on low numbers; consumes fd. -1: it can
 * be no other than a standard one. */
int wire_client_move_descriptor(int fd);
