/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of what the translator returns beside a program's results: text, metadata, layouts of
 * maps, errors.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "test-translate.h"

static const struct translate_map percpu8 = { "per_sm", BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8,
					      1,        "__gpuprobe_o1_m0" };

/* Translates one program, that must work. */
static struct translate_result translated_as(bool takes_memory, const struct bpf_insn *insns,
					     size_t n, const struct translate_map *maps,
					     size_t n_maps) {
	struct translate_program program = { .name = "p",
					     .symbol = "__gpuprobe_o1_p0",
					     .insns = insns,
					     .n_insns = n,
					     .takes_memory = takes_memory };
	struct translate_result result;
	char *error = NULL;
	int r = translate_object(&program, 1, maps, n_maps, &result, &error);

	if (r)
		fail_msg("%d: %s", r, error ? error : "no message");
	return result;
}

static struct translate_result translated(const struct bpf_insn *insns, size_t n,
					  const struct translate_map *maps, size_t n_maps) {
	return translated_as(false, insns, n, maps, n_maps);
}

static void test_counter(void **state) {
	struct translate_result result = translated(counter, COUNT(counter), &array8, 1);
	const struct translate_program_result *p = result.programs;
	static const char slot[] = ".visible .global .align 128 .b8 __gpuprobe_o1_m0[32768];\n";

	assert_int_equal(strlen(p->ptx), p->size);
	assert_int_equal(strncmp(p->ptx, slot, strlen(slot)), 0);
	assert_int_equal(strncmp(p->ptx + strlen(slot), ".func ", 6), 0);
	assert_non_null(strstr(p->ptx, " __gpuprobe_o1_p0("));
	assert_null(strstr(p->ptx, ".version"));
	assert_null(strstr(p->ptx, ".target"));
	assert_null(strstr(p->ptx, ".address_size"));
	assert_null(strstr(p->ptx, "//"));
	assert_null(strstr(p->ptx, ".local"));
	assert_null(strstr(p->ptx, "call"));
	assert_null(strstr(p->ptx, "%SP"));
	assert_int_equal(occurrences(p->ptx, "red.global.add.u64"), 1);
	assert_int_equal(occurrences(p->ptx, "ld."), 0); /* the address is a constant */
	assert_int_equal(occurrences(p->ptx, "activemask"), 1);
	assert_int_equal(occurrences(p->ptx, "ret;"), 1);
	assert_int_equal(p->isa, 63);
	assert_int_equal(p->target, 52);
	assert_int_equal(p->maps, 1);
	assert_int_equal(p->local_bytes, 0);
	assert_int_equal(p->context_count, 0);
	assert_non_null(strstr(p->ptx, "__gpuprobe_o1_p0()"));
	assert_true(result.maps[0].used);
	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_SUM64);
	assert_int_equal(result.maps[0].layout.shards, 256);
	assert_int_equal(result.maps[0].layout.value_stride, 8);
	assert_int_equal(result.maps[0].layout.shard_stride, 128);
	assert_int_equal(result.maps[0].layout.data_size, 32768);
	assert_true(result.maps[0].resident);
	translate_result_deinit(&result);
}

/* Fields of the context that are read, in whatever way, are the parameters. */
static void test_context(void **state) {
	static const struct bpf_insn ignores[] = { MOVR(6, 1), STORE(BPF_DW, 10, 1, -8), END };
	static const struct bpf_insn reads[] = {
		MOVR(6, 1),
		LOAD(BPF_DW, 7, 1, 80),
		CALL(5),
		LOAD(BPF_B, 8, 6, 71),
		LOAD(BPF_W, 9, 6, 64),
		MOVR(1, 6),
		INSN(BPF_JMP | BPF_CALL, 0, INSN_CALL_BPF, 0, 4),
		ADDR(0, 7),
		ADDR(0, 8),
		ADDR(0, 9),
		EXIT,
		LOAD(BPF_DW, 0, 1, 16),
		EXIT,
	};
	struct translate_result result = translated(ignores, COUNT(ignores), NULL, 0);

	assert_int_equal(result.programs[0].context_count, 0);
	assert_null(strstr(result.programs[0].ptx, "ld.param"));
	translate_result_deinit(&result);

	result = translated(reads, COUNT(reads), NULL, 0);
	assert_int_equal(result.programs[0].context_count, 3);
	assert_int_equal(result.programs[0].context[0], 16);
	assert_int_equal(result.programs[0].context[1], 64);
	assert_int_equal(result.programs[0].context[2], 80);
	assert_int_equal(occurrences(result.programs[0].ptx, ".param .b64 __gpuprobe_o1_p0_param_"),
			 3);
	assert_null(strstr(result.programs[0].ptx, ".local"));
	assert_null(strstr(result.programs[0].ptx, "ld.u")); /* nothing at a generic address */
	/* and whole, although less is asked for */
	assert_int_equal(occurrences(result.programs[0].ptx, "ld.param.u64"), 3);
	assert_int_equal(occurrences(result.programs[0].ptx, "ld.param"), 3);
	translate_result_deinit(&result);
}

/* Programs, and what they allow for the layout of the map that they use. */
static void test_sharding(void **state) {
#define PROGRAM(...) \
	(const struct bpf_insn[]){ __VA_ARGS__ }, COUNT(((const struct bpf_insn[]){ __VA_ARGS__ }))
	const struct {
		const char *what;
		const struct bpf_insn *insns;
		size_t n;
		enum map_merge merge;
	} cases[] = {
		{ "add of 8 bytes",
		  PROGRAM(LOOKUP(0, 0, 2), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), END),
		  MAP_MERGE_SUM64 },
		{ "add of 4 bytes",
		  PROGRAM(LOOKUP(0, 0, 2), MOV(1, 1), ATOMIC(BPF_W, BPF_ADD, 0, 1, 4), END),
		  MAP_MERGE_SUM32 },
		{ "adds of both widths",
		  PROGRAM(LOOKUP(0, 0, 3), MOV(1, 1), ATOMIC(BPF_W, BPF_ADD, 0, 1, 0),
			  ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "add that returns the old value",
		  PROGRAM(LOOKUP(0, 0, 2), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD | BPF_FETCH, 0, 1, 0),
			  END),
		  MAP_MERGE_NONE },
		{ "or", PROGRAM(LOOKUP(0, 0, 2), MOV(1, 1), ATOMIC(BPF_DW, BPF_OR, 0, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "add and load",
		  PROGRAM(LOOKUP(0, 0, 3), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
			  LOAD(BPF_DW, 1, 0, 0), END),
		  MAP_MERGE_NONE },
		{ "add and store",
		  PROGRAM(LOOKUP(0, 0, 3), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
			  STOREI(BPF_DW, 0, 0, 0), END),
		  MAP_MERGE_NONE },
		{ "address kept on the stack and taken back",
		  PROGRAM(LOOKUP(0, 0, 4), STORE(BPF_DW, 10, 0, -16), LOAD(BPF_DW, 6, 10, -16),
			  MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 6, 1, 0), END),
		  MAP_MERGE_SUM64 },
		{ "address that is added somewhere",
		  PROGRAM(LOOKUP(0, 0, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 0, 0), END), MAP_MERGE_NONE },
		{ "address that is stored elsewhere",
		  PROGRAM(MOVR(6, 1), LOOKUP(0, 0, 3), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
			  STORE(BPF_DW, 6, 0, 0), END),
		  MAP_MERGE_NONE },
		{ "address that is stored on the stack at an unknown place",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), MOVR(7, 10), ADDR(7, 6), LOOKUP(0, 0, 3),
			  MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), STORE(BPF_DW, 7, 0, 0), END),
		  MAP_MERGE_SUM64 },
		{ "the same, and what is there is used",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), MOVR(7, 10), ADDR(7, 6), LOOKUP(0, 0, 5),
			  MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), STORE(BPF_DW, 7, 0, 0),
			  LOAD(BPF_DW, 2, 10, -64), ATOMIC(BPF_DW, BPF_ADD, 2, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "address that is compared",
		  PROGRAM(LOOKUP(0, 0, 3), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
			  INSN(BPF_JMP | BPF_JGT | BPF_K, 0, 0, 0, 5), END),
		  MAP_MERGE_NONE },
		{ "address plus something",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), LOOKUP(0, 0, 3), ADDR(0, 6), MOV(1, 1),
			  ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), END),
		  MAP_MERGE_SUM64 },
		{ "address that arithmetic turns into something else, used",
		  PROGRAM(LOOKUP(0, 0, 4), MOVR(6, 0),
			  INSN(BPF_ALU64 | BPF_XOR | BPF_K, 6, 0, 0, 8), MOV(1, 1),
			  ATOMIC(BPF_DW, BPF_ADD, 6, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "address that is dead where ways meet",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), LOOKUP(0, 0, 5), MOVR(7, 0), JEQ0(6, 1), MOV(7, 3),
			  MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), END),
		  MAP_MERGE_SUM64 },
		{ "the same, not dead",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), LOOKUP(0, 0, 5), MOVR(7, 0), JEQ0(6, 1),
			  MOVR(7, 10), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 7, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "constant address",
		  PROGRAM(LD64(2, INSN_PSEUDO_MAP_IDX_VALUE, 0, 0), MOV(1, 1),
			  ATOMIC(BPF_DW, BPF_ADD, 2, 1, 0), END),
		  MAP_MERGE_NONE },
		{ "update beside the add",
		  PROGRAM(LOOKUP(0, 0, 10), MOV(1, 1), ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
			  MOVR(2, 10), ADD(2, -4), MOVR(3, 10), ADD(3, -16), MOV(4, 0), MAP(1, 0),
			  CALL(2), END),
		  MAP_MERGE_NONE },
		{ "updates",
		  PROGRAM(STOREI(BPF_W, 10, -4, 0), STOREI(BPF_DW, 10, -16, 7), UPDATE(0),
			  UPDATE(2), END),
		  MAP_MERGE_LATEST },
		{ "update that must not exist",
		  PROGRAM(STOREI(BPF_W, 10, -4, 0), STOREI(BPF_DW, 10, -16, 7), UPDATE(1), END),
		  MAP_MERGE_NONE },
		{ "update with flags that are not known",
		  PROGRAM(LOAD(BPF_DW, 6, 1, 0), STOREI(BPF_W, 10, -4, 0),
			  STOREI(BPF_DW, 10, -16, 7), MOVR(2, 10), ADD(2, -4), MOVR(3, 10),
			  ADD(3, -16), MOVR(4, 6), MAP(1, 0), CALL(2), END),
		  MAP_MERGE_NONE },
		{ "updates and a lookup whose value is read",
		  PROGRAM(STOREI(BPF_DW, 10, -16, 7), LOOKUP(0, 0, 9), LOAD(BPF_DW, 6, 0, 0),
			  UPDATE(0), END),
		  MAP_MERGE_NONE },
		{ "lookup only", PROGRAM(LOOKUP(0, 0, 0), END), MAP_MERGE_NONE },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct translate_result result =
			translated_as(true, cases[i].insns, cases[i].n, &array8, 1);

		if (result.maps[0].layout.merge != cases[i].merge)
			fail_msg("%s: merge %d, not %d", cases[i].what, result.maps[0].layout.merge,
				 cases[i].merge);
		assert_int_equal(result.maps[0].layout.shards,
				 cases[i].merge == MAP_MERGE_NONE ? 1 : 256);
		translate_result_deinit(&result);
	}
}

/* A value that is passed to update as the source of another map's value is read. */
static void test_sharding_source(void **state) {
	static const struct bpf_insn insns[] = {
		LOOKUP(0, 0, 10),
		MOV(1, 1),
		ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
		MOVR(3, 0),
		STOREI(BPF_W, 10, -4, 0),
		MOVR(2, 10),
		ADD(2, -4),
		MOV(4, 0),
		MAP(1, 1),
		CALL(2),
		END,
	};
	const struct translate_map maps[] = {
		array8, { "other", BPF_MAP_TYPE_ARRAY, 4, 8, 1, "__gpuprobe_o1_m1" }
	};
	struct translate_result result = translated(insns, COUNT(insns), maps, 2);

	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	assert_int_equal(result.maps[1].layout.merge, MAP_MERGE_LATEST);
	assert_int_equal(result.programs[0].maps, 3);
	translate_result_deinit(&result);
}

static void test_two_programs(void **state) {
	static const struct bpf_insn reader[] = { LOOKUP(0, 0, 1), LOAD(BPF_DW, 1, 0, 0), END };
	static const struct bpf_insn nothing[] = { END };
	struct translate_program programs[] = {
		{ .name = "a",
		  .symbol = "__gpuprobe_o1_p0",
		  .insns = counter,
		  .n_insns = COUNT(counter) },
		{ .name = "b",
		  .symbol = "__gpuprobe_o1_p1",
		  .insns = reader,
		  .n_insns = COUNT(reader) },
		{ .name = "c",
		  .symbol = "__gpuprobe_o1_p2",
		  .insns = nothing,
		  .n_insns = COUNT(nothing) },
	};
	struct translate_result result;
	char *error;

	assert_int_equal(translate_object(programs, 3, &array8, 1, &result, &error), TRANSLATE_OK);
	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	assert_int_equal(result.maps[0].layout.shards, 1);
	assert_int_equal(result.maps[0].layout.shard_stride, 8);
	assert_int_equal(result.maps[0].layout.data_size, 8);
	assert_int_equal(result.programs[0].maps, 1);
	assert_int_equal(result.programs[1].maps, 1);
	assert_int_equal(result.programs[2].maps, 0);
	assert_non_null(strstr(result.programs[1].ptx, "__gpuprobe_o1_p1("));
	assert_null(strstr(result.programs[2].ptx, ".global"));
	assert_non_null(strstr(result.programs[0].ptx,
			       ".visible .const .align 8 .u64 __gpuprobe_o1_m0;\n"));
	assert_int_equal(occurrences(result.programs[0].ptx, "[__gpuprobe_o1_m0]"), 1);
	assert_non_null(strstr(result.programs[0].ptx, "ld.const.u64"));
	/* without shards there is no SM in the address, and still one operation a warp */
	assert_null(strstr(result.programs[0].ptx, "smid"));
	assert_non_null(strstr(result.programs[0].ptx, "activemask"));
	translate_result_deinit(&result);
}

/* An address in the variables of a thread. */
#define THREAD(d, offset) LD64(d, INSN_PSEUDO_MAP_IDX_VALUE, TRANSLATE_THREAD, offset)

static int translate_thread(const struct bpf_insn *insns, size_t n, uint32_t size,
			    struct translate_result *result, char **error) {
	static const struct translate_variable variables[] = { { "begin", 0, 8 },
							       { "sum", 16, 8 } };
	const struct translate_program program = {
		.name = "p",
		.symbol = "__gpuprobe_o1_p0",
		.insns = insns,
		.n_insns = n,
		.patch = true,
		.thread = { .size = size, .variables = variables, .n_variables = 2 },
	};

	*error = NULL;
	return translate_object(&program, 1, &array8, 1, result, error);
}

/* Variables of a thread: parameters behind the context's fields, and parts of the result. */
static void test_thread(void **state) {
	static const struct bpf_insn sum[] = {
		LOAD(BPF_DW, 2, 1, 16),
		THREAD(3, 16),
		ATOMIC(BPF_DW, BPF_ADD, 3, 2, 0),
		END,
	};
	static const struct bpf_insn nothing[] = { END };
	struct translate_result result;
	const struct translate_program_result *p;
	char *error;

	assert_int_equal(translate_thread(sum, COUNT(sum), 24, &result, &error), TRANSLATE_OK);
	p = result.programs;
	assert_int_equal(p->context_count, 2);
	assert_int_equal(p->context[0], 16);
	assert_int_equal(p->context[1], POINT_THREAD + 16);
	assert_non_null(strstr(p->ptx, ".func  (.param .align 8 .b8 func_retval0[16]) "
				       "__gpuprobe_o1_p0("));
	assert_int_equal(occurrences(p->ptx, "add.s64"), 1);
	assert_int_equal(occurrences(p->ptx, "[func_retval0+8], "), 1);
	assert_int_equal(occurrences(p->ptx, "atom") + occurrences(p->ptx, "red."), 0);
	assert_int_equal(occurrences(p->ptx, "local"), 0);
	assert_int_equal(p->maps, 0);
	assert_false(result.maps[0].used);
	assert_null(p->patch);
	assert_string_equal(p->patch_reason, "it has variables of a thread (.thread), which are "
					     "registers that only PTX can have yet");
	translate_result_deinit(&result);

	/* a program that uses none is as ever */
	assert_int_equal(translate_thread(nothing, COUNT(nothing), 24, &result, &error),
			 TRANSLATE_OK);
	p = result.programs;
	assert_int_equal(p->context_count, 0);
	assert_non_null(strstr(p->ptx, "(.param .b64 func_retval0)"));
	assert_non_null(p->patch);
	translate_result_deinit(&result);
}

static void test_thread_refused(void **state) {
	static const struct bpf_insn key[] = { THREAD(2, 16), MAP(1, 0), CALL(1), END };
	static const struct bpf_insn between[] = { THREAD(2, 8), MAP(1, 0), CALL(1), END };
	static const struct bpf_insn beyond[] = { THREAD(2, 16), LOAD(BPF_DW, 0, 2, 8), EXIT };
	static const struct {
		const struct bpf_insn *insns;
		size_t n;
		uint32_t size;
		const char *message;
	} cases[] = {
		{ key, COUNT(key), 24,
		  "program p, instruction 4: a helper cannot take the address of sum, a variable "
		  "of a thread, which is a register: copy it to a variable of the function" },
		{ between, COUNT(between), 24,
		  "program p, instruction 4: a helper cannot take the address of a variable of a "
		  "thread, which is a register: copy it to a variable of the function" },
		{ beyond, COUNT(beyond), 24,
		  "program p, instruction 2: access of 8 bytes at offset 24 of the variables of a "
		  "thread, which have 24" },
		{ beyond, COUNT(beyond), 0, "program p, instruction 0: refers to map 64 of 1" },
	};
	struct translate_result result;
	char *error;

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(translate_thread(cases[i].insns, cases[i].n, cases[i].size,
						  &result, &error),
				 TRANSLATE_E_PROGRAM);
		assert_string_equal(error, cases[i].message);
		free(error);
	}
	assert_int_equal(translate_thread(key, COUNT(key), 8 * POINT_THREAD_WORDS + 1, &result,
					  &error),
			 -EINVAL);
}

static void test_percpu(void **state) {
	static const struct bpf_insn plain[] = {
		LOOKUP(0, 0, 3), LOAD(BPF_DW, 1, 0, 0), ADD(1, 1), STORE(BPF_DW, 0, 1, 0), END,
	};
	static const struct bpf_insn not_an_increment[] = {
		LOOKUP(0, 0, 3),
		LOAD(BPF_DW, 1, 0, 0),
		INSN(BPF_ALU64 | BPF_MUL | BPF_K, 1, 0, 0, 3),
		STORE(BPF_DW, 0, 1, 0),
		END,
	};
	static const struct bpf_insn narrow[] = {
		LOOKUP(0, 0, 3),
		LOAD(BPF_DW, 1, 0, 0),
		INSN(BPF_ALU | BPF_ADD | BPF_K, 1, 0, 0, 1),
		STORE(BPF_DW, 0, 1, 0),
		END,
	};
	static const struct bpf_insn used[] = {
		LOOKUP(0, 0, 5),
		LOAD(BPF_DW, 1, 0, 0),
		ADD(1, 1),
		STORE(BPF_DW, 0, 1, 0),
		MOVR(0, 1),
		EXIT,
		END,
	};
	struct translate_map host = percpu8;
	struct translate_result result = translated(plain, COUNT(plain), &percpu8, 1);

	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_PERCPU);
	assert_int_equal(result.maps[0].layout.shards, 256);
	assert_int_equal(occurrences(result.programs[0].ptx, "red.global.add.u64"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global"), 0);
	assert_non_null(strstr(result.programs[0].ptx, "activemask"));
	translate_result_deinit(&result);

	result = translated(not_an_increment, COUNT(not_an_increment), &percpu8, 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global"), 1);
	translate_result_deinit(&result);

	/* the sum of 32 bits in a value of 64: its upper half becomes 0, which no addition does */
	result = translated(narrow, COUNT(narrow), &percpu8, 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "red.global"), 0);
	translate_result_deinit(&result);

	/* where the sum is wanted: of the GPU's scope, or of the system's where other GPUs add, too
	 */
	result = translated(used, COUNT(used), &percpu8, 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "atom.global.add.u64"), 1);
	translate_result_deinit(&result);
	host.place = MAP_PLACE_HOST;
	result = translated(used, COUNT(used), &host, 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "atom.sys.global.add.u64"), 1);
	translate_result_deinit(&result);

	/* on an array the same is a load and a store, as in the kernel */
	result = translated(plain, COUNT(plain), &array8, 1);
	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global.u64"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "ld.const"), 1);
	/* and ptxas cannot load it again: gpuprobe_load_once() */
	assert_int_equal(occurrences(result.programs[0].ptx, "mul.wide.u32"), 1);
	translate_result_deinit(&result);
}

static void test_layout(void **state) {
	const struct {
		uint32_t value_size, max_entries, shards;
		uint64_t value_stride, shard_stride;
	} cases[] = {
		{ 8, 16, 256, 8, 128 },         { 4, 17, 256, 8, 256 },
		{ 12, 3, 256, 16, 128 },        { 8, 32768, 256, 8, 262144 },
		{ 8, 32769, 128, 8, 262272 },   { 8, 1048576, 8, 8, 8388608 },
		{ 8, 8388607, 1, 8, 67108856 }, { 8, 536870912, 1, 8, UINT64_C(4294967296) },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct translate_map map = array8;
		struct translate_result result;

		map.value_size = cases[i].value_size;
		map.max_entries = cases[i].max_entries;
		result = translated(counter, COUNT(counter), &map, 1);
		assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_SUM64);
		assert_int_equal(result.maps[0].layout.shards, cases[i].shards);
		assert_int_equal(result.maps[0].layout.value_stride, cases[i].value_stride);
		assert_int_equal(result.maps[0].layout.shard_stride, cases[i].shard_stride);
		assert_int_equal(result.maps[0].layout.data_size,
				 cases[i].shards * cases[i].shard_stride);
		translate_result_deinit(&result);
	}
}

static void test_unused_map(void **state) {
	static const struct bpf_insn insns[] = { END };
	struct translate_map map = array8;
	struct translate_result result;

	map.type = BPF_MAP_TYPE_HASH; /* does no harm where it is not used */
	result = translated(insns, COUNT(insns), &map, 1);
	assert_false(result.maps[0].used);
	assert_int_equal(result.maps[0].layout.shards, 1);
	translate_result_deinit(&result);
}

/* Values of constant address: a program whose map is not armed does nothing. */
static void test_direct(void **state) {
	static const struct bpf_insn insns[] = {
		LD64(2, INSN_PSEUDO_MAP_IDX_VALUE, 0, 4),
		LOAD(BPF_W, 0, 2, 0),
		EXIT,
	};
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);

	assert_int_equal(occurrences(result.programs[0].ptx, "ld.volatile.global.b32"), 1);
	assert_non_null(strstr(result.programs[0].ptx, "setp"));
	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	translate_result_deinit(&result);
}

/* Whatever LLVM puts beside the function carries the function's name. */
static void test_private_symbols(void **state) {
	struct bpf_insn insns[64] = { LOAD(BPF_DW, 2, 1, 0) };
	struct translate_result result;
	size_t n = 1;

	/* a switch over numbers, which LLVM likes to turn into a table */
	for (int i = 0; i < 10; i++) {
		insns[n++] = INSN(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 2, i);
		insns[n++] = MOV(0, i * i * 7 + 3);
		insns[n++] = EXIT;
	}
	insns[n++] = MOV(0, 0);
	insns[n++] = EXIT;
	result = translated(insns, n, NULL, 0);
	for (const char *p = result.programs[0].ptx; (p = strstr(p, ".global .align")); p++) {
		const char *end = strchr(p, '\n');
		const char *name = strstr(p, "__gpuprobe_o1_p0_");

		assert_true(name && name < end);
	}
	assert_int_equal(result.programs[0].context_count, 1);
	translate_result_deinit(&result);
}

static void test_stack_in_registers(void **state) {
	/* a structure on the stack, written in pieces, passed to a function by address, summed
	 * there */
	static const struct bpf_insn insns[] = {
		STOREI(BPF_DW, 10, -8, 1),
		STOREI(BPF_DW, 10, -16, 2),
		STOREI(BPF_W, 10, -24, 3),
		STOREI(BPF_W, 10, -20, 0),
		MOVR(1, 10),
		ADD(1, -24),
		INSN(BPF_JMP | BPF_CALL, 0, INSN_CALL_BPF, 0, 1),
		EXIT,
		LOAD(BPF_DW, 0, 1, 0),
		LOAD(BPF_DW, 2, 1, 8),
		ADDR(0, 2),
		LOAD(BPF_DW, 2, 1, 16),
		ADDR(0, 2),
		EXIT,
	};
	struct translate_result result = translated(insns, COUNT(insns), NULL, 0);

	assert_int_equal(result.programs[0].local_bytes, 0);
	assert_null(strstr(result.programs[0].ptx, ".local"));
	assert_non_null(strstr(result.programs[0].ptx, "6;"));
	translate_result_deinit(&result);
}

/*
 * The kernel's verifier knows that the address of a map is not NULL, and does not look at what
 * would come if it were.
 */
static void test_map_is_not_null(void **state) {
	static const struct bpf_insn insns[] = {
		MOV(0, 0), MAP(1, 0), JEQ0(1, 1), EXIT, LD64(2, 0, 64, 0), LOAD(BPF_DW, 0, 2, 0),
		EXIT,
	};
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);

	assert_int_equal(occurrences(result.programs[0].ptx, "ld."), 0);
	translate_result_deinit(&result);
}

/* The same with half of the address of a value. */
static void test_half_address_is_not_null(void **state) {
	static const struct bpf_insn insns[] = {
		LOOKUP(0, 0, 4),
		INSN(BPF_JMP32 | BPF_JNE | BPF_K, 0, 0, 3, 0),
		LD64(2, 0, 64, 0),
		STOREI(BPF_DW, 2, 0, 7),
		END,
	};
	struct translate_result result = translated(insns, COUNT(insns), &percpu8, 1);
	const char *ptx = result.programs[0].ptx;

	/* the slot's 64 bits are compared, and what has been looked up; nothing of 32 bits is */
	assert_int_equal(occurrences(ptx, "cvt.u32.u64") + occurrences(ptx, "setp.eq.s32") +
				 occurrences(ptx, "setp.ne.s32"),
			 0);
	if (!strstr(ptx, "setp."))
		fail_msg("%s", ptx);
	translate_result_deinit(&result);
}

/* How `r6` is added to a value, which `count` instructions make of the context. */
static struct translate_result added(const struct bpf_insn *make, size_t count,
				     const struct translate_map *map) {
	static const struct bpf_insn end[] = {
		LOOKUP(0, 0, 1),
		ATOMIC(BPF_DW, BPF_ADD, 0, 6, 0),
		END,
	};
	struct bpf_insn insns[32];

	memcpy(insns, make, count * sizeof(*make));
	memcpy(insns + count, end, sizeof(end));
	return translated(insns, count + COUNT(end), map, 1);
}

/* The leader multiplies; nobody sums up over the warp. The place decides, or nothing does. */
static void check_cheap(const struct bpf_insn *make, size_t count, bool place) {
	struct translate_result result = added(make, count, &array8);
	const struct translate_program_result *p = result.programs;

	assert_int_equal(occurrences(p->ptx, "shfl.sync.bfly"), 0);
	assert_int_equal(occurrences(p->ptx, "popc.b32"), 1);
	assert_int_equal(occurrences(p->ptx, "red.global.add.u64"), place ? 2 : 1);
	assert_int_equal(p->context_count && p->context[p->context_count - 1] == POINT_UNIFORM,
			 place);
	translate_result_deinit(&result);
}

#define CHEAP(place, ...)                                               \
	do {                                                            \
		static const struct bpf_insn make_[] = { __VA_ARGS__ }; \
		check_cheap(make_, COUNT(make_), place);                \
	} while (0)

/* A butterfly over the warp; the place is not asked. */
static void check_dear(const struct bpf_insn *make, size_t count) {
	struct translate_result result = added(make, count, &array8);
	const struct translate_program_result *p = result.programs;

	assert_int_equal(occurrences(p->ptx, "shfl.sync.bfly"), 10);
	for (uint32_t i = 0; i < p->context_count; i++)
		assert_int_not_equal(p->context[i], POINT_UNIFORM);
	translate_result_deinit(&result);
}

#define DEAR(...)                                                       \
	do {                                                            \
		static const struct bpf_insn make_[] = { __VA_ARGS__ }; \
		check_dear(make_, COUNT(make_));                        \
	} while (0)

/* What is the same in all lanes takes the path of a literal; what need not be does not. */
static void test_uniform(void **state) {
	CHEAP(true, LOAD(BPF_DW, 6, 1, 16)); /* size, or the process */
	CHEAP(true, LOAD(BPF_DW, 6, 1, 24)); /* space, or the grid */
	CHEAP(true, LOAD(BPF_DW, 6, 1, 32)); /* kind */
	CHEAP(true, LOAD(BPF_DW, 6, 1, 0)); /* kernel, or instruction */
	CHEAP(true, LOAD(BPF_W, 6, 1, 16), LOAD(BPF_DW, 2, 1, 32), ADDR(6, 2), ADD(6, 7));
	CHEAP(true, LOAD(BPF_DW, 6, 1, 16), STORE(BPF_DW, 10, 6, -32), LOAD(BPF_DW, 6, 10, -32));
	CHEAP(false, CALL(14), MOVR(6, 0));
	CHEAP(false, CALL(512), MOVR(6, 0), ADD(6, 1));
	CHEAP(false, MOVR(1, 10), ADD(1, -24), MOVR(2, 10), ADD(2, -32), MOVR(3, 10), ADD(3, -40),
	      CALL(504), LOAD(BPF_DW, 6, 10, -32));

	DEAR(LOAD(BPF_DW, 6, 1, 8)); /* address, or the device */
	DEAR(LOAD(BPF_DW, 6, 1, 40)); /* value */
	DEAR(LOAD(BPF_DW, 6, 1, 64)); /* a parameter, which a function has in a register */
	DEAR(CALL(511), MOVR(6, 0));
	DEAR(CALL(514), MOVR(6, 0)); /* only of the lanes that were together */
	DEAR(LOAD(BPF_DW, 6, 1, 16), CALL(511), ADDR(6, 0));
	/* one or the other */
	DEAR(LOAD(BPF_DW, 6, 1, 16), LOAD(BPF_DW, 7, 1, 24), CALL(511), JEQ0(0, 1), MOVR(6, 7));
	DEAR(LOAD(BPF_DW, 6, 1, 16), CALL(511), JEQ0(0, 1), ADD(6, 1));
	DEAR(MOV(6, 1), CALL(511), JEQ0(0, 1), MOV(6, 2));
	/* a turn of a loop ahead */
	DEAR(LOAD(BPF_DW, 6, 1, 16), MOVR(7, 6), CALL(511), ADDR(6, 7), ADD(0, -1), JEQ0(0, 1),
	     INSN(BPF_JMP | BPF_JA, 0, 0, -4, 0));
	/* in part from elsewhere */
	DEAR(LOAD(BPF_DW, 6, 1, 16), STORE(BPF_DW, 10, 6, -32), CALL(511), STORE(BPF_B, 10, 0, -32),
	     LOAD(BPF_DW, 6, 10, -32));
}

/*
 * What .rodata holds is known, at constant places: so are branches on it, of which the other way
 * may do what no GPU can; and sizes.
 */
static void test_constants(void **state) {
	static const uint8_t bytes[] = { 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 24, 0, 0, 0 };
	struct translate_map maps[] = {
		{ ".rodata", BPF_MAP_TYPE_ARRAY, 4, sizeof(bytes), 1, "__gpuprobe_o1_m0",
		  .constant = bytes },
		{ "ring", BPF_MAP_TYPE_RINGBUF, 0, 0, 4096, "__gpuprobe_o1_m1" },
	};
	static const struct bpf_insn insns[] = {
		LD64(6, INSN_PSEUDO_MAP_IDX_VALUE, 0, 0),
		LOAD(BPF_W, 1, 6, 0),
		JEQ0(1, 1),
		CALL(27), /* a stack of the kernel */
		INSN(BPF_LDX | INSN_MODE_MEMSX | BPF_W, 1, 6, 4, 0),
		INSN(BPF_JMP | BPF_JSLT | BPF_K, 1, 0, 1, -1),
		CALL(27),
		MAP(1, 1),
		LOAD(BPF_W, 2, 6, 8),
		MOV(3, 0),
		CALL(131),
		JEQ0(0, 4),
		STOREI(BPF_DW, 0, 16, 5),
		MOVR(1, 0),
		MOV(2, 0),
		CALL(132),
		END,
	};
	static const struct bpf_insn stores[] = {
		LD64(6, INSN_PSEUDO_MAP_IDX_VALUE, 0, 0),
		STOREI(BPF_W, 6, 0, 1),
		END,
	};
	static const struct bpf_insn reads[] = {
		LD64(6, INSN_PSEUDO_MAP_IDX_VALUE, 0, 8),
		LOAD(BPF_W, 0, 6, 0),
		EXIT,
	};
	static const struct bpf_insn beyond[] = {
		LD64(6, INSN_PSEUDO_MAP_IDX_VALUE, 0, 8),
		LOAD(BPF_DW, 0, 6, 0),
		EXIT,
	};
	struct translate_program program = {
		.name = "p", .symbol = "p", .insns = insns, .n_insns = COUNT(insns)
	};
	struct translate_result result = translated(insns, COUNT(insns), maps, 2);
	char *error = NULL;

	assert_int_equal(result.programs[0].maps, 3); /* nothing runs without it, as before */
	translate_result_deinit(&result);
	result = translated(beyond, COUNT(beyond), maps, 1);
	assert_true(occurrences(result.programs[0].ptx, "ld.volatile.global") > 0);
	translate_result_deinit(&result);
	result = translated(reads, COUNT(reads), maps, 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "global.b"), 0);
	assert_non_null(strstr(result.programs[0].ptx, " 24"));
	translate_result_deinit(&result);

	program.insns = stores;
	program.n_insns = COUNT(stores);
	assert_int_equal(translate_object(&program, 1, maps, 2, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(error,
			    "program p, instruction 2: stores to map .rodata, which is constant");
	free(error);

	/* .data may be anything */
	maps[0].constant = NULL;
	program.insns = insns;
	program.n_insns = COUNT(insns);
	assert_int_equal(translate_object(&program, 1, maps, 2, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(
		error,
		"program p, instruction 4: bpf_get_stackid (27) is not available on the GPU");
	free(error);
}

/* Never reached, and nobody knows such a helper: looked at for the patch form, which has an exit.
 */
static void test_unknown_helper(void **state) {
	static const struct bpf_insn insns[] = {
		MOV(1, 1), JEQ0(1, 2), LD64(2, 0, 0, 0), CALL(9999), CALL(507), END,
	};
	struct translate_program program = {
		.name = "p", .symbol = "p", .insns = insns, .n_insns = COUNT(insns), .patch = true
	};
	static const struct bpf_insn skips[] = {
		MOV(1, 0), JEQ0(1, 1), CALL(9999), CALL(507), END,
	};
	struct translate_result result;
	char *error = NULL;

	assert_int_equal(translate_object(&program, 1, NULL, 0, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(error,
			    "program p, instruction 4: helper 9999 is not available on the GPU");
	free(error);
	program.insns = skips;
	program.n_insns = COUNT(skips);
	assert_int_equal(translate_object(&program, 1, NULL, 0, &result, &error), 0);
	assert_non_null(strstr(result.programs[0].patch_reason, "bpf_cuda_exit"));
	translate_result_deinit(&result);
}

static void check_map_access(const struct bpf_insn *insns, size_t n) {
	const struct translate_map maps[] = { array8, percpu8 };
	struct translate_program program = {
		.name = "p", .symbol = "p", .insns = insns, .n_insns = n
	};
	struct translate_result result;
	char *error = NULL;

	assert_int_equal(translate_object(&program, 1, maps, 2, &result, &error),
			 TRANSLATE_E_PROGRAM);
	if (!strstr(error, "a reference to a map"))
		fail_msg("%s", error);
	free(error);
}

/* The verifier lets programs read the kernel's maps themselves. There are none on a GPU. */
static void test_map_is_not_memory(void **state) {
	static const struct bpf_insn plain[] = { MAP(1, 0), LOAD(BPF_W, 0, 1, 16), EXIT };
	static const struct bpf_insn moved[] = { MAP(1, 0), ADD(1, 0), LOAD(BPF_W, 0, 1, 16),
						 EXIT };
	static const struct bpf_insn moved_by[] = { MAP(1, 0), MOV(2, 0), ADDR(2, 1),
						    LOAD(BPF_W, 0, 2, 16), EXIT };
	static const struct bpf_insn spilled[] = { MAP(1, 0), STORE(BPF_DW, 10, 1, -8),
						   LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_W, 0, 1, 16),
						   EXIT };
	static const struct bpf_insn either[] = {
		CALL(7), MAP(6, 0), JEQ0(0, 2), MAP(6, 1), LOAD(BPF_W, 0, 6, 16), EXIT,
	};
	static const struct bpf_insn or_stack[] = {
		STOREI(BPF_DW, 10, -8, 0), CALL(7), MOVR(6, 10), JEQ0(0, 2), MAP(6, 1),
		LOAD(BPF_W, 0, 6, -8),     EXIT,
	};

	check_map_access(plain, COUNT(plain));
	check_map_access(moved, COUNT(moved));
	check_map_access(moved_by, COUNT(moved_by));
	check_map_access(spilled, COUNT(spilled));
	check_map_access(either, COUNT(either));
	check_map_access(or_stack, COUNT(or_stack));
}

/* What may be a map or an address in one is still an address that we must not lose. */
static void test_map_or_value(void **state) {
	static const struct bpf_insn insns[] = {
		LOOKUP(0, 0, 9), MOVR(6, 0),
		MOV(1, 1),       ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
		CALL(7),         JEQ0(0, 2),
		MAP(6, 0),       INSN(BPF_JMP | BPF_JGT | BPF_K, 6, 0, 1, 77),
		MOV(7, 0),       END,
	};
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);

	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	translate_result_deinit(&result);
}

/* A value that is an index once it was compared: it is read once, whoever writes it meanwhile. */
static void test_values_are_read_once(void **state) {
	static const struct bpf_insn insns[] = {
		LOOKUP(0, 0, 8),
		LOAD(BPF_DW, 1, 0, 0),
		INSN(BPF_JMP | BPF_JGT | BPF_K, 1, 0, 6, 8),
		ADDR(0, 1),
		LOAD(BPF_B, 2, 0, 8),
		LOAD(BPF_W, 3, 0, 8), /* at an address that need not be aligned */
		ADDR(2, 3),
		MOVR(0, 2),
		EXIT,
		END,
	};
	static const uint32_t types[] = { BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PERCPU_ARRAY, 1502, 1513,
					  BPF_MAP_TYPE_HASH };

	for (size_t i = 0; i < COUNT(types); i++) {
		struct translate_map map = { "m", types[i], 4, 24, 1, "__gpuprobe_o1_m0" };
		struct translate_program program = { .name = "p",
						     .symbol = "p",
						     .insns = insns,
						     .n_insns = COUNT(insns),
						     .patch = true };
		struct translate_result result;
		char *error = NULL;

		if (translate_object(&program, 1, &map, 1, &result, &error))
			fail_msg("%s", error);
		/* the only weak loads look at slots of a hash */
		assert_null(strstr(result.programs[0].ptx, "ld.global.u"));
		assert_null(strstr(result.programs[0].ptx, "ld.global.b"));
		assert_null(strstr(result.programs[0].patch, "ld.global.u"));
		if (types[i] == BPF_MAP_TYPE_HASH)
			assert_non_null(strstr(result.programs[0].ptx, "ld.volatile.global.u64"));
		else
			assert_non_null(strstr(result.programs[0].ptx, "ld.volatile.global.b64"));
		if (types[i] != BPF_MAP_TYPE_HASH)
			assert_non_null(strstr(result.programs[0].patch, "ld.relaxed.cta.global"));
		translate_result_deinit(&result);
	}
}

/* Frames that are not on the stack at once share their memory, as the kernel's verifier has it. */
static void test_stacks_share(void **state) {
	enum {
		CALLS = 20
	};
	struct bpf_insn insns[2 * CALLS + 32];
	struct translate_result result;
	size_t n = 0;

	insns[n++] = MOV(7, 0);
	for (int i = 0; i < CALLS; i++, n += 2) {
		insns[n] = INSN(BPF_JMP | BPF_CALL, 0, INSN_CALL_BPF, 0, 2 * (CALLS - i) - 1 + 2);
		insns[n + 1] = ADDR(7, 0);
	}
	insns[n++] = MOVR(0, 7);
	insns[n++] = EXIT;
	for (int i = 0; i < 2; i++) { /* stores and loads at places that are not known */
		insns[n++] = CALL(7);
		insns[n++] = INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 0xf8);
		insns[n++] = MOVR(2, 10);
		insns[n++] = ADD(2, -256);
		insns[n++] = ADDR(2, 0);
		insns[n++] = i ? LOAD(BPF_DW, 0, 2, 0) : STORE(BPF_DW, 2, 0, 0);
	}
	insns[n++] = EXIT;
	result = translated(insns, n, NULL, 0);
	assert_int_equal(result.programs[0].local_bytes, 512);
	translate_result_deinit(&result);
}

/* A program with `n` records of the largest size, written at places that are not known. */
static size_t reserve_records(struct bpf_insn *insns, unsigned records) {
	static const struct bpf_insn one[] = {
		MAP(1, 0),
		MOV(2, 4096),
		MOV(3, 0),
		CALL(131),
		JEQ0(0, 9),
		MOVR(6, 0),
		CALL(7),
		INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 0xff8),
		MOVR(1, 6),
		ADDR(1, 0),
		STORE(BPF_DW, 1, 0, 0),
		MOVR(1, 6),
		MOV(2, 0),
		CALL(132),
	};
	static const struct bpf_insn end[] = { END };

	for (unsigned i = 0; i < records; i++)
		memcpy(insns + i * COUNT(one), one, sizeof(one));
	memcpy(insns + records * COUNT(one), end, sizeof(end));
	return records * COUNT(one) + COUNT(end);
}

/* Drivers take local memory for all threads that a device holds: it has a bound. */
static void test_local_memory(void **state) {
	struct translate_map map = { "ring", BPF_MAP_TYPE_RINGBUF, 0, 0, 65536, "m0" };
	struct bpf_insn insns[64];
	struct translate_program program = { .name = "p", .symbol = "p", .insns = insns };
	struct translate_result result;
	char *error = NULL;

	program.n_insns = reserve_records(insns, 2);
	assert_int_equal(translate_object(&program, 1, &map, 1, &result, &error), 0);
	assert_int_equal(result.programs[0].local_bytes, 8192);
	translate_result_deinit(&result);
	program.n_insns = reserve_records(insns, 3);
	assert_int_equal(translate_object(&program, 1, &map, 1, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(error,
			    "program p: needs 12288 bytes of local memory a thread, 8192 are "
			    "allowed: reserve fewer or smaller records, or have smaller arrays on "
			    "the stack");
	free(error);
}

/* A number that was never written is some number, the same where it is compared and where it is an
 * index: the program runs as it stands. */
static void test_stack_never_written(void **state) {
	static const struct bpf_insn insns[] = {
		LOOKUP(0, 0, 4),
		LOAD(BPF_DW, 1, 10, -64),
		INSN(BPF_JMP | BPF_JGT | BPF_K, 1, 0, 2, 7),
		ADDR(0, 1),
		STOREI(BPF_B, 0, 0, 1),
		END,
	};
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);

	assert_int_equal(occurrences(result.programs[0].ptx, "st.global.u8"), 1);
	translate_result_deinit(&result);
}

/*
 * A text of which a byte was never written is some text. LLVM may not take it for one that cannot
 * be, and leave the call away with what follows.
 */
static void test_text_never_written(void **state) {
	static const struct bpf_insn insns[] = { MOVR(1, 10), ADD(1, -8), MOV(2, 1), CALL(6), END };
	const struct translate_map map = { "log", 1527, 0, 0, 64, "m0", .log = true };
	struct translate_result result = translated(insns, COUNT(insns), &map, 1);

	assert_non_null(strstr(result.programs[0].ptx, "st.release.sys.global"));
	translate_result_deinit(&result);
}

/* Each kind of map, and each part of the PTX that it brings. */
static void test_kinds(void **state) {
	static const struct bpf_insn output[] = {
		MOVR(6, 1),
		MOV(1, 0),
		STORE(BPF_DW, 10, 1, -8),
		STORE(BPF_DW, 10, 1, -16),
		MOVR(1, 6),
		MAP(2, 0),
		MOV(3, 0),
		MOVR(4, 10),
		ADD(4, -16),
		MOV(5, 16),
		CALL(25),
		EXIT,
	};
	static const struct bpf_insn reserve[] = {
		MAP(1, 0),  MOV(2, 32), MOV(3, 0), CALL(131), JEQ0(0, 4), STOREI(BPF_DW, 0, 24, 5),
		MOVR(1, 0), MOV(2, 0),  CALL(132), END,
	};
	struct translate_map map = { "ring", BPF_MAP_TYPE_RINGBUF, 0, 0, 4096, "__gpuprobe_o1_m0" };
	struct translate_result result = translated(output, COUNT(output), &map, 1);

	assert_int_equal(result.maps[0].layout.kind, MAP_KIND_RING);
	assert_int_equal(result.maps[0].layout.rings, 128);
	assert_int_equal(result.programs[0].target, 70);
	assert_int_equal(result.programs[0].local_bytes, 0);
	/* once for whole warps, once for parts, under a mask that ptxas does not know
	 * (device-lib.h) */
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global.v4"), 2);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.release.sys.global.v2.b64"), 4);
	assert_int_equal(occurrences(result.programs[0].ptx, "%lanemask_eq"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "fence"),
			 0); /* empties the L1 cache */
	assert_int_equal(occurrences(result.programs[0].ptx, "match.any"), 0);
	assert_int_equal(occurrences(result.programs[0].ptx, ".pragma"), 0);
	assert_int_equal(occurrences(result.programs[0].ptx, "ld.const"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "%laneid"), 1); /* loaded once */
	translate_result_deinit(&result);

	result = translated(reserve, COUNT(reserve), &map, 1);
	assert_int_equal(result.programs[0].local_bytes, 0);
	assert_null(strstr(result.programs[0].ptx, ".local"));
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global.v4"), 2);
	translate_result_deinit(&result);

	map = (struct translate_map){ "own", 1502, 4, 8, 1, "__gpuprobe_o1_m0", .threads = 1024 };
	result = translated(counter, COUNT(counter), &map, 1);
	assert_int_equal(result.maps[0].layout.data_size, 8192);
	assert_int_equal(result.programs[0].target, 52);
	assert_int_equal(occurrences(result.programs[0].ptx, "red.global.add.u64"), 1);
	assert_null(strstr(result.programs[0].ptx, "shfl"));
	assert_null(strstr(result.programs[0].ptx, "activemask"));
	/* what grids of one dimension need not know comes behind a branch */
	assert_true(strstr(result.programs[0].ptx, "%tid.y") >
		    strstr(result.programs[0].ptx, "bra"));
	translate_result_deinit(&result);

	map = (struct translate_map){ "host", 1513, 4, 8, 1, "__gpuprobe_o1_m0" };
	result = translated(counter, COUNT(counter), &map, 1);
	assert_int_equal(result.maps[0].layout.place, MAP_PLACE_HOST);
	assert_int_equal(result.maps[0].layout.merge, MAP_MERGE_NONE);
	assert_int_equal(result.programs[0].target, 60);
	assert_int_equal(occurrences(result.programs[0].ptx, "red.sys.global.add.u64"), 1);
	translate_result_deinit(&result);
}

/* The process is a slot like those of maps; only who asks for it has it. */
static void test_process(void **state) {
	static const struct bpf_insn asks[] = { CALL(14), EXIT };
	struct translate_result result = translated(asks, COUNT(asks), NULL, 0);
	static const char slot[] = ".visible .const .align 8 .b8 __gpuprobe_process[64];\n";

	assert_true(result.programs[0].process);
	assert_int_equal(strncmp(result.programs[0].ptx, slot, strlen(slot)), 0);
	translate_result_deinit(&result);
	result = translated(counter, COUNT(counter), &array8, 1);
	assert_false(result.programs[0].process);
	assert_null(strstr(result.programs[0].ptx, "__gpuprobe_process"));
	translate_result_deinit(&result);
}

/* Whole values with the time, 16 bytes at once, each SM for itself. */
static void test_latest(void **state) {
	static const struct bpf_insn insns[] = { STOREI(BPF_W, 10, -4, 0),
						 STOREI(BPF_DW, 10, -16, 7), UPDATE(0), END };
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);

	assert_int_equal(result.maps[0].layout.value_stride, 16);
	assert_int_equal(result.maps[0].layout.shards, 256);
	assert_true(result.maps[0].resident);
	assert_int_equal(occurrences(result.programs[0].ptx, "st.global.v2.b64"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "globaltimer"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "ld."), 0); /* a constant address */
	translate_result_deinit(&result);
}

/* A helper that needs a newer architecture raises what the whole program needs. */
static void test_cluster(void **state) {
	static const struct bpf_insn insns[] = {
		MOVR(1, 10), ADD(1, -8),  MOVR(2, 10), ADD(2, -16),
		MOVR(3, 10), ADD(3, -24), CALL(513),   LOAD(BPF_DW, 0, 10, -16),
		EXIT,
	};
	struct translate_result result = translated(insns, COUNT(insns), NULL, 0);

	assert_int_equal(result.programs[0].target, 90);
	assert_int_equal(result.programs[0].isa, 78);
	assert_int_equal(occurrences(result.programs[0].ptx, "%clusterid.y"), 1);
	translate_result_deinit(&result);
}

static void test_exit(void **state) {
	static const struct bpf_insn insns[] = { CALL(511), JEQ0(0, 1), CALL(507), END };
	struct translate_result result = translated(insns, COUNT(insns), NULL, 0);

	assert_int_equal(occurrences(result.programs[0].ptx, "exit;"), 1);
	assert_int_equal(occurrences(result.programs[0].ptx, "ret;"), 1);
	translate_result_deinit(&result);
}

static void test_errors(void **state) {
	static const struct bpf_insn bad[] = { MOV(0, 0), CALL(6), EXIT };
	struct translate_program program = {
		.name = "cuda__x", .symbol = "__gpuprobe_o1_p0", .insns = bad, .n_insns = 3
	};
	struct translate_map map = array8;
	struct translate_result result;
	char *error = NULL;

	memset(&result, 0xa5, sizeof(result));
	assert_int_equal(translate_object(&program, 1, NULL, 0, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(
		error,
		"program cuda__x, instruction 1: bpf_trace_printk (6): the object has no log");
	assert_int_equal(((unsigned char *)&result)[0], 0xa5);
	free(error);

	error = NULL;
	program.n_insns = 0;
	assert_int_equal(translate_object(&program, 1, NULL, 0, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(error, "program cuda__x: no instructions");
	free(error);

	program.insns = counter;
	program.n_insns = COUNT(counter);
	map.key_size = 8;
	assert_int_equal(translate_object(&program, 1, &map, 1, &result, &error), TRANSLATE_E_MAP);
	assert_non_null(strstr(error, "map counter: "));
	free(error);

	program.symbol = "a; b";
	assert_int_equal(translate_object(&program, 1, &array8, 1, &result, &error), -EINVAL);
	program.symbol = "ok";
	map = array8;
	map.slot_symbol = "9x";
	assert_int_equal(translate_object(&program, 1, &map, 1, &result, &error), -EINVAL);
	assert_int_equal(translate_object(&program, TRANSLATE_PROGRAMS_MAX + 1, &array8, 1, &result,
					  &error),
			 -EINVAL);
}

/* Calls multiply when they are inlined; that has an end. */
static void test_explosion(void **state) {
	struct bpf_insn insns[7 * 9 + 2];
	struct translate_program program = { .name = "boom", .symbol = "boom", .insns = insns };
	struct translate_result result;
	char *error = NULL;
	size_t n = 0;

	/* each of seven functions calls the next eight times */
	for (int f = 0; f < 7; f++) {
		size_t next = n + 9;

		for (int i = 0; i < 8; i++, n++)
			insns[n] =
				INSN(BPF_JMP | BPF_CALL, 0, INSN_CALL_BPF, 0, (int)(next - n - 1));
		insns[n++] = EXIT;
	}
	insns[n++] = MOV(0, 0);
	insns[n++] = EXIT;
	program.n_insns = n;
	assert_int_equal(translate_object(&program, 1, NULL, 0, &result, &error),
			 TRANSLATE_E_PROGRAM);
	assert_string_equal(
		error, "program boom: more than 32768 instructions once its calls are inlined");
	free(error);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counter),
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_sharding),
		cmocka_unit_test(test_sharding_source),
		cmocka_unit_test(test_two_programs),
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_thread_refused),
		cmocka_unit_test(test_percpu),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_unused_map),
		cmocka_unit_test(test_direct),
		cmocka_unit_test(test_private_symbols),
		cmocka_unit_test(test_stack_in_registers),
		cmocka_unit_test(test_map_is_not_null),
		cmocka_unit_test(test_half_address_is_not_null),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_constants),
		cmocka_unit_test(test_unknown_helper),
		cmocka_unit_test(test_map_is_not_memory),
		cmocka_unit_test(test_map_or_value),
		cmocka_unit_test(test_values_are_read_once),
		cmocka_unit_test(test_stacks_share),
		cmocka_unit_test(test_local_memory),
		cmocka_unit_test(test_stack_never_written),
		cmocka_unit_test(test_text_never_written),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_process),
		cmocka_unit_test(test_latest),
		cmocka_unit_test(test_exit),
		cmocka_unit_test(test_cluster),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_explosion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
