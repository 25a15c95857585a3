/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Floats on the GPU. eBPF has none: a float is the bits of a double in a register, of whatever
 * format it came from, and what can be done with it is done with integers. operate.c has the same
 * for the host.
 */

#include "emit.h"
#include "words.h"

#define DOUBLE_MANTISSA 52
#define DOUBLE_BIAS 1023
#define DOUBLE_SPECIAL 2047 /* the exponent of NaN and infinity */
#define INFINITY_BITS ((int64_t)DOUBLE_SPECIAL << DOUBLE_MANTISSA)

/* Few jumps: the verifier goes all ways, and threads of a warp should go one. */

struct format {
	int exponent, mantissa; /* bits */
};

static struct format format_of(enum builtin_id id) {
	switch (id) {
	case BUILTIN_F16:
		return (struct format){ 5, 10 };
	case BUILTIN_BF16:
		return (struct format){ 8, 7 };
	case BUILTIN_F32:
		return (struct format){ 8, 23 };
	default:
		return (struct format){ 11, DOUBLE_MANTISSA };
	}
}

/* R0: the mantissa of a number that is too small for an exponent, or 0. R2 becomes its exponent,
 * and the mantissa has its highest bit then. */
static void normalise(struct emit *emit, const struct format *format) {
	emit_constant(emit, BPF_REG_2, 1);
	for (int power = 4; power >= 0; power--) {
		if (1 << power > format->mantissa)
			continue;
		/* R3: 1 if it can be shifted so far */
		emit_move(emit, BPF_REG_3, BPF_REG_0);
		emit_alu_constant(emit, BPF_SUB, BPF_REG_3,
				  1 << (format->mantissa + 1 - (1 << power)));
		emit_alu_constant(emit, BPF_RSH, BPF_REG_3, 63);
		emit_alu_constant(emit, BPF_LSH, BPF_REG_3, power);
		emit_alu(emit, BPF_LSH, BPF_REG_0, BPF_REG_3);
		emit_alu(emit, BPF_SUB, BPF_REG_2, BPF_REG_3);
	}
	/* of zero: the exponent that becomes 0 */
	emit_move(emit, BPF_REG_3, BPF_REG_0);
	emit_alu_constant(emit, BPF_SUB, BPF_REG_3, 1);
	emit_alu_constant(emit, BPF_ARSH, BPF_REG_3, 63);
	emit_move(emit, BPF_REG_4, BPF_REG_2);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_4,
			  DOUBLE_BIAS - ((1 << (format->exponent - 1)) - 1));
	emit_alu(emit, BPF_AND, BPF_REG_4, BPF_REG_3);
	emit_alu(emit, BPF_SUB, BPF_REG_2, BPF_REG_4);
	emit_alu_constant(emit, BPF_AND, BPF_REG_0, (1 << format->mantissa) - 1);
}

/* R0: the bits of a format, which become those of a double. */
static void convert(struct emit *emit, const struct format *format) {
	const int bias = DOUBLE_BIAS - ((1 << (format->exponent - 1)) - 1),
		  special = (1 << format->exponent) - 1;
	size_t normal;

	emit_move(emit, BPF_REG_1, BPF_REG_0); /* the sign */
	emit_alu_constant(emit, BPF_RSH, BPF_REG_1, format->exponent + format->mantissa);
	emit_alu_constant(emit, BPF_LSH, BPF_REG_1, 63);
	emit_move(emit, BPF_REG_2, BPF_REG_0);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_2, format->mantissa);
	emit_alu_constant(emit, BPF_AND, BPF_REG_2, special);
	emit_alu_constant(emit, BPF_AND, BPF_REG_0, (1 << format->mantissa) - 1);
	normal = emit_jump_constant(emit, BPF_JNE, BPF_REG_2, 0);
	normalise(emit, format);
	emit_land(emit, normal);
	/* R3: all bits if it is NaN or infinity, whose exponent is another one */
	emit_constant(emit, BPF_REG_3, special - 1);
	emit_alu(emit, BPF_SUB, BPF_REG_3, BPF_REG_2);
	emit_alu_constant(emit, BPF_ARSH, BPF_REG_3, 63);
	emit_alu_constant(emit, BPF_AND, BPF_REG_3, DOUBLE_SPECIAL - special - bias);
	emit_alu(emit, BPF_ADD, BPF_REG_2, BPF_REG_3);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_2, bias);
	emit_alu_constant(emit, BPF_LSH, BPF_REG_0, DOUBLE_MANTISSA - format->mantissa);
	emit_alu_constant(emit, BPF_LSH, BPF_REG_2, DOUBLE_MANTISSA);
	emit_alu(emit, BPF_OR, BPF_REG_0, BPF_REG_2);
	emit_alu(emit, BPF_OR, BPF_REG_0, BPF_REG_1);
}

/* isnan() and isinf(): of the bits as they are, which is cheap. */
static void test(struct emit *emit, const struct node *node) {
	const struct node *argument = node->a;
	struct format format = format_of(BUILTIN_F64);

	if (argument->kind == NODE_CALL) {
		format = format_of(argument->builtin->id);
		argument = argument->a;
	}
	emit_expression(emit, argument);
	emit_alu_constant(emit, BPF_LSH, BPF_REG_0, 64 - format.exponent - format.mantissa);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 1);
	/* R1: below 0 of NaN, 0 of infinity */
	emit_constant(emit, BPF_REG_1, (int64_t)(UINT64_MAX << (64 - format.exponent) >> 1));
	emit_alu(emit, BPF_SUB, BPF_REG_1, BPF_REG_0);
	emit_move(emit, BPF_REG_0, BPF_REG_1);
	if (node->builtin->id == BUILTIN_ISINF) {
		emit_alu_constant(emit, BPF_NEG, BPF_REG_1, 0);
		emit_alu(emit, BPF_OR, BPF_REG_0, BPF_REG_1);
	}
	emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 63);
	if (node->builtin->id == BUILTIN_ISINF)
		emit_alu_constant(emit, BPF_XOR, BPF_REG_0, 1);
}

void emit_float_call(struct emit *emit, const struct node *node) {
	const struct format format = format_of(node->builtin->id);

	if (node->builtin->id >= BUILTIN_ISNAN) {
		test(emit, node);
		return;
	}
	emit_expression(emit, node->a);
	if (node->builtin->id == BUILTIN_F64)
		return;
	emit_alu_constant(emit, BPF_LSH, BPF_REG_0, 63 - format.exponent - format.mantissa);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 63 - format.exponent - format.mantissa);
	convert(emit, &format);
}

/* Integers that are in order as the floats are; both zeros are one. R5 becomes 1 of NaN, else 0;
 * spoils R4. */
static void order(struct emit *emit, int of) {
	emit_move(emit, BPF_REG_4, of);
	emit_alu_constant(emit, BPF_ARSH, BPF_REG_4, 63);
	emit_alu_constant(emit, BPF_LSH, of, 1);
	emit_alu_constant(emit, BPF_RSH, of, 1);
	emit_constant(emit, BPF_REG_5, INFINITY_BITS);
	emit_alu(emit, BPF_SUB, BPF_REG_5, of);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_5, 63);
	emit_alu(emit, BPF_XOR, of, BPF_REG_4);
	emit_alu(emit, BPF_SUB, of, BPF_REG_4);
}

size_t emit_float_order(struct emit *emit) {
	order(emit, BPF_REG_0);
	return emit_jump_constant(emit, BPF_JNE, BPF_REG_5, 0);
}

void emit_float_compare(struct emit *emit, enum op op) {
	order(emit, BPF_REG_0);
	emit_move(emit, BPF_REG_3, BPF_REG_5);
	order(emit, BPF_REG_1);
	emit_alu(emit, BPF_OR, BPF_REG_3, BPF_REG_5);
	emit_operation(emit, op); /* a comparison leaves R3 alone */
	if (op != OP_NE)
		emit_alu_constant(emit, BPF_XOR, BPF_REG_3, 1);
	emit_alu(emit, op == OP_NE ? BPF_OR : BPF_AND, BPF_REG_0, BPF_REG_3);
}

/* The bucket of R1 into R2: as script.c has it. */
void emit_float_bucket(struct emit *emit) {
	enum {
		NAN_BUCKET,
		NEGATIVE,
		ZERO,
		TINY,
		FIRST,
		HUGE_BUCKET = SCRIPT_FLOAT_BUCKETS - 1
	};
	size_t nan, zero, negative, tiny, huge;

	order(emit, BPF_REG_1);
	emit_constant(emit, BPF_REG_2, NAN_BUCKET);
	nan = emit_jump_constant(emit, BPF_JNE, BPF_REG_5, 0);
	emit_constant(emit, BPF_REG_2, ZERO);
	zero = emit_jump_constant(emit, BPF_JEQ, BPF_REG_1, 0);
	emit_constant(emit, BPF_REG_2, NEGATIVE);
	negative = emit_jump_constant(emit, BPF_JSLT, BPF_REG_1, 0);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_1, DOUBLE_MANTISSA);
	emit_constant(emit, BPF_REG_2, TINY);
	tiny = emit_jump_constant(emit, BPF_JLT, BPF_REG_1, DOUBLE_BIAS - SCRIPT_FLOAT_POWER);
	emit_constant(emit, BPF_REG_2, HUGE_BUCKET);
	huge = emit_jump_constant(emit, BPF_JGT, BPF_REG_1, DOUBLE_BIAS + SCRIPT_FLOAT_POWER);
	emit_alu_constant(emit, BPF_SUB, BPF_REG_1, DOUBLE_BIAS - SCRIPT_FLOAT_POWER - FIRST);
	emit_move(emit, BPF_REG_2, BPF_REG_1);
	emit_land(emit, nan);
	emit_land(emit, zero);
	emit_land(emit, negative);
	emit_land(emit, tiny);
	emit_land(emit, huge);
}
