/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which messages may come from a shim, and when. There are no sockets here: the fuzzer drives this
 * code.
 */

#include <stdbool.h>
#include <stddef.h>

#include "proto/wire.h"

enum shim_state {
	SHIM_NEW, /* HELLO must come first */
	SHIM_LOADER, /* no request is open */
	SHIM_LOADER_BUSY, /* an IMAGE is in work */
	SHIM_MIRROR,
	SHIM_TRACE, /* asks whether it is traced, and may ask again */
	SHIM_CLOSED,
};

#define SHIM_DEVICES_MAX 64
#define SHIM_CAPABILITY_MAJOR_MAX 99

/*
 * Whether this datagram with n_fds descriptors is acceptable in this state: well-formed, of a type
 * that may come now, every field in range, every text terminated. NULL if it is, else one constant
 * line.
 */
const char *shim_wire_check(enum shim_state state, const union wire_message *message,
			    size_t received, size_t n_fds);

/* What a HELLO of any version says of its sender. */
struct shim_greeting {
	uint16_t version; /* of the protocol */
	char shim_version[32]; /* printable; "?" if it is none */
};

/* Whether the datagram is a HELLO of another version than ours: a part of it is the same in all
 * (wire.h). */
bool shim_wire_other(const union wire_message *message, size_t received, size_t n_fds,
		     struct shim_greeting *greeting);

/* The state after an acceptable message. */
enum shim_state shim_wire_next(enum shim_state state, const union wire_message *message);

/* Descriptors that messages of this type carry. */
size_t shim_wire_fds(uint16_t type);
