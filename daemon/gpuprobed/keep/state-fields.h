/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Members of the state file that are members of structs: state.c writes them, state-restore.c reads
 * them. */

#include "daemon/gpuprobed/map/map.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "lib/json.h"

#define STATE_FIELDS(fields) fields, sizeof(fields) / sizeof(*(fields))

static const struct json_field state_section_fields[] = {
	JSON_INT(struct section, point, POINT_CLASS),
	JSON_BOOL(struct section, known),
	JSON_BOOL(struct section, device_function),
	JSON_TEXT(struct section, kernel),
	JSON_TEXT(struct section, file),
	JSON_INT(struct section, line, UINT32_MAX),
	JSON_INT(struct section, block, UINT32_MAX),
	JSON_INT(struct section, instruction, UINT32_MAX),
};

/* Of a program on the GPU. */
static const struct json_field state_gpu_fields[] = {
	JSON_INT(struct gpu_program, maps, JSON_ANY),
	JSON_BOOL(struct gpu_program, process),
	JSON_INT(struct gpu_program, size, INT64_MAX),
	JSON_INT(struct gpu_program, local_bytes, UINT32_MAX),
	JSON_TEXT(struct gpu_program, symbol),
	JSON_INT(struct gpu_program, isa, UINT32_MAX),
	JSON_INT(struct gpu_program, target, UINT32_MAX),
};

static const struct json_field state_map_fields[] = {
	JSON_INT(struct map_spec, type, UINT32_MAX),
	JSON_INT(struct map_spec, key_size, UINT32_MAX),
	JSON_INT(struct map_spec, value_size, UINT32_MAX),
	JSON_INT(struct map_spec, max_entries, UINT32_MAX),
	JSON_INT(struct map_spec, flags, UINT32_MAX),
	JSON_INT(struct map_spec, btf_key_type, UINT32_MAX),
	JSON_INT(struct map_spec, btf_value_type, UINT32_MAX),
};

static const struct json_field state_object_fields[] = {
	JSON_BOOL(struct object, shared),
	JSON_BOOL(struct object, has_kernel_user),
	JSON_INT(struct object, kernel_user, UINT32_MAX),
};
