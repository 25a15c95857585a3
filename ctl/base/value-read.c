/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses a value that the user types (for `map update`) into the bytes of its BTF type. It goes
 * down the type and the text together, and stores as it goes. It takes the manner of C that `map
 * dump` prints, {.a = 1, .color = RED, .name = "x", .list = [7, 8]}, and JSON, {"a": 1, "list": [7,
 * 8]}.
 *
 * The types come from a user's object, by way of the daemon. So each store is checked against the
 * size of the value, and the depth is bounded.
 */

#include "value-read.h"

#include <bpf/btf.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32
#define WORD_MAX 128
#define STEPS_MAX                                                                                 \
	(1 << 20) /* members and types that are looked at: types can be made that have any number \
		     of them without bytes */

struct reader {
	struct btf *btf;
	const char *at;
	unsigned int steps;
	char *error;
};

static int read_type(struct reader *reader, uint32_t id, unsigned char *data, size_t size,
		     unsigned int depth);

/* Says what is wrong; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) static int wrong(struct reader *reader, const char *format,
						       ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reader->error, VALUE_ERROR_SIZE, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static void skip_spaces(struct reader *reader) {
	while (isspace((unsigned char)*reader->at))
		reader->at++;
}

/* Takes the character if it is next. */
static bool take(struct reader *reader, char c) {
	skip_spaces(reader);
	if (*reader->at != c)
		return false;
	reader->at++;
	return true;
}

/* Text in quotes, behind the first one. JSON's escapes of control characters and Unicode are none
 * here. */
static int read_quoted(struct reader *reader, char *text, size_t size, size_t *np) {
	size_t n = 0;

	for (; *reader->at != '"'; reader->at++) {
		if (*reader->at == '\\')
			reader->at++;
		if (!*reader->at)
			return wrong(reader, "a string does not end");
		if (n == size)
			return wrong(reader, "a string has more than %zu characters", size);
		text[n++] = *reader->at;
	}
	reader->at++;
	*np = n;
	return 0;
}

/* A number, a name: what ends where a separator begins. */
static int read_word(struct reader *reader, char word[static WORD_MAX]) {
	size_t n = 0;
	int r;

	if (take(reader, '"')) { /* JSON has no other names of enums */
		r = read_quoted(reader, word, WORD_MAX - 1, &n);
		if (!r)
			word[n] = '\0';
		return r;
	}
	n = strcspn(reader->at, " \t\n,:=[]{}\"");
	if (!n)
		return *reader->at ? wrong(reader, "expected a value at \"%.40s\"", reader->at)
				   : wrong(reader, "a value is missing at the end");
	if (n >= WORD_MAX)
		return wrong(reader, "%.40s... is too long", reader->at);
	memcpy(word, reader->at, n);
	word[n] = '\0';
	reader->at += n;
	return 0;
}

static void store_bits(unsigned char *data, uint32_t bit_offset, uint32_t n_bits, uint64_t value) {
	for (uint32_t i = 0; i < n_bits; i++) {
		const uint32_t bit = bit_offset + i;

		data[bit / 8] = (unsigned char)((data[bit / 8] & ~(1u << bit % 8)) |
						(i < 64 ? value >> i & 1 : 0) << bit % 8);
	}
}

/* A whole number of n_bits (1 to 64): what fits as a signed one, if the type is, or as an unsigned
 * one. */
static int read_integer(struct reader *reader, const char *word, uint32_t n_bits, bool is_signed,
			uint64_t *valuep) {
	const bool negative = *word == '-';
	const uint64_t top = UINT64_C(1) << (n_bits - 1),
		       most = is_signed ? top - 1 : top - 1 + top;
	char *end;

	errno = 0;
	*valuep = strtoull(negative ? word + 1 : word, &end, 0);
	if (!isdigit((unsigned char)word[negative]) || *end)
		return wrong(reader, "%.60s is not a whole number", word);
	if (errno || (negative ? !is_signed || *valuep > top : *valuep > most))
		return wrong(reader, "%.60s does not fit into %u bits%s", word, n_bits,
			     is_signed ? " with a sign" : "");
	if (negative)
		*valuep = -*valuep;
	return 0;
}

/* The value of the name in an enum. False: it has no such. */
static bool find_enumerator(const struct btf *btf, const struct btf_type *type, const char *name,
			    uint64_t *valuep) {
	for (uint16_t i = 0; i < btf_vlen(type); i++) {
		const bool wide = btf_is_enum64(type);
		const char *other = btf__name_by_offset(btf, wide ? btf_enum64(type)[i].name_off
								  : btf_enum(type)[i].name_off);

		if (!other || strcmp(other, name) != 0)
			continue;
		*valuep = wide ? btf_enum64_value(btf_enum64(type) + i)
			       : (uint64_t)(int64_t)btf_enum(type)[i].val;
		return true;
	}
	return false;
}

/* A scalar of n_bits at bit_offset: an integer, a bool, an enum, a pointer. */
static int read_scalar(struct reader *reader, const struct btf_type *type, unsigned char *data,
		       uint32_t bit_offset, uint32_t n_bits) {
	const bool is_enum = type && (btf_is_enum(type) || btf_is_enum64(type)),
		   is_int = type && btf_is_int(type);
	const bool is_signed =
		is_enum ? btf_kflag(type) : is_int && (btf_int_encoding(type) & BTF_INT_SIGNED);
	char word[WORD_MAX];
	uint64_t value = 0;
	int r;

	r = read_word(reader, word);
	if (r)
		return r;
	if (n_bits > 64 || !n_bits)
		return wrong(reader, "integers of %u bits cannot be typed: use hex", n_bits);
	if (is_enum && find_enumerator(reader->btf, type, word, &value))
		r = 0;
	else if (is_enum && !isdigit((unsigned char)*word) && *word != '-')
		r = wrong(reader, "%.60s is no name of the enum %.60s", word,
			  btf__name_by_offset(reader->btf, type->name_off));
	else if (is_int && (btf_int_encoding(type) & BTF_INT_BOOL) &&
		 (!strcmp(word, "true") || !strcmp(word, "false")))
		value = !strcmp(word, "true");
	else
		r = read_integer(reader, word, n_bits, is_signed, &value);
	if (!r)
		store_bits(data, bit_offset, n_bits, value);
	return r;
}

static int read_float(struct reader *reader, unsigned char *data, size_t size) {
	char word[WORD_MAX], *end;
	double wide;
	float narrow;
	int r;

	r = read_word(reader, word);
	if (r)
		return r;
	wide = strtod(word, &end);
	if (end == word || *end)
		return wrong(reader, "%.60s is not a number", word);
	narrow = (float)wide;
	if (size == sizeof(narrow))
		memcpy(data, &narrow, sizeof(narrow));
	else if (size == sizeof(wide))
		memcpy(data, &wide, sizeof(wide));
	else
		return wrong(reader, "floats of %zu bytes cannot be typed: use hex", size);
	return 0;
}

static int read_array(struct reader *reader, const struct btf_array *array, unsigned char *data,
		      size_t size, unsigned int depth) {
	const int64_t element = btf__resolve_size(reader->btf, array->type);
	size_t n;

	if (element <= 0 || array->nelems > size / (uint64_t)element)
		return wrong(reader, "a type of an array makes no sense");
	if (element == 1 && take(reader, '"'))
		return read_quoted(reader, (char *)data, array->nelems, &n);
	if (!take(reader, '['))
		return wrong(reader, "expected [ of an array at \"%.40s\"", reader->at);
	for (uint32_t i = 0; !take(reader, ']'); i++) {
		int r;

		if (i && !take(reader, ','))
			return wrong(reader, "expected , or ] in an array at \"%.40s\"",
				     reader->at);
		if (i == array->nelems)
			return wrong(reader, "an array has %u elements, but more are given",
				     array->nelems);
		r = read_type(reader, array->type, data + i * (uint64_t)element, (size_t)element,
			      depth + 1);
		if (r)
			return r;
	}
	return 0;
}

/* A member of a struct or variable of a section. */
struct place {
	uint32_t type;
	uint64_t bit_offset; /* in what is around it */
	uint32_t n_bits; /* of a bitfield; else 0 */
};

/* Finds the member, also of structs without a name inside. False: there is none. */
static bool find_member(struct reader *reader, const struct btf_type *type, const char *name,
			uint64_t bit_offset, unsigned int depth, struct place *place) {
	const struct btf *btf = reader->btf;

	for (uint16_t i = 0; i < btf_vlen(type) && depth < DEPTH_MAX && reader->steps < STEPS_MAX;
	     i++, reader->steps++) {
		const struct btf_member *member = btf_members(type) + i;
		const char *other = btf__name_by_offset(btf, member->name_off);
		const uint64_t offset = bit_offset + btf_member_bit_offset(type, i);
		const struct btf_type *inner;
		int id;

		if (other && *other) {
			if (strcmp(other, name) != 0)
				continue;
			*place = (struct place){ member->type, offset,
						 btf_member_bitfield_size(type, i) };
			return true;
		}
		id = btf__resolve_type(btf, member->type);
		inner = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
		if (inner && btf_is_composite(inner) &&
		    find_member(reader, inner, name, offset, depth + 1, place))
			return true;
	}
	return false;
}

static bool find_variable(const struct btf *btf, const struct btf_type *section, const char *name,
			  struct place *place) {
	for (uint16_t i = 0; i < btf_vlen(section); i++) {
		const struct btf_var_secinfo *info = btf_var_secinfos(section) + i;
		const struct btf_type *variable = btf__type_by_id(btf, info->type);
		const char *other = variable ? btf__name_by_offset(btf, variable->name_off) : NULL;

		if (!other || strcmp(other, name) != 0)
			continue;
		*place = (struct place){ info->type, (uint64_t)info->offset * 8, 0 };
		return true;
	}
	return false;
}

/* The name of a member: .name =, or "name":. */
static int read_name(struct reader *reader, char name[static WORD_MAX]) {
	size_t n = 0;
	int r;

	if (take(reader, '"')) {
		r = read_quoted(reader, name, WORD_MAX - 1, &n);
		if (!r)
			name[n] = '\0';
	} else {
		take(reader, '.');
		r = read_word(reader, name);
	}
	if (!r && !take(reader, '=') && !take(reader, ':'))
		return wrong(reader, "expected = behind %.60s", name);
	return r;
}

/* Structs, unions and data sections. */
static int read_members(struct reader *reader, const struct btf_type *type, unsigned char *data,
			size_t size, unsigned int depth) {
	const bool is_section = btf_is_datasec(type);
	const char *what = btf__name_by_offset(reader->btf, type->name_off);

	if (!take(reader, '{'))
		return wrong(reader, "expected { of %s %.60s at \"%.40s\"",
			     is_section ? "section" : "struct", what, reader->at);
	for (bool first = true; !take(reader, '}'); first = false) {
		const struct btf_type *member;
		struct place place;
		char name[WORD_MAX];
		int id, r;

		if (!first && !take(reader, ','))
			return wrong(reader, "expected , or } at \"%.40s\"", reader->at);
		r = read_name(reader, name);
		if (r)
			return r;
		if (is_section ? !find_variable(reader->btf, type, name, &place)
			       : !find_member(reader, type, name, 0, 0, &place))
			return wrong(reader, "%s %.60s has no %s %.60s",
				     is_section ? "section" : "struct", what,
				     is_section ? "variable" : "member", name);
		id = btf__resolve_type(reader->btf, place.type);
		member = id > 0 ? btf__type_by_id(reader->btf, (uint32_t)id) : NULL;
		if (place.bit_offset > size * 8 || place.n_bits > size * 8 - place.bit_offset ||
		    (!place.n_bits && place.bit_offset % 8))
			return wrong(reader, "%.60s: its type makes no sense", name);
		if (place.n_bits)
			r = read_scalar(reader, member, data, (uint32_t)place.bit_offset,
					place.n_bits);
		else
			r = read_type(reader, place.type, data + place.bit_offset / 8,
				      size - place.bit_offset / 8, depth + 1);
		if (r)
			return r;
	}
	return 0;
}

static int read_type(struct reader *reader, uint32_t id, unsigned char *data, size_t size,
		     unsigned int depth) {
	const int resolved = btf__resolve_type(reader->btf, id);
	const struct btf_type *type =
		resolved > 0 ? btf__type_by_id(reader->btf, (uint32_t)resolved) : NULL;
	const int64_t n = type ? btf__resolve_size(reader->btf, id) : -1;

	if (n < 0 || (uint64_t)n > size || depth > DEPTH_MAX || reader->steps++ >= STEPS_MAX)
		return wrong(reader, "it has a type that cannot be typed: use hex");
	switch (btf_kind(type)) {
	case BTF_KIND_INT:
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
	case BTF_KIND_PTR:
		return read_scalar(reader, type, data, 0, (uint32_t)n * 8);
	case BTF_KIND_FLOAT:
		return read_float(reader, data, (size_t)n);
	case BTF_KIND_ARRAY:
		return read_array(reader, btf_array(type), data, (size_t)n, depth);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
		return read_members(reader, type, data, (size_t)n, depth);
	default:
		return wrong(reader, "it has a type that cannot be typed: use hex");
	}
}

/* All bytes as hexadecimal digits, in pairs, with spaces and 0x or not. -EINVAL without a line: it
 * is not that. */
static int read_hex(const char *text, unsigned char *data, size_t size) {
	size_t n = 0;

	for (; *text; n++) {
		char digits[3] = {};

		while (isspace((unsigned char)*text))
			text++;
		if (!*text)
			break;
		if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
			text += 2;
		for (int i = 0; i < 2 && isxdigit((unsigned char)*text); i++)
			digits[i] = *text++;
		if (!*digits || n == size ||
		    (*text && !isspace((unsigned char)*text) && !isxdigit((unsigned char)*text)))
			return -EINVAL;
		data[n] = (unsigned char)strtoul(digits, NULL, 16);
	}
	return n == size ? 0 : -EINVAL;
}

int value_read(struct value_types *types, uint32_t type, const char *text, unsigned char *data,
	       size_t size, char error[static VALUE_ERROR_SIZE]) {
	struct reader reader = { .btf = value_types_btf(types), .at = text, .error = error };
	int r;

	memset(data, 0, size);
	skip_spaces(&reader);
	if (!strncmp(reader.at, "hex", 3) &&
	    (!reader.at[3] || isspace((unsigned char)reader.at[3])))
		return read_hex(reader.at + 3, data, size)
			       ? wrong(&reader,
				       "expected %zu bytes in hexadecimal behind hex, as in: hex "
				       "01 02 ff",
				       size)
			       : 0;
	if (reader.btf && type) {
		r = read_type(&reader, type, data, size, 0);
	} else if (strlen(reader.at) == 2 * size && !read_hex(reader.at, data, size)) {
		return 0; /* as it is printed */
	} else if (size <= 8) {
		memset(data, 0, size);
		r = read_scalar(&reader, NULL, data, 0, (uint32_t)size * 8);
	} else {
		return wrong(&reader,
			     "it has no type (clang -g makes types): give all %zu bytes, as in: "
			     "hex 01 02 ff",
			     size);
	}
	if (r)
		return r;
	skip_spaces(&reader);
	return *reader.at ? wrong(&reader, "\"%.40s\" is left over at the end", reader.at) : 0;
}
