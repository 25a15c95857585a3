/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps what the workers made of images, for people to read: gpuprobed --keep-artifacts. */

#include <stdint.h>
#include <uv.h>

struct artifact_store;

/* Borrowed. */
struct artifact {
	const char *name; /* of the first kernel; empty: none */
	int text; /* the PTX after all passes, sealed; -1: none */
	uint64_t text_size;
	int image; /* the twin's, sealed */
	uint64_t image_size;
};

/*
 * Makes the folder with mode 0700 if it does not exist. Numbers continue after the highest in it. 0
 * or -errno.
 */
int artifact_store_new(struct artifact_store **storep, uv_loop_t *loop, const char *folder);

/* Not while the loop runs. NULL is fine. */
struct artifact_store *artifact_store_free(struct artifact_store *store);

/*
 * Writes FOLDER/<n>-<name>/main.ptx and out.fatbin, in a thread; the folder shows up when both are
 * complete. What cannot be written is left out, with one warning until something can be written
 * again.
 */
void artifact_store_keep(struct artifact_store *store, const struct artifact *artifact);
