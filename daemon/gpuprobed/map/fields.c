/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lists the members of a map's keys and values from the BTF of its object (fields.h), for metrics.
 * The BTF comes from a user: it is checked as a whole before libbpf reads it (lib/bpf/btf-check.h).
 */

#include "fields.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-check.h"

#define DEPTH_MAX 16
#define STEPS_MAX                                                                          \
	65536 /* parts that are looked at: structs of structs without anything in them are \
		 endless, and no field */
#define BTF_SIZE_MAX ((size_t)16 << 20)

struct walk {
	const struct btf *btf;
	struct fields *fields;
	uint64_t n_bits; /* of the whole */
	unsigned int n_steps;
};

/* A part of a value that is being looked at. */
struct part {
	char name[FIELD_NAME_SIZE];
	uint64_t bit;
	uint32_t bitfield; /* bits; 0: none */
	uint32_t count; /* of an array */
	bool is_array;
	unsigned int depth;
};

static int walk_type(struct walk *walk, const struct part *part, uint32_t id);

/* The type behind typedefs, const and the like, and of a variable its type. NULL: there is none. */
static const struct btf_type *resolve(const struct walk *walk, uint32_t id) {
	const int resolved = btf__resolve_type(walk->btf, id);

	return resolved > 0 ? btf__type_by_id(walk->btf, (uint32_t)resolved) : NULL;
}

/* Adds a field of so many bits. What lies beyond the value is left out. */
static int walk_add(struct walk *walk, const struct part *part, enum field_kind kind, uint64_t bits,
		    struct field **fieldp) {
	struct fields *fields = walk->fields;
	struct field *field;

	*fieldp = NULL;
	if (part->bitfield && part->bitfield < bits)
		bits = part->bitfield;
	if (!bits || part->bit > walk->n_bits || bits > (walk->n_bits - part->bit) / part->count)
		return 0;
	if (fields->n == FIELDS_MAX)
		return FIELDS_E_MEMBERS;
	field = &fields->fields[fields->n++];
	*field = (struct field){
		.kind = kind,
		.bit = (uint32_t)part->bit,
		.bits = (uint32_t)bits,
		.count = part->count,
		.is_array = part->is_array,
		.is_signed = kind == FIELD_SIGNED,
	};
	memcpy(field->name, part->name, sizeof(field->name));
	*fieldp = field;
	return 0;
}

static int walk_int(struct walk *walk, const struct part *part, const struct btf_type *type) {
	const uint32_t bits = btf_int_bits(type), encoding = btf_int_encoding(type);
	struct part at = *part;
	struct field *field;

	if (type->size > 8 || !type->size) {
		at.count = 1;
		return walk_add(walk, &at, FIELD_BYTES, (uint64_t)type->size * 8 * part->count,
				&field);
	}
	if (bits && bits < type->size * 8 && !part->is_array) {
		at.bit += btf_int_offset(type);
		at.bitfield = part->bitfield ? part->bitfield : bits;
	}
	return walk_add(walk, &at,
			encoding & BTF_INT_BOOL     ? FIELD_BOOL
			: encoding & BTF_INT_SIGNED ? FIELD_SIGNED
						    : FIELD_UNSIGNED,
			(uint64_t)type->size * 8, &field);
}

/* What a number of so many bits is in 64. */
static uint64_t widen(const struct field *field, uint64_t value) {
	if (field->bits == 64)
		return value;
	value <<= 64 - field->bits;
	return field->is_signed ? (uint64_t)((int64_t)value >> (64 - field->bits))
				: value >> (64 - field->bits);
}

static int walk_enum(struct walk *walk, const struct part *part, const struct btf_type *type) {
	const bool wide = btf_is_enum64(type);
	size_t n = btf_vlen(type);
	struct field *field;
	int r;

	if (!type->size || type->size > 8)
		return 0;
	r = walk_add(walk, part, FIELD_ENUM, (uint64_t)type->size * 8, &field);
	if (r || !field)
		return r;
	field->is_signed = btf_kflag(type);
	if (n > FIELD_ENUMERATORS_MAX)
		n = 0;
	field->enumerators = calloc(n + 1, sizeof(*field->enumerators));
	if (!field->enumerators)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct field_enumerator *enumerator = &field->enumerators[i];
		const char *name =
			btf__name_by_offset(walk->btf, wide ? btf_enum64(type)[i].name_off
							    : btf_enum(type)[i].name_off);

		enumerator->value = widen(field, wide ? btf_enum64_value(&btf_enum64(type)[i])
						      : (uint64_t)(int64_t)btf_enum(type)[i].val);
		field->n_enumerators++;
		if (!*name || strlen(name) > FIELD_ENUMERATOR_MAX)
			continue;
		enumerator->name = strdup(name);
		if (!enumerator->name)
			return -ENOMEM;
	}
	return 0;
}

/* The part `name` of a part; one without a name goes by that of what is around it. False: too deep.
 */
static bool part_enter(struct part *inner, const struct part *part, const char *name) {
	size_t n;

	*inner = *part;
	inner->bitfield = 0;
	n = strlen(inner->name);
	if (*name)
		snprintf(inner->name + n, sizeof(inner->name) - n, "%s%s", n ? "_" : "", name);
	for (char *p = inner->name + n; *p; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		      (*p >= '0' && *p <= '9')))
			*p = '_';
	return ++inner->depth <= DEPTH_MAX;
}

/* Structs and, of unions, the first member. */
static int walk_struct(struct walk *walk, const struct part *part, const struct btf_type *type) {
	size_t n = btf_vlen(type);
	int r = 0;

	if (btf_is_union(type) && n > 1)
		n = 1;
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		const struct btf_member *member = &btf_members(type)[i];
		struct part inner;

		if (!part_enter(&inner, part, btf__name_by_offset(walk->btf, member->name_off)))
			return FIELDS_E_MEMBERS;
		inner.bit += btf_member_bit_offset(type, i);
		inner.bitfield = btf_member_bitfield_size(type, i);
		r = walk_type(walk, &inner, member->type);
	}
	return r;
}

static int walk_section(struct walk *walk, const struct part *part, const struct btf_type *type) {
	int r = 0;

	for (size_t i = 0; r == 0 && i < btf_vlen(type); i++) {
		const struct btf_var_secinfo *info = &btf_var_secinfos(type)[i];
		const struct btf_type *variable = btf__type_by_id(walk->btf, info->type);
		struct part inner;

		if (!part_enter(&inner, part, btf__name_by_offset(walk->btf, variable->name_off)))
			return FIELDS_E_MEMBERS;
		inner.bit += (uint64_t)info->offset * 8;
		r = walk_type(walk, &inner, info->type);
	}
	return r;
}

/* Bytes of one of a type; 0: unknown. */
static uint64_t size_of(const struct walk *walk, uint32_t id) {
	const int64_t size = btf__resolve_size(walk->btf, id);

	return size > 0 && (uint64_t)size <= BTF_SIZE_MAX ? (uint64_t)size : 0;
}

/* Text, an array of numbers, or else bytes. */
static int walk_array(struct walk *walk, const struct part *part, const struct btf_array *array) {
	const struct btf_type *element = resolve(walk, array->type);
	struct part inner = *part;
	struct field *field;

	if (!element)
		return FIELDS_E_BTF;
	if (part->is_array || !array->nelems)
		return 0;
	if (btf_is_int(element) && element->size == 1 &&
	    strcmp(btf__name_by_offset(walk->btf, element->name_off), "char") == 0)
		return walk_add(walk, part, FIELD_TEXT, (uint64_t)array->nelems * 8, &field);
	switch (btf_kind(element)) {
	case BTF_KIND_INT:
	case BTF_KIND_FLOAT:
	case BTF_KIND_PTR:
		if (array->nelems > FIELD_COUNT_MAX)
			break;
		inner.is_array = true;
		inner.count = array->nelems;
		return walk_type(walk, &inner, array->type);
	}
	return walk_add(walk, part, FIELD_BYTES, size_of(walk, array->type) * array->nelems * 8,
			&field);
}

static int walk_type(struct walk *walk, const struct part *part, uint32_t id) {
	const struct btf_type *type;
	struct field *field;

	if (++walk->n_steps > STEPS_MAX)
		return FIELDS_E_MEMBERS;
	type = resolve(walk, id);
	if (!type)
		return FIELDS_E_BTF;
	switch (btf_kind(type)) {
	case BTF_KIND_INT:
		return walk_int(walk, part, type);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		return walk_enum(walk, part, type);
	case BTF_KIND_PTR:
		return walk_add(walk, part, FIELD_UNSIGNED, 64, &field);
	case BTF_KIND_FLOAT:
		if (part->bitfield || (type->size != 4 && type->size != 8))
			return 0;
		return walk_add(walk, part, FIELD_FLOAT, (uint64_t)type->size * 8, &field);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return walk_struct(walk, part, type);
	case BTF_KIND_DATASEC:
		return walk_section(walk, part, type);
	case BTF_KIND_ARRAY:
		return walk_array(walk, part, btf_array(type));
	default:
		return 0;
	}
}

/* 0, FIELDS_E_* or -ENOMEM. */
static int walk_btf(struct walk *walk, const struct part *part, const void *data, size_t n_data,
		    uint32_t id) {
	char error[BTF_CHECK_ERROR_SIZE];
	struct btf *btf;
	int r;

	r = n_data > BTF_SIZE_MAX ? -EINVAL : btf_open(&btf, data, n_data, error);
	if (r)
		return r == -ENOMEM ? r : FIELDS_E_BTF;
	btf__set_pointer_size(btf, 8); /* else libbpf would take it from a type of the user */
	walk->btf = btf;
	r = walk_type(walk, part, id);
	btf__free(btf);
	return r;
}

int fields_new(struct fields **fieldsp, const void *btf, size_t n_btf, uint32_t type, size_t size) {
	struct walk walk = { .n_bits = (uint64_t)size * 8 };
	struct part whole = { .count = 1 };
	struct field *field;
	int r;

	walk.fields = calloc(1, sizeof(*walk.fields));
	if (!walk.fields)
		return -ENOMEM;
	if (!type) {
		r = walk_add(&walk, &whole,
			     size == 1 || size == 2 || size == 4 || size == 8 ? FIELD_UNSIGNED
									      : FIELD_BYTES,
			     walk.n_bits, &field);
	} else {
		r = walk_btf(&walk, &whole, btf, n_btf, type);
	}
	if (r) {
		fields_free(walk.fields);
		return r;
	}
	*fieldsp = walk.fields;
	return 0;
}

struct fields *fields_free(struct fields *fields) {
	if (!fields)
		return NULL;
	for (size_t i = 0; i < fields->n; i++) {
		for (size_t j = 0; j < fields->fields[i].n_enumerators; j++)
			free(fields->fields[i].enumerators[j].name);
		free(fields->fields[i].enumerators);
	}
	free(fields);
	return NULL;
}

/* ---- values ---- */

bool field_is_number(const struct field *field) {
	return field->kind != FIELD_TEXT && field->kind != FIELD_BYTES;
}

uint64_t field_load(const struct field *field, const unsigned char *bytes, uint32_t index) {
	uint64_t value = 0, at = field->bit + (uint64_t)index * field->bits;

	if (at % 8 == 0 && field->bits % 8 == 0) {
		memcpy(&value, bytes + at / 8, field->bits / 8);
	} else {
		for (uint32_t i = 0; i < field->bits; i++)
			value |= (uint64_t)(bytes[(at + i) / 8] >> (at + i) % 8 & 1) << i;
	}
	return widen(field, value);
}

double field_double(const struct field *field, uint64_t loaded) {
	double wide;
	float narrow;

	if (field->bits == 64) {
		memcpy(&wide, &loaded, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, &loaded, sizeof(narrow));
	return (double)narrow;
}

const char *field_enumerator(const struct field *field, uint64_t loaded) {
	for (size_t i = 0; i < field->n_enumerators; i++)
		if (field->enumerators[i].value == loaded && field->enumerators[i].name)
			return field->enumerators[i].name;
	return NULL;
}
