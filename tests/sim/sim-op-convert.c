/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). cvt. Integer to integer, integer to
 * float and float to integer at the default rounding have ops of their own; everything else
 * (rounding, saturation, .ftz, half precision) takes the general one, which goes through f64 or
 * 64-bit integers.
 */

#include <fenv.h>
#include <math.h>

#include "sim-half.h"
#include "sim-op.h"

#define TYPE_OF(mode, shift) ((enum ptx_type)((mode) >> (shift) & 0xff))

static bool is_signed(enum ptx_type type) {
	return type >= PTX_TYPE_S8 && type <= PTX_TYPE_S64;
}

static bool is_integer(enum ptx_type type) {
	return type >= PTX_TYPE_U8 && type <= PTX_TYPE_S64;
}

static bool is_float(enum ptx_type type) {
	return type == PTX_TYPE_F16 || type == PTX_TYPE_BF16 || type == PTX_TYPE_F32 ||
	       type == PTX_TYPE_F64;
}

/* Signed sources are extended into all 64 bits. */
static uint64_t read_integer(uint64_t value, enum ptx_type type) {
	unsigned int unused = 64 - 8 * ptx_type_size(type);

	value <<= unused;
	return is_signed(type) ? (uint64_t)((int64_t)value >> unused) : value >> unused;
}

/* Results are extended as PTX has it for destinations that are wider than the type. */
static uint64_t saturate_integer(uint64_t value, enum ptx_type from, enum ptx_type to) {
	unsigned int bits = 8 * ptx_type_size(to);
	int64_t most = (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
	uint64_t highest = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
	bool negative = is_signed(from) && (int64_t)value < 0;

	if (is_signed(to)) {
		if (negative)
			return (int64_t)value < -most - 1 ? (uint64_t)(-most - 1) : value;
		return value > (uint64_t)most ? (uint64_t)most : value;
	}
	if (negative)
		return 0;
	return value > highest ? highest : value;
}

SIM_OP(integer_to_integer) {
	enum ptx_type to = TYPE_OF(i->mode, 8), from = TYPE_OF(i->mode, 16);
	uint64_t value = read_integer(RD(i->a), from);

	if (i->mode & SIM_SAT)
		value = saturate_integer(value, from, to);
	RD(i->d) = read_integer(value, to);
	return i + 1;
}

SIM_OP(u64_from_u32) {
	RD(i->d) = (uint32_t)RD(i->a);
	return i + 1;
}
SIM_OP(u64_from_s32) {
	RD(i->d) = (uint64_t)(int64_t)(int32_t)RD(i->a);
	return i + 1;
}
SIM_OP(u32_from_u64) {
	RD(i->d) = (uint32_t)RD(i->a);
	return i + 1;
}
SIM_OP(f32_from_s32) {
	RD(i->d) = sim_f32_bits((float)(int32_t)RD(i->a));
	return i + 1;
}
SIM_OP(f32_from_u32) {
	RD(i->d) = sim_f32_bits((float)(uint32_t)RD(i->a));
	return i + 1;
}
SIM_OP(f64_from_s32) {
	RD(i->d) = sim_f64_bits((double)(int32_t)RD(i->a));
	return i + 1;
}
SIM_OP(f64_from_u32) {
	RD(i->d) = sim_f64_bits((double)(uint32_t)RD(i->a));
	return i + 1;
}

SIM_OP(f64_from_f32) {
	float value = sim_f32(RD(i->a));

	RD(i->d) = value != value ? UINT64_C(0x7fffffffe0000000) : sim_f64_bits(value);
	return i + 1;
}

static const int rounding_modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD,
				      FE_TONEAREST };

/* The value of a source as f64, which holds all but 64-bit integers exactly. */
static double read_float(uint64_t bits, enum ptx_type type, uint32_t mode) {
	float value;

	switch (type) {
	case PTX_TYPE_F64:
		return sim_f64(bits);
	case PTX_TYPE_F16:
		return sim_half_to_float(bits);
	case PTX_TYPE_BF16:
		return sim_bfloat_to_float(bits);
	default:
		value = sim_f32(bits);
		return (mode & SIM_FTZ) && fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value)
									     : value;
	}
}

static uint64_t write_float(double value, enum ptx_type type, uint32_t mode) {
	volatile double wide = value;
	volatile float narrow;

	if (mode & SIM_SAT)
		wide = value > 1 ? 1 : value > 0 ? value : 0;
	switch (type) {
	case PTX_TYPE_F64:
		return sim_f64_bits(wide);
	case PTX_TYPE_F16:
		return sim_half_from_double(wide, mode & SIM_ROUND_MASK);
	case PTX_TYPE_BF16:
		return sim_bfloat_from_double(wide, mode & SIM_ROUND_MASK);
	default:
		fesetround(rounding_modes[mode & SIM_ROUND_MASK]);
		narrow = (float)wide;
		fesetround(FE_TONEAREST);
		if ((mode & SIM_FTZ) && fpclassify(narrow) == FP_SUBNORMAL)
			narrow = copysignf(0, narrow);
		return narrow != narrow ? UINT32_C(0x7fffffff) : sim_f32_bits(narrow);
	}
}

static double round_integer(double value, uint32_t mode) {
	switch (mode & SIM_ROUND_MASK) {
	case SIM_RZ:
		return trunc(value);
	case SIM_RM:
		return floor(value);
	case SIM_RP:
		return ceil(value);
	default:
		return nearbyint(value);
	}
}

/* Out of range is the nearest one that is in range; NaN is 0, or the top bit where 64 bits take
 * part. */
static uint64_t float_to_integer_bits(double value, enum ptx_type from, enum ptx_type to,
				      uint32_t mode) {
	unsigned int bits = 8 * ptx_type_size(to);
	double limit = ldexp(1, is_signed(to) ? (int)bits - 1 : (int)bits);

	if (value != value)
		return from != PTX_TYPE_F64 && bits < 64
			       ? 0
			       : read_integer(UINT64_C(1) << (bits - 1), to);
	value = round_integer(value, mode);
	if (value >= limit)
		return is_signed(to) ? (UINT64_C(1) << (bits - 1)) - 1
		       : bits == 64  ? UINT64_MAX
				     : (UINT64_C(1) << bits) - 1;
	if (is_signed(to))
		return value <= -limit ? -(UINT64_C(1) << (bits - 1)) : (uint64_t)(int64_t)value;
	return value <= 0 ? 0 : (uint64_t)value;
}

SIM_OP(float_to_integer) {
	enum ptx_type to = TYPE_OF(i->mode, 8), from = TYPE_OF(i->mode, 16);

	RD(i->d) = float_to_integer_bits(read_float(RD(i->a), from, i->mode), from, to, i->mode);
	return i + 1;
}

SIM_OP(integer_to_float) {
	enum ptx_type to = TYPE_OF(i->mode, 8), from = TYPE_OF(i->mode, 16);
	volatile uint64_t value = read_integer(RD(i->a), from);
	volatile double wide;
	volatile float narrow;

	fesetround(rounding_modes[i->mode & SIM_ROUND_MASK]);
	wide = is_signed(from) ? (double)(int64_t)value : (double)value;
	narrow = is_signed(from) ? (float)(int64_t)value : (float)value;
	fesetround(FE_TONEAREST);
	/* half precision is rounded twice for integers beyond 2^53 alone, which are infinite there
	 * anyway */
	RD(i->d) = to == PTX_TYPE_F32 && !(i->mode & SIM_SAT) ? sim_f32_bits(narrow)
							      : write_float(wide, to, i->mode);
	return i + 1;
}

SIM_OP(float_to_float) {
	enum ptx_type to = TYPE_OF(i->mode, 8), from = TYPE_OF(i->mode, 16);
	double value = read_float(RD(i->a), from, i->mode);

	if (i->mode & SIM_ROUND_INTEGER)
		value = round_integer(value, i->mode);
	RD(i->d) = write_float(value, to, i->mode);
	return i + 1;
}

sim_op sim_op_convert(enum ptx_type to, enum ptx_type from, uint32_t mode) {
	/* .b types say nothing about the sign and occur in casts of packed values alone */
	if (is_integer(to) && is_integer(from)) {
		if (mode & SIM_SAT)
			return integer_to_integer;
		if (ptx_type_size(to) == 8 && from == PTX_TYPE_U32)
			return u64_from_u32;
		if (ptx_type_size(to) == 8 && from == PTX_TYPE_S32)
			return u64_from_s32;
		if (to == PTX_TYPE_U32 && ptx_type_size(from) == 8)
			return u32_from_u64;
		return integer_to_integer;
	}
	if (is_float(to) && is_integer(from)) {
		if (!mode && from == PTX_TYPE_S32 && to == PTX_TYPE_F32)
			return f32_from_s32;
		if (!mode && from == PTX_TYPE_U32 && to == PTX_TYPE_F32)
			return f32_from_u32;
		if (!mode && from == PTX_TYPE_S32 && to == PTX_TYPE_F64)
			return f64_from_s32;
		if (!mode && from == PTX_TYPE_U32 && to == PTX_TYPE_F64)
			return f64_from_u32;
		return integer_to_float;
	}
	if (is_integer(to) && is_float(from))
		return float_to_integer;
	if (is_float(to) && is_float(from))
		return !mode && to == PTX_TYPE_F64 && from == PTX_TYPE_F32 ? f64_from_f32
									   : float_to_float;
	return NULL;
}
