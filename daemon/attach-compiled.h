/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reply of the job `compile` (worker/job.md), checked. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registry.h"
#include "worker-pool.h"

enum {
	_COMPILED_E_SUCCESS,
	COMPILED_E_INVALID,
};

#define COMPILED_ERROR_SIZE 192

struct compiled_map {
	bool used;
	uint32_t shards, merge;
	uint64_t value_stride, shard_stride, data_size;
};

struct compiled_program {
	char symbol[REGISTRY_SYMBOL_SIZE];
	int fd; /* sealed PTX */
	unsigned int isa, target;
	bool uses_context;
	uint64_t maps; /* bit i: uses map i */
};

struct compiled {
	size_t n_maps, n_programs;
	struct compiled_map *maps;
	struct compiled_program *programs; /* in the order in which they were asked for */
};

/* Names of an object: of all its symbols' beginning, and of the pointer to a map. */
void compiled_prefix(char prefix[static 64], uint64_t object);
void compiled_slot_symbol(char symbol[static REGISTRY_SYMBOL_SIZE], uint64_t object, size_t map);

/*
 * chosen: the indices of the programs that were asked for, whose outputs are the task's descriptors
 * from 1 on, in that order. 0, COMPILED_E_INVALID with a line in error, or -ENOMEM.
 */
int compiled_from_json(struct compiled **compiledp, json_object *reply, struct worker_task *task,
		       uint64_t object, size_t n_maps, const size_t *chosen, size_t n_chosen,
		       char error[static COMPILED_ERROR_SIZE]);
struct compiled *compiled_free(struct compiled *compiled);
