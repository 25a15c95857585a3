/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Launches of twins whose programs read the launch: the driver gets one argument more than the
 * program gave, the block of proto/launch.h.
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/launch.h"
#include "shim/driver/driver.h"

/* How a twin's kernel takes the block; what the original takes, too. */
struct launch_form {
	uint16_t count; /* parameters of the original, */
	uint16_t size; /* and bytes up to the end of the last one */
	uint16_t offset; /* of the block */
	uint16_t has_block; /* 0: it has none, and the others mean nothing */
};

#define LAUNCH_STREAM_LEGACY 1 /* names of the default streams, as in traces: the process's, */
#define LAUNCH_STREAM_OWN 2 /* and the thread's own */

/* The arguments of one launch, on the stack of its thread. */
struct launch_frame {
	bool used; /* the caller sets it to false; what follows means nothing then */
	void ***parameters_at, ***extra_at; /* variables of the caller; the second may be NULL */
	void **parameters, **extra; /* that were in them */
	void *heap; /* owned */
	size_t size;
	void *list[5]; /* an `extra` */
	struct launch_block block;
	union {
		void *pointers[128];
		unsigned char bytes[1024];
	};
};

/*
 * Before the launch of a twin with a block: puts that behind the arguments, in *parameters or
 * *extra (NULL: the call has none). False: it cannot be, the arguments stay, and the original is to
 * be launched. launch_block_end() follows.
 */
bool launch_block_begin(struct launch_frame *frame, const struct launch_form *form, uint64_t stream,
			void ***parameters, void ***extra);

void launch_block_restore(struct launch_frame *frame);

/* After it: the arguments are the program's own again. */
static inline void launch_block_end(struct launch_frame *frame) {
	if (__builtin_expect(frame->used, 0))
		launch_block_restore(frame);
}

/* Fills in the block of a launch by this thread. */
void launch_block_fill(struct launch_block *block, uint64_t stream);

/* The buffer of arguments in an `extra`, and its size in bytes; NULL: it is not as the driver wants
 * it. */
const void *launch_block_buffer(void **extra, size_t *size);
