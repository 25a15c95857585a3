/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Logic, shifts, bit fields,
 * selection and moves.
 */

#include "sim-op.h"

typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define BITWISE(name, type, expression)         \
	SIM_OP(name##_##type) {                 \
		u64 a = RD(i->a), b = RD(i->b); \
		RD(i->d) = (type)(expression);  \
		return i + 1;                   \
	}

#define LOGIC(type)                                                              \
	BITWISE(and, type, a &b)                                                 \
	BITWISE(or, type, a | b)                                                 \
	BITWISE(xor, type, a ^ b)                                                \
	SIM_OP(not_##type) {                                                     \
		RD(i->d) = (type)~RD(i->a);                                      \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(cnot_##type) {                                                    \
		RD(i->d) = !(type)RD(i->a);                                      \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(move_##type) {                                                    \
		RD(i->d) = (type)RD(i->a);                                       \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(selp_##type) {                                                    \
		RD(i->d) = (type)(RD(i->c) ? RD(i->a) : RD(i->b));               \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(slct_s32_##type) {                                                \
		RD(i->d) = (type)((s32)RD(i->c) >= 0 ? RD(i->a) : RD(i->b));     \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(slct_f32_##type) {                                                \
		RD(i->d) = (type)(sim_f32(RD(i->c)) >= 0 ? RD(i->a) : RD(i->b)); \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(shl_##type) {                                                     \
		u32 n = RD(i->b);                                                \
		RD(i->d) = n >= 8 * sizeof(type) ? 0 : (type)(RD(i->a) << n);    \
		return i + 1;                                                    \
	}                                                                        \
	SIM_OP(shr_##type) {                                                     \
		u32 n = RD(i->b);                                                \
		RD(i->d) = n >= 8 * sizeof(type) ? 0 : (type)RD(i->a) >> n;      \
		return i + 1;                                                    \
	}

LOGIC(u16)
LOGIC(u32)
LOGIC(u64)

#define SHIFT_SIGNED(name, type, wide)                                      \
	SIM_OP(name) {                                                      \
		u32 n = RD(i->b), last = 8 * sizeof(type) - 1;              \
		RD(i->d) = (wide)((type)RD(i->a) >> (n > last ? last : n)); \
		return i + 1;                                               \
	}

SHIFT_SIGNED(shr_s16, int16_t, u16)
SHIFT_SIGNED(shr_s32, s32, u32)
SHIFT_SIGNED(shr_s64, s64, u64)

SIM_OP(and_pred) {
	RD(i->d) = RD(i->a) & RD(i->b);
	return i + 1;
}
SIM_OP(or_pred) {
	RD(i->d) = RD(i->a) | RD(i->b);
	return i + 1;
}
SIM_OP(xor_pred) {
	RD(i->d) = RD(i->a) ^ RD(i->b);
	return i + 1;
}
SIM_OP(not_pred) {
	RD(i->d) = !RD(i->a);
	return i + 1;
}

/* Funnel shifts: a is the low word, b the high one. */
SIM_OP(shf_l_clamp) {
	u32 n = RD(i->c);
	u64 both = RD(i->b) << 32 | (u32)RD(i->a);

	RD(i->d) = n >= 32 ? (u32)both : (u32)((both << n) >> 32);
	return i + 1;
}

SIM_OP(shf_l_wrap) {
	u64 both = RD(i->b) << 32 | (u32)RD(i->a);

	RD(i->d) = (u32)((both << (RD(i->c) & 31)) >> 32);
	return i + 1;
}

SIM_OP(shf_r_clamp) {
	u32 n = RD(i->c);
	u64 both = RD(i->b) << 32 | (u32)RD(i->a);

	RD(i->d) = (u32)(both >> (n > 32 ? 32 : n));
	return i + 1;
}

SIM_OP(shf_r_wrap) {
	u64 both = RD(i->b) << 32 | (u32)RD(i->a);

	RD(i->d) = (u32)(both >> (RD(i->c) & 31));
	return i + 1;
}

SIM_OP(popc_b32) {
	RD(i->d) = __builtin_popcount((u32)RD(i->a));
	return i + 1;
}
SIM_OP(popc_b64) {
	RD(i->d) = __builtin_popcountll(RD(i->a));
	return i + 1;
}
SIM_OP(clz_b32) {
	RD(i->d) = (u32)RD(i->a) ? __builtin_clz((u32)RD(i->a)) : 32;
	return i + 1;
}
SIM_OP(clz_b64) {
	RD(i->d) = RD(i->a) ? __builtin_clzll(RD(i->a)) : 64;
	return i + 1;
}

static u64 reverse(u64 value, unsigned int bits) {
	u64 result = 0;

	for (unsigned int n = 0; n < bits; n++)
		result |= (value >> n & 1) << (bits - 1 - n);
	return result;
}

SIM_OP(brev_b32) {
	RD(i->d) = reverse(RD(i->a), 32);
	return i + 1;
}
SIM_OP(brev_b64) {
	RD(i->d) = reverse(RD(i->a), 64);
	return i + 1;
}

/* The position of the first bit from above that is not a sign bit; -1 if there is none. */
static u32 find_bit(u64 value, unsigned int bits, bool is_signed, bool shift) {
	u32 position;

	if (bits == 32)
		value = is_signed ? (u64)(s64)(s32)value : (u32)value;
	if (is_signed && (s64)value < 0)
		value = ~value;
	if (!value)
		return UINT32_MAX;
	position = 63 - __builtin_clzll(value);
	return shift ? bits - 1 - position : position;
}

#define BFIND(type, bits, is_signed)                                   \
	SIM_OP(bfind_##type) {                                         \
		RD(i->d) = find_bit(RD(i->a), bits, is_signed, false); \
		return i + 1;                                          \
	}                                                              \
	SIM_OP(bfind_shift_##type) {                                   \
		RD(i->d) = find_bit(RD(i->a), bits, is_signed, true);  \
		return i + 1;                                          \
	}

BFIND(u32, 32, false)
BFIND(s32, 32, true)
BFIND(u64, 64, false)
BFIND(s64, 64, true)

/* Position and length count 8 bits each. What lies above the top is zero, or the sign. */
static u64 extract(u64 value, u32 position, u32 length, unsigned int bits, bool is_signed) {
	unsigned int top = bits - 1;
	u64 result, sign;

	position &= 0xff;
	length &= 0xff;
	if (bits == 32)
		value = (u32)value;
	if (!is_signed || !length)
		sign = 0;
	else
		sign = value >> (position + length - 1 < top ? position + length - 1 : top) & 1;
	result = position > top ? 0 : value >> position;
	if (position + length > top + 1)
		length = position > top ? 0 : top + 1 - position;
	if (length < 64)
		result &= (UINT64_C(1) << length) - 1;
	if (sign && length < 64)
		result |= ~UINT64_C(0) << length;
	return bits == 32 ? (u32)result : result;
}

#define BFE(type, bits, is_signed)                                                 \
	SIM_OP(bfe_##type) {                                                       \
		RD(i->d) = extract(RD(i->a), RD(i->b), RD(i->c), bits, is_signed); \
		return i + 1;                                                      \
	}

BFE(u32, 32, false)
BFE(s32, 32, true)
BFE(u64, 64, false)
BFE(s64, 64, true)

static u64 insert(u64 field, u64 into, u32 position, u32 length, unsigned int bits) {
	u64 mask;

	position &= 0xff;
	length &= 0xff;
	if (position >= bits)
		return into;
	mask = length >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << length) - 1;
	mask <<= position;
	into = (into & ~mask) | (field << position & mask);
	return bits == 32 ? (u32)into : into;
}

SIM_OP(bfi_b32) {
	RD(i->d) = insert(RD(i->a), (u32)RD(i->b), RD(i->c), RD(i->e), 32);
	return i + 1;
}
SIM_OP(bfi_b64) {
	RD(i->d) = insert(RD(i->a), RD(i->b), RD(i->c), RD(i->e), 64);
	return i + 1;
}

/* A mask of b bits from position a. */
static u32 bit_mask(u32 position, u32 length, bool wrap) {
	u64 mask;

	if (wrap) {
		position &= 31;
		length &= 31;
	}
	if (position >= 32 || !length)
		return 0;
	mask = length >= 32 ? UINT32_MAX : (UINT64_C(1) << length) - 1;
	return (u32)(mask << position);
}

SIM_OP(bmsk_clamp) {
	RD(i->d) = bit_mask(RD(i->a), RD(i->b), false);
	return i + 1;
}
SIM_OP(bmsk_wrap) {
	RD(i->d) = bit_mask(RD(i->a), RD(i->b), true);
	return i + 1;
}

/* Sign- or zero-extension from b bits. */
static u32 extend(u32 value, u32 length, bool wrap, bool is_signed) {
	if (wrap)
		length &= 31;
	if (!length)
		return 0;
	if (length >= 32)
		return value;
	value <<= 32 - length;
	return is_signed ? (u32)((s32)value >> (32 - length)) : value >> (32 - length);
}

SIM_OP(szext_clamp_u32) {
	RD(i->d) = extend(RD(i->a), RD(i->b), false, false);
	return i + 1;
}
SIM_OP(szext_clamp_s32) {
	RD(i->d) = extend(RD(i->a), RD(i->b), false, true);
	return i + 1;
}
SIM_OP(szext_wrap_u32) {
	RD(i->d) = extend(RD(i->a), RD(i->b), true, false);
	return i + 1;
}
SIM_OP(szext_wrap_s32) {
	RD(i->d) = extend(RD(i->a), RD(i->b), true, true);
	return i + 1;
}

/* The c-th set bit of a, counted from bit b upwards (c > 0) or downwards (c < 0). */
SIM_OP(fns_b32) {
	u32 mask = RD(i->a), base = (u32)RD(i->b) & 31;
	s32 offset = (s32)RD(i->c), step = offset >= 0 ? 1 : -1;
	u32 left = offset >= 0 ? (u32)offset : -(u32)offset, found = UINT32_MAX;

	if (!left) {
		found = mask >> base & 1 ? base : UINT32_MAX;
	} else {
		for (s32 bit = base; bit >= 0 && bit < 32; bit += step)
			if (mask >> bit & 1 && !--left) {
				found = bit;
				break;
			}
	}
	RD(i->d) = found;
	return i + 1;
}

/* Permutation of the bytes of a and b, a's being 0-3. */
SIM_OP(prmt_b32) {
	u64 bytes = RD(i->b) << 32 | (u32)RD(i->a);
	u32 control = RD(i->c), result = 0;

	for (int n = 0; n < 4; n++) {
		u32 selector = control >> 4 * n & 15;
		u32 byte = bytes >> 8 * (selector & 7) & 0xff;

		if (selector & 8)
			byte = byte & 0x80 ? 0xff : 0;
		result |= byte << 8 * n;
	}
	RD(i->d) = result;
	return i + 1;
}

/* The named forms: c's low two bits choose. */
static const struct sim_insn *permute(struct sim_thread *t, const struct sim_insn *i,
				      const uint16_t table[4]) {
	u64 bytes = RD(i->b) << 32 | (u32)RD(i->a);
	u32 control = table[RD(i->c) & 3], result = 0;

	for (int n = 0; n < 4; n++)
		result |= (u32)(bytes >> 8 * (control >> 4 * n & 7) & 0xff) << 8 * n;
	RD(i->d) = result;
	return i + 1;
}

#define PERMUTE(name, ...)                                        \
	SIM_OP(prmt_##name) {                                     \
		static const uint16_t table[4] = { __VA_ARGS__ }; \
		return permute(t, i, table);                      \
	}

PERMUTE(f4e, 0x3210, 0x4321, 0x5432, 0x6543)
PERMUTE(b4e, 0x5670, 0x6701, 0x7012, 0x0123)
PERMUTE(rc8, 0x0000, 0x1111, 0x2222, 0x3333)
PERMUTE(ecl, 0x3210, 0x3211, 0x3222, 0x3333)
PERMUTE(ecr, 0x0000, 0x1110, 0x2210, 0x3210)
PERMUTE(rc16, 0x1010, 0x3232, 0x1010, 0x3232)

/* The truth table is the constant `e`. */
SIM_OP(lop3_b32) {
	u32 a = RD(i->a), b = RD(i->b), c = RD(i->c), table = RD(i->e), result = 0;

	for (int n = 0; n < 8; n++)
		if (table >> n & 1)
			result |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
	RD(i->d) = result;
	return i + 1;
}

#define LOGIC_ROWS(bits)                                                                       \
	{ "and.b" #bits, and_u##bits, "Dtt" }, { "or.b" #bits, or_u##bits, "Dtt" },            \
		{ "xor.b" #bits, xor_u##bits, "Dtt" }, { "not.b" #bits, not_u##bits, "Dt" },   \
		{ "cnot.b" #bits, cnot_u##bits, "Dt" }, { "shl.b" #bits, shl_u##bits, "Dti" }, \
		{ "shr.b" #bits, shr_u##bits, "Dti" }, { "shr.u" #bits, shr_u##bits, "Dti" },  \
		{ "shr.s" #bits, shr_s##bits, "Dti" }, { "mov.b" #bits, move_u##bits, "Dt" },  \
		{ "mov.u" #bits, move_u##bits, "Dt" }, { "mov.s" #bits, move_u##bits, "Dt" },  \
		{ "selp.b" #bits, selp_u##bits, "Dttp" },                                      \
		{ "selp.u" #bits, selp_u##bits, "Dttp" },                                      \
		{ "selp.s" #bits, selp_u##bits, "Dttp" },                                      \
		{ "slct.b" #bits ".s32", slct_s32_u##bits, "Dtti" },                           \
		{ "slct.u" #bits ".s32", slct_s32_u##bits, "Dtti" },                           \
		{ "slct.s" #bits ".s32", slct_s32_u##bits, "Dtti" },                           \
		{ "slct.b" #bits ".f32", slct_f32_u##bits, "Dttf" },                           \
		{ "slct.u" #bits ".f32", slct_f32_u##bits, "Dttf" },                           \
		{ "slct.s" #bits ".f32", slct_f32_u##bits, "Dttf" }

const struct sim_op_row sim_op_bits[] = {
	LOGIC_ROWS(16),
	LOGIC_ROWS(32),
	LOGIC_ROWS(64),
	{ "mov.f32", move_u32, "Dt" },
	{ "mov.f64", move_u64, "Dt" },
	{ "mov.f16", move_u16, "Dt" },
	{ "mov.pred", move_u64, "Dp" },
	{ "mov.bf16", move_u16, "Dt" },
	{ "mov.f16x2", move_u32, "Dt" },
	{ "mov.bf16x2", move_u32, "Dt" },
	{ "selp.f32", selp_u32, "Dttp" },
	{ "selp.f64", selp_u64, "Dttp" },
	{ "slct.f32.s32", slct_s32_u32, "Dtti" },
	{ "slct.f64.s32", slct_s32_u64, "Dtti" },
	{ "slct.f32.f32", slct_f32_u32, "Dttf" },
	{ "slct.f64.f32", slct_f32_u64, "Dttf" },
	{ "and.pred", and_pred, "Dpp" },
	{ "or.pred", or_pred, "Dpp" },
	{ "xor.pred", xor_pred, "Dpp" },
	{ "not.pred", not_pred, "Dp" },
	{ "shf.l.clamp.b32", shf_l_clamp, "Dtti" },
	{ "shf.l.wrap.b32", shf_l_wrap, "Dtti" },
	{ "shf.r.clamp.b32", shf_r_clamp, "Dtti" },
	{ "shf.r.wrap.b32", shf_r_wrap, "Dtti" },
	{ "popc.b32", popc_b32, "Dt" },
	{ "popc.b64", popc_b64, "Dt" },
	{ "clz.b32", clz_b32, "Dt" },
	{ "clz.b64", clz_b64, "Dt" },
	{ "brev.b32", brev_b32, "Dt" },
	{ "brev.b64", brev_b64, "Dt" },
	{ "bfind.u32", bfind_u32, "Dt" },
	{ "bfind.s32", bfind_s32, "Dt" },
	{ "bfind.u64", bfind_u64, "Dt" },
	{ "bfind.s64", bfind_s64, "Dt" },
	{ "bfind.shiftamt.u32", bfind_shift_u32, "Dt" },
	{ "bfind.shiftamt.s32", bfind_shift_s32, "Dt" },
	{ "bfind.shiftamt.u64", bfind_shift_u64, "Dt" },
	{ "bfind.shiftamt.s64", bfind_shift_s64, "Dt" },
	{ "bfe.u32", bfe_u32, "Dtii" },
	{ "bfe.s32", bfe_s32, "Dtii" },
	{ "bfe.u64", bfe_u64, "Dtii" },
	{ "bfe.s64", bfe_s64, "Dtii" },
	{ "bfi.b32", bfi_b32, "Dttii" },
	{ "bfi.b64", bfi_b64, "Dttii" },
	{ "bmsk.clamp.b32", bmsk_clamp, "Dtt" },
	{ "bmsk.wrap.b32", bmsk_wrap, "Dtt" },
	{ "szext.clamp.u32", szext_clamp_u32, "Dti" },
	{ "szext.clamp.s32", szext_clamp_s32, "Dti" },
	{ "szext.wrap.u32", szext_wrap_u32, "Dti" },
	{ "szext.wrap.s32", szext_wrap_s32, "Dti" },
	{ "fns.b32", fns_b32, "Dtii" },
	{ "prmt.b32", prmt_b32, "Dttt" },
	{ "prmt.b32.f4e", prmt_f4e, "Dttt" },
	{ "prmt.b32.b4e", prmt_b4e, "Dttt" },
	{ "prmt.b32.rc8", prmt_rc8, "Dttt" },
	{ "prmt.b32.ecl", prmt_ecl, "Dttt" },
	{ "prmt.b32.ecr", prmt_ecr, "Dttt" },
	{ "prmt.b32.rc16", prmt_rc16, "Dttt" },
	{ "lop3.b32", lop3_b32, "Dttti" },
	{ NULL },
};
