/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The folder of the cache: a file for each entry, UID-KEY. All of it blocks on the disk, so it is
 * called in threads; getting may happen in several at once, and other daemons may have the same
 * folder.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "entry.h"

enum {
	_CACHE_STORE_SUCCESS,
	CACHE_STORE_E_MISS, /* there is no such entry */
	CACHE_STORE_E_INVALID, /* there was a file, but it was no good: it is gone */
	CACHE_STORE_E_UNSAFE, /* the folder is not this user's alone */
};

#define CACHE_STORE_ENTRIES_MAX 32768
#define CACHE_STORE_ANYBODY UINT32_MAX

/* What the folder holds. */
struct cache_usage {
	uint64_t bytes; /* on the disk */
	uint64_t entries;
	uint64_t removed; /* by this call, to make room or on request */
};

/* One entry, to be shown. */
struct cache_item {
	struct cache_entry_header header;
	uint64_t bytes;
	int64_t used; /* seconds since the epoch: when it was made, or last of use; 0: not known */
};

/* Makes the folder if only that is missing. 0, CACHE_STORE_E_UNSAFE, or -errno. */
int cache_store_prepare(const char *folder);

/* 0, or as above; an entry that was got is the youngest again. */
int cache_store_get(const char *folder, const struct cache_key *key, uid_t uid,
		    struct cache_entry *entry);

/* 0 or -errno (or CACHE_STORE_E_UNSAFE): nothing is left behind then. */
int cache_store_put(const char *folder, const struct cache_entry *entry);

/* Forgets one entry. */
void cache_store_drop(const char *folder, const struct cache_key *key, uid_t uid);

/*
 * Counts what is there. If there are more than `limit` bytes, or too many entries, it removes
 * entries until another tenth is free: always the oldest one of the uid that has the most. So a
 * user cannot drive out the entries of one who has less. Files that dead writers have left are
 * removed, too.
 */
int cache_store_trim(const char *folder, uint64_t limit, struct cache_usage *usage);

/* Removes all entries of a uid, or of anybody. */
int cache_store_clear(const char *folder, uint32_t uid, struct cache_usage *usage);

/* The youngest entries of a uid, or of anybody, at most max; youngest first. *itemsp is the
 * caller's. usage counts all of them. */
int cache_store_list(const char *folder, uint32_t uid, size_t max, struct cache_item **itemsp,
		     size_t *np, struct cache_usage *usage);
