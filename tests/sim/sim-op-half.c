/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the CPU driver (what one PTX instruction does). Half precision: each operation is
 * done in f64, in which sums, products and fused products of two halves are exact or rounded far
 * below the last bit, and rounded once.
 */

#include <math.h>

#include "sim-half.h"
#include "sim-op.h"

float sim_half_to_float(uint64_t bits) {
	uint32_t sign = bits >> 15 & 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
	float value;

	if (exponent == 31)
		value = fraction ? NAN : INFINITY;
	else if (exponent)
		value = ldexpf((float)(fraction | 1024), (int)exponent - 25);
	else
		value = ldexpf((float)fraction, -24);
	return sign ? -value : value;
}

float sim_bfloat_to_float(uint64_t bits) {
	return sim_f32((bits & 0xffff) << 16);
}

/* Rounds to `digits` bits of significand, the least exponent being `least` (of the last place), the
 * largest finite value `most`. */
static double round_to(double value, int digits, int least, double most, uint32_t rounding) {
	double scaled, rounded;
	int exponent;

	if (value == 0 || !isfinite(value))
		return value;
	frexp(value, &exponent);
	exponent -= digits;
	if (exponent < least)
		exponent = least;
	scaled = ldexp(value, -exponent);
	switch (rounding) {
	case SIM_RZ:
		rounded = trunc(scaled);
		break;
	case SIM_RM:
		rounded = floor(scaled);
		break;
	case SIM_RP:
		rounded = ceil(scaled);
		break;
	case SIM_RA:
		rounded = round(scaled);
		break;
	default:
		rounded = nearbyint(scaled);
	}
	rounded = copysign(ldexp(rounded, exponent), value);
	if (fabs(rounded) > most) {
		bool to_infinity = rounding == SIM_RN || rounding == SIM_RA ||
				   (rounding == SIM_RP && value > 0) ||
				   (rounding == SIM_RM && value < 0);

		return copysign(to_infinity ? INFINITY : most, value);
	}
	return rounded;
}

uint64_t sim_half_from_double(double value, uint32_t rounding) {
	uint64_t sign = signbit(value) ? 0x8000 : 0;
	double size;
	int exponent;

	if (value != value)
		return 0x7fff;
	size = fabs(round_to(value, 11, -24, 65504, rounding));
	if (isinf(size))
		return sign | 0x7c00;
	if (size < ldexp(1, -14))
		return sign | (uint64_t)ldexp(size, 24);
	frexp(size, &exponent);
	return sign | (uint64_t)(exponent + 14) << 10 |
	       ((uint64_t)ldexp(size, 11 - exponent) & 1023);
}

uint64_t sim_bfloat_from_double(double value, uint32_t rounding) {
	if (value != value)
		return 0x7fff;
	return sim_f32_bits((float)round_to(value, 8, -133, 0x1.fep127, rounding)) >> 16;
}

static double minimum(double a, double b) {
	if (a != a || b != b)
		return a != a ? b : a;
	return a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}

static double maximum(double a, double b) {
	if (a != a || b != b)
		return a != a ? b : a;
	return a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

static uint64_t finish(double value, uint32_t mode, bool bfloat) {
	if (mode & SIM_SAT)
		value = value > 1 ? 1 : value > 0 ? value : 0;
	return bfloat ? sim_bfloat_from_double(value, SIM_RN) : sim_half_from_double(value, SIM_RN);
}

#define READ(bits, bfloat) \
	((double)((bfloat) ? sim_bfloat_to_float(bits) : sim_half_to_float(bits)))

#define HALF(name, type, bfloat, lanes, expression)                              \
	SIM_OP(name##_##type) {                                                  \
		uint64_t result = 0;                                             \
		for (int n = 0; n < (lanes); n++) {                              \
			double a = READ(RD(i->a) >> 16 * n, bfloat),             \
			       b = READ(RD(i->b) >> 16 * n, bfloat);             \
			double c = READ(RD(i->c) >> 16 * n, bfloat);             \
			(void)b;                                                 \
			(void)c;                                                 \
			result |= finish(expression, i->mode, bfloat) << 16 * n; \
		}                                                                \
		RD(i->d) = result;                                               \
		return i + 1;                                                    \
	}

#define HALVES(type, bfloat, lanes)                   \
	HALF(add, type, bfloat, lanes, a + b)         \
	HALF(sub, type, bfloat, lanes, a - b)         \
	HALF(mul, type, bfloat, lanes, a *b)          \
	HALF(fma, type, bfloat, lanes, fma(a, b, c))  \
	HALF(min, type, bfloat, lanes, minimum(a, b)) \
	HALF(max, type, bfloat, lanes, maximum(a, b)) \
	HALF(ex2, type, bfloat, lanes, exp2(a))       \
	HALF(tanh, type, bfloat, lanes, tanh(a))

HALVES(f16, false, 1)
HALVES(f16x2, false, 2)
HALVES(bf16, true, 1)
HALVES(bf16x2, true, 2)

SIM_OP(neg_one) {
	RD(i->d) = (RD(i->a) ^ 0x8000) & 0xffff;
	return i + 1;
}
SIM_OP(neg_two) {
	RD(i->d) = (uint32_t)RD(i->a) ^ UINT32_C(0x80008000);
	return i + 1;
}
SIM_OP(abs_one) {
	RD(i->d) = RD(i->a) & 0x7fff;
	return i + 1;
}
SIM_OP(abs_two) {
	RD(i->d) = RD(i->a) & UINT32_C(0x7fff7fff);
	return i + 1;
}

#define ROWS(type, count)                                                                  \
	{ "add." #type, add_##type, "Dtt" }, { "sub." #type, sub_##type, "Dtt" },          \
		{ "mul." #type, mul_##type, "Dtt" }, { "fma." #type, fma_##type, "Dttt" }, \
		{ "min." #type, min_##type, "Dtt" }, { "max." #type, max_##type, "Dtt" },  \
		{ "ex2." #type, ex2_##type, "Dt" }, { "tanh." #type, tanh_##type, "Dt" },  \
		{ "neg." #type, neg_##count, "Dt" }, { "abs." #type, abs_##count, "Dt" }

const struct sim_op_row sim_op_half[] = {
	ROWS(f16, one), ROWS(f16x2, two), ROWS(bf16, one), ROWS(bf16x2, two), { NULL },
};
