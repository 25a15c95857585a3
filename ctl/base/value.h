/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of maps, shown by their BTF types. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct btf;
struct value_types;

/* Ids of gpuprobe.bpf.h, by the names of their types there. */
enum value_id {
	VALUE_ID_KERNEL, /* gpuprobe_kernel_id */
	VALUE_ID_INSTRUCTION, /* gpuprobe_instruction_id */
};

/* What an id stands for, from malloc(); NULL: it is not known. */
typedef char *value_namer(enum value_id kind, uint64_t id, void *userdata);

/* For people: ids are shown by what they stand for. Without, they are 16 hexadecimal digits. */
void value_types_set_namer(struct value_types *types, value_namer *namer, void *userdata);

int value_types_new(struct value_types **typesp, const void *btf, size_t n_btf);
struct value_types *value_types_free(struct value_types *types);
uint32_t value_types_find(const struct value_types *types, const char *name);
bool value_types_is_section(const struct value_types *types, uint32_t type);
struct btf *value_types_btf(const struct value_types *types); /* NULL: there are none */
int64_t value_types_size(const struct value_types *types, uint32_t type);
json_object *value_json(struct value_types *types, uint32_t type, const unsigned char *data,
			size_t n_data);
void value_print(json_object *value, FILE *stream);
