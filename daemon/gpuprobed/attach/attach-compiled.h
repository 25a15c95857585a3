/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reply of the job `compile` (worker/job.md), checked. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/map-layout.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/workers/worker-pool.h"

enum {
	_COMPILED_E_SUCCESS,
	COMPILED_E_INVALID,
};

#define COMPILED_ERROR_SIZE 256

struct compiled_map {
	bool used;
	bool resident; /* modules hold the data themselves */
	struct map_layout layout;
};

struct compiled {
	size_t n_maps, n_programs;
	struct compiled_map *maps;
	struct gpu_program *programs; /* in the order in which they were asked for */
};

/* The symbol of the pointer to a map, or of its data. */
void compiled_slot_symbol(char symbol[static REGISTRY_SYMBOL_SIZE], const char *prefix, size_t map);

/* What was asked for. Borrowed. */
struct compiled_request {
	const char *prefix; /* of all its symbols */
	size_t n_maps;
	const struct map_shape *shapes; /* of the maps, but for what the programs do to them */
	size_t n_chosen;
	const size_t *chosen; /* indices of programs; their outputs are the task's descriptors from
				 1 on, in that order */
	size_t n_patches; /* of the first so many a patch form was asked for; its outputs come next
			   */
	const char *no_patch; /* why not of the others */
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
int compiled_check_context(const struct gpu_program *program, const char *name,
			   enum point_kind point, char error[static COMPILED_ERROR_SIZE]);

/* Whether its variables of a thread can be where it stands. As above. */
int compiled_check_thread(const struct gpu_program *program, const char *name,
			  const struct section *section, char error[static COMPILED_ERROR_SIZE]);

/* The same for the sanitizer engine, which knows less; the program has no patch form any more if it
 * reads what is not there, and says why. */
void compiled_check_patch(struct gpu_program *program, const struct section *section,
			  uint32_t spaces);
