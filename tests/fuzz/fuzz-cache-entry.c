/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. A file of the cache: what is taken for an entry has parts of the sizes that it says,
 * sealed, and a reply whose ids are among those asked for. The checksum is set right, unless the
 * last byte is odd: it stands before everything else.
 */

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/gpuprobed/workers/cache/entry.h"
#include "daemon/gpuprobed/workers/cache/job-text.h"
#include "daemon/gpuprobed/base/memfd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECKED_FROM (offsetof(struct cache_entry_header, checksum) + 16)

/* The bytes as a file, with the checksum that they should have. -1: no memory. */
static int make_file(const uint8_t *data, size_t size) {
	uint8_t *bytes = malloc(size);
	XXH128_hash_t hash;
	int fd;

	if (!bytes)
		return -1;
	memcpy(bytes, data, size);
	if (size > CHECKED_FROM && !(data[size - 1] & 1)) {
		hash = XXH3_128bits(bytes + CHECKED_FROM, size - CHECKED_FROM);
		memcpy(bytes + offsetof(struct cache_entry_header, checksum), &hash.low64, 8);
		memcpy(bytes + offsetof(struct cache_entry_header, checksum) + 8, &hash.high64, 8);
	}
	fd = memfd_new_sealed("fuzz", bytes, size);
	free(bytes);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void check(const struct cache_entry *entry, size_t size) {
	const struct job_ids ids = { .n = 2, .ids = { 17, 4711 } };
	json_object *reply, *applied = NULL;
	const char *why;

	if (cache_entry_size(entry) != size)
		abort();
	for (size_t i = 0; i < entry->n_parts; i++)
		if (memfd_check(entry->fds[i], entry->parts[i].size, &why) < 0)
			abort();
	reply = job_text_take_reply(entry->reply, entry->reply_size, &ids);
	if (reply && json_object_object_get_ex(reply, "applied", &applied))
		for (size_t i = 0; i < json_object_array_length(applied); i++)
			if (json_object_get_int64(json_object_array_get_idx(applied, i)) != 17 &&
			    json_object_get_int64(json_object_array_get_idx(applied, i)) != 4711)
				abort();
	json_object_put(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct cache_entry entry;
	struct cache_key key = {};
	uint32_t uid = 0;
	int fd;

	if (size >=
	    sizeof(struct cache_entry_header)) { /* of the key and the user that were asked for */
		memcpy(key.bytes, data + offsetof(struct cache_entry_header, key),
		       sizeof(key.bytes));
		memcpy(&uid, data + offsetof(struct cache_entry_header, uid), sizeof(uid));
	}
	fd = make_file(data, size);
	if (fd < 0)
		return 0;
	if (cache_entry_read(&entry, fd, &key, uid) == 0) {
		check(&entry, size);
		cache_entry_deinit(&entry);
	}
	close(fd);
	return 0;
}
