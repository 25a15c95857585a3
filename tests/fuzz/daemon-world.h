/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A daemon for fuzzers: the real one, with its sockets, on a loop in this thread, but without
 * workers. What it asks these for waits until the fuzzer answers in their place. It has no
 * capabilities, so that nothing that is asked of it reaches the kernel's programs or other
 * processes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/gpuprobed/daemon-private.h"

#define WORLD_MAPS 3

struct world {
	uv_loop_t loop;
	struct daemon *daemon;
	struct pass_set plain, programs; /* passes without such that are programs, and with these */
	struct object *object; /* maps 1 to 3: sums, a ring, in host memory; attachments 1 and 2 */
	char folder[32], control[64], shims[64], metrics[64];
};

extern struct world world;

/* Once, then before each input: as after the start, with the object attached. */
void world_start(void);
void world_begin(void);

/* Until the end of this input: there are passes that are programs, one before ours and one behind.
 */
void world_use_programs(void);

/* From now on all processes have this engine, as after a reload. */
void world_use_engine(enum engine engine);

/* Lets the daemon work off what is there. */
void world_turn(void);

/* A socket that is connected to one of the daemon's, and does not block. */
int world_connect(const char *path, int type);

enum world_reply_flags {
	WORLD_REPLY_HONEST = 1 << 0, /* sizes and symbols in the reply become right */
	WORLD_REPLY_CRASHED = 1 << 1,
};

/*
 * A worker answers what was asked for `which` from the oldest on: JSON, and behind a NUL what is in
 * its outputs. False: nobody waits, or no daemon would take it for an answer.
 */
bool world_reply(unsigned int which, unsigned int flags, const uint8_t *data, size_t size);

/* After each input, when the fuzzer has closed its sockets: all that it made goes. Traps if
 * something stays. */
void world_end(void);
