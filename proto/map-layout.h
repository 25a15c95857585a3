/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Layout of a map and of its instances.
 *
 * A map has one *instance* per process and CUDA context (contexts of one device share nothing). An instance's data lives in a buffer in device
 * memory; a memfd that daemon and process share holds a header page and a copy of the buffer, byte for
 * byte (the mirror). The daemon fills the copy before it hands it out (zeros, or the initial bytes of .data,
 * .rodata, .bss), the shim uploads it when it creates the buffer and copies back when asked, periodically,
 * and before the context ends.
 *
 * The data is `shards` copies of the map's values, `shard_stride` bytes apart:
 *
 *     value of index i in shard s:  data + s * shard_stride + i * value_stride
 *     value_stride = value_size rounded up to 8
 *     shard_stride = max_entries * value_stride rounded up to 128 (a cache line) when shards > 1
 *     data_size    = shards * shard_stride
 *
 * shards is a power of two. Device code picks its shard as (%smid & (shards - 1)). What the shards mean:
 *
 *   MAP_MERGE_NONE   shards == 1; the copy is the value. Between instances: see `merge` of the reader.
 *   MAP_MERGE_SUM64, MAP_MERGE_SUM32
 *                    the compiler proved that GPU programs only ever add to the values atomically and
 *                    never read them: the value is the sum over shards and instances, lane by lane of 8 or 4
 *                    bytes, modulo 2^64 or 2^32.
 *   MAP_MERGE_PERCPU a PERCPU map: shard s is the copy of SM s.
 *
 * The buffer of a map that merges by sums may be spread over the modules: each module has one of the same size as a
 * variable, zeros at first, and the shim adds them up when it mirrors. Its instances therefore always start with
 * zeros; the initial bytes of a data section are added once by who reads the map.
 *
 * The daemon never believes the header of an instance that it has handed out: a process may write there.
 */

#include <stdint.h>

#define MAP_MAGIC UINT32_C(0x4d525047) /* "GPRM" */
#define MAP_LAYOUT_VERSION UINT32_C(1)
#define MAP_DATA_OFFSET 4096
#define MAP_SHARDS_MAX 256
#define MAP_SHARD_ALIGN 128
#define MAP_DATA_SIZE_MAX (UINT64_C(1) << 32) /* of one instance */
#define MAP_SHARDED_SIZE_MAX (UINT64_C(64) << 20) /* shards are halved until data_size fits */
#define MAP_RESIDENT_SIZE_MAX (UINT64_C(1) << 20) /* largest data_size that a module holds itself */

enum map_merge {
	MAP_MERGE_NONE = 0,
	MAP_MERGE_SUM64 = 1,
	MAP_MERGE_SUM32 = 2,
	MAP_MERGE_PERCPU = 3,
};

enum map_instance_state {
	MAP_INSTANCE_NEW = 0, /* never mirrored */
	MAP_INSTANCE_LIVE = 1,
	MAP_INSTANCE_FINAL = 2, /* the context ended in good order after the last copy */
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
	uint32_t shards;
	uint32_t merge; /* enum map_merge */
	uint64_t value_stride; /* bytes */
	uint64_t shard_stride; /* bytes */
	uint64_t data_size; /* bytes */
	/* written by the shim: */
	uint64_t sequence; /* odd while a copy is under way */
	uint64_t mirrored_ns; /* CLOCK_MONOTONIC of the last complete copy */
	uint32_t state; /* enum map_instance_state */
	uint32_t reserved; /* 0 */
};

_Static_assert(sizeof(struct map_header) <= MAP_DATA_OFFSET, "the header has a page of its own");
