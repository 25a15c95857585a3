/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the next daemon finds: the store of descriptors (store.h) and the state file (state.h), kept
 * up with what is attached. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct attachment;
struct daemon;
struct keep; /* NULL: nobody keeps anything */
struct kernel_names;
struct object;
struct store;

/* path: of the state file; NULL: there is none. store is consumed, and may be one that keeps
 * nothing. 0 or -errno. */
int keep_new(struct keep **keepp, struct daemon *daemon, struct store *store, const char *path);
struct keep *keep_free(struct keep *keep);

/*
 * Once, before anybody can connect: puts what an earlier daemon had into the registry, the maps and
 * the table of processes. What cannot be restored is logged. 0 and how many attachments there are;
 * or -errno: this daemon cannot, the next one may, so this one is to end.
 */
int keep_restore(struct keep *keep, unsigned int *np);

/* Whether somebody keeps anything: then the daemon can hand over to the next one. */
bool keep_keeps(const struct keep *keep);

/* Random, never 0: the same for the next daemon that restores this one's state. */
uint64_t keep_session(const struct keep *keep);

/* Which daemon of that session it is. */
uint32_t keep_start(const struct keep *keep);

/* What is new, before others are told: an object with all its attachments; that an object's maps
 * have a user. */
void keep_object(struct keep *keep, struct object *object);
void keep_changed(struct keep *keep);

/* An attachment goes: before it does, and (with what the first said) once it is gone. */
#define KEEP_SLOTS_MAX 80
struct keep_slots {
	size_t n;
	uint32_t slots[KEEP_SLOTS_MAX];
};
void keep_leaving(struct keep *keep, struct attachment *attachment, struct keep_slots *slots);
void keep_left(struct keep *keep, const struct keep_slots *slots);

/* Names of kernels that were probed; NULL: they are not kept. */
struct kernel_names *keep_names(const struct keep *keep);

/* The daemon ends. hand_over: and another one comes; else all that is kept goes, too. */
void keep_end(struct keep *keep, bool hand_over);
