/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The memory through which a client of the control interface gets records (ReadRing, Trace), if it
 * asked for a descriptor: the daemon makes it, and its descriptor comes with the first reply. The
 * daemon writes bytes behind one another, around the end; each reply says in `end` how many it has
 * written so far. The client says here how many of them it needs no more. Base64 and JSON cost more
 * than ten times as much.
 *
 * The client may write anywhere in it. The daemon reads `consumed` alone, and bounds it.
 */

#include <stdint.h>

struct client_ring {
	uint64_t consumed; /* atomic: bytes since the beginning */
	unsigned char reserved[4088];
	unsigned char data[]; /* as many as the reply says: a power of two, and whole pages */
};

_Static_assert(sizeof(struct client_ring) == 4096, "daemon and clients agree");
