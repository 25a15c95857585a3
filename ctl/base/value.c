/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints the bytes of keys, values and records by their BTF types, for `map dump` and `ring read`.
 *
 * One walk over the types makes JSON: integers are numbers, enums their names, structs and data
 * sections objects, arrays arrays. Arrays of char are strings if they are text. For people the same
 * tree is printed in the manner of C. libbpf has btf_dump__dump_type_data() for that. But the one
 * of Debian 12 (1.1) leaves out what follows an array of char that ends with a NUL in the same
 * struct.
 *
 * The types come from a user's object, by way of the daemon. So every access is checked against the
 * size of the data, and the depth is bounded. What has no type, or a type that does not fit, is
 * printed in hexadecimal. A type may have any number of members at the same place, or of size 0. So
 * the steps for a value are bounded, too: what lies beyond is left out and shown as ?.
 */

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-check.h"
#include "value.h"

#define DEPTH_MAX 32
#define STEPS_MIN ((size_t)1 << 14) /* of one value; and STEPS_BYTE for each of its bytes */
#define STEPS_BYTE 64
#define STEP_ENUMERATORS \
	16 /* that a step goes over: arrays of an enum that has thousands are no mischief */

struct value_types {
	struct btf *btf;
	size_t steps; /* that are left for the value at hand */
	value_namer *namer; /* or NULL */
	void *namer_userdata;
};

static const char bare; /* its address marks strings that people see without quotes: names of enums,
			   hexadecimal */

/* Without @btf, all is hexadecimal. Returns 0, -EINVAL if it is no BTF, or -ENOMEM. */
int value_types_new(struct value_types **typesp, const void *btf, size_t n_btf) {
	struct value_types *types = calloc(1, sizeof(*types));
	char error[BTF_CHECK_ERROR_SIZE];
	int r;

	if (!types)
		return -ENOMEM;
	libbpf_set_print(NULL);
	r = btf ? btf_open(&types->btf, btf, n_btf, error) : 0;
	if (r) {
		free(types);
		return r;
	}
	*typesp = types;
	return 0;
}

/* Takes NULL. Returns NULL. */
struct value_types *value_types_free(struct value_types *types) {
	if (!types)
		return NULL;
	btf__free(types->btf);
	free(types);
	return NULL;
}

void value_types_set_namer(struct value_types *types, value_namer *namer, void *userdata) {
	types->namer = namer;
	types->namer_userdata = userdata;
}

/* The struct, union or typedef of that name; 0: there is none. */
uint32_t value_types_find(const struct value_types *types, const char *name) {
	static const uint32_t kinds[] = { BTF_KIND_STRUCT, BTF_KIND_TYPEDEF, BTF_KIND_UNION };

	for (size_t i = 0; types->btf && i < sizeof(kinds) / sizeof(*kinds); i++) {
		int id = btf__find_by_name_kind(types->btf, name, kinds[i]);

		if (id > 0)
			return (uint32_t)id;
	}
	return 0;
}

/* Whether the type is a data section: .bss and the like. */
bool value_types_is_section(const struct value_types *types, uint32_t type) {
	const struct btf_type *found = types->btf ? btf__type_by_id(types->btf, type) : NULL;

	return found && btf_is_datasec(found);
}

struct btf *value_types_btf(const struct value_types *types) {
	return types->btf;
}

/* Bytes of a value of the type; negative: it has none. */
int64_t value_types_size(const struct value_types *types, uint32_t type) {
	return types->btf && type ? btf__resolve_size(types->btf, type) : -1;
}

/* A name of the types; NULL if it has none, "?" if it is one that no compiler would write. */
static const char *name_at(const struct btf *btf, uint32_t offset) {
	const char *name = btf__name_by_offset(btf, offset);

	if (!name || !*name)
		return NULL;
	for (const char *p = name; *p; p++)
		if (*p <= ' ' || *p > '~')
			return "?";
	return name;
}

/* Up to 64 bits that begin @bit_offset bits into @data, the lowest first. */
static uint64_t load_bits(const unsigned char *data, uint32_t bit_offset, uint32_t n_bits) {
	uint64_t value = 0;

	for (uint32_t i = 0; i < n_bits; i++) {
		uint32_t bit = bit_offset + i;

		value |= (uint64_t)(data[bit / 8] >> bit % 8 & 1) << i;
	}
	return value;
}

static int64_t sign_extend(uint64_t value, uint32_t n_bits) {
	return n_bits && n_bits < 64 ? (int64_t)(value << (64 - n_bits)) >> (64 - n_bits)
				     : (int64_t)value;
}

/* Takes steps, if there are as many left. */
static bool take_steps(struct value_types *types, size_t n) {
	if (n > types->steps)
		return false;
	types->steps -= n;
	return true;
}

/* A string that people see without quotes. */
static json_object *bare_json(const char *text) {
	json_object *value = json_object_new_string(text);

	if (value)
		json_object_set_userdata(value, (void *)&bare, NULL);
	return value;
}

/* Hexadecimal digits of all bytes, in the order of memory. */
static json_object *hex_json(struct value_types *types, const unsigned char *data, size_t n_data) {
	char *text = take_steps(types, n_data) ? malloc(n_data * 2 + 1) : NULL;
	json_object *value = NULL;

	if (text) {
		for (size_t i = 0; i < n_data; i++) {
			text[i * 2] = "0123456789abcdef"[data[i] >> 4];
			text[i * 2 + 1] = "0123456789abcdef"[data[i] & 15];
		}
		text[n_data * 2] = '\0';
		value = bare_json(text);
	}
	free(text);
	return value;
}

/* An integer of @n_bits bits at @bit_offset. */
static json_object *int_json(struct value_types *types, const struct btf_type *type,
			     const unsigned char *data, uint32_t bit_offset, uint32_t n_bits) {
	uint64_t value;

	if (n_bits > 64)
		return hex_json(types, data, type->size);
	value = load_bits(data, bit_offset, n_bits);
	if (btf_int_encoding(type) & BTF_INT_BOOL)
		return json_object_new_boolean(value != 0);
	if (btf_int_encoding(type) & BTF_INT_SIGNED)
		return json_object_new_int64(sign_extend(value, n_bits));
	return json_object_new_uint64(value);
}

/* Whether the type is that of an id in gpuprobe.bpf.h, below any typedefs and qualifiers. */
static bool is_id(const struct btf *btf, uint32_t id, enum value_id *kindp) {
	for (unsigned int depth = 0; depth < DEPTH_MAX; depth++) {
		const struct btf_type *type = btf__type_by_id(btf, id);
		const char *name;

		if (!type || (!btf_is_typedef(type) && !btf_is_mod(type)))
			return false;
		name = btf__name_by_offset(btf, type->name_off);
		*kindp = name && !strcmp(name, "gpuprobe_kernel_id") ? VALUE_ID_KERNEL
								     : VALUE_ID_INSTRUCTION;
		if (name && (*kindp == VALUE_ID_KERNEL || !strcmp(name, "gpuprobe_instruction_id")))
			return true;
		id = type->type;
	}
	return false;
}

/* A string, since many readers of JSON round numbers above 2^53. */
static json_object *id_json(struct value_types *types, enum value_id kind, uint64_t id) {
	char *name = types->namer ? types->namer(kind, id, types->namer_userdata) : NULL;
	json_object *value;
	char hex[17];

	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)id);
	value = bare_json(name ?: hex);
	free(name);
	return value;
}

static json_object *enum_json(struct value_types *types, const struct btf_type *type,
			      const unsigned char *data, uint32_t bit_offset, uint32_t n_bits) {
	uint64_t value = load_bits(data, bit_offset, n_bits),
		 mask = n_bits < 64 ? (UINT64_C(1) << n_bits) - 1 : UINT64_MAX;

	for (uint16_t i = 0; i < btf_vlen(type) && (i % STEP_ENUMERATORS || take_steps(types, 1));
	     i++) {
		bool wide = btf_is_enum64(type);
		uint64_t candidate = wide ? btf_enum64_value(btf_enum64(type) + i)
					  : (uint64_t)(int64_t)btf_enum(type)[i].val;
		const char *name = (candidate & mask) != value
					   ? NULL
					   : name_at(types->btf, wide ? btf_enum64(type)[i].name_off
								      : btf_enum(type)[i].name_off);

		if (name)
			return bare_json(name);
	}
	if (btf_kflag(type))
		return json_object_new_int64(sign_extend(value, n_bits));
	return json_object_new_uint64(value);
}

static json_object *float_json(struct value_types *types, const struct btf_type *type,
			       const unsigned char *data) {
	double wide;
	float narrow;

	if (type->size == sizeof(narrow)) {
		memcpy(&narrow, data, sizeof(narrow));
		wide = narrow;
	} else if (type->size == sizeof(wide)) {
		memcpy(&wide, data, sizeof(wide));
	} else {
		return hex_json(types, data, type->size);
	}
	return __builtin_isfinite(wide) ? json_object_new_double(wide)
					: hex_json(types, data, type->size);
}

static json_object *walk(struct value_types *types, uint32_t id, const unsigned char *data,
			 size_t n_data, unsigned int depth);

/* An array of char that is printable up to its first NUL, as a string; else NULL. */
static json_object *text_json(struct value_types *types, const struct btf_array *array,
			      const unsigned char *data) {
	const struct btf_type *element =
		btf__type_by_id(types->btf, btf__resolve_type(types->btf, array->type));
	const char *name = element ? btf__name_by_offset(types->btf, element->name_off) : NULL;
	size_t n = 0;

	if (!name || !btf_is_int(element) || element->size != 1 || strcmp(name, "char") ||
	    !take_steps(types, array->nelems))
		return NULL;
	for (; n < array->nelems && data[n]; n++)
		if (data[n] < 0x20 || data[n] > 0x7e)
			return NULL;
	for (size_t i = n; i < array->nelems; i++)
		if (data[i])
			return NULL;
	return json_object_new_string_len((const char *)data, (int)n);
}

static json_object *array_json(struct value_types *types, const struct btf_type *type,
			       const unsigned char *data, size_t n_data, unsigned int depth) {
	const struct btf_array *array = btf_array(type);
	int64_t size = btf__resolve_size(types->btf, array->type);
	json_object *value;

	if (size <= 0 || array->nelems > n_data / (uint64_t)size)
		return hex_json(types, data, n_data);
	value = text_json(types, array, data);
	if (value)
		return value;
	value = json_object_new_array();
	for (uint32_t i = 0; i < array->nelems; i++)
		json_object_array_add(value, walk(types, array->type, data + i * (uint64_t)size,
						  (size_t)size, depth + 1));
	return value;
}

/* A member that is a bitfield, or NULL if it does not fit. */
static json_object *bitfield_json(struct value_types *types, uint32_t id, const unsigned char *data,
				  size_t n_data, uint32_t bit_offset, uint32_t n_bits) {
	const struct btf_type *type =
		btf__type_by_id(types->btf, btf__resolve_type(types->btf, id));

	if (!type || n_bits > 64 || (uint64_t)bit_offset + n_bits > (uint64_t)n_data * 8)
		return NULL;
	if (btf_is_int(type))
		return int_json(types, type, data, bit_offset, n_bits);
	if (btf_is_enum(type) || btf_is_enum64(type))
		return enum_json(types, type, data, bit_offset, n_bits);
	return NULL;
}

/* Structs and unions. The members of one without a name belong to what is around it. */
static json_object *struct_json(struct value_types *types, const struct btf_type *type,
				const unsigned char *data, size_t n_data, unsigned int depth) {
	json_object *object = json_object_new_object();

	for (uint16_t i = 0; i < btf_vlen(type) && take_steps(types, 1); i++) {
		const struct btf_member *member = btf_members(type) + i;
		const char *name = name_at(types->btf, member->name_off);
		uint32_t offset = btf_member_bit_offset(type, i),
			 n_bits = btf_member_bitfield_size(type, i);
		json_object *value = NULL;

		if (n_bits)
			value = bitfield_json(types, member->type, data, n_data, offset, n_bits);
		else if (offset % 8 == 0 && offset / 8 <= n_data)
			value = walk(types, member->type, data + offset / 8, n_data - offset / 8,
				     depth + 1);
		if (name) {
			json_object_object_add(object, name, value);
		} else {
			if (json_object_is_type(value, json_type_object)) {
				json_object_object_foreach(value, key, inner)
					json_object_object_add(object, key, json_object_get(inner));
			}
			json_object_put(value);
		}
	}
	return object;
}

/* The variables of a data section, by their names. */
static json_object *section_json(struct value_types *types, const struct btf_type *type,
				 const unsigned char *data, size_t n_data, unsigned int depth) {
	json_object *object = json_object_new_object();

	for (uint16_t i = 0; i < btf_vlen(type) && take_steps(types, 1); i++) {
		const struct btf_var_secinfo *info = btf_var_secinfos(type) + i;
		const struct btf_type *variable = btf__type_by_id(types->btf, info->type);
		const char *name = variable ? name_at(types->btf, variable->name_off) : NULL;

		if (name && info->offset <= n_data && info->size <= n_data - info->offset)
			json_object_object_add(object, name,
					       walk(types, info->type, data + info->offset,
						    info->size, depth + 1));
	}
	return object;
}

static json_object *walk(struct value_types *types, uint32_t id, const unsigned char *data,
			 size_t n_data, unsigned int depth) {
	int resolved = btf__resolve_type(types->btf, id);
	const struct btf_type *type =
		resolved > 0 ? btf__type_by_id(types->btf, (uint32_t)resolved) : NULL;
	int64_t size = type ? btf__resolve_size(types->btf, id) : -1;
	enum value_id kind;

	if (!take_steps(types, 1))
		return NULL;
	if (size == sizeof(uint64_t) && n_data >= sizeof(uint64_t) && is_id(types->btf, id, &kind))
		return id_json(types, kind, load_bits(data, 0, 64));
	if (size < 0 || (uint64_t)size > n_data || depth > DEPTH_MAX)
		return hex_json(types, data, n_data);
	switch (btf_kind(type)) {
	case BTF_KIND_INT:
		return int_json(types, type, data, 0, (uint32_t)size * 8);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		return enum_json(types, type, data, 0, size <= 8 ? (uint32_t)size * 8 : 64);
	case BTF_KIND_PTR:
		return json_object_new_uint64(
			load_bits(data, 0, size <= 8 ? (uint32_t)size * 8 : 64));
	case BTF_KIND_FLOAT:
		return float_json(types, type, data);
	case BTF_KIND_ARRAY:
		return array_json(types, type, data, (size_t)size, depth);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return struct_json(types, type, data, (size_t)size, depth);
	case BTF_KIND_DATASEC:
		return section_json(types, type, data, (size_t)size, depth);
	default:
		return hex_json(types, data, n_data);
	}
}

/* The value as JSON; NULL without memory. */
json_object *value_json(struct value_types *types, uint32_t type, const unsigned char *data,
			size_t n_data) {
	types->steps = STEPS_MIN + n_data * STEPS_BYTE;
	if (!types->btf || !type)
		return hex_json(types, data, n_data);
	return walk(types, type, data, n_data, 0);
}

/*
 * Prints text in quotes, with backslashes before what needs them. What is printable ASCII only gets
 * here.
 */
static void print_quoted(const char *text, FILE *stream) {
	putc('"', stream);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', stream);
		putc(*text, stream);
	}
	putc('"', stream);
}

/* Prints for people what value_json() made: {.a = 1, .color = RED, .name = "x", .list = [7, 8]}. */
void value_print(json_object *value, FILE *stream) {
	const char *between = "";

	switch (json_object_get_type(value)) {
	case json_type_object: {
		putc('{', stream);
		json_object_object_foreach(value, key, member) {
			fprintf(stream, "%s.%s = ", between, key);
			value_print(member, stream);
			between = ", ";
		}
		putc('}', stream);
		break;
	}
	case json_type_array:
		putc('[', stream);
		for (size_t i = 0; i < json_object_array_length(value); i++) {
			fputs(i ? ", " : "", stream);
			value_print(json_object_array_get_idx(value, i), stream);
		}
		putc(']', stream);
		break;
	case json_type_double:
		fprintf(stream, "%.9g", json_object_get_double(value));
		break;
	case json_type_string:
		if (json_object_get_userdata(value) == &bare)
			fputs(json_object_get_string(value), stream);
		else
			print_quoted(json_object_get_string(value), stream);
		break;
	case json_type_null:
		putc('?', stream);
		break;
	default:
		fputs(json_object_get_string(value), stream);
		break;
	}
}
