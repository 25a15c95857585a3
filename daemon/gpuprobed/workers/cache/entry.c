/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads and writes the file of one cache entry (entry.h). Files are read by read(2) and never
 * mapped: a disk that fails, or a file that is cut meanwhile, is then an error and no SIGBUS.
 * Memory is allocated only for as much as the file is large.
 */

#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/base/file.h"
#include "daemon/gpuprobed/base/memfd.h"

#define CACHE_ENTRY_CHECKED_FROM                         \
	(offsetof(struct cache_entry_header, checksum) + \
	 sizeof(((struct cache_entry_header *)0)->checksum))

_Static_assert(sizeof(struct cache_entry_header) == 208, "no padding: it is written as it is");

void cache_entry_init(struct cache_entry *entry) {
	*entry = (struct cache_entry){};
	for (size_t i = 0; i < CACHE_ENTRY_PARTS_MAX; i++)
		entry->fds[i] = -1;
}

void cache_entry_deinit(struct cache_entry *entry) {
	for (size_t i = 0; i < CACHE_ENTRY_PARTS_MAX; i++)
		entry->fds[i] = fd_close(entry->fds[i]);
	free(entry->reply);
	entry->reply = NULL;
}

uint64_t cache_entry_size(const struct cache_entry *entry) {
	uint64_t size = sizeof(struct cache_entry_header) + entry->n_parts * sizeof(*entry->parts) +
			entry->reply_size;

	for (size_t i = 0; i < entry->n_parts; i++)
		size += entry->parts[i].size;
	return size;
}

/* Writes all of it. 0 or -errno. */
static int entry_write_all(int fd, const void *data, size_t size) {
	const char *bytes = data;

	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

/* Reads so many bytes. 0, CACHE_ENTRY_E_INVALID: there are not so many, or -errno. */
static int entry_read_all(int fd, void *data, size_t size) {
	const ssize_t n = file_read(fd, data, size);

	return n < 0 ? (int)n : (size_t)n < size ? CACHE_ENTRY_E_INVALID : 0;
}

static void entry_checksum_begin(XXH3_state_t *state, const struct cache_entry_header *header) {
	XXH3_INITSTATE(state);
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, (const char *)header + CACHE_ENTRY_CHECKED_FROM,
			    sizeof(*header) - CACHE_ENTRY_CHECKED_FROM);
}

static void entry_checksum_end(XXH3_state_t *state, uint64_t checksum[static 2]) {
	const XXH128_hash_t hash = XXH3_128bits_digest(state);

	checksum[0] = hash.low64;
	checksum[1] = hash.high64;
}

int cache_entry_write(const struct cache_entry *entry, int fd) {
	struct cache_entry_header header = {
		.magic = CACHE_ENTRY_MAGIC,
		.version = CACHE_ENTRY_VERSION,
		.n_parts = (uint32_t)entry->n_parts,
		.size = cache_entry_size(entry),
		.uid = entry->uid,
		.number = entry->number,
		.reply_size = (uint32_t)entry->reply_size,
	};
	const void *data[CACHE_ENTRY_PARTS_MAX];
	XXH3_state_t state;
	size_t n = 0;
	int r = 0;

	memcpy(header.key, entry->key.bytes, sizeof(header.key));
	memcpy(header.job, entry->job, sizeof(header.job));
	memcpy(header.name, entry->name, sizeof(header.name));
	entry_checksum_begin(&state, &header);
	XXH3_128bits_update(&state, entry->parts, entry->n_parts * sizeof(*entry->parts));
	XXH3_128bits_update(&state, entry->reply, entry->reply_size);
	for (; r == 0 && n < entry->n_parts; n++) {
		r = memfd_map(entry->fds[n], entry->parts[n].size, &data[n]);
		if (r < 0)
			break;
		XXH3_128bits_update(&state, data[n], entry->parts[n].size);
	}
	entry_checksum_end(&state, header.checksum);
	if (r == 0)
		r = entry_write_all(fd, &header, sizeof(header));
	if (r == 0)
		r = entry_write_all(fd, entry->parts, entry->n_parts * sizeof(*entry->parts));
	if (r == 0)
		r = entry_write_all(fd, entry->reply, entry->reply_size);
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			r = entry_write_all(fd, data[i], entry->parts[i].size);
		munmap((void *)data[i], entry->parts[i].size);
	}
	return r;
}

int cache_entry_read_header(struct cache_entry_header *header, int fd) {
	struct stat status;
	int r;

	r = entry_read_all(fd, header, sizeof(*header));
	if (r)
		return r;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (memcmp(header->magic, CACHE_ENTRY_MAGIC, sizeof(header->magic)) != 0 ||
	    header->version != CACHE_ENTRY_VERSION || header->size != (uint64_t)status.st_size ||
	    header->reserved || header->n_parts > CACHE_ENTRY_PARTS_MAX ||
	    header->reply_size == 0 || header->reply_size > CACHE_ENTRY_REPLY_MAX ||
	    header->job[CACHE_ENTRY_JOB_SIZE - 1] || header->name[CACHE_ENTRY_NAME_SIZE - 1])
		return CACHE_ENTRY_E_INVALID;
	for (const char *c = header->name; *c; c++)
		if (*c < ' ' || *c > '~')
			return CACHE_ENTRY_E_INVALID;
	return 0;
}

/* Whether the parts are what may be, and fill the file. */
static bool entry_parts_fit(const struct cache_entry *entry, uint64_t size) {
	uint64_t left = size - sizeof(struct cache_entry_header);

	if (left < entry->n_parts * sizeof(*entry->parts) + entry->reply_size)
		return false;
	left -= entry->n_parts * sizeof(*entry->parts) + entry->reply_size;
	for (size_t i = 0; i < entry->n_parts; i++) {
		const struct cache_entry_part *part = &entry->parts[i];

		if (part->reserved || part->size == 0 || part->size > left ||
		    (i && part->index <= entry->parts[i - 1].index))
			return false;
		left -= part->size;
	}
	return left == 0;
}

/* One part becomes a memfd. */
static int entry_read_part(struct cache_entry *entry, size_t i, int fd, XXH3_state_t *state) {
	const size_t size = entry->parts[i].size;
	void *data;
	int r;

	entry->fds[i] = memfd_new("gpuprobe-cached");
	if (entry->fds[i] < 0)
		return entry->fds[i];
	r = posix_fallocate(entry->fds[i], 0, (off_t)size); /* no room would be a SIGBUS below */
	if (r)
		return -r;
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, entry->fds[i],
		    0);
	if (data == MAP_FAILED)
		return -errno;
	r = entry_read_all(fd, data, size);
	if (r == 0)
		XXH3_128bits_update(state, data, size);
	munmap(data, size);
	return r ? r : memfd_seal(entry->fds[i]);
}

/* All behind the header, whose sizes are known to be possible. */
static int entry_read_body(struct cache_entry *entry, const struct cache_entry_header *header,
			   int fd) {
	uint64_t checksum[2];
	XXH3_state_t state;
	int r;

	entry_checksum_begin(&state, header);
	r = entry_read_all(fd, entry->parts, entry->n_parts * sizeof(*entry->parts));
	if (r == 0 && !entry_parts_fit(entry, header->size))
		r = CACHE_ENTRY_E_INVALID;
	if (r)
		return r;
	XXH3_128bits_update(&state, entry->parts, entry->n_parts * sizeof(*entry->parts));
	entry->reply = malloc(entry->reply_size + 1);
	if (!entry->reply)
		return -ENOMEM;
	r = entry_read_all(fd, entry->reply, entry->reply_size);
	if (r)
		return r;
	entry->reply[entry->reply_size] = '\0';
	XXH3_128bits_update(&state, entry->reply, entry->reply_size);
	for (size_t i = 0; r == 0 && i < entry->n_parts; i++)
		r = entry_read_part(entry, i, fd, &state);
	if (r)
		return r;
	entry_checksum_end(&state, checksum);
	return memcmp(checksum, header->checksum, sizeof(checksum)) ? CACHE_ENTRY_E_INVALID : 0;
}

int cache_entry_read(struct cache_entry *entry, int fd, const struct cache_key *key, uid_t uid) {
	struct cache_entry_header header;
	int r;

	r = cache_entry_read_header(&header, fd);
	if (r)
		return r;
	if (memcmp(header.key, key->bytes, sizeof(header.key)) != 0 || header.uid != uid)
		return CACHE_ENTRY_E_INVALID;
	cache_entry_init(entry);
	entry->key = *key;
	entry->uid = uid;
	entry->number = header.number;
	entry->n_parts = header.n_parts;
	entry->reply_size = header.reply_size;
	memcpy(entry->job, header.job, sizeof(entry->job));
	memcpy(entry->name, header.name, sizeof(entry->name));
	r = entry_read_body(entry, &header, fd);
	if (r)
		cache_entry_deinit(entry);
	return r;
}
