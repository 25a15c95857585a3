/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the sections .BTF and .BTF.ext of a stranger's object before libbpf reads them
 * (btf-check.h).
 *
 * Type information: a header, types one after the other (each a fixed part, then records that its
 * kind and length say), strings. The first pass finds out how many types there are, the second
 * looks at what they refer to; the last follows each chain of modifiers and typedefs, which libbpf
 * does without an end if it is a circle.
 */

#include "btf-check.h"

#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btf-type.h"

#define CHAIN_MAX 32
#define CORE_RECORD_MAX 256
#define TYPES_MAX 1000000

struct btf_file {
	const uint8_t *types;
	size_t types_size;
	size_t strings_size;
	const struct btf_type **by_id; /* by_id[0]: void */
	uint32_t n_types;
	char *error;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct btf_file *f, const char *format,
							...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(f->error, BTF_CHECK_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return false;
}

/* Whether the fixed part's second word is a type. */
static bool refers(uint32_t kind) {
	switch (kind) {
	case BTF_KIND_PTR:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FUNC_PROTO:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
	case BTF_KIND_TYPE_TAG:
		return true;
	}
	return false;
}

/* Finds all types. */
static bool scan(struct btf_file *f) {
	for (size_t at = 0; at < f->types_size;) {
		const struct btf_type *type = (const void *)(f->types + at);
		size_t tail;

		if (f->types_size - at < sizeof(*type))
			return wrong(f, "half a type at its end");
		tail = btf_type_tail(type);
		if (tail > f->types_size - at - sizeof(*type))
			return wrong(f, "type %u has an unknown kind or is cut short",
				     f->n_types + 1);
		if (f->n_types == TYPES_MAX)
			return wrong(f, "too many types");
		f->by_id[++f->n_types] = type;
		at += sizeof(*type) + tail;
	}
	return true;
}

static bool is_kind(const struct btf_file *f, uint32_t id, uint32_t kind) {
	return id && id <= f->n_types && BTF_INFO_KIND(f->by_id[id]->info) == kind;
}

/* The records behind a type: names and types that they refer to. */
static bool check_tail(struct btf_file *f, uint32_t id) {
	const struct btf_type *type = f->by_id[id];
	const struct btf_member *members = (const void *)(type + 1);
	const struct btf_param *params = (const void *)(type + 1);
	const struct btf_enum *enums = (const void *)(type + 1);
	const struct btf_enum64 *enums64 = (const void *)(type + 1);
	const struct btf_array *array = (const void *)(type + 1);
	const struct btf_var_secinfo *variables = (const void *)(type + 1);
	uint32_t kind = BTF_INFO_KIND(type->info), n = BTF_INFO_VLEN(type->info);

	if (kind == BTF_KIND_ARRAY)
		return array->type <= f->n_types && array->index_type <= f->n_types;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t name = 0, to = 0;

		switch (kind) {
		case BTF_KIND_STRUCT:
		case BTF_KIND_UNION:
			name = members[i].name_off;
			to = members[i].type;
			break;
		case BTF_KIND_FUNC_PROTO:
			name = params[i].name_off;
			to = params[i].type;
			break;
		case BTF_KIND_ENUM:
			name = enums[i].name_off;
			break;
		case BTF_KIND_ENUM64:
			name = enums64[i].name_off;
			break;
		case BTF_KIND_DATASEC:
			to = variables[i].type;
			if (!is_kind(f, to, BTF_KIND_VAR) && !is_kind(f, to, BTF_KIND_FUNC))
				return false;
			break;
		default:
			return true;
		}
		if (name >= f->strings_size || to > f->n_types)
			return false;
	}
	return true;
}

static bool check_types(struct btf_file *f) {
	for (uint32_t id = 1; id <= f->n_types; id++) {
		const struct btf_type *type = f->by_id[id];
		uint32_t kind = BTF_INFO_KIND(type->info);

		if (type->name_off >= f->strings_size ||
		    (refers(kind) && type->type > f->n_types) ||
		    (kind == BTF_KIND_FUNC && !is_kind(f, type->type, BTF_KIND_FUNC_PROTO)) ||
		    !check_tail(f, id))
			return wrong(f, "type %u refers to nothing", id);
	}
	return true;
}

/* Modifiers and typedefs lead somewhere else. */
static bool check_chains(struct btf_file *f) {
	for (uint32_t id = 1; id <= f->n_types; id++) {
		uint32_t at = id, steps = 0;

		for (;;) {
			uint32_t kind = at ? BTF_INFO_KIND(f->by_id[at]->info) : 0;

			if (kind != BTF_KIND_TYPEDEF && kind != BTF_KIND_VOLATILE &&
			    kind != BTF_KIND_CONST && kind != BTF_KIND_RESTRICT &&
			    kind != BTF_KIND_TYPE_TAG)
				break;
			if (++steps > CHAIN_MAX)
				return wrong(f, "type %u leads nowhere", id);
			at = f->by_id[at]->type;
		}
	}
	return true;
}

bool btf_check(const void *data, size_t size, char error[static BTF_CHECK_ERROR_SIZE]) {
	struct btf_file f = { .error = error };
	struct btf_header header;
	const char *strings;
	size_t body;
	bool ok;

	if (!data || size < sizeof(header))
		return wrong(&f, "it is cut short");
	memcpy(&header, data, sizeof(header));
	body = size - sizeof(header);
	if (header.magic != BTF_MAGIC || header.version != BTF_VERSION || header.flags ||
	    header.hdr_len != sizeof(header))
		return wrong(&f, "its header is of an unknown kind");
	if (header.type_off % 4 || header.type_len % 4 || header.type_off > body ||
	    header.type_len > body - header.type_off || header.str_off > body ||
	    header.str_len > body - header.str_off || !header.str_len ||
	    header.type_off + header.type_len != header.str_off ||
	    header.str_off + header.str_len != body)
		return wrong(&f, "its parts do not fit");
	strings = (const char *)data + sizeof(header) + header.str_off;
	if (strings[0] || strings[header.str_len - 1])
		return wrong(&f, "its strings do not end");
	f.strings_size = header.str_len;
	f.types_size = header.type_len;
	f.types = malloc(f.types_size + 1); /* a copy, which is aligned */
	f.by_id = calloc(f.types_size / sizeof(struct btf_type) + 2, sizeof(*f.by_id));
	if (!f.types || !f.by_id)
		ok = wrong(&f, "no memory");
	else {
		memcpy((void *)f.types, (const uint8_t *)data + sizeof(header) + header.type_off,
		       f.types_size);
		ok = scan(&f) && check_types(&f) && check_chains(&f);
	}
	free((void *)f.types);
	free(f.by_id);
	return ok;
}

/* The header of .BTF.ext, as far as it is fixed. */
struct btf_ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t header_size;
	uint32_t function_offset, function_size;
	uint32_t line_offset, line_size;
	uint32_t core_offset, core_size; /* only if header_size says so */
};

static uint32_t word_at(const uint8_t *data, size_t at) {
	uint32_t word;

	memcpy(&word, data + at, sizeof(word));
	return word;
}

/* The size of a record, then for each section its name, how many records, and these. */
static bool check_core(struct btf_file *f, const uint8_t *data, size_t size) {
	size_t at = sizeof(uint32_t), record;

	record = size < at ? 0 : word_at(data, 0);
	if (record < sizeof(struct bpf_core_relo) || record % 4 || record > CORE_RECORD_MAX)
		return wrong(f, "malformed BTF: relocations of an unknown kind");
	while (at < size) {
		uint32_t n;

		if (size - at < 2 * sizeof(uint32_t))
			return wrong(f, "malformed BTF: relocations are cut short");
		n = word_at(data, at + 4);
		if (word_at(data, at) >= f->strings_size || !n || n > (size - at - 8) / record)
			return wrong(f, "malformed BTF: relocations do not fit");
		at += 8 + n * record;
	}
	return true;
}

bool btf_ext_check(const void *data, size_t size, const void *btf,
		   char error[static BTF_CHECK_ERROR_SIZE]) {
	struct btf_file f = { .error = error };
	struct btf_ext_header header = {};
	struct btf_header types;
	const size_t least = offsetof(struct btf_ext_header, core_offset);
	size_t body;

	if (!data || size < least)
		return wrong(&f, "malformed BTF: .BTF.ext is cut short");
	memcpy(&header, data, size < sizeof(header) ? size : sizeof(header));
	if (header.magic != BTF_MAGIC || header.version != BTF_VERSION || header.flags ||
	    header.header_size < least || header.header_size > size || header.header_size % 4)
		return wrong(&f, "malformed BTF: the header of .BTF.ext is of an unknown kind");
	body = size - header.header_size;
	if (header.function_offset > body || header.function_size > body - header.function_offset ||
	    header.line_offset > body || header.line_size > body - header.line_offset)
		return wrong(&f, "malformed BTF: the parts of .BTF.ext do not fit");
	if (header.header_size < sizeof(header) || !header.core_size)
		return true;
	if (header.core_offset > body || header.core_size > body - header.core_offset)
		return wrong(&f, "malformed BTF: the parts of .BTF.ext do not fit");
	memcpy(&types, btf, sizeof(types));
	f.strings_size = types.str_len;
	return check_core(&f, (const uint8_t *)data + header.header_size + header.core_offset,
			  header.core_size);
}

const char *btf_ext_core_section(const void *data, const void *btf, size_t *at) {
	const uint8_t *core = data;
	struct btf_ext_header header = {};
	struct btf_header types;
	const char *name;

	memcpy(&header, data, offsetof(struct btf_ext_header, core_offset));
	if (header.header_size < sizeof(header))
		return NULL;
	memcpy(&header, data, sizeof(header));
	memcpy(&types, btf, sizeof(types));
	core += header.header_size + header.core_offset;
	*at += !*at && header.core_size ? sizeof(uint32_t) : 0;
	if (*at >= header.core_size)
		return NULL;
	name = (const char *)btf + types.hdr_len + types.str_off + word_at(core, *at);
	*at += 8 + (size_t)word_at(core, *at + 4) * word_at(core, 0);
	return name;
}
