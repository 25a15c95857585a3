/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory through which a client gets records (proto/client-ring.h): the daemon's side. */

#include <stddef.h>
#include <stdint.h>

#include "lib/varlink/varlink-server.h"

struct client_memory {
	struct client_ring *ring; /* NULL: there is none */
	size_t size; /* of its data */
	uint64_t end; /* bytes written */
	int fd; /* -1: it was sent, or there is none */
};

#define CLIENT_MEMORY_NONE ((struct client_memory){ .fd = -1 })

/* Charges it to the user of the call. 0, -EDQUOT or -errno: it is to be done without. */
int client_memory_init(struct client_memory *memory, struct varlink_call *call, size_t size);
void client_memory_deinit(struct client_memory *memory);
/* Bytes that it has room for; what the client says of that is bounded. 0: none, or the client has
 * not got the descriptor so far. */
size_t client_memory_room(const struct client_memory *memory);
/* There is room. */
void client_memory_put(struct client_memory *memory, const void *bytes, size_t n);
/* Adds to a reply how much was written. */
void client_memory_tell(const struct client_memory *memory, json_object *reply);
/* varlink_call_continue(), with the descriptor if it was not sent so far. */
int client_memory_continue(struct client_memory *memory, struct varlink_call *call,
			   json_object *consume_parameters);
