/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Integer arithmetic. Registers hold
 * 64 bits; every op reads as many as its type has and writes them zero-extended, so that types of
 * one size share registers as PTX lets them.
 */

#include "sim-op.h"

typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

/* The unsigned type of the same size. */
#define UNSIGNED_u16 u16
#define UNSIGNED_u32 u32
#define UNSIGNED_u64 u64
#define UNSIGNED_s16 u16
#define UNSIGNED_s32 u32
#define UNSIGNED_s64 u64

#define WIDE_u16 u32
#define WIDE_u32 u64
#define WIDE_u64 u128
#define WIDE_s16 s32
#define WIDE_s32 s64
#define WIDE_s64 s128

#define UNARY(name, type, expression)                     \
	SIM_OP(name##_##type) {                           \
		type a = (type)RD(i->a);                  \
		RD(i->d) = (UNSIGNED_##type)(expression); \
		return i + 1;                             \
	}

#define BINARY(name, type, expression)                       \
	SIM_OP(name##_##type) {                              \
		type a = (type)RD(i->a), b = (type)RD(i->b); \
		RD(i->d) = (UNSIGNED_##type)(expression);    \
		return i + 1;                                \
	}

#define TERNARY(name, type, expression)                                          \
	SIM_OP(name##_##type) {                                                  \
		type a = (type)RD(i->a), b = (type)RD(i->b), c = (type)RD(i->c); \
		RD(i->d) = (UNSIGNED_##type)(expression);                        \
		return i + 1;                                                    \
	}

#define BITS(type) (8 * (int)sizeof(type))

/* What is the same for signed and unsigned. Sums and products are taken unsigned: they wrap. */
#define MODULAR(type)                        \
	BINARY(add, type, a + b)             \
	BINARY(sub, type, a - b)             \
	BINARY(mul_lo, type, (u64)a *b)      \
	TERNARY(mad_lo, type, (u64)a *b + c) \
	UNARY(neg, type, -(u64)a)

MODULAR(u16)
MODULAR(u32)
MODULAR(u64)

#define SIGNED_OR_NOT(type)                                                                 \
	BINARY(mul_hi, type, ((WIDE_##type)a * b) >> BITS(type))                            \
	TERNARY(mad_hi, type,                                                               \
		(UNSIGNED_##type)(((WIDE_##type)a * b) >> BITS(type)) + (UNSIGNED_##type)c) \
	BINARY(min, type, a < b ? a : b)                                                    \
	BINARY(max, type, a > b ? a : b)                                                    \
	TERNARY(sad, type,                                                                  \
		(UNSIGNED_##type)c + (a < b ? (UNSIGNED_##type)b - (UNSIGNED_##type)a       \
					    : (UNSIGNED_##type)a - (UNSIGNED_##type)b))

SIGNED_OR_NOT(u16)
SIGNED_OR_NOT(u32)
SIGNED_OR_NOT(u64)
SIGNED_OR_NOT(s16)
SIGNED_OR_NOT(s32)
SIGNED_OR_NOT(s64)

/* Division by zero gives all ones here and no trap: that is what the machine's own routine gives.
 */
#define DIVIDE_UNSIGNED(type)                     \
	BINARY(div, type, b ? a / b : (type) - 1) \
	BINARY(rem, type, b ? a % b : a)

#define DIVIDE_SIGNED(type)                                                                \
	BINARY(div, type, b == 0 ? (type) - 1 : b == -1 ? (type) - (u64)a : (type)(a / b)) \
	BINARY(rem, type, b == 0 ? a : b == -1 ? 0 : (type)(a % b))                        \
	UNARY(abs, type, a < 0 ? -(u64)a : (u64)a)

DIVIDE_UNSIGNED(u16)
DIVIDE_UNSIGNED(u32)
DIVIDE_UNSIGNED(u64)
DIVIDE_SIGNED(s16)
DIVIDE_SIGNED(s32)
DIVIDE_SIGNED(s64)

#define MULTIPLY_WIDE(type, wide, plain)                                                           \
	SIM_OP(mul_wide_##type) {                                                                  \
		RD(i->d) = (plain)((wide)(type)RD(i->a) * (type)RD(i->b));                         \
		return i + 1;                                                                      \
	}                                                                                          \
	SIM_OP(mad_wide_##type) {                                                                  \
		RD(i->d) =                                                                         \
			(plain)((plain)((wide)(type)RD(i->a) * (type)RD(i->b)) + (plain)RD(i->c)); \
		return i + 1;                                                                      \
	}

MULTIPLY_WIDE(u16, u32, u32)
MULTIPLY_WIDE(s16, s32, u32)
MULTIPLY_WIDE(u32, u64, u64)
MULTIPLY_WIDE(s32, s64, u64)

static s32 saturate(s64 value) {
	return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (s32)value;
}

BINARY(add_sat, s32, saturate((s64)a + b))
BINARY(sub_sat, s32, saturate((s64)a - b))
TERNARY(mad_hi_sat, s32, saturate((((s64)a * b) >> 32) + c))

/* 24-bit products: of the low 24 bits of each, sign-extended or not. */
static s64 product24(u64 a, u64 b, bool is_signed) {
	if (is_signed)
		return (s64)((s32)((u32)a << 8) >> 8) * ((s32)((u32)b << 8) >> 8);
	return (s64)((a & 0xffffff) * (b & 0xffffff));
}

BINARY(mul24_lo, u32, (u64)product24(a, b, false))
BINARY(mul24_lo, s32, (u64)product24(a, b, true))
BINARY(mul24_hi, u32, (u64)product24(a, b, false) >> 16)
BINARY(mul24_hi, s32, (u64)product24(a, b, true) >> 16)
TERNARY(mad24_lo, u32, (u64)product24(a, b, false) + c)
TERNARY(mad24_lo, s32, (u64)product24(a, b, true) + (u32)c)
TERNARY(mad24_hi, u32, ((u64)product24(a, b, false) >> 16) + c)
TERNARY(mad24_hi, s32, ((u64)product24(a, b, true) >> 16) + (u32)c)

/* Extended precision: the carry is a flag of the thread. */
#define CARRY(type, wide)                                                           \
	SIM_OP(add_cc_##type) {                                                     \
		wide sum = (wide)(type)RD(i->a) + (type)RD(i->b);                   \
		RD(i->d) = (type)sum;                                               \
		t->carry = (u64)(sum >> BITS(type)) & 1;                            \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(addc_##type) {                                                       \
		RD(i->d) = (type)((type)RD(i->a) + (type)RD(i->b) + t->carry);      \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(addc_cc_##type) {                                                    \
		wide sum = (wide)(type)RD(i->a) + (type)RD(i->b) + t->carry;        \
		RD(i->d) = (type)sum;                                               \
		t->carry = (u64)(sum >> BITS(type)) & 1;                            \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(sub_cc_##type) {                                                     \
		wide difference = (wide)(type)RD(i->a) - (type)RD(i->b);            \
		RD(i->d) = (type)difference;                                        \
		t->carry = (u64)(difference >> BITS(type)) & 1;                     \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(subc_##type) {                                                       \
		RD(i->d) = (type)((type)RD(i->a) - (type)RD(i->b) - t->carry);      \
		return i + 1;                                                       \
	}                                                                           \
	SIM_OP(subc_cc_##type) {                                                    \
		wide difference = (wide)(type)RD(i->a) - (type)RD(i->b) - t->carry; \
		RD(i->d) = (type)difference;                                        \
		t->carry = (u64)(difference >> BITS(type)) & 1;                     \
		return i + 1;                                                       \
	}

CARRY(u32, u64)
CARRY(u64, u128)

/* mad.{lo,hi}.cc, madc.{lo,hi}[.cc] */
#define MAD_CARRY_ONE(name, type, product, carry_in, carry_out)                                    \
	SIM_OP(name##_##type) {                                                                    \
		type a = (type)RD(i->a), b = (type)RD(i->b);                                       \
		u128 sum =                                                                         \
			(u128)(UNSIGNED_##type)(product) + (UNSIGNED_##type)RD(i->c) + (carry_in); \
		RD(i->d) = (UNSIGNED_##type)sum;                                                   \
		if (carry_out)                                                                     \
			t->carry = (u64)(sum >> BITS(type)) & 1;                                   \
		return i + 1;                                                                      \
	}

#define MAD_CARRY(type)                                                                            \
	MAD_CARRY_ONE(mad_lo_cc, type, (UNSIGNED_##type)a *(u64)(UNSIGNED_##type)b, 0, true)       \
	MAD_CARRY_ONE(madc_lo, type, (UNSIGNED_##type)a *(u64)(UNSIGNED_##type)b, t->carry, false) \
	MAD_CARRY_ONE(madc_lo_cc, type, (UNSIGNED_##type)a *(u64)(UNSIGNED_##type)b, t->carry,     \
		      true)                                                                        \
	MAD_CARRY_ONE(mad_hi_cc, type, ((WIDE_##type)a * b) >> BITS(type), 0, true)                \
	MAD_CARRY_ONE(madc_hi, type, ((WIDE_##type)a * b) >> BITS(type), t->carry, false)          \
	MAD_CARRY_ONE(madc_hi_cc, type, ((WIDE_##type)a * b) >> BITS(type), t->carry, true)

MAD_CARRY(u32)
MAD_CARRY(s32)
MAD_CARRY(u64)
MAD_CARRY(s64)

/* Dot products of bytes, and of halves with bytes; the sign of each side is in the key. */
static u32 dot4(u32 a, u32 b, u32 c, bool a_signed, bool b_signed) {
	for (int n = 0; n < 4; n++) {
		s32 x = a_signed ? (int8_t)(a >> 8 * n) : (uint8_t)(a >> 8 * n);
		s32 y = b_signed ? (int8_t)(b >> 8 * n) : (uint8_t)(b >> 8 * n);

		c += (u32)(x * y);
	}
	return c;
}

static u32 dot2(u32 a, u32 b, u32 c, bool a_signed, bool b_signed) {
	for (int n = 0; n < 2; n++) {
		s32 x = a_signed ? (s16)(a >> 16 * n) : (u16)(a >> 16 * n);
		s32 y = b_signed ? (int8_t)(b >> 8 * n) : (uint8_t)(b >> 8 * n);

		c += (u32)(x * y);
	}
	return c;
}

#define DOT(sides, a_signed, b_signed)                                   \
	TERNARY(dp4a_##sides, u32, dot4(a, b, c, a_signed, b_signed))    \
	TERNARY(dp2a_lo_##sides, u32, dot2(a, b, c, a_signed, b_signed)) \
	TERNARY(dp2a_hi_##sides, u32, dot2(a, b >> 16, c, a_signed, b_signed))

DOT(uu, false, false)
DOT(us, false, true)
DOT(su, true, false)
DOT(ss, true, true)

#define MODULAR_ROWS(bits)                                                                    \
	{ "add.u" #bits, add_u##bits, "Dtt" }, { "add.s" #bits, add_u##bits, "Dtt" },         \
		{ "sub.u" #bits, sub_u##bits, "Dtt" }, { "sub.s" #bits, sub_u##bits, "Dtt" }, \
		{ "mul.lo.u" #bits, mul_lo_u##bits, "Dtt" },                                  \
		{ "mul.lo.s" #bits, mul_lo_u##bits, "Dtt" },                                  \
		{ "mad.lo.u" #bits, mad_lo_u##bits, "Dttt" },                                 \
		{ "mad.lo.s" #bits, mad_lo_u##bits, "Dttt" },                                 \
		{ "neg.s" #bits, neg_u##bits, "Dt" }, { "abs.s" #bits, abs_s##bits, "Dt" }

#define TYPED_ROWS(type)                                                                       \
	{ "mul.hi." #type, mul_hi_##type, "Dtt" }, { "mad.hi." #type, mad_hi_##type, "Dttt" }, \
		{ "min." #type, min_##type, "Dtt" }, { "max." #type, max_##type, "Dtt" },      \
		{ "sad." #type, sad_##type, "Dttt" }, { "div." #type, div_##type, "Dtt" },     \
		{ "rem." #type, rem_##type, "Dtt" }

#define WIDE_ROWS(type)                                \
	{ "mul.wide." #type, mul_wide_##type, "Dtt" }, \
		{ "mad.wide." #type, mad_wide_##type, "Dttt" }

#define CARRY_ROWS(bits, sign)                                      \
	{ "add.cc." #sign #bits, add_cc_u##bits, "Dtt" },           \
		{ "addc." #sign #bits, addc_u##bits, "Dtt" },       \
		{ "addc.cc." #sign #bits, addc_cc_u##bits, "Dtt" }, \
		{ "sub.cc." #sign #bits, sub_cc_u##bits, "Dtt" },   \
		{ "subc." #sign #bits, subc_u##bits, "Dtt" },       \
		{ "subc.cc." #sign #bits, subc_cc_u##bits, "Dtt" }

#define MAD_CARRY_ROWS(type)                                        \
	{ "mad.lo.cc." #type, mad_lo_cc_##type, "Dttt" },           \
		{ "mad.hi.cc." #type, mad_hi_cc_##type, "Dttt" },   \
		{ "madc.lo." #type, madc_lo_##type, "Dttt" },       \
		{ "madc.hi." #type, madc_hi_##type, "Dttt" },       \
		{ "madc.lo.cc." #type, madc_lo_cc_##type, "Dttt" }, \
		{ "madc.hi.cc." #type, madc_hi_cc_##type, "Dttt" }

#define DOT_ROWS(sides, names)                                       \
	{ "dp4a." names, dp4a_##sides##_u32, "Dttt" },               \
		{ "dp2a.lo." names, dp2a_lo_##sides##_u32, "Dttt" }, \
		{ "dp2a.hi." names, dp2a_hi_##sides##_u32, "Dttt" }

const struct sim_op_row sim_op_integer[] = {
	MODULAR_ROWS(16),
	MODULAR_ROWS(32),
	MODULAR_ROWS(64),
	TYPED_ROWS(u16),
	TYPED_ROWS(u32),
	TYPED_ROWS(u64),
	TYPED_ROWS(s16),
	TYPED_ROWS(s32),
	TYPED_ROWS(s64),
	WIDE_ROWS(u16),
	WIDE_ROWS(u32),
	WIDE_ROWS(s16),
	WIDE_ROWS(s32),
	{ "add.sat.s32", add_sat_s32, "Dtt" },
	{ "sub.sat.s32", sub_sat_s32, "Dtt" },
	{ "mad.hi.sat.s32", mad_hi_sat_s32, "Dttt" },
	{ "mul24.lo.u32", mul24_lo_u32, "Dtt" },
	{ "mul24.lo.s32", mul24_lo_s32, "Dtt" },
	{ "mul24.hi.u32", mul24_hi_u32, "Dtt" },
	{ "mul24.hi.s32", mul24_hi_s32, "Dtt" },
	{ "mad24.lo.u32", mad24_lo_u32, "Dttt" },
	{ "mad24.lo.s32", mad24_lo_s32, "Dttt" },
	{ "mad24.hi.u32", mad24_hi_u32, "Dttt" },
	{ "mad24.hi.s32", mad24_hi_s32, "Dttt" },
	CARRY_ROWS(32, u),
	CARRY_ROWS(32, s),
	CARRY_ROWS(64, u),
	CARRY_ROWS(64, s),
	MAD_CARRY_ROWS(u32),
	MAD_CARRY_ROWS(s32),
	MAD_CARRY_ROWS(u64),
	MAD_CARRY_ROWS(s64),
	DOT_ROWS(uu, "u32.u32"),
	DOT_ROWS(us, "u32.s32"),
	DOT_ROWS(su, "s32.u32"),
	DOT_ROWS(ss, "s32.s32"),
	{ NULL },
};
