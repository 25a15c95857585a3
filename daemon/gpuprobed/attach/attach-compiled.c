/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the reply of the job `compile` (attach-compiled.h).
 *
 * The worker that compiled an operator's program is trusted with that program only: symbols must
 * begin with the object's prefix, so that no object can shadow another's; layouts are checked again
 * by map.c.
 */

#include "attach-compiled.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/registry/outcome.h"
#include "lib/base/text.h"
#include "lib/json.h"
#include "proto/job.h"

#define COMPILED_FIRST_OUTPUT 1

void compiled_slot_symbol(char symbol[static REGISTRY_SYMBOL_SIZE], const char *prefix,
			  size_t map) {
	_Static_assert(REGISTRY_PREFIX_SIZE + 4 < REGISTRY_SYMBOL_SIZE, "room for _m63");
	snprintf(symbol, REGISTRY_SYMBOL_SIZE, "%.*s_m%u", REGISTRY_PREFIX_SIZE - 1, prefix,
		 (unsigned)map % 100);
}

static int compiled_wrong(char *error, const char *what) {
	snprintf(error, COMPILED_ERROR_SIZE, "worker sent a malformed reply: %s", what);
	return COMPILED_E_INVALID;
}

/* What a worker may have proved: nothing else leaves the memory of the map as map-layout.h says. */
static bool compiled_merge_possible(const struct map_layout *layout,
				    const struct map_shape *shape) {
	if (layout->merge != shape->merge) /* the type or the place has decided */
		return false;
	if (shape->merge == MAP_MERGE_PERCPU && !map_type_has(shape->type, MAP_TYPE_PERCPU))
		return false;
	return shape->merge != MAP_MERGE_LATEST || shape->value_size <= 8;
}

/* Maps that no program uses need no layout. */
static int compiled_map_parse(struct compiled_map *map, json_object *object,
			      const struct map_shape *wanted, char *error) {
	struct map_shape shape = *wanted;
	const char *why;
	int64_t merge;

	if (!json_object_is_type(object, json_type_object) ||
	    !json_get_bool(object, JOB_KEY_USED, &map->used))
		return compiled_wrong(error, "map");
	if (!map->used)
		return 0;
	if (!json_get_int(object, JOB_KEY_MERGE, MAP_MERGE_NONE, MAP_MERGE_LATEST, &merge) ||
	    !json_get_bool(object, JOB_KEY_RESIDENT, &map->resident))
		return compiled_wrong(error, "layout of a map");
	shape.merge = (uint32_t)merge;
	why = map_layout_init(&map->layout, &shape);
	if (why)
		return compiled_wrong(error, why);
	if (!compiled_merge_possible(&map->layout, &shape))
		return compiled_wrong(error, "a map cannot merge so");
	if (map->resident && !map_can_be_resident(&map->layout))
		return compiled_wrong(error, "modules cannot hold the data of this map");
	return 0;
}

static int compiled_symbol(struct gpu_program *program, json_object *object, const char *prefix,
			   char *error) {
	const char *text = json_string_of(object, JOB_KEY_SYMBOL);

	if (!text || strlen(text) >= sizeof(program->symbol) ||
	    strncmp(text, prefix, strlen(prefix)) != 0 || text[strlen(prefix)] != '_' ||
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$") !=
		    strlen(text))
		return compiled_wrong(error, "symbol");
	strcpy(program->symbol, text);
	return 0;
}

static int compiled_context(struct gpu_program *program, json_object *object, char *error) {
	json_object *offsets;

	if (!json_get_array(object, JOB_KEY_CONTEXT, REGISTRY_CONTEXT_MAX, &offsets))
		return compiled_wrong(error, "context of a program");
	for (size_t i = 0; i < json_object_array_length(offsets); i++) {
		int64_t offset;

		if (!json_int_at(offsets, i, 0, UINT16_MAX, &offset) || offset % 8)
			return compiled_wrong(error, "context of a program");
		for (size_t k = 0; k < i; k++)
			if (program->context[k] == offset)
				return compiled_wrong(error, "context of a program");
		program->context[program->n_context++] = (uint16_t)offset;
	}
	return 0;
}

int compiled_check_context(const struct gpu_program *program, const char *name,
			   enum point_kind point, char error[static COMPILED_ERROR_SIZE]) {
	const bool memory = point == POINT_MEMORY;
	const uint32_t size = point_contexts[point_context_of(point)].size;

	for (size_t i = 0; i < program->n_context; i++)
		if (program->context[i] >= size && program->context[i] != POINT_UNIFORM &&
		    !point_is_thread(program->context[i])) {
			snprintf(error, COMPILED_ERROR_SIZE,
				 "program %s reads byte %d of its context: %s it has %u bytes",
				 name, program->context[i],
				 memory ? "at a memory access" : "at this point", size);
			return COMPILED_E_INVALID;
		}
	return 0;
}

int compiled_check_thread(const struct gpu_program *program, const char *name,
			  const struct section *section, char error[static COMPILED_ERROR_SIZE]) {
	if (!section->device_function || !gpu_program_words(program))
		return 0;
	snprintf(error, COMPILED_ERROR_SIZE,
		 "program %s uses variables of a thread (.thread), which kernels keep and device "
		 "functions do not have: attach it to a kernel",
		 name);
	return COMPILED_E_INVALID;
}

/* The program has no patch form, for this reason. */
__attribute__((format(printf, 2, 3))) static void compiled_no_patch(struct gpu_program *program,
								    const char *format, ...) {
	va_list arguments;

	program->patch_fd = fd_close(program->patch_fd);
	va_start(arguments, format);
	vsnprintf(program->patch_reason, sizeof(program->patch_reason), format, arguments);
	va_end(arguments);
	text_make_printable(program->patch_reason);
}

void compiled_check_patch(struct gpu_program *program, const struct section *section,
			  uint32_t spaces) {
	const struct point *point = section_point(section);
	const char *why = section_needs_ptx(section);

	if (program->patch_fd < 0)
		return;
	if (why)
		compiled_no_patch(program, "%s", why);
	else if (section->point == POINT_MEMORY && !(spaces & POINT_SPACES_SASS))
		compiled_no_patch(program, "the sanitizer engine sees accesses to global, shared "
					   "and local memory only");
	for (size_t i = 0; i < program->n_context; i++)
		if (point->engines & POINT_ON_SASS &&
		    !point_is_on_sass(point->context, program->context[i]))
			compiled_no_patch(program, "the program reads the parameters of the "
						   "kernel, which the sanitizer engine "
						   "does not know");
}

/* The patch form of program i, if there is one. */
static int compiled_patch_parse(struct gpu_program *program, size_t i, json_object *object,
				struct worker_task *task, const struct compiled_request *request,
				char *error) {
	const unsigned int output = (unsigned int)(COMPILED_FIRST_OUTPUT + request->n_chosen + i);
	const char *reason = json_string_of(object, JOB_KEY_PATCH_REASON);
	int64_t size = 0, slots;

	if (i >= request->n_patches) {
		compiled_no_patch(program, "%s", request->no_patch ?: "");
		return 0;
	}
	if (json_has(object, JOB_KEY_PATCH_SIZE) &&
	    !json_get_int(object, JOB_KEY_PATCH_SIZE, 0, INT64_MAX, &size))
		return compiled_wrong(error, "size of a patch form");
	if (!size) {
		compiled_no_patch(program, "%s",
				  reason && *reason
					  ? reason
					  : "the program has no form for the sanitizer engine");
		return 0;
	}
	if ((uint64_t)size != worker_task_output_size(task, output))
		return compiled_wrong(error, "size of a patch form");
	if (!json_get_int(object, JOB_KEY_PATCH_MAPS, 1, 65, &slots) ||
	    (size_t)slots != program->n_patch_maps + 1)
		return compiled_wrong(error, "slots of a patch form");
	program->patch_fd = worker_task_steal_fd(task, output);
	return 0;
}

/* The maps that a program uses, in the order of its slots. */
static int compiled_maps(const struct compiled *compiled, struct gpu_program *program,
			 json_object *object, char *error) {
	json_object *maps;

	if (!json_get_array(object, JOB_KEY_MAPS, 64, &maps))
		return compiled_wrong(error, "maps of a program");
	for (size_t k = 0; k < json_object_array_length(maps); k++) {
		int64_t n;

		if (!json_int_at(maps, k, 0, (int64_t)compiled->n_maps - 1, &n) ||
		    !compiled->maps[n].used || program->maps >> n & 1)
			return compiled_wrong(error, "maps of a program");
		program->maps |= UINT64_C(1) << n;
		program->patch_maps[program->n_patch_maps++] = (uint8_t)n;
	}
	return 0;
}

static int compiled_program_parse(struct compiled *compiled, size_t i, json_object *object,
				  struct worker_task *task, const struct compiled_request *request,
				  char *error) {
	struct gpu_program *program = &compiled->programs[i];
	int64_t value;
	int r;

	if (!json_object_is_type(object, json_type_object) ||
	    !json_get_int(object, JOB_KEY_INDEX, 0, INT32_MAX, &value) ||
	    (size_t)value != request->chosen[i])
		return compiled_wrong(error, "program");
	r = compiled_symbol(program, object, request->prefix, error);
	if (r)
		return r;
	if (!json_get_int(object, JOB_KEY_SIZE, 1, INT64_MAX, &value) ||
	    (uint64_t)value !=
		    worker_task_output_size(task, (unsigned int)(COMPILED_FIRST_OUTPUT + i)))
		return compiled_wrong(error, "size of a program");
	program->size = (uint64_t)value;
	r = compiled_context(program, object, error);
	if (r)
		return r;
	if (!json_get_bool(object, JOB_KEY_PROCESS, &program->process))
		return compiled_wrong(error, "process");
	if (!json_get_u32(object, JOB_KEY_ISA, 10, 999, &program->isa))
		return compiled_wrong(error, "isa");
	if (!json_get_u32(object, JOB_KEY_TARGET, 10, 999, &program->target))
		return compiled_wrong(error, "target");
	if (json_has(object, JOB_KEY_LOCAL_BYTES) &&
	    !json_get_u32(object, JOB_KEY_LOCAL_BYTES, 0, UINT32_MAX, &program->local_bytes))
		return compiled_wrong(error, "local memory of a program");
	r = compiled_maps(compiled, program, object, error);
	if (r == 0)
		r = compiled_patch_parse(program, i, object, task, request, error);
	if (r)
		return r;
	program->fd = worker_task_steal_fd(task, (unsigned int)(COMPILED_FIRST_OUTPUT + i));
	return 0;
}

int compiled_from_json(struct compiled **compiledp, json_object *reply, struct worker_task *task,
		       const struct compiled_request *request,
		       char error[static COMPILED_ERROR_SIZE]) {
	const size_t n_maps = request->n_maps, n_chosen = request->n_chosen;
	json_object *maps, *programs;
	struct compiled *compiled;
	int r = 0;

	if (!json_get_array(reply, JOB_KEY_MAPS, 64, &maps) ||
	    json_object_array_length(maps) != n_maps)
		return compiled_wrong(error, "maps");
	if (!json_get_array(reply, JOB_KEY_PROGRAMS, n_chosen, &programs) ||
	    json_object_array_length(programs) != n_chosen)
		return compiled_wrong(error, "programs");
	compiled = calloc(1, sizeof(*compiled));
	if (!compiled)
		return -ENOMEM;
	compiled->maps = calloc(n_maps ? n_maps : 1, sizeof(*compiled->maps));
	compiled->programs = calloc(n_chosen ? n_chosen : 1, sizeof(*compiled->programs));
	if (!compiled->maps || !compiled->programs)
		r = -ENOMEM;
	else
		for (size_t i = 0; i < n_chosen; i++)
			gpu_program_init(&compiled->programs[i]);
	compiled->n_maps = n_maps;
	for (size_t i = 0; r == 0 && i < n_maps; i++)
		r = compiled_map_parse(&compiled->maps[i], json_object_array_get_idx(maps, i),
				       &request->shapes[i], error);
	for (size_t i = 0; r == 0 && i < n_chosen; i++) {
		compiled->n_programs = i + 1;
		r = compiled_program_parse(compiled, i, json_object_array_get_idx(programs, i),
					   task, request, error);
	}
	if (r) {
		compiled_free(compiled);
		return r;
	}
	*compiledp = compiled;
	return 0;
}

struct compiled *compiled_free(struct compiled *compiled) {
	if (!compiled)
		return NULL;
	for (size_t i = 0; i < compiled->n_programs; i++)
		gpu_program_deinit(&compiled->programs[i]);
	free(compiled->maps);
	free(compiled->programs);
	free(compiled);
	return NULL;
}
