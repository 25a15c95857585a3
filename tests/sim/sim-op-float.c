/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Arithmetic on f32 and f64. The
 * plain ops round to nearest and keep subnormal numbers; what has another rounding, .ftz or .sat
 * goes through general_*, which sets the rounding mode of the CPU around the operation (this file
 * is compiled with -frounding-math -ffp-contract=off). Approximate instructions give the correctly
 * rounded result, or the C library's: a GPU's differ in the last bits. A NaN of f32 is the
 * canonical one, as on a GPU.
 */

#include <fenv.h>
#include <math.h>

#include "sim-op.h"

#define NAN32 UINT32_C(0x7fffffff)

static uint64_t put32(float value) {
	return value != value ? NAN32 : sim_f32_bits(value);
}

static uint64_t put64(double value) {
	return sim_f64_bits(value);
}

/* The number wins over NaN, and -0 is less than 0. */
#define MINIMUM(name, type, less_sign)                              \
	static type name(type a, type b) {                          \
		if (a != a)                                         \
			return b;                                   \
		if (b != b)                                         \
			return a;                                   \
		if (a == b)                                         \
			return !!signbit(a) == (less_sign) ? a : b; \
		return (a < b) == (less_sign) ? a : b;              \
	}

MINIMUM(minimum32, float, true)
MINIMUM(maximum32, float, false)
MINIMUM(minimum64, double, true)
MINIMUM(maximum64, double, false)

#define F32(name, expression)                                                              \
	SIM_OP(name##_f32) {                                                               \
		float a = sim_f32(RD(i->a)), b = sim_f32(RD(i->b)), c = sim_f32(RD(i->c)); \
		(void)b;                                                                   \
		(void)c;                                                                   \
		RD(i->d) = put32(expression);                                              \
		return i + 1;                                                              \
	}

#define F64(name, expression)                                                               \
	SIM_OP(name##_f64) {                                                                \
		double a = sim_f64(RD(i->a)), b = sim_f64(RD(i->b)), c = sim_f64(RD(i->c)); \
		(void)b;                                                                    \
		(void)c;                                                                    \
		RD(i->d) = put64(expression);                                               \
		return i + 1;                                                               \
	}

F32(add, a + b)
F32(sub, a - b)
F32(mul, a *b)
F32(div, a / b)
F32(fma, fmaf(a, b, c))
F32(min, minimum32(a, b))
F32(max, maximum32(a, b))
F32(rcp, 1.0f / a)
F32(sqrt, sqrtf(a))
F32(rsqrt, (float)(1.0 / sqrt((double)a)))
F32(ex2, exp2f(a))
F32(lg2, log2f(a))
F32(sin, (float)sin((double)a))
F32(cos, (float)cos((double)a))
F32(tanh, tanhf(a))
F64(add, a + b)
F64(sub, a - b)
F64(mul, a *b)
F64(div, a / b)
F64(fma, fma(a, b, c))
F64(min, minimum64(a, b))
F64(max, maximum64(a, b))
F64(rcp, 1.0 / a)
F64(sqrt, sqrt(a))
F64(rsqrt, 1.0 / sqrt(a))

SIM_OP(neg_f32) {
	RD(i->d) = (uint32_t)RD(i->a) ^ UINT32_C(0x80000000);
	return i + 1;
}
SIM_OP(abs_f32) {
	RD(i->d) = RD(i->a) & UINT32_C(0x7fffffff);
	return i + 1;
}
SIM_OP(neg_f64) {
	RD(i->d) = RD(i->a) ^ UINT64_C(0x8000000000000000);
	return i + 1;
}
SIM_OP(abs_f64) {
	RD(i->d) = RD(i->a) & UINT64_C(0x7fffffffffffffff);
	return i + 1;
}

/* The sign of a on the value of b. */
SIM_OP(copysign_f32) {
	RD(i->d) = (RD(i->a) & UINT32_C(0x80000000)) | (RD(i->b) & UINT32_C(0x7fffffff));
	return i + 1;
}

SIM_OP(copysign_f64) {
	RD(i->d) = (RD(i->a) & UINT64_C(0x8000000000000000)) |
		   (RD(i->b) & UINT64_C(0x7fffffffffffffff));
	return i + 1;
}

#define TESTP(name, expression32, expression64) \
	SIM_OP(testp_##name##_f32) {            \
		float a = sim_f32(RD(i->a));    \
		RD(i->d) = !!(expression32);    \
		return i + 1;                   \
	}                                       \
	SIM_OP(testp_##name##_f64) {            \
		double a = sim_f64(RD(i->a));   \
		RD(i->d) = !!(expression64);    \
		return i + 1;                   \
	}

TESTP(finite, isfinite(a), isfinite(a))
TESTP(infinite, isinf(a), isinf(a))
TESTP(number, a == a, a == a)
TESTP(notanumber, a != a, a != a)
TESTP(normal, isnormal(a), isnormal(a))
TESTP(subnormal, a == 0 || fpclassify(a) == FP_SUBNORMAL, a == 0 || fpclassify(a) == FP_SUBNORMAL)

#define TESTP_ROWS(type)                                                      \
	{ "testp.finite." #type, testp_finite_##type, "Dt" },                 \
		{ "testp.infinite." #type, testp_infinite_##type, "Dt" },     \
		{ "testp.number." #type, testp_number_##type, "Dt" },         \
		{ "testp.notanumber." #type, testp_notanumber_##type, "Dt" }, \
		{ "testp.normal." #type, testp_normal_##type, "Dt" },         \
		{ "testp.subnormal." #type, testp_subnormal_##type, "Dt" }

#define ROWS(type)                                                                          \
	{ "add." #type, add_##type, "Dtt" }, { "sub." #type, sub_##type, "Dtt" },           \
		{ "mul." #type, mul_##type, "Dtt" }, { "div." #type, div_##type, "Dtt" },   \
		{ "fma." #type, fma_##type, "Dttt" }, { "mad." #type, fma_##type, "Dttt" }, \
		{ "min." #type, min_##type, "Dtt" }, { "max." #type, max_##type, "Dtt" },   \
		{ "rcp." #type, rcp_##type, "Dt" }, { "sqrt." #type, sqrt_##type, "Dt" },   \
		{ "rsqrt." #type, rsqrt_##type, "Dt" }, { "neg." #type, neg_##type, "Dt" }, \
		{ "abs." #type, abs_##type, "Dt" }, { "copysign." #type, copysign_##type, "Dtt" }

const struct sim_op_row sim_op_float[] = {
	ROWS(f32),
	ROWS(f64),
	TESTP_ROWS(f32),
	TESTP_ROWS(f64),
	{ "ex2.f32", ex2_f32, "Dt" },
	{ "lg2.f32", lg2_f32, "Dt" },
	{ "sin.f32", sin_f32, "Dt" },
	{ "cos.f32", cos_f32, "Dt" },
	{ "tanh.f32", tanh_f32, "Dt" },
	{ NULL },
};

static const int rounding_modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD,
				      FE_TONEAREST };

static float flush(float value, uint32_t mode) {
	return (mode & SIM_FTZ) && fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

static float finish32(float value, uint32_t mode) {
	value = flush(value, mode);
	if (mode & SIM_SAT)
		return value > 1 ? 1 : value > 0 ? value : 0; /* NaN is 0 too */
	return value;
}

/* With the rounding mode set; volatile keeps the operation between the two calls. */
#define GENERAL32(name, expression)                                           \
	SIM_OP(general_##name##_f32) {                                        \
		volatile float a = flush(sim_f32(RD(i->a)), i->mode),         \
			       b = flush(sim_f32(RD(i->b)), i->mode);         \
		volatile float c = flush(sim_f32(RD(i->c)), i->mode), result; \
		(void)b;                                                      \
		(void)c;                                                      \
		if (i->mode & SIM_ROUND_MASK)                                 \
			fesetround(rounding_modes[i->mode & SIM_ROUND_MASK]); \
		result = (expression);                                        \
		if (i->mode & SIM_ROUND_MASK)                                 \
			fesetround(FE_TONEAREST);                             \
		RD(i->d) = put32(finish32(result, i->mode));                  \
		return i + 1;                                                 \
	}

#define GENERAL64(name, expression)                                           \
	SIM_OP(general_##name##_f64) {                                        \
		volatile double a = sim_f64(RD(i->a)), b = sim_f64(RD(i->b)), \
				c = sim_f64(RD(i->c)), result;                \
		(void)b;                                                      \
		(void)c;                                                      \
		if (i->mode & SIM_ROUND_MASK)                                 \
			fesetround(rounding_modes[i->mode & SIM_ROUND_MASK]); \
		result = (expression);                                        \
		if (i->mode & SIM_ROUND_MASK)                                 \
			fesetround(FE_TONEAREST);                             \
		RD(i->d) = put64(result);                                     \
		return i + 1;                                                 \
	}

static float nan_minimum32(float a, float b, uint32_t mode) {
	return (mode & SIM_NAN) && (a != a || b != b) ? NAN : minimum32(a, b);
}

static float nan_maximum32(float a, float b, uint32_t mode) {
	return (mode & SIM_NAN) && (a != a || b != b) ? NAN : maximum32(a, b);
}

GENERAL32(add, a + b)
GENERAL32(sub, a - b)
GENERAL32(mul, a *b)
GENERAL32(div, a / b)
GENERAL32(fma, fmaf(a, b, c))
GENERAL32(min, nan_minimum32(a, b, i->mode))
GENERAL32(max, nan_maximum32(a, b, i->mode))
GENERAL32(rcp, 1.0f / a)
GENERAL32(sqrt, sqrtf(a))
GENERAL32(rsqrt, (float)(1.0 / sqrt((double)a)))
GENERAL32(ex2, exp2f(a))
GENERAL32(lg2, log2f(a))
GENERAL32(sin, (float)sin((double)a))
GENERAL32(cos, (float)cos((double)a))
GENERAL32(tanh, tanhf(a))
GENERAL32(neg, -a)
GENERAL32(abs, fabsf(a))
GENERAL64(add, a + b)
GENERAL64(sub, a - b)
GENERAL64(mul, a *b)
GENERAL64(div, a / b)
GENERAL64(fma, fma(a, b, c))
GENERAL64(rcp, 1.0 / a)
GENERAL64(sqrt, sqrt(a))
GENERAL64(rsqrt, 1.0 / sqrt(a))

#define GENERAL_ROWS(type)                                                                        \
	{ "add." #type, general_add_##type, "Dtt" }, { "sub." #type, general_sub_##type, "Dtt" }, \
		{ "mul." #type, general_mul_##type, "Dtt" },                                      \
		{ "div." #type, general_div_##type, "Dtt" },                                      \
		{ "fma." #type, general_fma_##type, "Dttt" },                                     \
		{ "mad." #type, general_fma_##type, "Dttt" },                                     \
		{ "rcp." #type, general_rcp_##type, "Dt" },                                       \
		{ "sqrt." #type, general_sqrt_##type, "Dt" },                                     \
		{ "rsqrt." #type, general_rsqrt_##type, "Dt" }

const struct sim_op_row sim_op_general[] = {
	GENERAL_ROWS(f32),
	GENERAL_ROWS(f64),
	{ "min.f32", general_min_f32, "Dtt" },
	{ "max.f32", general_max_f32, "Dtt" },
	{ "neg.f32", general_neg_f32, "Dt" },
	{ "abs.f32", general_abs_f32, "Dt" },
	{ "ex2.f32", general_ex2_f32, "Dt" },
	{ "lg2.f32", general_lg2_f32, "Dt" },
	{ "sin.f32", general_sin_f32, "Dt" },
	{ "cos.f32", general_cos_f32, "Dt" },
	{ "tanh.f32", general_tanh_f32, "Dt" },
	{ NULL },
};
