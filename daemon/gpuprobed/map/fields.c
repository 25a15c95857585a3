/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lists the members of a map's keys and values from the BTF of its object (fields.h), for metrics.
 * It checks every access itself, because the BTF comes from a user.
 */

#include "fields.h"

#include <errno.h>
#include <linux/btf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-type.h"

#define DEPTH_MAX 16
#define MODIFIERS_MAX 32
#define STEPS_MAX                                                                          \
	65536 /* parts that are looked at: structs of structs without anything in them are \
		 endless, and no field */
#define BTF_SIZE_MAX ((size_t)16 << 20)

struct btf_view {
	const unsigned char *types;
	const char *strings;
	size_t n_types, n_strings; /* bytes; the last byte of strings is NUL */
	uint32_t *offsets; /* of types 1 ... n */
	uint32_t n;
};

/* ---- BTF ---- */

/* Finds where types begin. 0, FIELDS_E_BTF or -ENOMEM; deinitialise it in any case. */
static int btf_view_init(struct btf_view *view, const void *data, size_t n_data) {
	struct btf_header header;
	const unsigned char *body;
	size_t n_body, max;

	*view = (struct btf_view){};
	if (!data || n_data < sizeof(header) || n_data > BTF_SIZE_MAX)
		return FIELDS_E_BTF;
	memcpy(&header, data, sizeof(header));
	if (header.magic != BTF_MAGIC || header.hdr_len < sizeof(header) || header.hdr_len > n_data)
		return FIELDS_E_BTF;
	body = (const unsigned char *)data + header.hdr_len;
	n_body = n_data - header.hdr_len;
	if (header.type_off > n_body || header.type_len > n_body - header.type_off ||
	    header.str_off > n_body || header.str_len > n_body - header.str_off ||
	    !header.str_len || body[header.str_off + header.str_len - 1])
		return FIELDS_E_BTF;
	view->types = body + header.type_off;
	view->n_types = header.type_len;
	view->strings = (const char *)body + header.str_off;
	view->n_strings = header.str_len;
	max = view->n_types / sizeof(struct btf_type) + 1;
	view->offsets = calloc(max, sizeof(*view->offsets));
	if (!view->offsets)
		return -ENOMEM;
	for (size_t at = 0; at < view->n_types;) {
		struct btf_type type;
		size_t tail;

		if (view->n_types - at < sizeof(type))
			return FIELDS_E_BTF;
		memcpy(&type, view->types + at, sizeof(type));
		tail = btf_type_tail(&type);
		if (tail > view->n_types - at - sizeof(type))
			return FIELDS_E_BTF;
		view->offsets[++view->n] = (uint32_t)at;
		at += sizeof(type) + tail;
	}
	return 0;
}

static void btf_view_deinit(struct btf_view *view) {
	free(view->offsets);
}

/* A type and what follows it. False: there is none of that number. */
static bool btf_view_type(const struct btf_view *view, uint32_t id, struct btf_type *type,
			  const unsigned char **restp) {
	if (!id || id > view->n)
		return false;
	memcpy(type, view->types + view->offsets[id], sizeof(*type));
	*restp = view->types + view->offsets[id] + sizeof(*type);
	return true;
}

/* The same behind typedefs, const and the like, and of a variable its type. */
static bool btf_view_resolve(const struct btf_view *view, uint32_t id, struct btf_type *type,
			     const unsigned char **restp) {
	for (unsigned int i = 0; i < MODIFIERS_MAX; i++) {
		if (!btf_view_type(view, id, type, restp))
			return false;
		switch (BTF_INFO_KIND(type->info)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_CONST:
		case BTF_KIND_RESTRICT:
		case BTF_KIND_TYPE_TAG:
		case BTF_KIND_VAR:
			id = type->type;
			break;
		default:
			return true;
		}
	}
	return false;
}

static const char *btf_view_name(const struct btf_view *view, uint32_t offset) {
	return offset < view->n_strings ? view->strings + offset : "";
}

/* ---- members ---- */

struct walk {
	const struct btf_view *view;
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

static int walk_int(struct walk *walk, const struct part *part, const struct btf_type *type,
		    const unsigned char *rest) {
	struct part at = *part;
	struct field *field;
	uint32_t info;

	memcpy(&info, rest, sizeof(info));
	if (type->size > 8 || !type->size) {
		at.count = 1;
		return walk_add(walk, &at, FIELD_BYTES, (uint64_t)type->size * 8 * part->count,
				&field);
	}
	if (BTF_INT_BITS(info) && BTF_INT_BITS(info) < type->size * 8 && !part->is_array) {
		at.bit += BTF_INT_OFFSET(info);
		at.bitfield = part->bitfield ? part->bitfield : BTF_INT_BITS(info);
	}
	return walk_add(walk, &at,
			BTF_INT_ENCODING(info) & BTF_INT_BOOL     ? FIELD_BOOL
			: BTF_INT_ENCODING(info) & BTF_INT_SIGNED ? FIELD_SIGNED
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

static int walk_enum(struct walk *walk, const struct part *part, const struct btf_type *type,
		     const unsigned char *rest) {
	const bool wide = BTF_INFO_KIND(type->info) == BTF_KIND_ENUM64;
	size_t n = BTF_INFO_VLEN(type->info);
	struct field *field;
	int r;

	if (!type->size || type->size > 8)
		return 0;
	r = walk_add(walk, part, FIELD_ENUM, (uint64_t)type->size * 8, &field);
	if (r || !field)
		return r;
	field->is_signed = BTF_INFO_KFLAG(type->info);
	if (n > FIELD_ENUMERATORS_MAX)
		n = 0;
	field->enumerators = calloc(n + 1, sizeof(*field->enumerators));
	if (!field->enumerators)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct field_enumerator *enumerator = &field->enumerators[i];
		struct btf_enum64 e = {};
		struct btf_enum narrow;
		const char *name;

		if (wide) {
			memcpy(&e, rest + i * sizeof(e), sizeof(e));
		} else {
			memcpy(&narrow, rest + i * sizeof(narrow), sizeof(narrow));
			e.name_off = narrow.name_off;
			e.val_lo32 = (uint32_t)narrow.val;
			e.val_hi32 = narrow.val < 0 ? UINT32_MAX : 0;
		}
		enumerator->value = widen(field, (uint64_t)e.val_hi32 << 32 | e.val_lo32);
		field->n_enumerators++;
		name = btf_view_name(walk->view, e.name_off);
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
static int walk_struct(struct walk *walk, const struct part *part, const struct btf_type *type,
		       const unsigned char *rest) {
	size_t n = BTF_INFO_VLEN(type->info);
	int r = 0;

	if (BTF_INFO_KIND(type->info) == BTF_KIND_UNION && n > 1)
		n = 1;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct btf_member member;
		struct part inner;

		memcpy(&member, rest + i * sizeof(member), sizeof(member));
		if (!part_enter(&inner, part, btf_view_name(walk->view, member.name_off)))
			return FIELDS_E_MEMBERS;
		if (BTF_INFO_KFLAG(type->info)) {
			inner.bit += BTF_MEMBER_BIT_OFFSET(member.offset);
			inner.bitfield = BTF_MEMBER_BITFIELD_SIZE(member.offset);
		} else {
			inner.bit += member.offset;
		}
		r = walk_type(walk, &inner, member.type);
	}
	return r;
}

static int walk_section(struct walk *walk, const struct part *part, const struct btf_type *type,
			const unsigned char *rest) {
	size_t n = BTF_INFO_VLEN(type->info);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		const unsigned char *ignored;
		struct btf_var_secinfo info;
		struct btf_type variable;
		struct part inner;

		memcpy(&info, rest + i * sizeof(info), sizeof(info));
		if (!btf_view_type(walk->view, info.type, &variable, &ignored))
			return FIELDS_E_BTF;
		if (!part_enter(&inner, part, btf_view_name(walk->view, variable.name_off)))
			return FIELDS_E_MEMBERS;
		inner.bit += (uint64_t)info.offset * 8;
		r = walk_type(walk, &inner, info.type);
	}
	return r;
}

/* Bytes of one of a type; 0: unknown. */
static uint64_t size_of(const struct btf_view *view, uint32_t id) {
	uint64_t n = 1;

	for (unsigned int i = 0; i < DEPTH_MAX; i++) {
		const unsigned char *rest;
		struct btf_array array;
		struct btf_type type;

		if (!btf_view_resolve(view, id, &type, &rest))
			return 0;
		if (BTF_INFO_KIND(type.info) == BTF_KIND_PTR)
			return n * 8;
		if (BTF_INFO_KIND(type.info) != BTF_KIND_ARRAY)
			return n * type.size <= BTF_SIZE_MAX ? n * type.size : 0;
		memcpy(&array, rest, sizeof(array));
		if (n * array.nelems > BTF_SIZE_MAX)
			return 0;
		n *= array.nelems;
		id = array.type;
	}
	return 0;
}

/* Text, an array of numbers, or else bytes. */
static int walk_array(struct walk *walk, const struct part *part, const unsigned char *rest) {
	const unsigned char *ignored;
	struct btf_array array;
	struct btf_type element;
	struct part inner = *part;
	struct field *field;

	memcpy(&array, rest, sizeof(array));
	if (!btf_view_resolve(walk->view, array.type, &element, &ignored))
		return FIELDS_E_BTF;
	if (part->is_array || !array.nelems)
		return 0;
	if (BTF_INFO_KIND(element.info) == BTF_KIND_INT && element.size == 1 &&
	    strcmp(btf_view_name(walk->view, element.name_off), "char") == 0)
		return walk_add(walk, part, FIELD_TEXT, (uint64_t)array.nelems * 8, &field);
	switch (BTF_INFO_KIND(element.info)) {
	case BTF_KIND_INT:
	case BTF_KIND_FLOAT:
	case BTF_KIND_PTR:
		if (array.nelems > FIELD_COUNT_MAX)
			break;
		inner.is_array = true;
		inner.count = array.nelems;
		return walk_type(walk, &inner, array.type);
	}
	return walk_add(walk, part, FIELD_BYTES, size_of(walk->view, array.type) * array.nelems * 8,
			&field);
}

static int walk_type(struct walk *walk, const struct part *part, uint32_t id) {
	const unsigned char *rest;
	struct btf_type type;
	struct field *field;

	if (++walk->n_steps > STEPS_MAX)
		return FIELDS_E_MEMBERS;
	if (!btf_view_resolve(walk->view, id, &type, &rest))
		return FIELDS_E_BTF;
	switch (BTF_INFO_KIND(type.info)) {
	case BTF_KIND_INT:
		return walk_int(walk, part, &type, rest);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		return walk_enum(walk, part, &type, rest);
	case BTF_KIND_PTR:
		return walk_add(walk, part, FIELD_UNSIGNED, 64, &field);
	case BTF_KIND_FLOAT:
		if (part->bitfield || (type.size != 4 && type.size != 8))
			return 0;
		return walk_add(walk, part, FIELD_FLOAT, (uint64_t)type.size * 8, &field);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return walk_struct(walk, part, &type, rest);
	case BTF_KIND_DATASEC:
		return walk_section(walk, part, &type, rest);
	case BTF_KIND_ARRAY:
		return walk_array(walk, part, rest);
	default:
		return 0;
	}
}

int fields_new(struct fields **fieldsp, const void *btf, size_t n_btf, uint32_t type, size_t size) {
	struct walk walk = { .n_bits = (uint64_t)size * 8 };
	struct part whole = { .count = 1 };
	struct btf_view view = {};
	struct field *field;
	int r;

	walk.view = &view;
	walk.fields = calloc(1, sizeof(*walk.fields));
	if (!walk.fields)
		return -ENOMEM;
	if (!type) {
		r = walk_add(&walk, &whole,
			     size == 1 || size == 2 || size == 4 || size == 8 ? FIELD_UNSIGNED
									      : FIELD_BYTES,
			     walk.n_bits, &field);
	} else {
		r = btf_view_init(&view, btf, n_btf);
		if (r == 0)
			r = walk_type(&walk, &whole, type);
		btf_view_deinit(&view);
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
