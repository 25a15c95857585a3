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
#include <time.h>

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

/* BTF of typedefs: `same` of type 1, which begins a chain of `length`. Opens it; the processor's
 * time that it took in nanoseconds, or -1: it was refused. */
static int64_t open_chain(uint32_t length, uint32_t same, char error[BTF_CHECK_ERROR_SIZE]) {
	const uint32_t n = length + same;
	const size_t types = n * sizeof(struct btf_type) + sizeof(struct btf_type) + 4,
		     size = sizeof(struct btf_header) + types + 3;
	struct btf_header header = { .magic = BTF_MAGIC,
				     .version = BTF_VERSION,
				     .hdr_len = sizeof(header),
				     .type_len = (uint32_t)types,
				     .str_off = (uint32_t)types,
				     .str_len = 3 };
	struct btf_type type = { .name_off = 1, .info = BTF_KIND_TYPEDEF << 24 };
	uint8_t *data = calloc(1, size), *at = data;
	struct timespec begin, end;
	struct btf *btf = NULL;
	int r;

	assert_non_null(data);
	at = mempcpy(at, &header, sizeof(header));
	for (uint32_t id = 1; id <= n; id++) {
		type.type = id < length ? id + 1 : id == length ? n + 1 : 1;
		at = mempcpy(at, &type, sizeof(type));
	}
	type = (struct btf_type){ .name_off = 1, .info = BTF_KIND_INT << 24, .size = 4 };
	at = mempcpy(at, &type, sizeof(type));
	memcpy(at, &(uint32_t){ 32 }, 4);
	at[5] = 't';
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	r = btf_open(&btf, data, size, error);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	btf__free(btf);
	free(data);
	return r ? -1
		 : (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + end.tv_nsec - begin.tv_nsec;
}

/* As many types at the end of a long chain as there may be take no longer than at a short one's. */
static void test_chains(void **state) {
	char error[BTF_CHECK_ERROR_SIZE];
	int64_t shortest[2] = { INT64_MAX, INT64_MAX };

	for (int i = 0; i < 10; i++) {
		const int64_t took = open_chain(i % 2 ? 31 : 1, 900000, error);

		assert_true(took > 0);
		if (took < shortest[i % 2])
			shortest[i % 2] = took;
	}
	if (shortest[1] > 2 * shortest[0])
		fail_msg("%lld ns, of short ones %lld", (long long)shortest[1],
			 (long long)shortest[0]);
	assert_true(open_chain(32, 0, error) > 0);
	assert_int_equal(open_chain(33, 0, error), -1);
	assert_string_equal(error, "type 1 leads nowhere");
	assert_int_equal(open_chain(32, 1, error), -1);
	assert_string_equal(error, "type 33 leads nowhere");
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),       cmocka_unit_test(test_header),
		cmocka_unit_test(test_references), cmocka_unit_test(test_spoilt),
		cmocka_unit_test(test_chains),
	};

	libbpf_set_print(NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
