/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keys of the cache: SHA-256 over all that an entry was made from. Images are hostile input. An
 * attacker who could make two with the same key would choose what another process runs. So it is a
 * cryptographic hash, and the length of each part goes in before the part.
 */

#include <stddef.h>
#include <stdint.h>

#define CACHE_KEY_SIZE 32
#define CACHE_KEY_TEXT_SIZE (2 * CACHE_KEY_SIZE + 1)

struct cache_key {
	uint8_t bytes[CACHE_KEY_SIZE];
};

struct cache_hash;

/* Once, before all others, in one thread. 0 or -ENOSYS: the library cannot be used. */
int cache_hash_setup(void);

/* 0 or -ENOMEM. */
int cache_hash_new(struct cache_hash **hashp);
struct cache_hash *cache_hash_free(struct cache_hash *hash);

/* One part more: parts are told apart, so ("a", "bc") is not ("ab", "c"). */
void cache_hash_add(struct cache_hash *hash, const void *data, size_t size);
/* Likewise what is in a memfd of that size. It is not mapped: to read holes there would fill them.
 * 0 or -errno. */
int cache_hash_add_memfd(struct cache_hash *hash, int fd, uint64_t size);
void cache_hash_add_text(struct cache_hash *hash, const char *text);
void cache_hash_add_int(struct cache_hash *hash, uint64_t number);

/* The key of what was added; nothing is added afterwards. */
void cache_hash_finish(struct cache_hash *hash, struct cache_key *key);

/* In lower-case hexadecimal. */
void cache_key_text(const struct cache_key *key, char text[static CACHE_KEY_TEXT_SIZE]);
