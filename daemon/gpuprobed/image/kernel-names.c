/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Remembers names of probed kernels for the next daemon, in a memfd (kernel-names.h).
 *
 * Records one behind the other; one is there once the number of bytes that are used has grown over
 * it, so a daemon may be killed at any instruction. Which names are known already is found by a
 * table of hashes, which each daemon makes for itself, with a seed of its own: names are foreign
 * bytes.
 */

#include "kernel-names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/gpuprobed/base/memfd.h"

#define KERNEL_NAMES_MAGIC UINT64_C(0x314d414e4b525047) /* "GPRKNAM1" */
#define KERNEL_NAMES_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define KERNEL_NAMES_BUCKETS 32768 /* no more records than half of these */
#define KERNEL_NAME_SIZE_MAX 4096

struct kernel_names_header {
	uint64_t magic;
	uint64_t used; /* bytes, with the header */
};

struct kernel_names_record {
	uint32_t uid;
	uint16_t n_name,
		n_demangled; /* bytes, with their NULs: one text behind the other follows */
	uint32_t device_function;
};

struct kernel_names {
	int fd;
	bool inherited;
	struct kernel_names_header *header;
	uint64_t seed;
	size_t n;
	uid_t full[KERNEL_NAMES_SIZE / KERNEL_NAMES_UID_SIZE]; /* users who are over their share */
	unsigned int n_full;
	uint32_t buckets[KERNEL_NAMES_BUCKETS]; /* offsets of records; 0: free */
};

static size_t record_size(const struct kernel_names_record *record) {
	return (sizeof(*record) + record->n_name + record->n_demangled + 3) / 4 * 4;
}

static const struct kernel_names_record *record_at(const struct kernel_names *names, uint64_t at) {
	return (const void *)((const char *)names->header + at);
}

static struct kept_name name_of(const struct kernel_names_record *record) {
	const char *text = (const char *)(record + 1);

	return (struct kept_name){ record->uid, text, text + record->n_name,
				   record->device_function };
}

/* Whether a whole record lies there. */
static bool record_valid(const struct kernel_names *names, uint64_t at, uint64_t end) {
	const struct kernel_names_record *record = record_at(names, at);
	const char *text = (const char *)(record + 1);

	return end - at >= sizeof(*record) && record->n_name && record->n_demangled &&
	       record_size(record) <= end - at && text[0] && !text[record->n_name - 1] &&
	       text[record->n_name] && !text[record->n_name + record->n_demangled - 1];
}

/* The bucket of a name of a user, or the free one where it would be. */
static uint32_t *bucket_of(struct kernel_names *names, uid_t uid, const char *name) {
	size_t at =
		XXH3_64bits_withSeed(name, strlen(name), names->seed + uid) % KERNEL_NAMES_BUCKETS;

	for (; names->buckets[at]; at = (at + 1) % KERNEL_NAMES_BUCKETS) {
		const struct kept_name known = name_of(record_at(names, names->buckets[at]));

		if (known.uid == uid && strcmp(known.name, name) == 0)
			break;
	}
	return &names->buckets[at];
}

/* What an earlier daemon left: as far as it is whole. */
static void kernel_names_read(struct kernel_names *names) {
	struct kernel_names_header *header = names->header;
	const uint64_t end = header->used <= KERNEL_NAMES_SIZE ? header->used : sizeof(*header);
	uint64_t at = sizeof(*header);

	while (at < end && names->n < KERNEL_NAMES_BUCKETS / 2 && record_valid(names, at, end)) {
		const struct kept_name name = name_of(record_at(names, at));

		*bucket_of(names, name.uid, name.name) = (uint32_t)at;
		names->n++;
		at += record_size(record_at(names, at));
	}
	header->used = at;
}

/* Maps an earlier one's memfd. False: it is none. */
static bool kernel_names_adopt(struct kernel_names *names, int fd) {
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;
	void *bytes;

	if (seals < 0 || (seals & KERNEL_NAMES_SEALS) != KERNEL_NAMES_SEALS ||
	    fstat(fd, &status) < 0 || (size_t)status.st_size != KERNEL_NAMES_SIZE)
		return false;
	bytes = mmap(NULL, KERNEL_NAMES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return false;
	names->header = bytes;
	if (names->header->magic == KERNEL_NAMES_MAGIC)
		return true;
	munmap(bytes, KERNEL_NAMES_SIZE);
	names->header = NULL;
	return false;
}

/* A new one. 0 or -errno. */
static int kernel_names_begin(struct kernel_names *names) {
	void *bytes;

	names->fd = memfd_new("gpuprobe-names");
	if (names->fd < 0)
		return names->fd;
	/* its room is there before it is written to: else that would be a SIGBUS where memory is
	 * short */
	if (fallocate(names->fd, 0, 0, (off_t)KERNEL_NAMES_SIZE) < 0 ||
	    fcntl(names->fd, F_ADD_SEALS, KERNEL_NAMES_SEALS) < 0)
		return -errno;
	bytes = mmap(NULL, KERNEL_NAMES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, names->fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	names->header = bytes;
	*names->header = (struct kernel_names_header){ KERNEL_NAMES_MAGIC, sizeof(*names->header) };
	return 0;
}

int kernel_names_new(struct kernel_names **namesp, int fd) {
	struct kernel_names *names = calloc(1, sizeof(*names));
	int r = 0;

	if (!names || getrandom(&names->seed, sizeof(names->seed), 0) != sizeof(names->seed)) {
		free(names);
		fd_close(fd);
		return -ENOMEM;
	}
	names->fd = fd;
	names->inherited = fd >= 0 && kernel_names_adopt(names, fd);
	if (names->inherited) {
		kernel_names_read(names);
	} else {
		fd_close(fd);
		r = kernel_names_begin(names);
	}
	if (r < 0) {
		kernel_names_free(names);
		return r;
	}
	*namesp = names;
	return 0;
}

struct kernel_names *kernel_names_free(struct kernel_names *names) {
	if (!names)
		return NULL;
	if (names->header)
		munmap(names->header, KERNEL_NAMES_SIZE);
	fd_close(names->fd);
	free(names);
	return NULL;
}

int kernel_names_fd(const struct kernel_names *names) {
	return names->fd;
}

bool kernel_names_inherited(const struct kernel_names *names) {
	return names->inherited;
}

/* Whether a user has less than a share of it. Nobody loses what he has, so who is over his share
 * stays that, and is not counted again: there is room for few. */
static bool kernel_names_has_share(struct kernel_names *names, uid_t uid) {
	uint64_t used = 0;

	if (names->header->used < KERNEL_NAMES_UID_SIZE)
		return true;
	for (unsigned int i = 0; i < names->n_full; i++)
		if (names->full[i] == uid)
			return false;
	for (uint64_t at = sizeof(*names->header); at < names->header->used;
	     at += record_size(record_at(names, at)))
		used += record_at(names, at)->uid == uid ? record_size(record_at(names, at)) : 0;
	if (used < KERNEL_NAMES_UID_SIZE)
		return true;
	names->full[names->n_full++] = uid;
	return false;
}

void kernel_names_add(struct kernel_names *names, uid_t uid, const char *name,
		      const char *demangled, bool device_function) {
	const size_t n_name = strlen(name) + 1, n_demangled = strlen(demangled) + 1;
	struct kernel_names_record record = { uid, (uint16_t)n_name, (uint16_t)n_demangled,
					      device_function };
	uint32_t *bucket;
	uint64_t at;
	char *bytes;

	if (!names || !*name || !*demangled || n_name > KERNEL_NAME_SIZE_MAX ||
	    n_demangled > KERNEL_NAME_SIZE_MAX)
		return;
	bucket = bucket_of(names, uid, name);
	at = names->header->used;
	if (*bucket || names->n >= KERNEL_NAMES_BUCKETS / 2 ||
	    record_size(&record) > KERNEL_NAMES_SIZE - at || !kernel_names_has_share(names, uid))
		return;
	bytes = (char *)names->header + at;
	memcpy(bytes, &record, sizeof(record));
	memcpy(bytes + sizeof(record), name, n_name);
	memcpy(bytes + sizeof(record) + n_name, demangled, n_demangled);
	__atomic_store_n(&names->header->used, at + record_size(&record), __ATOMIC_RELEASE);
	*bucket = (uint32_t)at;
	names->n++;
}

int kernel_names_each(const struct kernel_names *names,
		      int (*fn)(const struct kept_name *name, void *userdata), void *userdata) {
	int r = 0;

	for (uint64_t at = sizeof(*names->header); names && r == 0 && at < names->header->used;
	     at += record_size(record_at(names, at))) {
		const struct kept_name name = name_of(record_at(names, at));

		r = fn(&name, userdata);
	}
	return r;
}
