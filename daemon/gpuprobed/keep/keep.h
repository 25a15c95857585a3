/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps what the next daemon needs to go on: the store of descriptors (store.h) and the state file
 * (state.h) follow each attach and detach. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct attachment;
struct image_context;
struct keep; /* NULL: nobody keeps anything */
struct kernel_names;
struct map_accounts;
struct map_exports;
struct object;
struct store;

/* What is kept, and restored. */
struct keep_context {
	const struct image_context *image;
	struct map_exports *exports;
	struct map_accounts *map_accounts;
};

/* path: of the state file; NULL: there is none. Takes the store over, which may be one that keeps
 * nothing. 0 or -errno. */
int keep_new(struct keep **keepp, const struct keep_context *context, struct store *store,
	     const char *path);
struct keep *keep_free(struct keep *keep);

/*
 * Restores the state of an earlier daemon: registry, maps, table of processes. Call it once, before
 * clients can connect. Logs what cannot be restored. 0, and the number of attachments; or -errno:
 * this daemon must end, as the next one may be able to restore the state.
 */
int keep_restore(struct keep *keep, unsigned int *np);

/* Whether anything is kept: then this daemon can hand over to the next one. */
bool keep_keeps(const struct keep *keep);

/* A random number, never 0; the next daemon that restores this state has the same. */
uint64_t keep_session(const struct keep *keep);

/* How many daemons have had this session, with this one. */
uint32_t keep_start(const struct keep *keep);

/* Keep something new before clients hear of it: an object with its attachments; the user of an
 * object's maps. */
void keep_object(struct keep *keep, struct object *object);
void keep_changed(struct keep *keep);

/* An attachment is removed: call the first before that, the second (with what the first returned)
 * afterwards. */
#define KEEP_SLOTS_MAX 80
struct keep_slots {
	size_t n;
	uint32_t slots[KEEP_SLOTS_MAX];
};
void keep_leaving(struct keep *keep, struct attachment *attachment, struct keep_slots *slots);
void keep_left(struct keep *keep, const struct keep_slots *slots);

/* The names of kernels that were probed; NULL: they are not kept. */
struct kernel_names *keep_names(const struct keep *keep);

/* Ends. hand_over: another daemon comes, so everything stays; else all that is kept is removed. */
void keep_end(struct keep *keep, bool hand_over);
