/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes of a warp. Which are together is asked once: two calls need not see the same ones.
 *
 * Events of a warp (mem:): all lanes that execute an instruction together run the program. They
 * give what the script asks of all of them, and then the lowest one alone goes on with its body.
 */

#include "emit.h"
#include "words.h"

enum {
	HELPER_LANE = 511,
	HELPER_ACTIVE = 514,
	HELPER_ANY = 517,
	HELPER_ALL = 518,
	HELPER_MATCH = 519,
	HELPER_SHUFFLE = 520,
	HELPER_SUM = 524,
	LANES = 32,
	SECTOR_SHIFT = 5, /* 32 bytes */
};

/* R0 becomes what a helper makes of R0 in all lanes. */
static void together(struct emit *emit, int helper) {
	emit_move(emit, BPF_REG_1, BPF_REG_0);
	emit_call(emit, helper);
}

/* R0 becomes the least or the largest R0 of all lanes: each lane asks all, one that is not there
 * answers with the asking one's own. */
static void best(struct emit *emit, bool least) {
	size_t again, worse;

	emit_move(emit, BPF_REG_9, BPF_REG_0);
	emit_move(emit, BPF_REG_8, BPF_REG_0);
	emit_constant(emit, BPF_REG_7, 0);
	again = emit->program->n_insns;
	emit_move(emit, BPF_REG_1, BPF_REG_9);
	emit_move(emit, BPF_REG_2, BPF_REG_7);
	emit_call(emit, HELPER_SHUFFLE);
	worse = emit_jump(emit, least ? BPF_JSGE : BPF_JSLE, BPF_REG_0, BPF_REG_8);
	emit_move(emit, BPF_REG_8, BPF_REG_0);
	emit_land(emit, worse);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_7, 1);
	emit_jump_back(emit, BPF_JNE, BPF_REG_7, LANES, again);
	emit_move(emit, BPF_REG_0, BPF_REG_8);
}

/* R0: how many bits of a mask of lanes in R0 are set. */
static void count_bits(struct emit *emit) {
	static const int32_t masks[] = { 0x55555555, 0x33333333 };

	for (int i = 0; i < 2; i++) {
		emit_move(emit, BPF_REG_1, BPF_REG_0);
		emit_alu_constant(emit, BPF_RSH, BPF_REG_1, 1 << i);
		emit_alu_constant(emit, BPF_AND, BPF_REG_1, masks[i]);
		emit_alu_constant(emit, BPF_AND, BPF_REG_0, masks[i]);
		emit_alu(emit, BPF_ADD, BPF_REG_0, BPF_REG_1);
	}
	emit_move(emit, BPF_REG_1, BPF_REG_0);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_1, 4);
	emit_alu(emit, BPF_ADD, BPF_REG_0, BPF_REG_1);
	emit_alu_constant(emit, BPF_AND, BPF_REG_0, 0x0f0f0f0f);
	emit_alu_constant(emit, BPF_MUL, BPF_REG_0, 0x01010101);
	emit_alu_constant(emit, BPF_RSH, BPF_REG_0, 24);
	emit_alu_constant(emit, BPF_AND, BPF_REG_0, 63);
}

/* R0: 1 in the lowest lane of the mask in R0, else 0. */
static void is_lowest(struct emit *emit) {
	const int mask = emit_take(emit, 1);

	emit_store(emit, BPF_REG_10, mask, BPF_REG_0);
	emit_call(emit, HELPER_LANE);
	emit_constant(emit, BPF_REG_1, 1);
	emit_alu(emit, BPF_LSH, BPF_REG_1, BPF_REG_0);
	emit_load(emit, BPF_REG_0, BPF_REG_10, mask);
	emit_move(emit, BPF_REG_2, BPF_REG_0);
	emit_alu_constant(emit, BPF_NEG, BPF_REG_2, 0);
	emit_alu(emit, BPF_AND, BPF_REG_0, BPF_REG_2);
	emit_operation(emit, OP_EQ);
	emit_give(emit, 1);
}

/* One of any all sum min max. */
static void lane_function(struct emit *emit, const struct node *node) {
	emit_expression(emit, node->a);
	switch (node->builtin->id) {
	case BUILTIN_ANY:
		together(emit, HELPER_ANY);
		break;
	case BUILTIN_ALL:
		together(emit, HELPER_ALL);
		break;
	case BUILTIN_SUM:
		together(emit, HELPER_SUM);
		break;
	default:
		best(emit, node->builtin->id == BUILTIN_MIN);
	}
	emit_store(emit, BPF_REG_10, emit->lanes[node->number], BPF_REG_0);
}

/* All lane functions of a list; first() is of the lowest lane, which has it when it needs it. */
static void lane_functions(struct emit *emit, const struct node *list) {
	for (; list; list = list->next) {
		if (list->kind == NODE_ASSIGN && list->a->kind == NODE_MAP &&
		    list->a->map->kind != MAP_SCALAR) { /* @x = sum(...) is an aggregation */
			lane_functions(emit, list->a);
			lane_functions(emit, list->b->a);
			continue;
		}
		if (list->kind == NODE_CALL && builtin_is_of_lanes(list->builtin)) {
			if (list->builtin->id == BUILTIN_FIRST)
				continue;
			emit->lanes[list->number] = emit_take(emit, 1);
			lane_function(emit, list);
			continue;
		}
		lane_functions(emit, list->a);
		lane_functions(emit, list->b);
		lane_functions(emit, list->c);
	}
}

/* A word of the whole warp onto the stack, if the script has it. */
static void put_word(struct emit *emit, enum word_id id, int mask) {
	const struct word *addr = word_find("addr"), *bytes = word_find("bytes");
	const struct node node = { .kind = NODE_WORD, .word = id == WORD_SECTORS ? addr : bytes };

	if (!code_has_word(emit->clause->body, id) && !code_has_word(emit->clause->predicate, id))
		return;
	emit->words[id - WORD_LANES] = emit_take(emit, 1);
	if (id == WORD_LANES) {
		emit_load(emit, BPF_REG_0, BPF_REG_10, mask);
		count_bits(emit);
		emit_store(emit, BPF_REG_10, emit->words[0], BPF_REG_0);
		return;
	}
	emit_expression(emit, &node);
	if (id == WORD_SECTORS) {
		emit_alu_constant(emit, BPF_RSH, BPF_REG_0, SECTOR_SHIFT);
		together(emit, HELPER_MATCH);
		is_lowest(emit); /* of those in its sector */
	}
	together(emit, HELPER_SUM);
	emit_store(emit, BPF_REG_10, emit->words[id - WORD_LANES], BPF_REG_0);
}

/* All lanes of a mask on the stack but the lowest one leave the program. */
static void leave_but_lowest(struct emit *emit, int mask) {
	size_t lowest;

	emit_load(emit, BPF_REG_0, BPF_REG_10, mask);
	is_lowest(emit);
	lowest = emit_jump_constant(emit, BPF_JNE, BPF_REG_0, 0);
	emit_exit(emit);
	emit_land(emit, lowest);
}

void emit_lowest(struct emit *emit, int to) {
	emit_call(emit, HELPER_ACTIVE);
	emit_store(emit, BPF_REG_10, to, BPF_REG_0);
	leave_but_lowest(emit, to);
	emit_load(emit, BPF_REG_0, BPF_REG_10, to);
	count_bits(emit);
	emit_store(emit, BPF_REG_10, to, BPF_REG_0);
}

void emit_lanes(struct emit *emit) {
	const int mask = emit_take(emit, 1);

	emit_call(emit, HELPER_ACTIVE);
	emit_store(emit, BPF_REG_10, mask, BPF_REG_0);
	emit->in_lane = true;
	for (enum word_id id = WORD_LANES; id <= WORD_BYTES; id++)
		put_word(emit, id, mask);
	lane_functions(emit, emit->clause->predicate);
	lane_functions(emit, emit->clause->body);
	emit->in_lane = false;
	leave_but_lowest(emit, mask);
}

void emit_lane_call(struct emit *emit, const struct node *node) {
	if (node->builtin->id != BUILTIN_FIRST) {
		emit_load(emit, BPF_REG_0, BPF_REG_10, emit->lanes[node->number]);
		return;
	}
	emit->in_lane = true;
	emit_expression(emit, node->a);
	emit->in_lane = false;
}
