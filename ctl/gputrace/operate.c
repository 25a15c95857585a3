/* SPDX-License-Identifier: Apache-2.0 */

/* Operations on numbers (operate.h). libc only. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "operate.h"

/* As eBPF: by zero 0; the one that overflows wraps. */
static int64_t divide(int64_t a, int64_t b) {
	return !b ? 0 : b == -1 ? (int64_t)-(uint64_t)a : a / b;
}

/* By zero a. */
static int64_t modulo(int64_t a, int64_t b) {
	return !b ? a : b == -1 ? 0 : a % b;
}

int64_t operate(enum op op, int64_t a, int64_t b) {
	const uint64_t x = (uint64_t)a, y = (uint64_t)b;

	switch (op) {
	case OP_ADD:
		return (int64_t)(x + y);
	case OP_SUB:
		return (int64_t)(x - y);
	case OP_MUL:
		return (int64_t)(x * y);
	case OP_DIV:
		return divide(a, b);
	case OP_MOD:
		return modulo(a, b);
	case OP_AND:
		return a & b;
	case OP_OR:
		return a | b;
	case OP_XOR:
		return a ^ b;
	case OP_LEFT:
		return (int64_t)(x << (y & 63));
	case OP_RIGHT:
		return a >> (y & 63);
	case OP_EQ:
		return a == b;
	case OP_NE:
		return a != b;
	case OP_LT:
		return a < b;
	case OP_LE:
		return a <= b;
	case OP_GT:
		return a > b;
	case OP_GE:
		return a >= b;
	case OP_BOTH:
		return a && b;
	case OP_EITHER:
		return a || b;
	default:
		return 0;
	}
}

int64_t operate_unary(enum op op, int64_t a) {
	return op == OP_NOT ? !a : op == OP_MINUS ? (int64_t)-(uint64_t)a : ~a;
}

double float_real(int64_t bits) {
	double real;

	memcpy(&real, &bits, sizeof(real));
	return real;
}

bool float_is_nan(int64_t bits) {
	return isnan(float_real(bits));
}

int64_t float_bits(double real) {
	int64_t bits;

	memcpy(&bits, &real, sizeof(bits));
	return bits;
}

static double real_of_f32(uint32_t bits) {
	float real;

	memcpy(&real, &bits, sizeof(real));
	return (double)real;
}

static double real_of_f16(uint32_t bits) {
	const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
	double real = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);

	if (exponent == 31)
		real = mantissa ? (double)NAN : (double)INFINITY;
	return bits >> 15 & 1 ? -real : real;
}

int64_t float_of(enum builtin_id id, int64_t bits) {
	switch (id) {
	case BUILTIN_F16:
		return float_bits(real_of_f16((uint32_t)bits & 0xffff));
	case BUILTIN_BF16:
		return float_bits(real_of_f32((uint32_t)bits << 16));
	case BUILTIN_F32:
		return float_bits(real_of_f32((uint32_t)bits));
	default:
		return bits;
	}
}

int64_t float_order(int64_t bits) {
	return bits < 0 ? -(bits & INT64_MAX) : bits;
}

int64_t float_unorder(int64_t order) {
	return order < 0 ? -order | INT64_MIN : order;
}

int64_t operate_float(enum op op, int64_t a, int64_t b) {
	if (float_is_nan(a) || float_is_nan(b))
		return op == OP_NE;
	return operate(op, float_order(a), float_order(b));
}

static void format_float(FILE *out, char letter, int width, double real) {
	if (letter == 'f')
		fprintf(out, "%*f", width, real);
	else if (letter == 'e')
		fprintf(out, "%*e", width, real);
	else
		fprintf(out, "%*g", width, real);
}

void format_number(FILE *out, const struct format_piece *piece, int64_t number) {
	const int width = piece->width;

	switch (piece->letter) {
	case 'f':
	case 'e':
	case 'g':
		format_float(out, piece->letter, width, float_real(number));
		break;
	case 'u':
		fprintf(out, piece->zeros ? "%0*" PRIu64 : "%*" PRIu64, width, (uint64_t)number);
		break;
	case 'x':
		fprintf(out, piece->zeros ? "%0*" PRIx64 : "%*" PRIx64, width, (uint64_t)number);
		break;
	case 'X':
		fprintf(out, piece->zeros ? "%0*" PRIX64 : "%*" PRIX64, width, (uint64_t)number);
		break;
	case 'o':
		fprintf(out, piece->zeros ? "%0*" PRIo64 : "%*" PRIo64, width, (uint64_t)number);
		break;
	default:
		fprintf(out, piece->zeros ? "%0*" PRId64 : "%*" PRId64, width, number);
	}
}
