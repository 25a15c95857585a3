/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of the parts of the rewriter that need no cubin: words, targets, attributes,
 * registers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "attribute.h"
#include "instruction.h"
#include "registers.h"

static const struct sass_arch *arch(void) {
	return sass_arch_find(90);
}

static void test_architectures(void **state) {
	const struct sass_opcode *opcodes = arch()->opcodes;

	assert_null(sass_arch_find(80));
	assert_int_equal(arch()->sm, 90);
	for (size_t i = 1; i < arch()->n_opcodes; i++)
		assert_true(opcodes[i - 1].opcode < opcodes[i].opcode);
	for (size_t i = 0; i < arch()->n_opcodes; i++)
		assert_ptr_equal(sass_opcode_find(arch(),
						  (struct sass_word){ .lo = opcodes[i].opcode }),
				 &opcodes[i]);
	assert_null(sass_opcode_find(arch(), (struct sass_word){ .lo = 0xfff }));
	assert_null(sass_opcode_find(arch(), (struct sass_word){}));
}

static void test_bits(void **state) {
	struct sass_word word = {};

	for (unsigned at = 0; at < 128; at += 7)
		for (unsigned n = 1; n <= 57 && at + n <= 128; n += 8) {
			const uint64_t value =
				UINT64_C(0xa5a5c3c396965a5a) & ((UINT64_C(1) << n) - 1);

			word = sass_set_bits((struct sass_word){ ~UINT64_C(0), ~UINT64_C(0) }, at,
					     n, value);
			assert_int_equal(sass_bits(word, at, n), value);
			word = sass_set_bits(word, at, n, ~UINT64_C(0));
			assert_int_equal(word.lo & word.hi, ~UINT64_C(0));
		}
}

/* As ptxas wrote them, with what nvdisasm says. */
static void test_targets(void **state) {
	static const struct {
		struct sass_word word;
		uint64_t at, target;
	} known[] = {
		{ { 0xfffffffc00fc7947, 0x000fc0000383ffff }, 0x140, 0x140 }, /* BRA */
		{ { 0x0000000000d87947, 0x000fea0003800000 }, 0, 0x370 },
		{ { 0x0000000000087944, 0x023fea0003c00000 }, 0xb0, 0xe0 }, /* CALL.REL */
		{ { 0xfffffffc00c47944, 0x000fea0003c3ffff }, 0x1c0, 0xe0 },
		{ { 0x000000c000067945, 0x000fd80003800000 }, 0x170, 0x240 }, /* BSSY */
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		const struct sass_opcode *opcode = sass_opcode_find(arch(), known[i].word);
		uint64_t target;

		assert_true(sass_target(arch(), opcode, known[i].word, known[i].at, &target));
		assert_int_equal(target, known[i].target);
	}
	for (uint64_t at = 0; at < 1 << 20; at += 65520) {
		const struct sass_word there = sass_branch(arch(), at, 0x40),
				       bssy = sass_bssy(arch(), 9, at, at + 0x1000);
		uint64_t target;

		assert_true(
			sass_target(arch(), sass_opcode_find(arch(), there), there, at, &target));
		assert_int_equal(target, 0x40);
		assert_true(sass_target(arch(), sass_opcode_find(arch(), bssy), bssy, at, &target));
		assert_int_equal(target, at + 0x1000);
		assert_int_equal(sass_bits(bssy, 16, 4), 9);
	}
}

/* @!P0 EXIT P1 becomes @!P0 BRA P1. */
static void test_exits(void **state) {
	const struct sass_word exit = { 0x000000000000894d, 0x012fea0000800000 },
			       bra = sass_branch_for_exit(arch(), exit, 0x100, 0x200),
			       known = { 0x00000000003c8947, 0x012fea0000800000 };

	assert_int_equal(bra.lo, known.lo);
	assert_int_equal(bra.hi, known.hi);
	assert_int_equal(sass_wait_mask(bra), 0x12);
	assert_int_equal(sass_stall(bra), 5);
}

static void test_attributes(void **state) {
	static const uint8_t data[] = { 4, 0x1c, 8,    0,    0x70, 0, 0,    0, 0x30, 1, 0,
					0, 3,    0x19, 0x1c, 0,    1, 0x2b, 0, 0,    9, 9 };
	struct sass_attribute attribute;
	size_t at = 0;

	assert_int_equal(sass_attribute_next(data, sizeof(data), &at, &attribute), 1);
	assert_int_equal(attribute.kind, SASS_EXIT_INSTR_OFFSETS);
	assert_int_equal(attribute.size, 8);
	assert_int_equal(sass_u32(attribute.value, 4), 0x130);
	assert_int_equal(sass_attribute_next(data, sizeof(data), &at, &attribute), 1);
	assert_int_equal(attribute.size, 0x1c);
	assert_null(attribute.value);
	assert_int_equal(sass_attribute_next(data, sizeof(data), &at, &attribute), 1);
	assert_int_equal(at, 20);
	assert_int_equal(sass_attribute_next(data, sizeof(data), &at, &attribute),
			 SASS_ATTRIBUTE_MALFORMED);
	at = 20;
	assert_int_equal(sass_attribute_next(data, 20, &at, &attribute), 0);
	at = 0;
	assert_int_equal(sass_attribute_next(data, 8, &at, &attribute), SASS_ATTRIBUTE_MALFORMED);
	assert_true(sass_attribute_is_known(0x2f));
	assert_false(sass_attribute_is_known(0xee));
	assert_false(sass_attribute_is_probes(0x46));
}

static struct sass_kernel kernel_of(uint32_t registers) {
	return (struct sass_kernel){ .arch = arch(), .registers = registers };
}

/* R0, R2-3, R4-5; UR4-7; B0. */
static const struct sass_probe probe = {
	.registers = 8,
	.pairs = { 7 },
	.uniform_quads = 1 << 1,
	.barriers = 1,
	.predicates = 1,
};

static void test_entry(void **state) {
	struct sass_kernel kernel = kernel_of(6);
	struct sass_refusal refusal;
	struct sass_map map;

	memset(kernel.usage.busy, 0xff, sizeof(kernel.usage.busy));
	assert_int_equal(sass_map_entry(&map, &kernel, &probe, &refusal), 0);
	assert_int_equal(map.pair[2], 2);
	assert_int_equal(map.registers, 8);
	kernel.usage.least_registers = 24;
	assert_int_equal(sass_map_entry(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_non_null(strstr(refusal.text, "USETMAXREG, 24"));
}

static void test_exit_registers(void **state) {
	struct sass_kernel kernel = kernel_of(12); /* R0 to R9 */
	struct sass_refusal refusal;
	struct sass_map map;

	/* All are free. */
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), 0);
	assert_int_equal(map.registers, 12);
	assert_int_equal(map.pair[0], 0);
	/* R1 and R4 to R9 are not: R2-3, then above. */
	kernel.usage.busy[0] = 0xf2;
	kernel.usage.busy[1] = 0x03;
	kernel.usage.uniform_quads = 0x7ffe;
	kernel.usage.barriers = 0xfffd;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), 0);
	assert_int_equal(map.pair[0], 1);
	assert_int_equal(map.pair[1], 5);
	assert_int_equal(map.pair[2], 6);
	assert_int_equal(map.registers, 16);
	assert_int_equal(map.uniform_quad[1], 0);
	assert_int_equal(map.barrier[0], 1);
	/* A word: IMAD.WIDE.U32 R2, R5, 0x80, R2 and UFLO UR5, UR4 */
	assert_int_equal(sass_map_word(&map, arch(),
				       (struct sass_word){ 0x0000008005027825, 0x000fe200078e0002 })
				 .lo,
			 0x000000800d0a7825);
	assert_int_equal(sass_map_word(&map, arch(),
				       (struct sass_word){ 0x00000004000572bd, 0x000fe200080e0000 })
				 .lo,
			 0x00000000000172bd);
}

static void test_exit_refusals(void **state) {
	struct sass_kernel kernel = kernel_of(255);
	struct sass_probe other = probe;
	struct sass_refusal refusal;
	struct sass_map map;

	memset(kernel.usage.busy, 0xff, sizeof(kernel.usage.busy));
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_string_equal(refusal.text, "no registers are left below R253");
	kernel.registers = 64;
	kernel.max_threads = 1024;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_non_null(strstr(refusal.text, "no block of 1024 threads fits"));
	kernel.max_threads = 768;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), 0);
	assert_int_equal(map.registers, 70);
	/* 24 registers at the least, of which R0 to R21 may be named, and R16 to R21 are free. */
	kernel.usage.least_registers = 24;
	kernel.usage.busy[2] = 0;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), 0);
	assert_int_equal(map.pair[2], 10);
	kernel.usage.busy[2] = 1;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_string_equal(refusal.text, "no registers are left below R22");
	/* In fours. */
	kernel = kernel_of(12);
	other.wide = true;
	kernel.usage.busy[0] = 1;
	assert_int_equal(sass_map_exit(&map, &kernel, &other, &refusal), 0);
	assert_int_equal(map.pair[0], 2);
	assert_int_equal(map.pair[2], 4);
	kernel.usage.late_predicates = 3;
	assert_int_equal(sass_map_exit(&map, &kernel, &other, &refusal), 0);
	assert_int_equal(map.predicate[0], 2);
	/* @P0 EXIT P0 and ISETP.EQ.U32.AND P0, PT, R0, UR4, PT: what is always true stays */
	assert_int_equal(sass_map_word(&map, arch(), (struct sass_word){ 0x094d, 0 }).lo, 0x294d);
	assert_int_equal(sass_map_word(&map, arch(), (struct sass_word){ 0x094d, 0 }).hi, 2 << 23);
	assert_int_equal(
		sass_map_predicates(sass_opcode_find(arch(), (struct sass_word){ 0x7c0c }),
				    (struct sass_word){ 0x0000000400007c0c, 0x001fe2000bf02070 },
				    map.predicate)
			.hi,
		0x001fe2000bf42070);
	kernel.usage.late_predicates = 0x7f;
	assert_int_equal(sass_map_exit(&map, &kernel, &other, &refusal), SASS_REFUSED);
	kernel.usage.late_predicates = 0;
	other.mixes = true;
	assert_int_equal(sass_map_exit(&map, &kernel, &other, &refusal), SASS_REFUSED);
	kernel.usage.uniform_quads = 0x7fff;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_string_equal(refusal.text, "the kernel leaves too few uniform registers");
	kernel.usage.uniform_quads = 0;
	kernel.usage.barriers = 0xffff;
	assert_int_equal(sass_map_exit(&map, &kernel, &probe, &refusal), SASS_REFUSED);
	assert_string_equal(refusal.text, "the kernel leaves too few convergence barriers");
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_architectures),  cmocka_unit_test(test_bits),
		cmocka_unit_test(test_targets),        cmocka_unit_test(test_exits),
		cmocka_unit_test(test_attributes),     cmocka_unit_test(test_entry),
		cmocka_unit_test(test_exit_registers), cmocka_unit_test(test_exit_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
