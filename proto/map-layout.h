/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Layout of a map and of its instances. Daemon, shim and device code all follow this header.
 *
 * An *instance* is the memory of a map for one process and CUDA context (contexts of one device
 * share nothing), or for all processes if the map is shared. Its place says where the memory is:
 *
 *   MAP_PLACE_DEVICE  A buffer in device memory. A memfd that daemon and process share holds a
 *                     header page and a copy of the buffer, byte for byte (the mirror). The daemon
 *                     fills the copy before it hands it out. The shim uploads it when it creates
 *                     the buffer. It copies back when asked, periodically, and before the context
 *                     ends. Rings have a host area behind the copy that the GPU writes to directly.
 *   MAP_PLACE_HOST    The memfd itself: header page, then the data, registered with the driver.
 *                     Nothing is copied. Types 1512 and 1513, and every map of an object attached
 *                     as shared; a shared map has one memfd for all processes.
 *   MAP_PLACE_KERNEL  The pages of an array of Linux (BPF_F_MMAPABLE) that host programs of the
 *                     object use too. The descriptor is the map's; the data starts at offset 0;
 *                     there is no header. Elements are round_up(value_size, 8) bytes apart. ARRAY,
 *                     1503, 1504 and 1513 that host programs share; one for all processes.
 *
 *     memfd:  header (one page) | data (data_size) | up to the next page | host area (host_size)
 *
 * The data, by the kind of map:
 *
 * MAP_KIND_ARRAY: `shards` copies of the map's values, `shard_stride` bytes apart:
 *
 *     element of index i in shard s:  data + s * shard_stride + i * value_stride
 *
 *   value_stride = value_size rounded up to 8; 16 for MAP_MERGE_LATEST
 *   shard_stride = max_entries * value_stride, rounded up to 128 (a cache line) when shards > 1
 *   data_size    = shards * shard_stride
 *
 *   shards is a power of two. Device code uses shard (%smid & (shards - 1)). How shards are merged:
 *
 *   MAP_MERGE_NONE   shards == 1; the copy is the value. The reader chooses how to merge
 *                    instances (its `merge`).
 *   MAP_MERGE_SUM64, MAP_MERGE_SUM32
 *                    The compiler proved that GPU programs only ever add to the values atomically
 *                    and never read them. The value is the sum over shards and instances, lane by
 *                    lane of 8 or 4 bytes, modulo 2^64 or 2^32.
 *   MAP_MERGE_PERCPU A PERCPU map: shard s is the copy of SM s.
 *   MAP_MERGE_LATEST The compiler proved that GPU programs only ever update the values whole and
 *                    never read them, and value_size <= 8. An element is {u64 value, zero-extended;
 *                    u64 stamp}, stored at once. The stamp is %globaltimer (never 0), or 0 if the
 *                    shard was never written. The value with the highest stamp counts.
 *
 *   The buffer of a map that merges by sums or keeps the latest may be spread over modules. Each
 *   module then holds one of the same size as a variable, all zeros at first, and the shim merges
 *   them when it mirrors. So instances of such a map always start with zeros. The reader of the map
 *   adds the initial bytes of a data section once.
 *
 * MAP_KIND_THREADS (1502, 1512): one value a thread, `threads` of them for each index. A thread's
 *   number is its block's number in the grid (x fastest), times the block's size, plus its number
 *   in the block. Threads with a number from `threads` up have no value.
 *
 *     value of index i for thread t:  data + (i * threads + t) * value_stride
 *
 * MAP_KIND_HASH (HASH, PERCPU_HASH, LRU_HASH, LRU_PERCPU_HASH, 1501): a struct map_hash, 128 bytes;
 *   then `capacity` slots (a power of two), entry_stride bytes apart. A slot holds: a u64 word (see
 *   below); the key padded to 8 bytes; `shards` values, value_stride bytes apart (more than one for
 *   the PERCPU types: SM s has number s & (shards - 1)); for the LRU types a u64, the time of last
 *   use. device-lib-hash.c says which slots a key may be in, and in which order. A reader of a map
 *   need not know.
 *
 * MAP_KIND_RING (RINGBUF, PERF_EVENT_ARRAY, 1527): the data is `rings` struct map_ring, 128 bytes
 *   each. The host area holds `rings` tails, u64, 64 bytes apart (the daemon keeps a number of its
 *   own behind each), padded to a page; then `rings` rings of ring_size bytes (a power of two). See
 *   below.
 *
 * A process may write to its instances, so the daemon never trusts their header or contents once it
 * has handed them out.
 */

#include <stddef.h>
#include <stdint.h>

#include "map-type.h"

#define MAP_MAGIC UINT32_C(0x4d525047) /* "GPRM" */
#define MAP_LAYOUT_VERSION UINT32_C(3)
#define MAP_DATA_OFFSET 4096
#define MAP_SHARDS_MAX 256
#define MAP_SHARD_ALIGN 128
#define MAP_DATA_SIZE_MAX (UINT64_C(1) << 32) /* of one instance, host area included */
#define MAP_SHARDED_SIZE_MAX (UINT64_C(64) << 20) /* shards are halved until data_size fits */
#define MAP_RESIDENT_SIZE_MAX \
	(UINT64_C(1) << 20) /* bytes; largest data_size that a module holds itself */
#define MAP_HASH_SPARSE_MAX                                                                       \
	16384 /* hash maps up to this many entries have four slots an entry; larger ones have two \
	       */
#define MAP_HASH_GROUPED_MIN 131072 /* from this many slots on, neighbouring keys lie together */
#define MAP_KEY_SIZE_MAX 512 /* bytes; of hash maps */
#define MAP_THREADS_DEFAULT \
	UINT32_C(65536) /* threads of per-thread arrays, unless the user sets it */
#define MAP_THREADS_MAX (UINT32_C(1) << 28)
#define MAP_RINGS_MAX 128 /* of one instance: a producer uses ring (%smid & (rings - 1)) */
#define MAP_RING_SIZE_MIN (UINT64_C(16) << 10) /* bytes of one ring */
#define MAP_RING_TOTAL_DEFAULT \
	(UINT64_C(8) << 20) /* bytes of all rings of one instance, unless the user sets it */
#define MAP_RING_TOTAL_MAX (UINT64_C(2) << 30)
#define MAP_RECORD_SIZE_MAX 4096 /* bytes of one record */

enum map_place {
	MAP_PLACE_DEVICE = 0,
	MAP_PLACE_HOST = 1,
	MAP_PLACE_KERNEL = 2,
};

enum map_merge {
	MAP_MERGE_NONE = 0,
	MAP_MERGE_SUM64 = 1,
	MAP_MERGE_SUM32 = 2,
	MAP_MERGE_PERCPU = 3,
	MAP_MERGE_LATEST = 4,
};

enum map_instance_state {
	MAP_INSTANCE_NEW = 0, /* never mirrored */
	MAP_INSTANCE_LIVE = 1,
	MAP_INSTANCE_FINAL = 2, /* the context ended normally after the last copy */
};

/* How a map lies in memory. Both sides compute it with map_layout_init() only. */
struct map_layout {
	uint32_t kind; /* enum map_kind */
	uint32_t place; /* enum map_place */
	uint32_t merge; /* enum map_merge */
	uint32_t shards;
	uint32_t threads; /* THREADS, else 0 */
	uint32_t rings; /* RING, else 0 */
	uint64_t value_stride; /* bytes */
	uint64_t shard_stride; /* bytes; ARRAY, else 0 */
	uint64_t entry_stride; /* bytes; HASH, else 0 */
	uint64_t capacity; /* slots; HASH, else 0 */
	uint64_t ring_size; /* bytes; RING, else 0 */
	uint64_t data_size; /* bytes */
	uint64_t host_size; /* bytes of the host area; RING, else 0 */
};

struct map_header {
	uint32_t magic; /* MAP_MAGIC */
	uint32_t version; /* MAP_LAYOUT_VERSION */
	uint64_t map_id;
	uint64_t instance_id;
	uint32_t type; /* enum bpf_map_type, or 15xx */
	uint32_t key_size; /* bytes */
	uint32_t value_size; /* bytes */
	uint32_t max_entries;
	struct map_layout layout;
	/* written by the shim: */
	uint64_t sequence; /* odd while the shim copies */
	uint64_t mirrored_ns; /* CLOCK_MONOTONIC of the last complete copy */
	uint32_t state; /* enum map_instance_state */
	uint32_t reserved; /* 0 */
};

_Static_assert(sizeof(struct map_header) <= MAP_DATA_OFFSET, "the header has a page of its own");

/*
 * Hash maps are open-addressed and lock-free. The word of a slot:
 *
 *     bits 0-2 state, bits 3-31 version, bits 32-63 tag (upper half of the key's hash; for keys of
 *     at most 4 bytes the key, zero-extended)
 *
 *   EMPTY    never used: a search ends here
 *   BUSY     one thread writes key and value; other threads pass by
 *   PENDING  key and value are there; the writer still looks for a second slot with the same key
 *            (see device-lib-hash.c)
 *   LIVE     an element
 *   DEAD     deleted, can be taken again (BUSY, with the next version); a search goes on
 *   KILLED   was PENDING and gave way to another slot with the same key; its writer makes it DEAD
 *
 * Only a LIVE slot is an element. Its key does not change while the word stays the same. A search
 * looks at MAP_HASH_WINDOW slots at most, unless `overflow` says that an element lies further on.
 * An EMPTY slot is all zeros; a used slot never becomes EMPTY again.
 */
enum map_slot_state {
	MAP_SLOT_EMPTY = 0,
	MAP_SLOT_BUSY = 1,
	MAP_SLOT_PENDING = 2,
	MAP_SLOT_LIVE = 3,
	MAP_SLOT_DEAD = 4,
	MAP_SLOT_KILLED = 5,
};

#define MAP_SLOT_STATE_MASK UINT64_C(7)
#define MAP_SLOT_VERSION_ONE UINT64_C(8)
#define MAP_HASH_WINDOW 128

struct map_hash {
	uint32_t taken; /* elements, and slots that are about to become elements; forms a word of 8
			   bytes with `count` */
	uint32_t count; /* elements; off by one while an element is inserted or deleted */
	uint64_t overflow; /* 1: at some time an element was put beyond its window */
	uint64_t clock; /* LRU: twice the number of slots taken so far; the clock of "last used" */
	uint64_t reserved[13];
};

/*
 * How many neighbouring keys share a cache line in a large map: 2 to the power of this. A warp
 * whose keys are consecutive numbers then touches few lines, and all of each. Elements of small
 * maps lie far apart, because all SMs use them at once.
 */
static inline uint32_t map_hash_group_bits(const struct map_layout *layout) {
	if (layout->capacity < MAP_HASH_GROUPED_MIN)
		return 0;
	return layout->entry_stride == 32 ? 2 : layout->entry_stride == 64 ? 1 : 0;
}

/* Adds one word to a hash of words. */
static inline uint64_t map_hash_mix(uint64_t hash, uint64_t word) {
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 32;
}

/*
 * Rings. A producer of ring r reserves space by compare-and-swap on `head`, writes a batch (one
 * warp's records of one size), fences, and stores the stamp. The consumer looks at the batch at its
 * tail. If the stamp is there, it takes the batch and stores the new tail in the host area.
 * Positions count bytes, never wrap, and are multiples of 32; position p lies at (p & (ring_size -
 * 1)).
 *
 *     struct map_batch | count records of `size` bytes | padding to 32 bytes
 *
 * A batch lies in one piece. If it would cross the end of the ring, a batch of count 0 and size 0
 * fills the rest. A producer that finds no room adds its records to `lost` and goes on. The
 * consumer's tail lies across the bus: a producer reads it only when the cached copy leaves no
 * room, and at most every MAP_RING_REFRESH_NS.
 */
struct map_ring {
	uint64_t head; /* position */
	uint64_t tail; /* cached copy of the consumer's */
	uint64_t lost; /* records */
	uint64_t base; /* device address of the ring's bytes; written by the shim; 0: no memory,
			  records are lost */
	uint64_t tail_address; /* device address of the consumer's tail; written by the shim */
	uint64_t refreshed; /* %globaltimer when a producer last read the consumer's tail */
	uint64_t cookie; /* random, from the daemon */
	uint64_t written; /* records */
	uint64_t reserved[8];
};

struct map_batch {
	uint64_t stamp; /* map_ring_stamp(position, cookie), stored last */
	uint32_t size; /* bytes of one record */
	uint32_t count; /* 1..32 records; 0: skip to the end of the ring */
	uint64_t lanes; /* bit i: lane i wrote a record; records are in order of lanes */
	uint32_t sm;
	uint32_t warp; /* %warpid */
};

#define MAP_BATCH_ALIGN 32
#define MAP_RING_TAIL_STRIDE 64
#define MAP_RING_REFRESH_NS 20000

_Static_assert(sizeof(struct map_hash) == 128 && sizeof(struct map_ring) == 128 &&
		       sizeof(struct map_batch) == 32,
	       "device code and daemon agree on these");

static inline uint64_t map_ring_stamp(uint64_t position, uint64_t cookie) {
	return (position + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ cookie;
}

static inline uint64_t map_round_up(uint64_t n, uint64_t to) {
	return (n + to - 1) / to * to;
}

/* Offset of the host area, in bytes from the start of the memfd. */
static inline uint64_t map_host_offset(const struct map_layout *layout) {
	return map_round_up(MAP_DATA_OFFSET + layout->data_size, 4096);
}

static inline uint64_t map_memfd_size(const struct map_layout *layout) {
	return layout->host_size ? map_host_offset(layout) + layout->host_size
				 : MAP_DATA_OFFSET + layout->data_size;
}

/* Offset of a ring, in bytes from the start of the host area. */
static inline uint64_t map_ring_offset(const struct map_layout *layout, uint32_t ring) {
	return map_round_up((uint64_t)layout->rings * MAP_RING_TAIL_STRIDE, 4096) +
	       ring * layout->ring_size;
}

/* Whether modules may hold the data as variables of their own. */
static inline int map_can_be_resident(const struct map_layout *layout) {
	return layout->kind == MAP_KIND_ARRAY && layout->place == MAP_PLACE_DEVICE &&
	       layout->data_size <= MAP_RESIDENT_SIZE_MAX &&
	       (layout->merge == MAP_MERGE_SUM64 || layout->merge == MAP_MERGE_SUM32 ||
		layout->merge == MAP_MERGE_LATEST);
}

/* The properties of a map that determine its layout. */
struct map_shape {
	uint32_t type; /* enum bpf_map_type, or 15xx */
	uint32_t key_size, value_size, max_entries;
	uint32_t place; /* enum map_place */
	uint32_t merge; /* for arrays, what the compiler proved: NONE, SUM64, SUM32, LATEST; ignored
			   for PERCPU types */
	uint32_t threads; /* of per-thread arrays */
	uint64_t ring_bytes; /* bytes of all rings of one instance; rounded down to a power of two;
				0: the default */
};

static inline uint64_t map_power_of_two(uint64_t n) { /* the highest power of two <= n; n > 0 */
	while (n & (n - 1))
		n &= n - 1;
	return n;
}

/* How many shards an array or percpu hash has; bytes: size of one copy. */
static inline uint32_t map_shards_for(uint64_t bytes) {
	uint32_t shards = MAP_SHARDS_MAX;

	while (shards > 1 && bytes > MAP_SHARDED_SIZE_MAX / shards)
		shards /= 2;
	return shards;
}

static inline const char *map_layout_array(struct map_layout *l, const struct map_shape *shape) {
	uint64_t values;

	l->merge = map_type_has(shape->type, MAP_TYPE_PERCPU) ? MAP_MERGE_PERCPU
		   : l->place == MAP_PLACE_DEVICE             ? shape->merge
							      : MAP_MERGE_NONE;
	if (l->merge == MAP_MERGE_LATEST)
		l->value_stride = 16;
	values = l->value_stride * shape->max_entries;
	l->shards = l->merge == MAP_MERGE_NONE
			    ? 1
			    : map_shards_for(map_round_up(values, MAP_SHARD_ALIGN));
	l->shard_stride = l->shards > 1 ? map_round_up(values, MAP_SHARD_ALIGN) : values;
	l->data_size = l->shards * l->shard_stride;
	return NULL;
}

static inline const char *map_layout_hash(struct map_layout *l, const struct map_shape *shape) {
	uint64_t slots = 64;

	if (!shape->key_size || shape->key_size > MAP_KEY_SIZE_MAX)
		return "a hash map has keys of 1 to 512 bytes";
	/* a warp waits for its longest search; sparse small maps keep searches short */
	while (slots <
	       (uint64_t)shape->max_entries * (shape->max_entries <= MAP_HASH_SPARSE_MAX ? 4 : 2))
		slots *= 2;
	l->capacity = slots;
	if (map_type_has(shape->type, MAP_TYPE_PERCPU)) {
		l->merge = MAP_MERGE_PERCPU;
		l->shards = map_shards_for(l->value_stride * slots);
	}
	l->entry_stride =
		map_round_up(8 + map_round_up(shape->key_size, 8) + l->value_stride * l->shards +
				     (map_type_has(shape->type, MAP_TYPE_LRU) ? 8 : 0),
			     16);
	if (l->entry_stride == 48 ||
	    l->entry_stride ==
		    16) /* avoid entries that cross two cache lines, where that is cheap */
		l->entry_stride = l->entry_stride == 48 ? 64 : 32;
	if (l->entry_stride > MAP_DATA_SIZE_MAX / slots)
		return "it is larger than 4 GiB";
	l->data_size = sizeof(struct map_hash) + slots * l->entry_stride;
	return NULL;
}

static inline const char *map_layout_ring(struct map_layout *l, const struct map_shape *shape) {
	uint64_t bytes = shape->ring_bytes ? shape->ring_bytes : MAP_RING_TOTAL_DEFAULT;

	if (bytes < MAP_RING_SIZE_MIN)
		bytes = MAP_RING_SIZE_MIN;
	if (bytes > MAP_RING_TOTAL_MAX)
		return "a ring has at most 2 GiB";
	bytes = map_power_of_two(bytes);
	l->value_stride = 0;
	l->rings = MAP_RINGS_MAX;
	while (l->rings > 1 && bytes / l->rings < MAP_RING_SIZE_MIN)
		l->rings /= 2;
	l->ring_size = bytes / l->rings;
	l->data_size = l->rings * sizeof(struct map_ring);
	l->host_size = map_ring_offset(l, l->rings);
	return NULL;
}

/*
 * Fills in *layout from the shape. Returns NULL on success. On error it returns a static string
 * that says why a GPU cannot have such a map; *layout is then undefined.
 */
static inline const char *map_layout_init(struct map_layout *layout,
					  const struct map_shape *shape) {
	struct map_layout *l = layout;
	int kind = map_kind_of(shape->type);
	const char *wrong = NULL;

	*l = (struct map_layout){ .place = shape->place, .shards = 1 };
	if (kind < 0)
		return "its type is not available on a GPU";
	l->kind = (uint32_t)kind;
	if (map_type_has(shape->type, MAP_TYPE_HOST) &&
	    (kind != MAP_KIND_ARRAY || shape->place != MAP_PLACE_KERNEL))
		l->place = MAP_PLACE_HOST;
	if (kind == MAP_KIND_RING)
		l->place = MAP_PLACE_DEVICE; /* its records are in the host area in any case */
	if (l->place == MAP_PLACE_KERNEL &&
	    (kind != MAP_KIND_ARRAY || map_type_has(shape->type, MAP_TYPE_PERCPU)))
		return "host programs can share arrays only";
	if (kind == MAP_KIND_RING)
		return map_layout_ring(l, shape);
	if (!shape->value_size || !shape->max_entries)
		return "it has no entries, or values without bytes";
	if (kind != MAP_KIND_HASH && shape->key_size != 4)
		return "an array has keys of 4 bytes";
	l->value_stride = map_round_up(shape->value_size, 8);
	if (l->value_stride > MAP_DATA_SIZE_MAX / shape->max_entries)
		return "it is larger than 4 GiB";
	if (kind == MAP_KIND_HASH)
		wrong = map_layout_hash(l, shape);
	else if (kind == MAP_KIND_ARRAY)
		wrong = map_layout_array(l, shape);
	else {
		l->threads = shape->threads ? shape->threads : MAP_THREADS_DEFAULT;
		if (l->threads > MAP_THREADS_MAX ||
		    l->value_stride * shape->max_entries > MAP_DATA_SIZE_MAX / l->threads)
			return "it is larger than 4 GiB: one value for each thread and entry";
		l->data_size = l->value_stride * shape->max_entries * l->threads;
	}
	return wrong;
}
