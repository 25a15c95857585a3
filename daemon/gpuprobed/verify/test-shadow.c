/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of shadow.c without a kernel: what is replaced, what is refused, what happens to
 * records.
 */

#include "shadow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <bpf/libbpf.h>

#include "proto/map-type.h"

#define CALL(HELPER) { .code = BPF_JMP | BPF_CALL, .imm = (HELPER) }
#define MOV(DST, IMM) { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (DST), .imm = (IMM) }
#define EXIT { .code = BPF_JMP | BPF_EXIT }
#define LOAD(SRC, IMM)                                                                         \
	{ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = (SRC), .imm = (IMM) }, { \
	}

static struct linked *linked;
static uint8_t blob[16384] __attribute__((aligned(8)));

/* An object of one program with a function record and two line records. */
static void object_make(const struct bpf_insn *insns, uint32_t n) {
	const struct bpf_func_info function = { .insn_off = 0, .type_id = 5 };
	const struct bpf_line_info lines[] = { { .insn_off = 0, .line_off = 9 },
					       { .insn_off = 1, .line_off = 17 } };
	struct linked_program *program;

	free(linked);
	linked = calloc(1, sizeof(*linked));
	assert_non_null(linked);
	assert_true(n * sizeof(*insns) <= 8192);
	memcpy(blob, insns, n * sizeof(*insns));
	memcpy(blob + 8192, &function, sizeof(function));
	memcpy(blob + 8200, lines, sizeof(lines));
	linked->size = sizeof(blob);
	linked->btf = (struct linked_table){ .offset = 8300, .count = 24, .record_size = 1 };
	linked->helper_stub_type = 42;
	linked->n_programs = 1;
	program = &linked->programs[0];
	strcpy(program->name, "program");
	program->insns = (struct linked_table){ 0, n, sizeof(*insns) };
	program->func_info = (struct linked_table){ 8192, 1, sizeof(function) };
	program->line_info = (struct linked_table){ 8200, 2, sizeof(lines[0]) };
	linked->n_maps = 2;
	linked->maps[0] = (struct linked_map){ .name = "declared", .type = BPF_MAP_TYPE_ARRAY };
	linked->maps[1] = (struct linked_map){ .name = ".data",
					       .type = BPF_MAP_TYPE_ARRAY,
					       .internal = LINKED_MAP_DATA };
}

static int make(struct shadow *shadow, bool allow_exit) {
	char error[SHADOW_ERROR_SIZE] = "";
	int r = shadow_make(linked, blob, 0, allow_exit, shadow, error);

	assert_true(r >= 0);
	assert_int_equal(r > 0, *error != '\0');
	return r;
}

#define MAKE(INSNS) object_make((INSNS), sizeof(INSNS) / sizeof((INSNS)[0]))

static void test_untouched(void **state) {
	const struct bpf_insn insns[] = { CALL(5), LOAD(BPF_PSEUDO_MAP_IDX, 0),
					  LOAD(BPF_PSEUDO_MAP_IDX_VALUE, 1), EXIT };
	struct shadow shadow;

	MAKE(insns);
	assert_int_equal(make(&shadow, false), 0);
	assert_int_equal(shadow.n_insns, sizeof(insns) / sizeof(insns[0]));
	assert_memory_equal(shadow.insns, insns, sizeof(insns));
	assert_int_equal(shadow.n_func_info, 1);
	assert_int_equal(shadow.n_line_info, 2);
	assert_int_equal(shadow.maps, 3);
	shadow_deinit(&shadow);
}

/* Variables of a thread: data that is as large, for the verifier; where there are none, no map. */
static void test_thread(void **state) {
	const struct bpf_insn insns[] = { LOAD(BPF_PSEUDO_MAP_IDX_VALUE, LINKED_THREAD), EXIT };
	const struct bpf_insn reference[] = { LOAD(BPF_PSEUDO_MAP_IDX, LINKED_THREAD), EXIT };
	struct shadow_map map;
	struct shadow shadow;

	MAKE(insns);
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
	linked->thread = 20;
	assert_int_equal(make(&shadow, false), 0);
	assert_memory_equal(shadow.insns, insns, sizeof(insns));
	assert_true(shadow.thread);
	assert_int_equal(shadow.maps, 0);
	shadow_deinit(&shadow);
	map = shadow_thread_make(linked);
	assert_int_equal(map.type, BPF_MAP_TYPE_ARRAY);
	assert_int_equal(map.value_size, 20);
	assert_int_equal(map.max_entries, 1);
	assert_false(map.freeze || map.flags);
	MAKE(reference);
	linked->thread = 20;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
}

/*
 * Each helper's call becomes a call into the part behind the program, whose records follow in
 * order.
 */
static void test_replaced(void **state) {
	const struct bpf_insn insns[] = { CALL(511), CALL(503), CALL(8), CALL(503),
					  CALL(501), CALL(25),  CALL(7), EXIT };
	const size_t n = sizeof(insns) / sizeof(insns[0]);
	struct bpf_func_info *functions;
	struct bpf_line_info *lines;
	struct shadow shadow;
	size_t targets[6];

	MAKE(insns);
	assert_int_equal(make(&shadow, false), 0);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(shadow.insns[i].code, BPF_JMP | BPF_CALL);
		assert_int_equal(shadow.insns[i].src_reg, BPF_PSEUDO_CALL);
		targets[i] = i + 1 + (size_t)shadow.insns[i].imm;
		assert_in_range(targets[i], n, shadow.n_insns - 1);
		assert_int_equal(shadow.insns[targets[i] - 1].code,
				 BPF_JMP | BPF_EXIT); /* ends what is before it */
	}
	assert_int_equal(targets[1], targets[3]);
	assert_memory_equal(&shadow.insns[6], &insns[6], 2 * sizeof(insns[0]));
	assert_int_equal(shadow.insns[shadow.n_insns - 1].code, BPF_JMP | BPF_EXIT);

	/* three unknown numbers from three calls, each written before the next */
	assert_int_equal(shadow.insns[targets[1] + 3].imm, BPF_FUNC_ktime_get_ns);
	for (uint8_t i = 0; i < 3; i++) {
		const struct bpf_insn *insn = &shadow.insns[targets[1] + 3 + 3u * i];

		assert_int_equal(insn[0].code, BPF_JMP | BPF_CALL);
		assert_int_equal(insn[2].code, BPF_STX | BPF_MEM | BPF_DW);
		assert_int_equal(insn[2].dst_reg, 6 + i);
	}
	/* puts: every way out leads to the end */
	for (size_t i = 0; i < 255; i++) {
		const struct bpf_insn *insn = &shadow.insns[targets[4] + 2 * i + 1];

		assert_int_equal(insn[-1].off, i);
		assert_int_equal(targets[4] + 2 * i + 2 + (size_t)insn->off, targets[4] + 510);
	}

	assert_int_equal(shadow.n_func_info, 1 + 5);
	assert_int_equal(shadow.n_line_info, 2 + 5);
	functions = shadow.func_info;
	lines = shadow.line_info;
	for (size_t i = 1; i < 6; i++) {
		assert_int_equal(functions[i].type_id, 42);
		assert_true(functions[i].insn_off > functions[i - 1].insn_off);
		assert_int_equal(lines[i + 1].insn_off, functions[i].insn_off);
		assert_int_equal(lines[i + 1].line_off, 0);
	}
	shadow_deinit(&shadow);
}

/* What takes numbers shows the verifier that they are; what changes memory, that it may. */
static void test_numbers(void **state) {
	const struct bpf_insn insns[] = { CALL(531), CALL(520), CALL(516), CALL(514),
					  CALL(530), CALL(526), CALL(529), EXIT };
	static const uint8_t numbers[] = { 3, 2, 1, 0, 1 };
	const struct bpf_insn *stub;
	struct shadow shadow;

	MAKE(insns);
	assert_int_equal(make(&shadow, false), 0);
	for (size_t i = 0; i < 5; i++) {
		stub = &shadow.insns[i + 1 + (size_t)shadow.insns[i].imm];
		for (uint8_t n = 1; n <= numbers[i]; n++, stub++) {
			assert_int_equal(stub->code, BPF_ALU64 | BPF_MUL | BPF_K);
			assert_int_equal(stub->dst_reg, n);
			assert_int_equal(stub->imm, 1);
		}
		assert_int_equal(stub[0].imm, BPF_FUNC_ktime_get_ns);
		assert_int_equal(stub[1].code,
				 i == 4 ? BPF_ALU64 | BPF_AND | BPF_K : BPF_JMP | BPF_EXIT);
		assert_int_equal(stub[1].imm, i == 4 ? 63 : 0);
	}
	stub = &shadow.insns[5 + 1 + (size_t)shadow.insns[5].imm];
	assert_ptr_equal(stub, &shadow.insns[6 + 1 + (size_t)shadow.insns[6].imm]);
	assert_int_equal(stub[0].dst_reg, 2);
	assert_int_equal(stub[1].code, BPF_STX | BPF_ATOMIC | BPF_DW);
	assert_int_equal(stub[1].dst_reg, 1);
	assert_int_equal(stub[1].src_reg, 2);
	shadow_deinit(&shadow);
}

/* Loops stay as they are; a function of the kernel is called by this kernel's id. */
static void test_loops(void **state) {
	const struct bpf_insn insns[] = {
		LOAD(BPF_PSEUDO_FUNC, 5),
		CALL(181),
		{ .code = BPF_JMP | 0xe0 },
		{ .code = BPF_JMP | BPF_CALL,
		  .src_reg = BPF_PSEUDO_KFUNC_CALL,
		  .imm = KFUNC_ITER_NUM_NEXT },
		EXIT,
		MOV(0, 0),
		EXIT,
	};
	const int32_t ids[_KFUNC_N] = { [KFUNC_ITER_NUM_NEXT] = 4711 };
	struct shadow shadow;

	MAKE(insns);
	assert_int_equal(make(&shadow, false), 0);
	assert_memory_equal(shadow.insns, insns, sizeof(insns));
	assert_int_equal(shadow.kfuncs, 1 << KFUNC_ITER_NUM_NEXT);
	shadow_bind(&shadow, ids);
	assert_int_equal(shadow.insns[4].imm, 4711);
	assert_memory_equal(shadow.insns, insns, 4 * sizeof(insns[0]));
	shadow_deinit(&shadow);
}

/* What an older kernel says of a loop becomes a line that says which is needed. */
static void test_older_kernel(void **state) {
	const struct bpf_insn insns[] = { EXIT };
	char text[SHADOW_ERROR_SIZE];

	MAKE(insns);
	assert_true(shadow_explain(linked, blob, 0, "unknown opcode e5", text));
	assert_string_equal(text,
			    "this kernel's verifier does not know may_goto (Linux 6.9 or newer)");
	assert_true(shadow_explain(linked, blob, 0, "invalid func unknown#181", text));
	assert_string_equal(text,
			    "this kernel's verifier does not know bpf_loop (Linux 5.17 or newer)");
	assert_true(shadow_explain(linked, blob, 0, "unknown opcode 06", text));
	assert_non_null(strstr(text, "compile with -mcpu=v3"));
	assert_false(shadow_explain(linked, blob, 0, "unknown opcode ff", text));
}

/* Records without what they need are left out, both or one. */
static void test_records(void **state) {
	const struct bpf_insn insns[] = { CALL(511), EXIT };
	struct shadow shadow;

	MAKE(insns);
	linked->helper_stub_type = 0;
	assert_int_equal(make(&shadow, false), 0);
	assert_int_equal(shadow.n_func_info, 0);
	assert_int_equal(shadow.n_line_info, 0);
	shadow_deinit(&shadow);
	MAKE(insns);
	linked->programs[0].line_info = (struct linked_table){};
	assert_int_equal(make(&shadow, false), 0);
	assert_int_equal(shadow.n_func_info, 2);
	assert_int_equal(shadow.n_line_info, 0);
	shadow_deinit(&shadow);
	MAKE(insns);
	linked->programs[0].func_info.record_size = 12; /* a larger record: the rest is zeros */
	assert_int_equal(make(&shadow, false), 0);
	assert_int_equal(shadow.func_info_size, 12);
	shadow_deinit(&shadow);
}

static void refused(const struct bpf_insn *insns, uint32_t n, int result) {
	struct shadow shadow;

	object_make(insns, n);
	assert_int_equal(make(&shadow, false), result);
}

#define REFUSED(RESULT, ...)                                              \
	do {                                                              \
		const struct bpf_insn insns[] = { __VA_ARGS__ };          \
		refused(insns, sizeof(insns) / sizeof(insns[0]), RESULT); \
	} while (0)

static void test_refused(void **state) {
	REFUSED(SHADOW_E_REFUSED, CALL(507), EXIT);
	REFUSED(SHADOW_E_REFUSED, LOAD(BPF_PSEUDO_MAP_FD, 0), EXIT);
	REFUSED(SHADOW_E_REFUSED, LOAD(BPF_PSEUDO_MAP_VALUE, 0), EXIT);
	REFUSED(SHADOW_E_REFUSED, LOAD(BPF_PSEUDO_BTF_ID, 1), EXIT);
	REFUSED(SHADOW_E_REFUSED, LOAD(BPF_PSEUDO_FUNC, 2), EXIT); /* behind the end */
	REFUSED(SHADOW_E_REFUSED, LOAD(BPF_PSEUDO_FUNC, -2), EXIT);
	REFUSED(SHADOW_E_INVALID, LOAD(BPF_PSEUDO_MAP_IDX, 2), EXIT);
	REFUSED(SHADOW_E_INVALID, LOAD(BPF_PSEUDO_MAP_IDX, -1), EXIT);
	REFUSED(SHADOW_E_INVALID, LOAD(BPF_PSEUDO_MAP_IDX_VALUE, 0), EXIT); /* of a declared map */
	REFUSED(SHADOW_E_INVALID, LOAD(BPF_PSEUDO_MAP_IDX, 1), EXIT); /* a data section as a map */
	REFUSED(SHADOW_E_INVALID, EXIT, { .code = BPF_LD | BPF_IMM | BPF_DW });
	/* a call into what will be appended */
	REFUSED(SHADOW_E_INVALID, CALL(511),
		{ .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 1 }, EXIT);
	REFUSED(SHADOW_E_INVALID,
		{ .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = -2 }, EXIT);
}

/* What no GPU has is a call that no kernel has, for the verifier to refuse if it comes there. */
static void test_missing(void **state) {
	static const struct {
		struct bpf_insn call;
		const char *text;
	} rows[] = {
		{ CALL(113), "there is no bpf_probe_read_kernel (helper 113) on a GPU" },
		{ CALL(12), "there is no bpf_tail_call (helper 12) on a GPU" },
		{ CALL(0), "there is no helper 0 on a GPU" },
		{ CALL(-1), "there is no helper -1 on a GPU" },
		{ CALL(500), "there is no helper 500 on a GPU" },
		{ CALL(599), "there is no helper 599 on a GPU" },
		{ { .code = BPF_JMP | BPF_CALL,
		    .src_reg = BPF_PSEUDO_KFUNC_CALL,
		    .imm = 99,
		    .off = 1 },
		  "functions of the kernel cannot be called on a GPU" },
		{ { .code = BPF_JMP | BPF_CALL | BPF_X, .dst_reg = 2 },
		  "functions cannot be called through pointers" },
	};
	char text[SHADOW_ERROR_SIZE];
	struct shadow shadow;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bpf_insn insns[] = { LOAD(BPF_PSEUDO_FUNC, 2), rows[i].call, EXIT };
		const struct bpf_insn missing = CALL(0x40000002);

		MAKE(insns);
		assert_int_equal(make(&shadow, false), 0);
		assert_int_equal(shadow.n_insns, 4);
		assert_memory_equal(shadow.insns, insns, 2 * sizeof(insns[0]));
		assert_memory_equal(&shadow.insns[2], &missing, sizeof(missing));
		shadow_deinit(&shadow);
		assert_true(
			shadow_explain(linked, blob, 0, "invalid func unknown#1073741826", text));
		assert_string_equal(text, rows[i].text);
		assert_false(
			shadow_explain(linked, blob, 0, "invalid func unknown#1073741828", text));
		assert_false(shadow_explain(linked, blob, 0, "invalid func unknown#599", text));
		assert_false(shadow_explain(linked, blob, 0, "R0 !read_ok", text));
	}
}

static void test_exit(void **state) {
	const struct bpf_insn insns[] = { CALL(507), EXIT };
	struct shadow shadow;

	MAKE(insns);
	assert_int_equal(make(&shadow, true), 0);
	assert_int_equal(shadow.insns[0].src_reg, BPF_PSEUDO_CALL);
	shadow_deinit(&shadow);
}

/* Tables that lie. */
static void test_outside(void **state) {
	const struct bpf_insn insns[] = { CALL(511), EXIT };
	struct shadow shadow;

	MAKE(insns);
	linked->programs[0].insns.offset = sizeof(blob) - 8;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
	MAKE(insns);
	linked->programs[0].insns.offset = UINT64_MAX;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
	MAKE(insns);
	linked->programs[0].line_info.count = UINT32_MAX;
	linked->programs[0].line_info.record_size = UINT32_MAX;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
	MAKE(insns);
	linked->programs[0].insns.record_size = 4;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
	MAKE(insns);
	linked->n_programs = 0;
	assert_int_equal(make(&shadow, false), SHADOW_E_INVALID);
}

static int map_make(uint32_t type, uint32_t key, uint32_t value, uint32_t entries,
		    enum linked_internal internal, struct shadow_map *shadow) {
	const struct linked_map map = {
		.name = "a-rather-long-name",
		.type = type,
		.key_size = key,
		.value_size = value,
		.max_entries = entries,
		.internal = internal,
		.flags = BPF_F_MMAPABLE | BPF_F_RDONLY_PROG,
	};
	char error[SHADOW_ERROR_SIZE] = "";
	int r = shadow_map_make(&map, 4096, shadow, error);

	assert_int_equal(r > 0, *error != '\0');
	return r;
}

static void test_maps(void **state) {
	static const uint32_t arrays[] = { 2, 6, 1502, 1503, 1504, 1512, 1513 },
			      hashes[] = { 1, 5, 9, 10, 1501 }, rings[] = { 4, 27, 1527 },
			      nothing[] = { 0, 3, 11, 12, 26, 1500, 1526, UINT32_MAX };
	const struct linked_map prefixes = { .name = "m", .type = BPF_MAP_TYPE_LPM_TRIE };
	char error[SHADOW_ERROR_SIZE];
	struct shadow_map s;

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		assert_int_equal(map_make(arrays[i], 4, 24, 1000000, LINKED_MAP_DECLARED, &s), 0);
		assert_int_equal(s.type, BPF_MAP_TYPE_LRU_HASH); /* whose lookups may be NULL */
		assert_int_equal(s.value_size, 24);
		assert_int_equal(s.max_entries, 1);
		assert_int_equal(s.flags, BPF_F_RDONLY_PROG);
		assert_string_equal(s.name, "a_rather_long_n");
		assert_int_equal(map_make(arrays[i], 8, 24, 10, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_INVALID);
		assert_int_equal(map_make(arrays[i], 4, 0, 10, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_INVALID);
		assert_int_equal(map_make(arrays[i], 4, UINT32_MAX, 10, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_INVALID);
		assert_int_equal(map_make(arrays[i], 4, 8, 0, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_INVALID);
	}
	for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
		assert_int_equal(map_make(hashes[i], 16, 24, 10, LINKED_MAP_DECLARED, &s), 0);
		assert_int_equal(s.type, BPF_MAP_TYPE_LRU_HASH);
		assert_int_equal(s.key_size, 16);
		assert_int_equal(map_make(hashes[i], 0, 24, 10, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_INVALID);
	}
	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		assert_int_equal(map_make(rings[i], 4, 64, 1000, LINKED_MAP_DECLARED, &s), 0);
		assert_int_equal(s.type, BPF_MAP_TYPE_RINGBUF);
		assert_int_equal(s.key_size, 0);
		assert_int_equal(s.max_entries, 4096);
	}
	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		assert_int_equal(map_make(nothing[i], 4, 8, 1, LINKED_MAP_DECLARED, &s),
				 SHADOW_E_REFUSED);
	assert_int_equal(shadow_map_make(&prefixes, 4096, &s, error), SHADOW_E_REFUSED);
	assert_string_equal(error, "map m: a GPU has no maps of type 11 (lpm_trie)");
	assert_int_equal(map_make(2, 4, 4096, 1, LINKED_MAP_RODATA, &s), 0);
	assert_int_equal(s.type, BPF_MAP_TYPE_ARRAY);
	assert_true(s.freeze);
	assert_int_equal(map_make(2, 4, 4096, 1, LINKED_MAP_BSS, &s), 0);
	assert_false(s.freeze);
	assert_int_equal(map_make(2, 4, 4096, 2, LINKED_MAP_BSS, &s), SHADOW_E_INVALID);
}

static int teardown(void **state) {
	free(linked);
	return 0;
}

/* The kernel's map types in the table have the kernel's numbers: libbpf has the same names. */
static void test_map_types(void **state) {
	(void)state;
	for (size_t i = 0; i < MAP_TYPE_COUNT; i++)
		if (!map_type_is_gpu(map_types[i].type))
			assert_string_equal(
				libbpf_bpf_map_type_str((enum bpf_map_type)map_types[i].type),
				map_types[i].name);
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_untouched), cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_numbers),   cmocka_unit_test(test_loops),
		cmocka_unit_test(test_thread),    cmocka_unit_test(test_older_kernel),
		cmocka_unit_test(test_records),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_exit),      cmocka_unit_test(test_missing),
		cmocka_unit_test(test_outside),   cmocka_unit_test(test_maps),
		cmocka_unit_test(test_map_types),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
