/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Descriptors that outlive the daemon: systemd keeps them for the next one (FDSTORE=1,
 * FileDescriptorStoreMax=). A record says what each descriptor is.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct notify;
struct store;

#define STORE_SLOTS_MAX                                                           \
	12288 /* systemd names all of them in one environment variable of 128 KiB \
	       */
#define STORE_COMM_SIZE 16

enum store_kind {
	STORE_INSTANCE = 1, /* of a map, for processes: number is its id, owner the map's */
	STORE_TOTALS, /* of a map, of processes that are gone: owner is the map's id */
	STORE_BLOB, /* of an object: owner is its id, as of what follows */
	STORE_PTX, /* number: of the attachment */
	STORE_PATCH, /* likewise */
	STORE_LINK, /* of a program on the host: number is its index */
	STORE_KERNEL_MAP, /* owner is the map's id */
	STORE_NAMES, /* of kernels (kernel-names.h) */
};

struct store_record {
	uint32_t used; /* not 0: the rest is complete */
	uint32_t kind; /* enum store_kind */
	uint64_t owner, number;
	/* instances: */
	uint64_t process; /* the daemon's number of it */
	uint64_t start_time; /* with the pid it names a process */
	uint64_t cookie; /* of a ring */
	pid_t pid;
	uid_t uid;
	uint32_t device;
	char comm[STORE_COMM_SIZE];
	uint32_t reserved[9];
};

/* Numbers that only grow, so that none is given out twice. */
struct store_numbers {
	uint64_t starts; /* of daemons */
	uint64_t object, attachment, map; /* ids */
};

/* keeps: there is a service manager that keeps descriptors; notify: the way to it, borrowed, may be
 * NULL. 0 or -errno. */
int store_new(struct store **storep, bool keeps, struct notify *notify);
struct store *store_free(struct store *store);
bool store_keeps(const struct store *store);

/* At the start: a descriptor that came with this name; consumed. False: it is none of the store's,
 * and still the caller's. */
bool store_inherit(struct store *store, const char *name, int fd);

/* After the last of them: 0; positive: nothing was kept, the store is empty; or -errno. */
int store_open(struct store *store);

/*
 * Keeps a copy of the descriptor. The number of its slot, never 0; 0: nobody keeps it, or there is
 * no room. The record's `used` is set here.
 */
uint32_t store_add(struct store *store, int fd, const struct store_record *record);
/* How many slots are taken, and how many of these by instances of a user's processes. */
unsigned int store_count(const struct store *store, uid_t uid, unsigned int *ofp);
/* Removes the descriptor of a slot; slot 0 is fine. */
void store_remove(struct store *store, uint32_t slot);

/* What was kept for us. The first slot from `from` on that has a record and a descriptor; 0: no
 * more. */
uint32_t store_next(const struct store *store, uint32_t from);
/* The record of a slot; NULL: it is empty. */
const struct store_record *store_record(const struct store *store, uint32_t slot);
/* The descriptor, borrowed until it is stolen; -1: not inherited, or stolen. */
int store_fd(const struct store *store, uint32_t slot);
int store_steal_fd(struct store *store, uint32_t slot);

/* Raises each number to the highest value that it has had since the store was empty, and keeps that
 * for the next daemon. */
void store_raise(struct store *store, struct store_numbers *numbers);

/* Removes all but these slots (used[slot]). How many that were. */
unsigned int store_sweep(struct store *store, const bool used[static STORE_SLOTS_MAX + 1]);

/* The daemon ends and another one comes: nothing is removed from now on. */
void store_freeze(struct store *store);
/* The daemon ends for good: removes everything. */
void store_clear(struct store *store);
