/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/map-layout.h"

/*
 * Storage of the maps of attached objects, and reading them. Fields of the structs here are for
 * reading; only map*.c writes them. What the positive results mean:
 */
enum map_result {
	_MAP_SUCCESS,
	MAP_E_INVALID, /* the description breaks map-layout.h's rules, or makes no sense */
	MAP_E_QUOTA, /* the owner's limit of bytes is reached; a cursor: too large to be merged */
	MAP_E_END, /* a cursor: no more entries; a read: no such index */
	MAP_E_AGAIN, /* a cursor: the budget is used up; call again, perhaps after other work */
	/* of writes by the host: */
	MAP_E_RUNNING, /* processes have it where the host cannot write */
	MAP_E_LARGE, /* it is too large to have inputs */
	MAP_E_EXISTS, /* MAP_UPDATE_NOEXIST, and there is such an element */
	MAP_E_NO_KEY, /* there is none, or no such index */
	MAP_E_FULL,
	MAP_E_RING, /* it has no elements */
	MAP_E_ARRAY, /* its elements cannot be deleted */
};

/*
 * An integer inside a value. Instances are merged integer by integer; bytes in no lane are taken
 * from one of them.
 */
struct map_lane {
	uint32_t offset;
	uint32_t size; /* 1, 2, 4 or 8 */
};

#define MAP_VALUE_SIZE_MAX ((uint32_t)16 << 20) /* reading takes room for a few values */
#define MAP_NAME_SIZE 64
#define MAP_GONE_BYTES_MAX (UINT64_C(64) << 20) /* of the rings of a map; one in any case */

/* What the jobs `link` and `compile` say about a map. Pointers are borrowed. */
struct map_spec {
	const char *name;
	uint32_t type; /* enum bpf_map_type, or 15xx */
	uint32_t key_size;
	uint32_t value_size;
	uint32_t max_entries;
	uint32_t flags;
	const void *initial; /* the first bytes of .data, .rodata, .bss; the rest is zeros */
	size_t n_initial;
	uint32_t btf_key_type; /* ids in the object's BTF, 0: none */
	uint32_t btf_value_type;
	const struct map_lane *lanes; /* NULL: unknown, taken to be of 8 bytes, else 4, else 1; a
					 map's: or just that */
	size_t n_lanes;
	struct map_layout layout; /* from map_layout_init() */
	int kernel_fd; /* MAP_PLACE_KERNEL: the kernel's map, of which the map keeps a copy */
};

/* Bytes of map memory by owner. */
struct map_accounts;

int map_accounts_new(struct map_accounts **accountsp, uint64_t limit);
struct map_accounts *map_accounts_free(struct map_accounts *accounts);
uint64_t map_accounts_used(const struct map_accounts *accounts, uid_t uid);
uint64_t map_accounts_totals(const struct map_accounts *accounts,
			     uid_t uid); /* of that, what processes left behind in hash maps */
void map_accounts_set_limit(struct map_accounts *accounts, uint64_t limit);
uint64_t map_accounts_limit(const struct map_accounts *accounts);
uint64_t map_accounts_refused(const struct map_accounts *accounts); /* charges, so far */

struct map;
struct map_instance;

/*
 * Functions that keep descriptors of maps for the next daemon. The number that keep_*() return is
 * passed to drop() when the memory goes; 0: it is not kept.
 */
struct map_keeper {
	uint32_t (*keep_instance)(const struct map_instance *instance, void *userdata);
	uint32_t (*keep_totals)(const struct map *map, int fd, void *userdata);
	void (*drop)(uint32_t slot, void *userdata);
	void *userdata;
};

/* keeper: borrowed, must outlive the accounts. Before there are maps. */
void map_accounts_set_keeper(struct map_accounts *accounts, const struct map_keeper *keeper);

struct ring_consumer;

struct map_instance {
	struct map_instance *next; /* in order of process, then device */
	struct map *map;
	uint64_t id;
	uint64_t process; /* the daemon's own number, never reused; 0: a kernel's map, or what
			     instances start with */
	pid_t pid; /* 0: of several processes */
	char comm[16]; /* of the process; client.c writes it, and the next */
	uid_t uid;
	uint64_t start_time; /* of the process; client.c's, too */
	uint64_t cookie; /* of a ring */
	uint32_t slot; /* of who keeps it; 0: nobody */
	uint32_t device;
	int fd; /* to be sent to the process: the memfd, sealed, or the kernel's map */
	uint64_t size; /* bytes of the memfd, or of a map of Linux whole pages to map */
	const unsigned char *bytes; /* all of it, mapped read-only; others may write to it */
	const unsigned char *data; /* in it */
	unsigned int patience; /* looks in vain that are left for reads of it, earned by reads that
				  were good */
	unsigned char *host; /* a ring's host area, mapped for writing; else NULL */
	struct ring_consumer *consumer; /* of a ring; else NULL */
	bool gone; /* its process has ended: a ring that is not drained, else to be folded */
	bool searched; /* of a ring that is gone: there is a batch where the consumer is, or none at
			  all */
};

/* The instance that is being added to the totals (map-fold.c). */
struct map_fold {
	struct map_instance *instance; /* NULL: none */
	uint64_t at; /* its elements, or slots, before this are in the totals */
	uint64_t recency;
	bool newest;
	unsigned char *latest; /* what becomes the `latest` of the totals */
};

struct map {
	uint64_t id;
	uint64_t object;
	uid_t owner;
	char name[MAP_NAME_SIZE];
	struct map_spec spec; /* name, initial, lanes: the map's own copies; kernel_fd: -1 */
	struct map_accounts *accounts;
	uint64_t charged; /* bytes, for instances and retained, and ... */
	uint64_t own; /* ... for lanes, initial bytes and scratch; and of all that, ... */
	uint64_t charged_totals; /* ... for the totals */
	struct map_instance *start; /* what new instances start with, once the host has written:
				       map-start.c; else NULL */
	unsigned char *start_data; /* its data, which can be written */
	struct map_instance *instances;
	unsigned int n_instances; /* of processes that are there */
	uint32_t n_values; /* values that an element shows: the shards of a percpu map, else 1 */
	uint32_t index; /* room for the key of an entry */
	uint64_t folds; /* instances that went away so far, or began to */
	struct map_fold fold;
	uint64_t steps,
		steps_seen; /* of snapshots that are being made; those that map_fold() knows of */
	unsigned int patience;
	bool retained; /* instances of processes that are gone are in what follows */
	struct map_totals *totals; /* see map-internal.h; NULL: they added nothing */
	uint64_t written, lost; /* records, of rings that are gone; keys that the totals of a hash
				   map had no room for */
	unsigned char *scratch; /* room for two elements: what an entry points to, and work space */
};

/* accounts must outlive the map. 0, MAP_E_INVALID, MAP_E_QUOTA, or negative errno. */
int map_new(struct map **mapp, uint64_t id, uint64_t object, uid_t owner,
	    const struct map_spec *spec, struct map_accounts *accounts);
struct map *map_free(struct map *map); /* with all instances */

/* Its host memory, that of instances and totals included. */
uint64_t map_bytes(const struct map *map);

/*
 * The instance of a process and device: the one there is, or a new one that gets instance_id (never
 * 0). Of a map in a kernel's map there is one only, whoever asks; processes that are to share one
 * of another map come under one number, with pid 0. 0, MAP_E_QUOTA, or negative errno. It belongs
 * to the map.
 */
int map_instance_get(struct map *map, uint64_t process, pid_t pid, uint32_t device,
		     uint64_t instance_id, struct map_instance **instancep);

/* All of it is filled in: it is kept, if anybody does. Nothing if it is already. */
void map_instance_keep(struct map_instance *instance);

/*
 * What an earlier daemon had, in this order: totals, then instances. Descriptors are consumed.
 * MAP_E_INVALID: it is none of such a map; MAP_E_END: the totals have it. gone: its process has
 * ended.
 */
uint32_t map_totals_slot(const struct map *map); /* of who keeps them; 0: nobody */
int map_adopt_totals(struct map *map, int fd, uint32_t slot);
int map_adopt_instance(struct map *map, const struct map_instance *like, int fd, bool gone,
		       struct map_instance **instancep);

/*
 * A process is gone: what its instances hold goes into the map's totals, their memory is given
 * back. This is done by map_fold(); until then, they are read where they are. A ring in which it
 * finds records stays until the consumer has taken them, or until those of processes that are gone
 * are more than MAP_GONE_BYTES_MAX, or their owner has no room for a new one: then the oldest goes,
 * and its records are lost.
 */
void map_process_end(struct map *map, uint64_t process);

/* The same for one instance, which is no ring: what it belonged to has ended, though not its
 * process. */
void map_instance_end(struct map_instance *instance);

/* As BPF_ANY, BPF_NOEXIST and BPF_EXIST. */
enum map_update_flags {
	MAP_UPDATE_ANY = 0,
	MAP_UPDATE_NOEXIST = 1,
	MAP_UPDATE_EXIST = 2,
};

/*
 * Writes by the host: key and value have the map's sizes. A percpu map or per-thread array gets the
 * value for all SMs or threads. New instances start with it; the map reads as it until processes
 * change it. id: for memory that the first write of a map takes; never one of an instance. 0,
 * MAP_E_* or -ENOMEM.
 */
int map_update(struct map *map, const void *key, const void *value, uint64_t flags, uint64_t id);
int map_delete(struct map *map, const void *key);

#define MAP_FOLD_BYTES (UINT64_C(1) << 20) /* that are gone over without others having to wait */

/*
 * Goes on with that, over *budgetp bytes of memory or somewhat more, which are taken off. 0: all is
 * done; MAP_E_AGAIN: call again, after other work; or -ENOMEM: the rest of an instance is lost, as
 * nobody would come for it again; call again.
 */
int map_fold(struct map *map, uint64_t *budgetp);

/* Both, at once. 0 or -ENOMEM. */
int map_process_gone(struct map *map, uint64_t process);

/*
 * Lets the rings go whose process is gone and which are drained. To be called after a consumer read
 * from one that is gone.
 */
void map_reap(struct map *map);

/* Records of all rings so far, as of the last copy, those that are gone included. */
uint64_t map_written(const struct map *map);

/* Whether a process has had an instance, or did before it went. */
bool map_was_carried(const struct map *map);
uint64_t map_lost(const struct map *map);

/* CLOCK_MONOTONIC of the last complete copy from the device, as the process says; 0: never. */
uint64_t map_instance_mirrored(const struct map_instance *instance);

/* Values of an element: one, or for a percpu map one for each SM (shard). */
struct map_entry {
	const unsigned char *key; /* of key_size bytes; good until the next call, as the values */
	uint32_t index; /* the key of an array; else undefined */
	uint32_t thread; /* of a per-thread array; else undefined */
	pid_t pid; /* per process: whose; 0: merged, or the total of processes that are gone */
	uint32_t n_values; /* percpu: up to the last SM whose value is not zero, at least 1 */
	const unsigned char *values; /* of value_size bytes each */
	bool torn; /* a process was in the middle of a copy for longer than we waited */
};

/* One element of an array, merged over all instances. 0, or MAP_E_END: it has no such index. */
int map_read(struct map *map, uint32_t index, struct map_entry *entry);

struct map_snapshot;

#define MAP_SNAPSHOT_BYTES_MAX \
	(UINT64_C(512)         \
	 << 20) /* of all hash maps that are being dumped; a user may hold half of it */

/* How a dump goes over a map. */
struct map_order {
	bool per_process;
	bool nonzero; /* leave out entries whose values are all zeros */
	bool latest; /* several instances: the value of the one mirrored last, not the sum */
	uid_t reader; /* who holds the memory that a hash map's dump takes; 0: the daemon, or root
		       */
};

/*
 * A place in a dump. Good across changes of the map between calls. The caller may set index to
 * start there.
 */
struct map_cursor {
	struct map_order order;
	uint32_t index;
	/* inside map-cursor.c: */
	uint64_t process; /* the first that is not through yet */
	uint64_t thread; /* per-thread arrays: the next, */
	uint64_t end; /* ... and where they end; 0: not known yet */
	struct map_snapshot *snapshot; /* hash maps: elements to be given out */
};

void map_cursor_init(struct map_cursor *cursor, const struct map_order *order);
void map_cursor_deinit(struct map_cursor *cursor);

/*
 * The next entry. 0, MAP_E_END, or MAP_E_AGAIN once some megabytes were looked at without finding
 * one; MAP_E_QUOTA: a hash map that is too large to be merged here; negative errno. Rings have
 * none.
 */
int map_next(struct map *map, struct map_cursor *cursor, struct map_entry *entry);

/*
 * For people: "array", "percpu_array", "gpu_array"; a number if it has no name (in buffer). "none",
 * "sum64". "hash". "device".
 */
const char *map_type_name(uint32_t type, char buffer[static 16]);
const char *map_merge_name(uint32_t merge);
const char *map_kind_name(uint32_t kind);
const char *map_place_name(uint32_t place);
