/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Expressions on the GPU: the same results as operate.c has on the host. Division is signed, which
 * eBPF has none of before Linux 6.6: it is made of an unsigned one.
 */

#include "emit.h"
#include "words.h"

/* Where a variable is: the first words of the stack. */
static int local_place(const struct node *node) {
	return -8 * ((int)node->local + 1);
}

/* Loads what needs neither a call nor another register. False: it does. */
static bool load_direct(struct emit *emit, const struct node *node, int to) {
	switch (node->kind) {
	case NODE_NUMBER:
	case NODE_FLOAT:
		emit_constant(emit, to, node->number);
		return true;
	case NODE_LOCAL:
		emit_load(emit, to, BPF_REG_10, local_place(node));
		return true;
	case NODE_WORD:
		return emit_word_direct(emit, node, to);
	default:
		return false;
	}
}

/* Makes the number in a register positive; R3 counts signs that went. */
static void take_sign(struct emit *emit, int of, bool counts) {
	const size_t positive = emit_jump_constant(emit, BPF_JSGE, of, 0);

	emit_alu_constant(emit, BPF_NEG, of, 0);
	if (counts)
		emit_alu_constant(emit, BPF_XOR, BPF_REG_3, 1);
	emit_land(emit, positive);
}

/* R0 = R0 / R1, or R0 % R1, whose sign is that of the dividend. */
static void divide(struct emit *emit, int op) {
	size_t positive;

	emit_constant(emit, BPF_REG_3, 0);
	take_sign(emit, BPF_REG_0, true);
	take_sign(emit, BPF_REG_1, op == BPF_DIV);
	emit_alu(emit, op, BPF_REG_0, BPF_REG_1);
	positive = emit_jump_constant(emit, BPF_JEQ, BPF_REG_3, 0);
	emit_alu_constant(emit, BPF_NEG, BPF_REG_0, 0);
	emit_land(emit, positive);
}

/* R0 = R0 op R1 ? 1 : 0 */
static void compare(struct emit *emit, int jump) {
	size_t holds;

	emit_constant(emit, BPF_REG_2, 1);
	holds = emit_jump(emit, jump, BPF_REG_0, BPF_REG_1);
	emit_constant(emit, BPF_REG_2, 0);
	emit_land(emit, holds);
	emit_move(emit, BPF_REG_0, BPF_REG_2);
}

static void shift(struct emit *emit, int op) {
	emit_alu_constant(emit, BPF_AND, BPF_REG_1, 63);
	emit_alu(emit, op, BPF_REG_0, BPF_REG_1);
}

void emit_operation(struct emit *emit, enum op op) {
	switch (op) {
	case OP_ADD:
		emit_alu(emit, BPF_ADD, BPF_REG_0, BPF_REG_1);
		break;
	case OP_SUB:
		emit_alu(emit, BPF_SUB, BPF_REG_0, BPF_REG_1);
		break;
	case OP_MUL:
		emit_alu(emit, BPF_MUL, BPF_REG_0, BPF_REG_1);
		break;
	case OP_DIV:
		divide(emit, BPF_DIV);
		break;
	case OP_MOD:
		divide(emit, BPF_MOD);
		break;
	case OP_AND:
		emit_alu(emit, BPF_AND, BPF_REG_0, BPF_REG_1);
		break;
	case OP_OR:
		emit_alu(emit, BPF_OR, BPF_REG_0, BPF_REG_1);
		break;
	case OP_XOR:
		emit_alu(emit, BPF_XOR, BPF_REG_0, BPF_REG_1);
		break;
	case OP_LEFT:
		shift(emit, BPF_LSH);
		break;
	case OP_RIGHT:
		shift(emit, BPF_ARSH);
		break;
	case OP_EQ:
		compare(emit, BPF_JEQ);
		break;
	case OP_NE:
		compare(emit, BPF_JNE);
		break;
	case OP_LT:
		compare(emit, BPF_JSLT);
		break;
	case OP_LE:
		compare(emit, BPF_JSLE);
		break;
	case OP_GT:
		compare(emit, BPF_JSGT);
		break;
	default:
		compare(emit, BPF_JSGE);
	}
}

/* && and ||: the right side is evaluated only if it decides. */
static void either(struct emit *emit, const struct node *node) {
	const bool both = node->op == OP_BOTH;
	size_t first, second, end;

	emit_expression(emit, node->a);
	first = emit_jump_constant(emit, both ? BPF_JEQ : BPF_JNE, BPF_REG_0, 0);
	emit_expression(emit, node->b);
	second = emit_jump_constant(emit, both ? BPF_JEQ : BPF_JNE, BPF_REG_0, 0);
	emit_constant(emit, BPF_REG_0, both);
	end = emit_jump(emit, BPF_JA, 0, 0);
	emit_land(emit, first);
	emit_land(emit, second);
	emit_constant(emit, BPF_REG_0, !both);
	emit_land(emit, end);
}

static void binary(struct emit *emit, const struct node *node) {
	int place;

	if (node->op == OP_BOTH || node->op == OP_EITHER) {
		either(emit, node);
		return;
	}
	if (node->b->kind == NODE_NUMBER || node->b->kind == NODE_LOCAL) {
		emit_expression(emit, node->a);
		load_direct(emit, node->b, BPF_REG_1);
	} else {
		place = emit_take(emit, 1);
		emit_expression(emit, node->b);
		emit_store(emit, BPF_REG_10, place, BPF_REG_0);
		emit_expression(emit, node->a);
		emit_load(emit, BPF_REG_1, BPF_REG_10, place);
		emit_give(emit, 1);
	}
	if (node->a->type == TYPE_FLOAT)
		emit_float_compare(emit, node->op);
	else
		emit_operation(emit, node->op);
}

static void unary(struct emit *emit, const struct node *node) {
	emit_expression(emit, node->a);
	if (node->op == OP_MINUS) {
		emit_alu_constant(emit, BPF_NEG, BPF_REG_0, 0);
	} else if (node->op == OP_INVERT) {
		emit_alu_constant(emit, BPF_XOR, BPF_REG_0, -1);
	} else {
		emit_constant(emit, BPF_REG_1, 0);
		compare(emit, BPF_JEQ);
	}
}

static void choice(struct emit *emit, const struct node *node) {
	size_t otherwise, end;

	emit_expression(emit, node->a);
	otherwise = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_expression(emit, node->b);
	end = emit_jump(emit, BPF_JA, 0, 0);
	emit_land(emit, otherwise);
	emit_expression(emit, node->c);
	emit_land(emit, end);
}

void emit_expression(struct emit *emit, const struct node *node) {
	enum {
		PARAMS = 64
	};

	if (emit->code->failed || load_direct(emit, node, BPF_REG_0))
		return;
	emit->place = node->place;
	switch (node->kind) {
	case NODE_WORD:
		emit_word(emit, node);
		break;
	case NODE_MAP:
		emit_map_read(emit, node);
		break;
	case NODE_UNARY:
		unary(emit, node);
		break;
	case NODE_BINARY:
		binary(emit, node);
		break;
	case NODE_CHOICE:
		choice(emit, node);
		break;
	case NODE_CALL:
		if (builtin_is_of_lanes(node->builtin))
			emit_lane_call(emit, node);
		else if (node->builtin->id == BUILTIN_PARAM)
			emit_load(emit, BPF_REG_0, BPF_REG_6, PARAMS + 8 * (int)node->a->number);
		else
			emit_float_call(emit, node);
		break;
	default:
		emit_fail(emit, "a text cannot be on the GPU");
	}
}
