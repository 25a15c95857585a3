/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pointers by two numbers. All zeros is an empty map; values are never NULL. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/hash-table.h"

struct trace_map {
	struct hash_table table;
};

/* Spreads the bits of two numbers over all of one. */
static inline uint64_t trace_map_hash(uint64_t a, uint64_t b) {
	uint64_t hash = (a ^ (b << 32 | b >> 32)) * UINT64_C(0x9e3779b97f4a7c15);

	hash = (hash ^ hash >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return hash ^ hash >> 32;
}

void *trace_map_get(const struct trace_map *map, uint64_t a, uint64_t b); /* NULL: none */
int trace_map_set(struct trace_map *map, uint64_t a, uint64_t b, void *value); /* 0 or -ENOMEM */
/* Keeps the values that keep() says yes to; it frees the others. */
void trace_map_filter(struct trace_map *map, bool (*keep)(void *value, void *userdata),
		      void *userdata);
void trace_map_deinit(struct trace_map *map,
		      void (*free_value)(void *value)); /* free_value may be NULL */
