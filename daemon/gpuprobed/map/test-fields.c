/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of fields.c: types as libbpf writes them, and the same with each byte changed.
 * Sanitizers find any access beyond them.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <bpf/btf.h>

#include "fields.h"
#include "daemon/gpuprobed/export/openmetrics.h"

struct world {
	struct btf *btf;
	int u32, s64, ch, flag, color, wide, number, text, bytes, list, inner, key, section, deep;
	const void *data;
	uint32_t n_data;
};

static int setup(void **state) {
	struct world *w = calloc(1, sizeof(*w));
	struct btf *btf = btf__new_empty();
	int var, alias;

	w->btf = btf;
	w->u32 = btf__add_int(btf, "unsigned int", 4, 0);
	w->s64 = btf__add_int(btf, "long", 8, BTF_INT_SIGNED);
	w->ch = btf__add_int(btf, "char", 1, BTF_INT_SIGNED);
	w->flag = btf__add_int(btf, "_Bool", 1, BTF_INT_BOOL);
	w->color = btf__add_enum(btf, "color", 4);
	btf__add_enum_value(btf, "RED", 0);
	btf__add_enum_value(btf, "BLUE", -2);
	w->wide = btf__add_enum64(btf, "wide", 8, false);
	btf__add_enum64_value(btf, "HUGE", UINT64_C(1) << 40);
	w->number = btf__add_float(btf, "double", 8);
	w->text = btf__add_array(btf, w->u32, w->ch, 8);
	w->bytes = btf__add_array(btf, w->u32, btf__add_int(btf, "unsigned char", 1, 0), 4);
	w->list = btf__add_array(btf, w->u32, w->u32, 3);
	alias = btf__add_typedef(btf, "alias", btf__add_const(btf, w->u32));
	w->inner = btf__add_union(btf, NULL, 4);
	btf__add_field(btf, "first", alias, 0, 0);
	btf__add_field(btf, "second", w->u32, 0, 0);
	w->key = btf__add_struct(btf, "key", 64);
	btf__add_field(btf, "id", w->u32, 0, 0);
	btf__add_field(btf, "low", w->u32, 32, 3);
	btf__add_field(btf, "high", w->u32, 35, 29);
	btf__add_field(btf, "name", w->text, 64, 0);
	btf__add_field(btf, "color", w->color, 128, 0);
	btf__add_field(btf, NULL, w->inner, 160, 0);
	btf__add_field(btf, "in", w->inner, 192, 0);
	btf__add_field(btf, "bytes", w->bytes, 224, 0);
	btf__add_field(btf, "flag", w->flag, 256, 0);
	btf__add_field(btf, "wide", w->wide, 320, 0);
	btf__add_field(btf, "number", w->number, 384, 0);
	btf__add_field(btf, "beyond", w->s64, 448, 0); /* of values of less than 64 bytes */
	var = btf__add_var(btf, "a$b", BTF_VAR_STATIC, w->list);
	w->section = btf__add_datasec(btf, ".bss", 12);
	btf__add_datasec_var_info(btf, var, 0, 12);
	w->data = btf__raw_data(btf, &w->n_data);
	*state = w;
	return w->data ? 0 : -1;
}

static int teardown(void **state) {
	struct world *w = *state;

	btf__free(w->btf);
	free(w);
	return 0;
}

static const struct field *find(const struct fields *fields, const char *name) {
	for (size_t i = 0; i < fields->n; i++)
		if (!strcmp(fields->fields[i].name, name))
			return &fields->fields[i];
	fail_msg("no field %s", name);
	return NULL;
}

static void test_struct(void **state) {
	const struct world *w = *state;
	unsigned char value[64] = { 42, 0, 0, 0, 0x1d };
	struct fields *fields;
	double number = 1.5;

	memcpy(value + 8, "vec\0x", 5);
	memcpy(value + 16, &(int32_t){ -2 }, 4);
	memcpy(value + 20, &(uint32_t){ 7 }, 4);
	memcpy(value + 24, &(uint32_t){ 8 }, 4);
	value[32] = 1;
	value[45] = 1; /* 1 << 40 */
	memcpy(value + 48, &number, 8);
	memset(value + 56, 0xff, 8);
	assert_int_equal(fields_new(&fields, w->data, w->n_data, (uint32_t)w->key, 64), 0);
	assert_int_equal(fields->n, 12);
	assert_int_equal(field_load(find(fields, "id"), value, 0), 42);
	assert_int_equal(field_load(find(fields, "low"), value, 0), 5);
	assert_int_equal(field_load(find(fields, "high"), value, 0), 3);
	assert_int_equal(find(fields, "name")->kind, FIELD_TEXT);
	assert_string_equal(field_enumerator(find(fields, "color"),
					     field_load(find(fields, "color"), value, 0)),
			    "BLUE");
	assert_null(field_enumerator(find(fields, "color"), 5));
	assert_int_equal(field_load(find(fields, "first"), value, 0), 7);
	assert_int_equal(field_load(find(fields, "in_first"), value, 0), 8);
	assert_true(find(fields, "bytes")->is_array);
	assert_int_equal(find(fields, "bytes")->count, 4);
	assert_int_equal(find(fields, "flag")->kind, FIELD_BOOL);
	assert_string_equal(field_enumerator(find(fields, "wide"),
					     field_load(find(fields, "wide"), value, 0)),
			    "HUGE");
	assert_true(field_double(find(fields, "number"),
				 field_load(find(fields, "number"), value, 0)) == 1.5);
	assert_true((int64_t)field_load(find(fields, "beyond"), value, 0) == -1);
	fields_free(fields);
	assert_int_equal(fields_new(&fields, w->data, w->n_data, (uint32_t)w->key, 56), 0);
	assert_int_equal(fields->n, 11); /* without what lies beyond */
	fields_free(fields);
}

/* Names that begin alike, numbers below zero, and arrays of what has no number: nothing is cut off.
 */
static void test_whole(void **state) {
	const int32_t value[] = { 1, -5, -5, 7, 8, 9, 10 };
	char name[300], long_name[300];
	struct btf *btf = btf__new_empty();
	struct fields *fields;
	const void *data;
	uint32_t n_data;
	int number, color, pair;

	memset(name, 'A', 255);
	name[255] = '\0';
	memset(long_name, 'A', 256);
	long_name[256] = '\0';
	number = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	color = btf__add_enum(btf, "color", 4);
	btf__add_enum_value(btf, long_name, 0);
	btf__add_enum_value(btf, name, 1);
	btf__add_enum_value(btf, "BLUE", -2);
	pair = btf__add_struct(btf, "pair", 8);
	btf__add_field(btf, "a", number, 0, 0);
	btf__add_field(btf, "b", number, 32, 0);
	btf__add_struct(btf, "key", 28);
	btf__add_field(btf, "color", color, 0, 0);
	btf__add_field(btf, "colors", btf__type_cnt(btf), 32, 0);
	btf__add_field(btf, "grid", btf__type_cnt(btf) + 2, 96, 0);
	btf__add_array(btf, number, color, 2);
	btf__add_array(btf, number, pair, 2);
	btf__add_array(btf, number, btf__type_cnt(btf) - 1, 1);
	data = btf__raw_data(btf, &n_data);
	assert_int_equal(fields_new(&fields, data, n_data, (uint32_t)pair + 1, sizeof(value)), 0);
	assert_int_equal(fields->n, 3);
	assert_string_equal(field_enumerator(find(fields, "color"), 1), name);
	assert_null(field_enumerator(find(fields, "color"), 0));
	assert_string_equal(field_enumerator(find(fields, "color"), (uint64_t)-2), "BLUE");
	assert_true((int64_t)field_load(find(fields, "color"), (const unsigned char *)&value[1],
					0) == -5);
	assert_int_equal(find(fields, "colors")->kind, FIELD_BYTES);
	assert_int_equal(find(fields, "colors")->bits, 64);
	assert_int_equal(find(fields, "grid")->kind, FIELD_BYTES);
	assert_int_equal(find(fields, "grid")->bits, 128);
	fields_free(fields);
	btf__free(btf);
}

static void test_section(void **state) {
	const struct world *w = *state;
	const uint32_t values[] = { 1, 2, 3 };
	struct fields *fields;

	assert_int_equal(fields_new(&fields, w->data, w->n_data, (uint32_t)w->section, 12), 0);
	assert_int_equal(fields->n, 1);
	assert_int_equal(field_load(find(fields, "a_b"), (const unsigned char *)values, 2), 3);
	fields_free(fields);
}

static void test_plain(void **state) {
	struct fields *fields;

	assert_int_equal(fields_new(&fields, NULL, 0, 0, 4), 0);
	assert_int_equal(fields->n, 1);
	assert_string_equal(fields->fields[0].name, "");
	assert_true(field_is_number(&fields->fields[0]));
	fields_free(fields);
	assert_int_equal(fields_new(&fields, NULL, 0, 0, 12), 0);
	assert_int_equal(fields->fields[0].kind, FIELD_BYTES);
	fields_free(fields);
	assert_int_equal(fields_new(&fields, NULL, 0, 7, 4), FIELDS_E_BTF);
}

/* A type that is a member of itself, and one with too many members. */
static void test_endless(void **state) {
	struct btf *btf = btf__new_empty();
	struct fields *fields = NULL;
	const void *data;
	uint32_t n;
	int loop, many, number;

	number = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	loop = btf__add_typedef(btf, "t", 3); /* a typedef of the struct, which has one of it */
	btf__add_struct(btf, "s", 4);
	btf__add_field(btf, "again", loop, 0, 0);
	many = btf__add_struct(btf, "many", 4);
	for (unsigned int i = 0; i <= FIELDS_MAX; i++)
		btf__add_field(btf, "m", number, 0, 0);
	data = btf__raw_data(btf, &n);
	assert_int_equal(fields_new(&fields, data, n, (uint32_t)loop, 4), FIELDS_E_MEMBERS);
	assert_int_equal(fields_new(&fields, data, n, (uint32_t)many, 4), FIELDS_E_MEMBERS);
	assert_int_equal(fields_new(&fields, data, n, 99, 4), FIELDS_E_BTF);
	btf__free(btf);
}

/* Structs of structs with nothing in them: 30 to the power of 12 parts, and no field. */
static void test_hollow(void **state) {
	struct btf *btf = btf__new_empty();
	struct fields *fields = NULL;
	const void *data;
	int type;
	uint32_t n;

	type = btf__add_struct(btf, "nothing", 0);
	for (unsigned int i = 0; i < 12; i++) {
		int outer = btf__add_struct(btf, "more", 0);

		for (unsigned int k = 0; k < 30; k++)
			btf__add_field(btf, "m", type, 0, 0);
		type = outer;
	}
	data = btf__raw_data(btf, &n);
	assert_int_equal(fields_new(&fields, data, n, (uint32_t)type, 4), FIELDS_E_MEMBERS);
	btf__free(btf);
}

static void test_spoilt(void **state) {
	const struct world *w = *state;
	unsigned char value[64] = { 0 };

	for (uint32_t n = 0; n <= w->n_data; n++)
		for (unsigned int flip = 0; flip < 4; flip++) {
			static const unsigned char masks[] = { 0x01, 0x80, 0xff, 0x10 };
			unsigned char *copy = malloc(
				w->n_data); /* exactly so large: what reads beyond is found */
			struct fields *fields;

			memcpy(copy, w->data, w->n_data);
			if (n < w->n_data)
				copy[n] ^= masks[flip];
			if (fields_new(&fields, copy, w->n_data, (uint32_t)w->key, sizeof(value)) ==
			    0) {
				for (size_t i = 0; i < fields->n; i++)
					if (field_is_number(&fields->fields[i]))
						for (uint32_t j = 0; j < fields->fields[i].count;
						     j++)
							field_enumerator(
								&fields->fields[i],
								field_load(&fields->fields[i],
									   value, j));
				fields_free(fields);
			}
			free(copy);
		}
	for (uint32_t n = 0; n < w->n_data; n++) {
		unsigned char *copy = malloc(n + 1);
		struct fields *fields;

		memcpy(copy, w->data, n);
		if (fields_new(&fields, copy, n, (uint32_t)w->key, 64) == 0)
			fields_free(fields);
		free(copy);
	}
}

static void test_text(void **state) {
	struct metrics_text text = {};

	metrics_text_escape(&text, "a\"b\\c\nd\xff\xc3\xa4\x01", 11, true);
	assert_string_equal(text.data, "a\\\"b\\\\c\\nd\\\\xff\xc3\xa4\\\\x01");
	metrics_text_deinit(&text);
	metrics_text_double(&text, -__builtin_inf());
	metrics_text_double(&text, 0.1);
	assert_string_equal(text.data, "-Inf0.10000000000000001");
	metrics_text_deinit(&text);
	assert_true(openmetrics_name_valid("a:b_1"));
	assert_false(openmetrics_name_valid(""));
	assert_false(openmetrics_name_valid("1a"));
	assert_false(openmetrics_name_valid("a-b"));
	assert_false(openmetrics_label_valid("a:b"));
	assert_false(openmetrics_label_valid("__name__"));
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_struct, setup, teardown),
		cmocka_unit_test(test_whole),
		cmocka_unit_test_setup_teardown(test_section, setup, teardown),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_hollow),
		cmocka_unit_test_setup_teardown(test_spoilt, setup, teardown),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
