/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The types of maps that a GPU has: one row for each. Layout, translator, daemon, fuzzers and the
 * conformance suite (bpf_maps.py reads the rows as text) all read this table. Types of our own are
 * named in gpuprobe.bpf.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuprobe.bpf.h"

enum map_kind {
	MAP_KIND_ARRAY = 0,
	MAP_KIND_THREADS = 1, /* an array with a value for each thread */
	MAP_KIND_HASH = 2,
	MAP_KIND_RING = 3,
};

enum map_type_flags {
	MAP_TYPE_PERCPU = 1 << 0, /* each SM has values of its own */
	MAP_TYPE_LRU = 1 << 1, /* an insertion into a full map deletes what was not used for long */
	MAP_TYPE_HOST = 1 << 2, /* always in host memory */
};

struct map_type {
	uint32_t type; /* enum bpf_map_type, or enum gpuprobe_map_type */
	const char *name; /* for users */
	enum map_kind kind;
	unsigned flags; /* enum map_type_flags */
};

static const struct map_type map_types[] = {
	{ 1, "hash", MAP_KIND_HASH, 0 },
	{ 2, "array", MAP_KIND_ARRAY, 0 },
	{ 4, "perf_event_array", MAP_KIND_RING, 0 },
	{ 5, "percpu_hash", MAP_KIND_HASH, MAP_TYPE_PERCPU },
	{ 6, "percpu_array", MAP_KIND_ARRAY, MAP_TYPE_PERCPU },
	{ 9, "lru_hash", MAP_KIND_HASH, MAP_TYPE_LRU },
	{ 10, "lru_percpu_hash", MAP_KIND_HASH, MAP_TYPE_PERCPU | MAP_TYPE_LRU },
	{ 27, "ringbuf", MAP_KIND_RING, 0 },
	{ BPF_MAP_TYPE_GPU_HASH_MAP, "gpu_hash", MAP_KIND_HASH, 0 },
	{ BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP, "gpu_thread_array", MAP_KIND_THREADS, 0 },
	{ BPF_MAP_TYPE_GPU_ARRAY_MAP, "gpu_array", MAP_KIND_ARRAY, 0 },
	{ BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY_MAP, "gpu_kernel_shared_array", MAP_KIND_ARRAY, 0 },
	{ BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST_MAP, "gpu_thread_array_host", MAP_KIND_THREADS,
	  MAP_TYPE_HOST },
	{ BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP, "gpu_array_host", MAP_KIND_ARRAY, MAP_TYPE_HOST },
	{ BPF_MAP_TYPE_GPU_RINGBUF_MAP, "gpu_ringbuf", MAP_KIND_RING, 0 },
};
#define MAP_TYPE_COUNT (sizeof(map_types) / sizeof(map_types[0]))

/* The row of a type; NULL: a GPU has no such maps. */
static inline const struct map_type *map_type_find(uint32_t type) {
	for (size_t i = 0; i < MAP_TYPE_COUNT; i++)
		if (map_types[i].type == type)
			return &map_types[i];
	return NULL;
}

static inline bool map_type_has(uint32_t type, enum map_type_flags flag) {
	const struct map_type *found = map_type_find(type);

	return found && found->flags & flag;
}

/* The kind of a type, or -1: a GPU has no such maps. */
static inline int map_kind_of(uint32_t type) {
	const struct map_type *found = map_type_find(type);

	return found ? (int)found->kind : -1;
}

/* Whether a number is one of those that are kept for types of our own. */
static inline bool map_type_is_gpu(uint32_t type) {
	return type >= 1500 && type < 1600;
}
