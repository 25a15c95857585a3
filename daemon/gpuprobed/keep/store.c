/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Puts descriptors into systemd's store and finds them there again (store.h).
 *
 * Names of descriptors are short, because systemd hands all of them to the next daemon in one
 * variable, LISTEN_FDNAMES, and one variable has at most 128 KiB. What a descriptor is stands in an
 * index instead: a memfd that is in the store as well. Its slots are written here and read by the
 * next daemon, so a daemon may be killed between any two stores to memory:
 *
 *   adding: the record is written, then marked as used, then the descriptor is sent. One without
 *     the other is nothing.
 *   removing: the mark goes first, then the descriptor.
 *
 * systemd reads what a daemon has sent before it looks at how that ended (sd_notify(3)), so what
 * was sent is kept. If PID 1 hangs, what it has no room for waits here (notify.h), and is lost if
 * the daemon is killed then.
 */

#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/base/notify.h"

#define STORE_MAGIC UINT64_C(0x3149535052505547) /* "GUPRPSI1" */
#define STORE_INDEX_NAME "gindex"
#define STORE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define STORE_NAME_SIZE 16

struct store_index {
	uint64_t magic;
	struct store_numbers numbers;
	uint64_t reserved[11];
	struct store_record records[STORE_SLOTS_MAX]; /* of slot i + 1 */
};

_Static_assert(sizeof(struct store_record) == 112, "written by one daemon and read by another one");
_Static_assert(offsetof(struct store_index, records) == 128, "likewise");

struct store {
	bool keeps, frozen;
	struct notify *notify;
	struct store_index *index;
	int index_fd;
	uint32_t hint; /* where a free slot may be */
	int fds[STORE_SLOTS_MAX]; /* inherited; -1 */
};

static void store_name(char name[static STORE_NAME_SIZE], uint32_t slot) {
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	char reversed[STORE_NAME_SIZE];
	size_t n = 0, at = 0;

	do
		reversed[n++] = digits[slot % 36];
	while (slot /= 36);
	name[at++] = 'g';
	while (n)
		name[at++] = reversed[--n];
	name[at] = '\0';
}

/* The slot that a name stands for; 0: none. */
static uint32_t store_slot(const char *name) {
	char canonical[STORE_NAME_SIZE];
	unsigned long slot;
	char *end;

	if (name[0] != 'g' || strlen(name) > 4)
		return 0;
	slot = strtoul(name + 1, &end, 36);
	if (*end || !slot || slot > STORE_SLOTS_MAX)
		return 0;
	store_name(canonical, (uint32_t)slot);
	return strcmp(canonical, name) == 0 ? (uint32_t)slot : 0;
}

int store_new(struct store **storep, bool keeps, struct notify *notify) {
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->keeps = keeps;
	store->notify = notify;
	store->index_fd = -1;
	for (size_t i = 0; i < STORE_SLOTS_MAX; i++)
		store->fds[i] = -1;
	*storep = store;
	return 0;
}

struct store *store_free(struct store *store) {
	if (!store)
		return NULL;
	for (size_t i = 0; i < STORE_SLOTS_MAX; i++)
		fd_close(store->fds[i]);
	if (store->index)
		munmap(store->index, sizeof(*store->index));
	fd_close(store->index_fd);
	free(store);
	return NULL;
}

bool store_keeps(const struct store *store) {
	return store->keeps;
}

/* ---- what systemd is told ---- */

/* 0 or -errno: systemd will not get it. */
static int store_send(struct store *store, const char *name, int fd) {
	return notify_send(store->notify, fd, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
}

static void store_send_removal(struct store *store, const char *name) {
	notify_send(store->notify, -1, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}

/* ---- the start ---- */

/* An index that is whole, or NULL. */
static struct store_index *store_map(int fd) {
	const int seals = fcntl(fd, F_GET_SEALS);
	struct store_index *index;
	struct stat status;

	if (seals < 0 || (seals & STORE_SEALS) != STORE_SEALS || fstat(fd, &status) < 0 ||
	    status.st_size != sizeof(*index))
		return NULL;
	index = mmap(NULL, sizeof(*index), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (index == MAP_FAILED)
		return NULL;
	if (index->magic == STORE_MAGIC)
		return index;
	munmap(index, sizeof(*index));
	return NULL;
}

bool store_inherit(struct store *store, const char *name, int fd) {
	const uint32_t slot = store_slot(name);

	if (strcmp(name, STORE_INDEX_NAME) == 0) {
		if (store->index_fd >= 0 || !(store->index = store_map(fd)))
			fd_close(fd);
		else
			store->index_fd = fd;
		return true;
	}
	if (!slot)
		return false;
	fd_close(store->fds[slot - 1]);
	store->fds[slot - 1] = fd;
	return true;
}

/* A new index. 0 or -errno. */
static int store_begin(struct store *store) {
	_cleanup_fd int fd = memfd_new("gpuprobe-index");
	int r;

	if (fd < 0)
		return fd;
	r = posix_fallocate(fd, 0, sizeof(*store->index)); /* no room would be a SIGBUS later */
	if (r)
		return -r;
	if (fcntl(fd, F_ADD_SEALS, STORE_SEALS) < 0)
		return -errno;
	store->index = mmap(NULL, sizeof(*store->index), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (store->index == MAP_FAILED) {
		store->index = NULL;
		return -errno;
	}
	store->index->magic = STORE_MAGIC;
	r = store_send(store, STORE_INDEX_NAME, fd);
	if (r < 0) {
		munmap(store->index, sizeof(*store->index));
		store->index = NULL;
		return r;
	}
	store->index_fd = fd;
	fd = -1;
	return 0;
}

int store_open(struct store *store) {
	char name[STORE_NAME_SIZE];
	int r;

	if (!store->keeps)
		return 1;
	for (uint32_t slot = 1; slot <= STORE_SLOTS_MAX; slot++) {
		if (store->index && store->fds[slot - 1] < 0)
			store->index->records[slot - 1].used =
				0; /* its descriptor was never sent, or systemd had no room */
		if (store->index || store->fds[slot - 1] < 0)
			continue;
		store_name(name, slot);
		store_send_removal(store, name);
		store->fds[slot - 1] = fd_close(store->fds[slot - 1]);
	}
	if (store->index)
		return 0;
	store_send_removal(store, STORE_INDEX_NAME); /* one that was not whole */
	r = store_begin(store);
	return r < 0 ? r : 1;
}

/* ---- slots ---- */

static bool store_is_free(const struct store *store, uint32_t slot) {
	return !store->index->records[slot - 1].used && store->fds[slot - 1] < 0;
}

/* A free slot; 0: there is none. */
static uint32_t store_find(struct store *store) {
	for (uint32_t i = 0; i < STORE_SLOTS_MAX; i++) {
		uint32_t slot = (store->hint + i) % STORE_SLOTS_MAX + 1;

		if (!store_is_free(store, slot))
			continue;
		store->hint = slot % STORE_SLOTS_MAX;
		return slot;
	}
	return 0;
}

uint32_t store_add(struct store *store, int fd, const struct store_record *record) {
	struct store_record *at;
	char name[STORE_NAME_SIZE];
	uint32_t slot;

	if (!store->index || store->frozen)
		return 0;
	slot = store_find(store);
	if (!slot)
		return 0;
	at = &store->index->records[slot - 1];
	*at = *record;
	at->used = 0;
	__atomic_store_n(&at->used, 1, __ATOMIC_RELEASE);
	store_name(name, slot);
	if (store_send(store, name, fd) < 0) {
		__atomic_store_n(&at->used, 0, __ATOMIC_RELEASE);
		return 0;
	}
	return slot;
}

void store_remove(struct store *store, uint32_t slot) {
	char name[STORE_NAME_SIZE];

	if (!slot || !store->index || store->frozen)
		return;
	__atomic_store_n(&store->index->records[slot - 1].used, 0, __ATOMIC_RELEASE);
	store->fds[slot - 1] = fd_close(store->fds[slot - 1]);
	store_name(name, slot);
	store_send_removal(store, name);
}

const struct store_record *store_record(const struct store *store, uint32_t slot) {
	if (!store->index || !slot || slot > STORE_SLOTS_MAX ||
	    !store->index->records[slot - 1].used)
		return NULL;
	return &store->index->records[slot - 1];
}

unsigned int store_count(const struct store *store, uid_t uid, unsigned int *ofp) {
	unsigned int n = 0;

	*ofp = 0;
	for (uint32_t slot = 1; store->index && slot <= STORE_SLOTS_MAX; slot++) {
		const struct store_record *record = store_record(store, slot);

		n += record != NULL;
		*ofp += record && record->kind == STORE_INSTANCE && record->uid == uid;
	}
	return n;
}

uint32_t store_next(const struct store *store, uint32_t from) {
	for (uint32_t slot = from ? from : 1; slot <= STORE_SLOTS_MAX; slot++)
		if (store_record(store, slot) && store->fds[slot - 1] >= 0)
			return slot;
	return 0;
}

int store_fd(const struct store *store, uint32_t slot) {
	return slot && slot <= STORE_SLOTS_MAX ? store->fds[slot - 1] : -1;
}

int store_steal_fd(struct store *store, uint32_t slot) {
	int fd = store_fd(store, slot);

	if (fd >= 0)
		store->fds[slot - 1] = -1;
	return fd;
}

/* The higher of both, in both. */
static void store_raise_one(uint64_t *kept, uint64_t *number) {
	if (*kept < *number)
		*kept = *number;
	*number = *kept;
}

void store_raise(struct store *store, struct store_numbers *numbers) {
	struct store_numbers *kept = store->index ? &store->index->numbers : NULL;

	if (!kept)
		return;
	store_raise_one(&kept->starts, &numbers->starts);
	store_raise_one(&kept->object, &numbers->object);
	store_raise_one(&kept->attachment, &numbers->attachment);
	store_raise_one(&kept->map, &numbers->map);
}

unsigned int store_sweep(struct store *store, const bool used[static STORE_SLOTS_MAX + 1]) {
	unsigned int n = 0;

	for (uint32_t slot = 1; slot <= STORE_SLOTS_MAX; slot++)
		if (!used[slot] && !store_is_free(store, slot)) {
			store_remove(store, slot);
			n++;
		}
	return n;
}

void store_freeze(struct store *store) {
	store->frozen = true;
}

void store_clear(struct store *store) {
	if (!store->index || store->frozen)
		return;
	for (uint32_t slot = 1; slot <= STORE_SLOTS_MAX; slot++)
		if (!store_is_free(store, slot))
			store_remove(store, slot);
	store_send_removal(store, STORE_INDEX_NAME);
	store->frozen = true;
}
