/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the patch form of programs: its slots lie behind a pointer, each is loaded once,
 * and nothing in it belongs to a module.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "test-translate.h"

static struct translate_result translated_with(const struct translate_program *about,
					       const struct bpf_insn *insns, size_t n,
					       const struct translate_map *maps, size_t n_maps) {
	struct translate_program program = *about;
	struct translate_result result;
	char *error = NULL;
	int r;

	program.name = "p";
	program.symbol = "__gpuprobe_o1_p0";
	program.insns = insns;
	program.n_insns = n;
	r = translate_object(&program, 1, maps, n_maps, &result, &error);
	if (r)
		fail_msg("%d: %s", r, error ? error : "no message");
	return result;
}

/* Both forms of a program that must have them; what holds for all patch forms does. */
static struct translate_result translated(const struct bpf_insn *insns, size_t n,
					  const struct translate_map *maps, size_t n_maps) {
	static const char *const never[] = { ".visible", ".const", ".shared", ".version", ".target",
					     "//",       "exit;",  ".nc.",    "bar.sync" };
	static const struct translate_program wanted = { .patch = true };
	struct translate_result result = translated_with(&wanted, insns, n, maps, n_maps);
	const struct translate_program_result *p = result.programs;

	assert_non_null(p->patch);
	assert_null(p->patch_reason);
	assert_int_equal(strlen(p->patch), p->patch_size);
	for (size_t i = 0; i < COUNT(never); i++)
		if (strstr(p->patch, never[i]))
			fail_msg("%s in %s", never[i], p->patch);
	assert_non_null(strstr(p->patch, ".func  (.param .b64 func_retval0) __gpuprobe_o1_p0(\n"
					 "\t.param .b64 __gpuprobe_o1_p0_param_0"));
	assert_int_equal(occurrences(p->patch, ".param .b64 __gpuprobe_o1_p0_param_"),
			 1 + p->context_count);
	assert_int_equal(occurrences(p->patch, "ret;"), 1);
	return result;
}

/* How often the slot at an offset is loaded. */
static size_t loads(const char *patch, unsigned offset) {
	size_t n = 0;

	for (const char *p = patch; (p = strstr(p, "ld.relaxed.cta.global.b64")); p++) {
		const char *plus = strchr(p, '+');

		n += plus && strtoul(plus + 1, NULL, 10) == offset;
	}
	return n;
}

/* A map that is in the module otherwise is behind a pointer, with the same layout. */
static void test_counter(void **state) {
	struct translate_result result = translated(counter, COUNT(counter), &array8, 1),
				module = translated_with(&(struct translate_program){ 0 }, counter,
							 COUNT(counter), &array8, 1);
	const struct translate_program_result *p = result.programs;

	assert_int_equal(p->patch_maps, 2);
	assert_int_equal(loads(p->patch, 8), 1);
	assert_int_equal(occurrences(p->patch, "ld."), 2); /* and the parameter */
	assert_null(strstr(p->patch, ".local"));
	assert_null(strstr(p->patch, "__gpuprobe_o1_m0"));
	assert_int_equal(occurrences(p->patch, "red.global.add.u64"), 1);
	assert_non_null(strstr(p->patch, "%smid")); /* shards */
	assert_int_equal(occurrences(p->patch, "laneid"), 0);

	/* and the other form is what it is without */
	assert_true(result.maps[0].resident);
	assert_int_equal(p->target, TRANSLATE_TARGET);
	assert_string_equal(p->ptx, module.programs[0].ptx);
	assert_null(module.programs[0].patch);
	assert_null(module.programs[0].patch_reason);
	assert_int_equal(module.programs[0].patch_size, 0);
	assert_int_equal(module.programs[0].patch_maps, 0);
	translate_result_deinit(&result);
	translate_result_deinit(&module);
}

/* Slots are those of the maps that the program uses, ascending. */
static void test_slots(void **state) {
	static const struct bpf_insn two[] = { LOOKUP(2, 0, 11),
					       MOV(1, 1),
					       ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0),
					       LOOKUP(0, 0, 2),
					       MOV(1, 2),
					       ATOMIC(BPF_W, BPF_ADD, 0, 1, 0),
					       END };
	static const struct bpf_insn last[] = { LOOKUP(2, 0, 2), MOV(1, 1),
						ATOMIC(BPF_DW, BPF_ADD, 0, 1, 0), END };
	struct translate_map maps[3] = { array8, array8, array8 };
	struct translate_result result;
	const char *patch;

	maps[1].slot_symbol = "__gpuprobe_o1_m1";
	maps[2].slot_symbol = "__gpuprobe_o1_m2";
	result = translated(two, COUNT(two), maps, 3);
	patch = result.programs[0].patch;
	assert_int_equal(result.programs[0].maps, 5);
	assert_int_equal(result.programs[0].patch_maps, 3);
	assert_int_equal(loads(patch, 8), 1);
	assert_int_equal(loads(patch, 16), 1);
	assert_int_equal(occurrences(patch, "ld.relaxed"), 2);
	translate_result_deinit(&result);

	result = translated(last, COUNT(last), maps, 3);
	assert_int_equal(result.programs[0].patch_maps, 2);
	assert_int_equal(loads(result.programs[0].patch, 8), 1);
	assert_int_equal(occurrences(result.programs[0].patch, "ld.relaxed"), 1);
	translate_result_deinit(&result);
}

/* Fields of the context follow the slots; what is not needed is not loaded. */
static void test_parameters(void **state) {
	static const struct bpf_insn reads[] = { LOAD(BPF_DW, 0, 1, 80), LOAD(BPF_DW, 2, 1, 16),
						 ADDR(0, 2), EXIT };
	struct translate_result result = translated(reads, COUNT(reads), NULL, 0);
	const char *patch = result.programs[0].patch;

	assert_int_equal(result.programs[0].patch_maps, 1);
	assert_int_equal(result.programs[0].context_count, 2);
	assert_int_equal(occurrences(patch, "ld."), 2);
	assert_non_null(strstr(patch, "[__gpuprobe_o1_p0_param_1]")); /* 16 */
	assert_non_null(strstr(patch, "[__gpuprobe_o1_p0_param_2]"));
	translate_result_deinit(&result);

	/* memory, as bpf-run has it */
	result = translated_with(&(struct translate_program){ .patch = true, .takes_memory = true },
				 reads, COUNT(reads), NULL, 0);
	patch = result.programs[0].patch;
	assert_int_equal(occurrences(patch, ".param .b64 __gpuprobe_o1_p0_param_"), 3);
	translate_result_deinit(&result);
}

/* The process is a pointer, which may be 0: loaded once, compared before it is used. */
static void test_process(void **state) {
	/* 14: pid and thread; 512: the device */
	static const struct bpf_insn asks[] = { CALL(14), MOVR(6, 0), CALL(512), ADDR(0, 6), EXIT };
	struct translate_result result = translated(asks, COUNT(asks), NULL, 0);
	const char *patch = result.programs[0].patch, *guard = strstr(patch, "setp");

	assert_true(result.programs[0].process);
	assert_int_equal(result.programs[0].patch_maps, 1);
	assert_int_equal(loads(patch, 0), 1);
	assert_int_equal(occurrences(patch, "ld.global.u64"), 2);
	assert_non_null(guard);
	assert_true(guard < strstr(patch, "ld.global.u64"));
	assert_null(strstr(patch, "__gpuprobe_process"));
	translate_result_deinit(&result);
}

/* Stores whole values only where there is an instance. */
static void test_resident_update(void **state) {
	static const struct bpf_insn insns[] = { STOREI(BPF_W, 10, -4, 0),
						 STOREI(BPF_DW, 10, -16, 7), UPDATE(0), END };
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);
	const char *patch = result.programs[0].patch, *guard = strstr(patch, "setp");

	assert_true(result.maps[0].resident);
	assert_null(strstr(result.programs[0].ptx, "setp"));
	assert_int_equal(loads(patch, 8), 1);
	assert_true(guard && guard < strstr(patch, "st.global.v2.b64"));
	translate_result_deinit(&result);
}

/* Values of constant address: the program does nothing where the map is not armed. */
static void test_direct(void **state) {
	static const struct bpf_insn insns[] = {
		LD64(2, INSN_PSEUDO_MAP_IDX_VALUE, 0, 4),
		LOAD(BPF_W, 0, 2, 0),
		EXIT,
	};
	struct translate_result result = translated(insns, COUNT(insns), &array8, 1);
	const char *patch = result.programs[0].patch, *guard = strstr(patch, "setp");

	assert_int_equal(loads(patch, 8), 1);
	assert_true(guard && guard < strstr(patch, "ld.relaxed.cta.global.b32"));
	translate_result_deinit(&result);
}

/* A thread cannot end in a patch: by a helper, or at an address that is none (of helper 503: 0). */
static void test_exit(void **state) {
	static const struct bpf_insn leaves[] = { CALL(511), JEQ0(0, 1), CALL(507), END };
	static const struct bpf_insn never_leaves[] = { MOV(0, 0), JEQ0(0, 1), CALL(507), END };
	static const struct bpf_insn nowhere[] = { MOV(1, 0), MOV(2, 0), MOV(3, 0), CALL(503),
						   END };
	const struct {
		const struct bpf_insn *insns;
		size_t n;
		const char *reason;
	} cases[] = {
		{ leaves, COUNT(leaves),
		  "bpf_cuda_exit ends a thread, which the sanitizer engine cannot" },
		{ nowhere, COUNT(nowhere), "it uses an address that is none, which ends a thread" },
	};
	struct translate_result result;

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct translate_program_result *p;

		result = translated_with(&(struct translate_program){ .patch = true },
					 cases[i].insns, cases[i].n, NULL, 0);
		p = result.programs;
		assert_non_null(strstr(p->ptx, "exit;"));
		assert_null(p->patch);
		assert_int_equal(p->patch_size, 0);
		assert_int_equal(p->patch_maps, 0);
		assert_string_equal(p->patch_reason, cases[i].reason);
		translate_result_deinit(&result);
	}
	result = translated(never_leaves, COUNT(never_leaves), NULL, 0);
	translate_result_deinit(&result);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counter),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_process),
		cmocka_unit_test(test_resident_update),
		cmocka_unit_test(test_direct),
		cmocka_unit_test(test_exit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
