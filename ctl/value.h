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

int value_types_new(struct value_types **typesp, const void *btf, size_t n_btf);
struct value_types *value_types_free(struct value_types *types);
uint32_t value_types_find(const struct value_types *types, const char *name);
bool value_types_is_section(const struct value_types *types, uint32_t type);
struct btf *value_types_btf(const struct value_types *types); /* NULL: there are none */
int64_t value_types_size(const struct value_types *types, uint32_t type);
json_object *value_json(struct value_types *types, uint32_t type, const unsigned char *data,
			size_t n_data);
void value_print(json_object *value, FILE *stream);
