/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reply of the job `compile` (worker/job.md), checked. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "map-layout.h"
#include "registry.h"
#include "worker-pool.h"

enum {
	_COMPILED_E_SUCCESS,
	COMPILED_E_INVALID,
};

#define COMPILED_ERROR_SIZE 256
#define COMPILED_CONTEXT_MAX 64
#define COMPILED_KERNEL_CONTEXT_SIZE 168 /* of proto/gpuprobe.bpf.h's contexts */
#define COMPILED_MEMORY_CONTEXT_SIZE 48

struct compiled_map {
	bool used;
	bool resident; /* modules hold the data themselves */
	struct map_layout layout;
};

struct compiled_program {
	char symbol[REGISTRY_SYMBOL_SIZE];
	int fd; /* sealed PTX */
	unsigned int isa, target;
	bool process; /* refers to WIRE_PROCESS_SYMBOL */
	uint16_t context[COMPILED_CONTEXT_MAX]; /* multiples of 8, each once */
	size_t n_context;
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

/* What was asked for. Borrowed. */
struct compiled_request {
	uint64_t object;
	size_t n_maps;
	const struct map_shape *shapes; /* of the maps, but for what the programs do to them */
	size_t n_chosen;
	const size_t *chosen; /* indices of programs; their outputs are the task's descriptors from
				 1 on, in that order */
};

/*
 * The layouts are computed here: the worker says no more than which merge it proved, and one that
 * such a map cannot have is refused. 0, COMPILED_E_INVALID with a line in error, or -ENOMEM.
 */
int compiled_from_json(struct compiled **compiledp, json_object *reply, struct worker_task *task,
		       const struct compiled_request *request,
		       char error[static COMPILED_ERROR_SIZE]);
struct compiled *compiled_free(struct compiled *compiled);

/* Whether all that the program reads of its context is there. 0, or COMPILED_E_INVALID with a line
 * for its author in error. */
int compiled_check_context(const struct compiled_program *program, const char *name, bool memory,
			   char error[static COMPILED_ERROR_SIZE]);
