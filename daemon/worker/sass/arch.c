/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The architectures whose machine code is understood: a struct sass_arch and a table of opcodes
 * each. Another one is another table (make-table.py), checked by the same tests.
 */

#include "instruction.h"

#define F16 (1 << SASS_F16)
#define F24 (1 << SASS_F24)
#define F32 (1 << SASS_F32)
#define F40 (1 << SASS_F40)
#define F64 (1 << SASS_F64)
#define P68 SASS_P68
#define P77 SASS_P77
#define P81 SASS_P81
#define P84 SASS_P84
#define P87 SASS_P87
#define VARIABLE SASS_VARIABLE
#define ASYNC SASS_ASYNC
#define WIDE SASS_WIDE
#define GLOBAL SASS_GLOBAL
#define CONSTANT SASS_CONSTANT
#define UGUARD SASS_UGUARD
#define URB91 SASS_URB91
#define PROBE SASS_PROBE
#define BRANCH SASS_BRANCH
#define CALL SASS_CALL
#define RETURN SASS_RETURN
#define INDIRECT SASS_INDIRECT
#define SYNC SASS_SYNC
#define EXIT SASS_EXIT
#define NOP SASS_NOP
#define SETMAXREG SASS_SETMAXREG
#define LANES SASS_LANES
#define SWITCH SASS_SWITCH
#define LATE SASS_LATE
#define ALL SASS_ALL
#define NORESULT SASS_NO_RESULT
#define SIZED SASS_SIZED
#define ROW(opcode, name, registers, uniform, barriers, predicates, uniform_predicates, flags) \
	{ opcode, registers, uniform, barriers, predicates, uniform_predicates, flags, name },

/* Another architecture: its table beside this one, and a row below. */
static const struct sass_opcode opcodes_sm90[] = {
#include "table-sm90.h"
};

/* A stall of 5, as ptxas gives to branches, and no scoreboard. */
#define PLAIN (UINT64_C(0x000fea0000000000))

static const struct sass_number numbers_sm90[] = {
	{ 0x802, false, false }, /* MOV */
	{ 0x424, true, false }, /* IMAD.MOV.U32: RZ * F64 and the number */
	{ 0x435, true, true }, /* HFMA2.MMA: RZ * RZ and two halves */
	{},
};

static const struct sass_arch arches[] = {
	{
		.sm = 90,
		.opcodes = opcodes_sm90,
		.n_opcodes = sizeof(opcodes_sm90) / sizeof(*opcodes_sm90),
		.branch = { .low_at = 16,
			    .low_bits = 8,
			    .high_at = 34,
			    .high_bits = 48,
			    .unit = 4 },
		.sync = { .high_at = 32, .high_bits = 32, .unit = 1 },
		.first = { 0x00000a00ff017b82, 0x0000000000000800 }, /* LDC R1, c[0x0][0x28] */
		.bra = { 0x0000000000007947, PLAIN | 0x3800000 },
		.bssy = { 0x0000000000007945, PLAIN | 0x3800000 },
		.bsync = { 0x0000000000007941, PLAIN | 0x3800000 },
		.exit = { 0x000000000000794d, PLAIN | 0x3800000 },
		.nop = { 0x0000000000007918, UINT64_C(0x000fc00000000000) },
		.numbers = numbers_sm90,
		.mark = 0x801,
		.exit_lo = UINT64_C(0xf) << 12,
		.exit_hi = UINT64_C(0xf) << 23 | UINT64_C(0x1fffff) << 41,
		.parameters = 0x210,
		.registers = 255,
		.granule = 8,
		.file = 65536,
		.has_run = true, /* H100 */
	},
};

const struct sass_arch *sass_arch_find(uint32_t sm) {
	for (size_t i = 0; i < sizeof(arches) / sizeof(*arches); i++)
		if (arches[i].sm == sm)
			return &arches[i];
	return NULL;
}
