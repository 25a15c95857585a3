/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks the sections .BTF and .BTF.ext of a stranger's object before libbpf reads them
 * (btf-check.h).
 *
 * BTF is a header, then types one after the other, then strings. A type is a fixed part and
 * records; its kind says how large these are. libbpf checks that types do not go beyond the data
 * that the header names, but trusts the header, and what types refer to. So the header and the
 * sizes of types are checked first. What types refer to is checked through libbpf. At last the
 * chains of modifiers and typedefs are followed, because libbpf may follow one that is a circle
 * without end. All takes time in proportion to the size.
 */

#include "btf-check.h"

#include <bpf/btf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_MAX 32
#define CORE_RECORD_MAX 256
#define TYPES_MAX 1000000

struct btf_file {
	struct btf *btf;
	uint32_t n_types; /* without void, whose id is 0 */
	uint32_t strings_size;
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

/* Bytes that follow the fixed part of a type; SIZE_MAX: there is no such kind. */
static size_t type_tail(const struct btf_type *type) {
	size_t n = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
		return sizeof(uint32_t);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return n * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return n * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return n * sizeof(struct btf_enum64);
	case BTF_KIND_FUNC_PROTO:
		return n * sizeof(struct btf_param);
	case BTF_KIND_VAR:
		return sizeof(struct btf_var);
	case BTF_KIND_DATASEC:
		return n * sizeof(struct btf_var_secinfo);
	case BTF_KIND_DECL_TAG:
		return sizeof(struct btf_decl_tag);
	}
	return SIZE_MAX;
}

/* Whether the types are whole, and of kinds that are known. */
static bool check_sizes(struct btf_file *f, const uint8_t *types, size_t size) {
	for (size_t at = 0; at < size; f->n_types++) {
		struct btf_type type;
		size_t tail;

		if (size - at < sizeof(type))
			return wrong(f, "half a type at its end");
		memcpy(&type, types + at, sizeof(type));
		tail = type_tail(&type);
		if (tail > size - at - sizeof(type))
			return wrong(f, "type %u has an unknown kind or is cut short",
				     f->n_types + 1);
		if (f->n_types == TYPES_MAX)
			return wrong(f, "too many types");
		at += sizeof(type) + tail;
	}
	return true;
}

static bool is_kind(const struct btf_file *f, uint32_t id, uint32_t kind) {
	return id && id <= f->n_types && btf_kind(btf__type_by_id(f->btf, id)) == kind;
}

/* What a record behind a type refers to: a type and a name, 0 if it has none. */
static void record_refers(const struct btf_type *type, uint32_t i, uint32_t *id, uint32_t *name) {
	*id = *name = 0;
	switch (btf_kind(type)) {
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		*name = btf_members(type)[i].name_off;
		*id = btf_members(type)[i].type;
		break;
	case BTF_KIND_FUNC_PROTO:
		*name = btf_params(type)[i].name_off;
		*id = btf_params(type)[i].type;
		break;
	case BTF_KIND_ENUM:
		*name = btf_enum(type)[i].name_off;
		break;
	case BTF_KIND_ENUM64:
		*name = btf_enum64(type)[i].name_off;
		break;
	case BTF_KIND_DATASEC:
		*id = btf_var_secinfos(type)[i].type;
		break;
	}
}

/* The records behind a type: names and types that they refer to. */
static bool check_records(const struct btf_file *f, const struct btf_type *type) {
	uint32_t id, name;

	if (btf_is_array(type))
		return btf_array(type)->type <= f->n_types &&
		       btf_array(type)->index_type <= f->n_types;
	for (uint32_t i = 0; i < btf_vlen(type); i++) {
		record_refers(type, i, &id, &name);
		if (name >= f->strings_size || id > f->n_types ||
		    (btf_is_datasec(type) && !is_kind(f, id, BTF_KIND_VAR) &&
		     !is_kind(f, id, BTF_KIND_FUNC)))
			return false;
	}
	return true;
}

static bool check_types(struct btf_file *f) {
	for (uint32_t id = 1; id <= f->n_types; id++) {
		const struct btf_type *type = btf__type_by_id(f->btf, id);

		if (type->name_off >= f->strings_size ||
		    (refers(btf_kind(type)) && type->type > f->n_types) ||
		    (btf_is_func(type) && !is_kind(f, type->type, BTF_KIND_FUNC_PROTO)) ||
		    !check_records(f, type))
			return wrong(f, "type %u refers to nothing", id);
	}
	return true;
}

/*
 * Modifiers and typedefs lead somewhere else, by a chain that is not too long. lengths: for each
 * type room for the length of its chain and 1, zeros. So each type is looked at once, and once more
 * by each one that leads to it.
 */
static bool check_chains(struct btf_file *f, uint8_t *lengths) {
	for (uint32_t id = 1; id <= f->n_types; id++) {
		uint32_t path[CHAIN_MAX], next = id, n = 0;
		uint8_t length;

		while (!lengths[next]) {
			const struct btf_type *type = btf__type_by_id(f->btf, next);

			if (!btf_is_mod(type) && !btf_is_typedef(type)) {
				lengths[next] = 1;
			} else {
				if (n == CHAIN_MAX)
					return wrong(f, "type %u leads nowhere", id);
				path[n++] = next;
				next = type->type;
			}
		}
		length = lengths[next];
		if (length + n > CHAIN_MAX + 1)
			return wrong(f, "type %u leads nowhere", id);
		while (n)
			lengths[path[--n]] = ++length;
	}
	return true;
}

/* The parts lie one behind the other in the data, and the last string ends. */
static bool check_header(struct btf_file *f, const void *data, size_t size,
			 struct btf_header *header) {
	const char *strings;
	size_t body;

	if (!data || size < sizeof(*header))
		return wrong(f, "it is cut short");
	memcpy(header, data, sizeof(*header));
	body = size - sizeof(*header);
	if (header->magic != BTF_MAGIC || header->version != BTF_VERSION || header->flags ||
	    header->hdr_len != sizeof(*header))
		return wrong(f, "its header is of an unknown kind");
	if (header->type_off % 4 || header->type_len % 4 || header->type_off > body ||
	    header->type_len > body - header->type_off || header->str_off > body ||
	    header->str_len > body - header->str_off || !header->str_len ||
	    header->type_off + header->type_len != header->str_off ||
	    header->str_off + header->str_len != body || size > UINT32_MAX)
		return wrong(f, "its parts do not fit");
	strings = (const char *)data + sizeof(*header) + header->str_off;
	if (strings[0] || strings[header->str_len - 1])
		return wrong(f, "its strings do not end");
	f->strings_size = header->str_len;
	return true;
}

int btf_open(struct btf **btfp, const void *data, size_t size,
	     char error[static BTF_CHECK_ERROR_SIZE]) {
	struct btf_file f = { .error = error };
	struct btf_header header;
	uint8_t *lengths;
	bool good;
	int r;

	if (!check_header(&f, data, size, &header) ||
	    !check_sizes(&f, (const uint8_t *)data + sizeof(header) + header.type_off,
			 header.type_len))
		return -EINVAL;
	f.btf = btf__new(data, (uint32_t)size);
	if (!f.btf) {
		r = errno == ENOMEM ? -ENOMEM : -EINVAL;
		wrong(&f, r == -ENOMEM ? "no memory" : "libbpf cannot read it");
		return r;
	}
	lengths = calloc((size_t)f.n_types + 1, sizeof(*lengths));
	if (!lengths)
		wrong(&f, "no memory");
	good = lengths && check_types(&f) && check_chains(&f, lengths);
	r = lengths ? -EINVAL : -ENOMEM;
	free(lengths);
	if (!good) {
		btf__free(f.btf);
		return r;
	}
	*btfp = f.btf;
	return 0;
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
