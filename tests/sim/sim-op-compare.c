/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). setp and set. The common forms (one
 * predicate, no boolean, no .ftz) have an op for each comparison and type.
 */

#include <math.h>

#include "sim-op.h"

#define COMPARE_INTEGER(type, name, token)                              \
	SIM_OP(setp_##name##_##type) {                                  \
		RD(i->d) = (type##_t)RD(i->a) token(type##_t) RD(i->b); \
		return i + 1;                                           \
	}

#define COMPARE_INTEGERS(type)        \
	COMPARE_INTEGER(type, eq, ==) \
	COMPARE_INTEGER(type, ne, !=) \
	COMPARE_INTEGER(type, lt, <)  \
	COMPARE_INTEGER(type, le, <=) \
	COMPARE_INTEGER(type, gt, >)  \
	COMPARE_INTEGER(type, ge, >=)

COMPARE_INTEGERS(uint16)
COMPARE_INTEGERS(uint32)
COMPARE_INTEGERS(uint64)
COMPARE_INTEGERS(int16)
COMPARE_INTEGERS(int32)
COMPARE_INTEGERS(int64)

#define COMPARE_FLOAT(bits, name, expression)                                                    \
	SIM_OP(setp_##name##_f##bits) {                                                          \
		__typeof__(sim_f##bits(0)) a = sim_f##bits(RD(i->a)), b = sim_f##bits(RD(i->b)); \
		RD(i->d) = (expression);                                                         \
		return i + 1;                                                                    \
	}

#define COMPARE_FLOATS(bits)                        \
	COMPARE_FLOAT(bits, eq, a == b)             \
	COMPARE_FLOAT(bits, ne, a<b || a> b)        \
	COMPARE_FLOAT(bits, lt, a < b)              \
	COMPARE_FLOAT(bits, le, a <= b)             \
	COMPARE_FLOAT(bits, gt, a > b)              \
	COMPARE_FLOAT(bits, ge, a >= b)             \
	COMPARE_FLOAT(bits, equ, !(a < b || a > b)) \
	COMPARE_FLOAT(bits, neu, a != b)            \
	COMPARE_FLOAT(bits, ltu, !(a >= b))         \
	COMPARE_FLOAT(bits, leu, !(a > b))          \
	COMPARE_FLOAT(bits, gtu, !(a <= b))         \
	COMPARE_FLOAT(bits, geu, !(a < b))          \
	COMPARE_FLOAT(bits, num, a == a && b == b)  \
	COMPARE_FLOAT(bits, nan, a != a || b != b)

COMPARE_FLOATS(32)
COMPARE_FLOATS(64)

#define INTEGER_ROW(type)                                 \
	{ setp_eq_##type, setp_ne_##type, setp_lt_##type, \
	  setp_le_##type, setp_gt_##type, setp_ge_##type }
#define FLOAT_ROW(type)                                                                        \
	{ setp_eq_##type,  setp_ne_##type,  setp_lt_##type,  setp_le_##type,  setp_gt_##type,  \
	  setp_ge_##type,  setp_equ_##type, setp_neu_##type, setp_ltu_##type, setp_leu_##type, \
	  setp_gtu_##type, setp_geu_##type, setp_num_##type, setp_nan_##type }

sim_op sim_op_setp(enum sim_compare compare, enum ptx_type type) {
	static const sim_op table[][SIM_COMPARE_COUNT] = {
		[PTX_TYPE_B16] = INTEGER_ROW(uint16), [PTX_TYPE_B32] = INTEGER_ROW(uint32),
		[PTX_TYPE_B64] = INTEGER_ROW(uint64), [PTX_TYPE_U16] = INTEGER_ROW(uint16),
		[PTX_TYPE_U32] = INTEGER_ROW(uint32), [PTX_TYPE_U64] = INTEGER_ROW(uint64),
		[PTX_TYPE_S16] = INTEGER_ROW(int16),  [PTX_TYPE_S32] = INTEGER_ROW(int32),
		[PTX_TYPE_S64] = INTEGER_ROW(int64),  [PTX_TYPE_F32] = FLOAT_ROW(f32),
		[PTX_TYPE_F64] = FLOAT_ROW(f64),
	};

	if (compare >= SIM_COMPARE_COUNT || type >= sizeof(table) / sizeof(table[0]))
		return NULL;
	return table[type][compare];
}

static bool compare_general(struct sim_thread *t, const struct sim_insn *i) {
	struct sim_insn plain = *i;
	enum ptx_type type = i->mode >> 16 & 0xff;
	uint64_t saved = RD(i->d), a = RD(i->a), b = RD(i->b);
	bool result;

	if ((i->mode >> 24 & SIM_FTZ) && type == PTX_TYPE_F32) {
		/* compared as zeros */
		if (fpclassify(sim_f32(a)) == FP_SUBNORMAL)
			RD(i->a) = 0;
		if (fpclassify(sim_f32(b)) == FP_SUBNORMAL)
			RD(i->b) = 0;
	}
	sim_op_setp(i->mode & 0xff, type)(t, &plain);
	result = RD(i->d);
	RD(i->d) = saved;
	RD(i->a) = a;
	RD(i->b) = b;
	return result;
}

static bool combine(uint32_t mode, bool value, bool other) {
	switch (mode >> 8 & 0xff) {
	case SIM_BOOL_AND:
		return value && other;
	case SIM_BOOL_OR:
		return value || other;
	case SIM_BOOL_XOR:
		return value != other;
	}
	return value;
}

SIM_OP(setp_general) {
	bool value = compare_general(t, i), other = RD(i->c);

	RD(i->d) = combine(i->mode, value, other);
	RD(i->e) = combine(i->mode, !value, other);
	return i + 1;
}

SIM_OP(set_general) {
	bool value = combine(i->mode, compare_general(t, i), RD(i->c));

	RD(i->d) = !value ? 0 : i->bits ? UINT32_C(0x3f800000) : UINT32_MAX;
	return i + 1;
}

sim_op sim_op_setp_general(void) {
	return setp_general;
}

sim_op sim_op_set(void) {
	return set_general;
}
