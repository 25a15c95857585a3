/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The members of a map's keys and values, by the BTF of its object: what becomes labels and numbers
 * of metrics (map-export.h).
 *
 * BTF is an operator's file, and the daemon has privileges. So the BTF is checked before it is
 * read, and nothing of it is kept. A struct is flattened (`a.b` is a_b), of a union the first
 * member counts.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIELDS_MAX 64
#define FIELD_NAME_SIZE 96
#define FIELD_COUNT_MAX 4096 /* elements of an array */
#define FIELD_ENUMERATORS_MAX 1024 /* of one enum; others are shown as numbers, */
#define FIELD_ENUMERATOR_MAX 255 /* as are names of more bytes: cut off, two might be the same */

enum fields_result {
	_FIELDS_SUCCESS,
	FIELDS_E_BTF, /* it is no BTF, or no such type is in it */
	FIELDS_E_MEMBERS, /* more than FIELDS_MAX, or nested too deep */
};

enum field_kind {
	FIELD_UNSIGNED,
	FIELD_SIGNED,
	FIELD_BOOL,
	FIELD_ENUM,
	FIELD_FLOAT,
	FIELD_TEXT, /* up to the first NUL */
	FIELD_BYTES,
};

struct field_enumerator {
	uint64_t value; /* as field_load() has it */
	char *name; /* NULL: none */
};

struct field {
	char name[FIELD_NAME_SIZE]; /* [A-Za-z0-9_]+; "": the whole is one value */
	enum field_kind kind;
	uint32_t bit, bits; /* of one element */
	uint32_t count; /* elements, one after the other; TEXT, BYTES: 1 */
	bool is_array;
	bool is_signed; /* SIGNED, and enums that have numbers below zero */
	struct field_enumerator *enumerators;
	size_t n_enumerators;
};

struct fields {
	size_t n;
	struct field fields[FIELDS_MAX];
};

/*
 * The members of a type, in a value of `size` bytes. Of type 0 (no BTF): one unsigned number of 1,
 * 2, 4 or 8 bytes, else BYTES. What lies beyond the value is left out. 0, FIELDS_E_*, or -ENOMEM.
 */
int fields_new(struct fields **fieldsp, const void *btf, size_t n_btf, uint32_t type, size_t size);
struct fields *fields_free(struct fields *fields);

/* One that is a number: no TEXT, no BYTES. */
bool field_is_number(const struct field *field);

/* Element `index` of a number; is_signed: extended to 64 bits; FLOAT: as it is, see field_double().
 */
uint64_t field_load(const struct field *field, const unsigned char *bytes, uint32_t index);
double field_double(const struct field *field, uint64_t loaded);

/* The name of an enum's value; NULL: it has none. */
const char *field_enumerator(const struct field *field, uint64_t loaded);
