/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One entry of the cache, a file: what a worker replied to a job, and what it put into the job's
 * outputs.
 *
 *     struct cache_entry_header, n_parts struct cache_entry_part, the reply (JSON), the bytes of
 *     the parts
 *
 * Numbers are the machine's own: a cache does not move to another one. The checksum is against what
 * disks do, not against an enemy: who can write here is the daemon's user. What it holds is a
 * worker's word, and checked by who takes it as if the worker said it now.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "key.h"

enum {
	_CACHE_ENTRY_SUCCESS,
	CACHE_ENTRY_E_INVALID, /* the file is no entry, or not this one */
};

#define CACHE_ENTRY_VERSION 1
#define CACHE_ENTRY_MAGIC "gpuprobe-cache\n" /* with the NUL, 16 bytes */
#define CACHE_ENTRY_PARTS_MAX 64
#define CACHE_ENTRY_REPLY_MAX (128 * 1024)
#define CACHE_ENTRY_JOB_SIZE 16
#define CACHE_ENTRY_NAME_SIZE 96

struct cache_entry_header {
	char magic[16];
	uint64_t checksum[2]; /* XXH3, of all that follows it */
	uint32_t version;
	uint32_t n_parts;
	uint64_t size; /* of the file */
	uint8_t key[CACHE_KEY_SIZE];
	uint32_t uid; /* for whose processes it was made */
	uint32_t number; /* of an image: upper half of its instructions' ids; 0: none */
	uint32_t reply_size;
	uint32_t reserved;
	char job[CACHE_ENTRY_JOB_SIZE];
	char name[CACHE_ENTRY_NAME_SIZE]; /* to be shown: a kernel, a program; printable */
};

struct cache_entry_part {
	uint32_t index; /* of the output; grows */
	uint32_t reserved;
	uint64_t size;
};

/* In memory. */
struct cache_entry {
	struct cache_key key;
	uid_t uid;
	uint32_t number;
	char job[CACHE_ENTRY_JOB_SIZE], name[CACHE_ENTRY_NAME_SIZE];
	char *reply; /* owned; NUL-terminated */
	size_t reply_size;
	size_t n_parts;
	struct cache_entry_part parts[CACHE_ENTRY_PARTS_MAX];
	int fds[CACHE_ENTRY_PARTS_MAX]; /* sealed memfds; owned */
};

void cache_entry_init(struct cache_entry *entry);
void cache_entry_deinit(struct cache_entry *entry);

/* Bytes of its file. */
uint64_t cache_entry_size(const struct cache_entry *entry);

/* Writes it to an empty file. 0 or -errno. */
int cache_entry_write(const struct cache_entry *entry, int fd);

/* Reads all of it; an entry of another key, or uid, is invalid, too. 0, CACHE_ENTRY_E_INVALID, or
 * -errno: it could not be read. */
int cache_entry_read(struct cache_entry *entry, int fd, const struct cache_key *key, uid_t uid);

/* Its header alone, to be shown: neither the checksum nor what follows was looked at. The same
 * results. */
int cache_entry_read_header(struct cache_entry_header *header, int fd);
