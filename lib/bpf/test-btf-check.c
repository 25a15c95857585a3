/* SPDX-License-Identifier: Apache-2.0 */

/* Foreign BTF: what is wrong with it is said, and what is opened can be followed everywhere. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-check.h"

enum {
	INT = 1,
	TYPEDEF,
	STRUCT,
	ARRAY,
	ENUM,
	PROTOTYPE,
	FUNCTION,
	VARIABLE,
	SECTION,
	N_TYPES = SECTION,
};

/* One type of each kind that refers to others. */
static struct btf *make_btf(void) {
	struct btf *btf = btf__new_empty();

	assert_non_null(btf);
	assert_int_equal(btf__add_int(btf, "int", 4, BTF_INT_SIGNED), INT);
	assert_int_equal(btf__add_typedef(btf, "number", INT), TYPEDEF);
	assert_int_equal(btf__add_struct(btf, "pair", 8), STRUCT);
	btf__add_field(btf, "first", INT, 0, 0);
	btf__add_field(btf, "second", TYPEDEF, 32, 0);
	assert_int_equal(btf__add_array(btf, INT, STRUCT, 3), ARRAY);
	assert_int_equal(btf__add_enum(btf, "color", 4), ENUM);
	btf__add_enum_value(btf, "RED", 1);
	assert_int_equal(btf__add_func_proto(btf, INT), PROTOTYPE);
	btf__add_func_param(btf, "value", TYPEDEF);
	assert_int_equal(btf__add_func(btf, "f", BTF_FUNC_GLOBAL, PROTOTYPE), FUNCTION);
	assert_int_equal(btf__add_var(btf, "v", BTF_VAR_STATIC, INT), VARIABLE);
	assert_int_equal(btf__add_datasec(btf, ".bss", 4), SECTION);
	btf__add_datasec_var_info(btf, VARIABLE, 0, 4);
	return btf;
}

/* A copy of exactly the size, so that memory checkers find what is read beyond it. */
static uint8_t *copy_of(const struct btf *btf, uint32_t *size) {
	const void *data = btf__raw_data(btf, size);
	uint8_t *copy = malloc(*size);

	assert_non_null(copy);
	memcpy(copy, data, *size);
	return copy;
}

static void follow(const struct btf *btf) {
	for (uint32_t id = 1; id < btf__type_cnt(btf); id++) {
		const struct btf_type *type = btf__type_by_id(btf, id);

		assert_non_null(btf__name_by_offset(btf, type->name_off));
		btf__resolve_type(btf, id);
		btf__resolve_size(btf, id);
		for (uint32_t i = 0; btf_is_composite(type) && i < btf_vlen(type); i++) {
			assert_non_null(btf__type_by_id(btf, btf_members(type)[i].type));
			assert_non_null(btf__name_by_offset(btf, btf_members(type)[i].name_off));
		}
	}
}

/* Opens bytes; if they are refused, there is a reason of one line. */
static int try_open(const void *data, size_t size, char error[BTF_CHECK_ERROR_SIZE]) {
	struct btf *btf;
	int r;

	*error = '\0';
	r = btf_open(&btf, data, size, error);
	if (r == 0) {
		follow(btf);
		btf__free(btf);
	} else {
		assert_int_equal(r, -EINVAL);
		assert_true(*error && !strchr(error, '\n'));
	}
	return r;
}

static void refused(const void *data, size_t size, const char *expected) {
	char error[BTF_CHECK_ERROR_SIZE];

	assert_int_equal(try_open(data, size, error), -EINVAL);
	assert_string_equal(error, expected);
}

static void test_good(void **state) {
	char error[BTF_CHECK_ERROR_SIZE];
	struct btf *btf = make_btf();
	uint32_t size;
	uint8_t *data = copy_of(btf, &size);

	assert_int_equal(try_open(data, size, error), 0);
	free(data);
	btf__free(btf);
}

static void test_header(void **state) {
	static const struct {
		size_t offset;
		uint32_t value;
		const char *error;
	} cases[] = {
		{ offsetof(struct btf_header, magic), 0, "its header is of an unknown kind" },
		{ offsetof(struct btf_header, hdr_len), 28, "its header is of an unknown kind" },
		{ offsetof(struct btf_header, hdr_len), UINT32_MAX,
		  "its header is of an unknown kind" },
		{ offsetof(struct btf_header, type_off), UINT32_MAX - 3, "its parts do not fit" },
		{ offsetof(struct btf_header, type_len), UINT32_MAX - 3, "its parts do not fit" },
		{ offsetof(struct btf_header, type_len), 3, "its parts do not fit" },
		{ offsetof(struct btf_header, str_off), UINT32_MAX, "its parts do not fit" },
		{ offsetof(struct btf_header, str_len), UINT32_MAX, "its parts do not fit" },
		{ offsetof(struct btf_header, str_len), 0, "its parts do not fit" },
	};
	struct btf *btf = make_btf();
	uint32_t size;

	refused(NULL, 0, "it is cut short");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t *data = copy_of(btf, &size);

		memcpy(data + cases[i].offset, &cases[i].value, sizeof(cases[i].value));
		refused(data, size, cases[i].error);
		free(data);
	}
	btf__free(btf);
}

/* One number of a type is changed. */
static void test_references(void **state) {
	struct btf *btf = make_btf();
	const struct {
		const uint32_t *place; /* in btf */
		uint32_t value;
		const char *error;
	} cases[] = {
		{ &btf__type_by_id(btf, TYPEDEF)->type, 99, "type 2 refers to nothing" },
		{ &btf__type_by_id(btf, TYPEDEF)->type, 2, "type 2 leads nowhere" },
		{ &btf__type_by_id(btf, INT)->name_off, 9999, "type 1 refers to nothing" },
		{ &btf_members(btf__type_by_id(btf, STRUCT))->type, N_TYPES + 1,
		  "type 3 refers to nothing" },
		{ &btf_members(btf__type_by_id(btf, STRUCT))->name_off, UINT32_MAX,
		  "type 3 refers to nothing" },
		{ &btf_array(btf__type_by_id(btf, ARRAY))->type, UINT32_MAX,
		  "type 4 refers to nothing" },
		{ &btf_enum(btf__type_by_id(btf, ENUM))->name_off, 9999,
		  "type 5 refers to nothing" },
		{ &btf_params(btf__type_by_id(btf, PROTOTYPE))->type, 99,
		  "type 6 refers to nothing" },
		{ &btf__type_by_id(btf, FUNCTION)->type, INT, "type 7 refers to nothing" },
		{ &btf_var_secinfos(btf__type_by_id(btf, SECTION))->type, INT,
		  "type 9 refers to nothing" },
		{ &btf__type_by_id(btf, INT)->info, 31U << 24,
		  "type 1 has an unknown kind or is cut short" },
		{ &btf__type_by_id(btf, SECTION)->info, BTF_KIND_DATASEC << 24 | 2,
		  "type 9 has an unknown kind or is cut short" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const size_t offset = sizeof(struct btf_header) +
				      (size_t)((const uint8_t *)cases[i].place -
					       (const uint8_t *)btf__type_by_id(btf, 1));
		uint32_t size;
		uint8_t *data = copy_of(btf, &size);

		memcpy(data + offset, &cases[i].value, sizeof(cases[i].value));
		refused(data, size, cases[i].error);
		free(data);
	}
	btf__free(btf);
}

/* Cut at each byte, and with each byte changed. */
static void test_spoilt(void **state) {
	static const uint8_t masks[] = { 0x01, 0x10, 0x80, 0xff };
	char error[BTF_CHECK_ERROR_SIZE];
	struct btf *btf = make_btf();
	uint32_t size;

	free(copy_of(btf, &size));
	for (uint32_t n = 0; n < size; n++) {
		uint8_t *data = copy_of(btf, &size);

		assert_int_equal(try_open(data, n, error), -EINVAL);
		for (size_t i = 0; i < sizeof(masks); i++) {
			data[n] ^= masks[i];
			try_open(data, size, error);
			data[n] ^= masks[i];
		}
		free(data);
	}
	btf__free(btf);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_spoilt),
	};

	libbpf_set_print(NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
