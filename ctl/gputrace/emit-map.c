/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Maps and variables on the GPU. Adding is one atomic whose result nobody asks for, which the
 * engines make one memory operation a warp; an element that is not there is inserted first.
 */

#include "emit.h"

static uint32_t map_index(const struct emit *emit, const struct map *map) {
	return (uint32_t)(map - emit->code->script->maps);
}

static void address_of(struct emit *emit, int to, int place) {
	emit_move(emit, to, BPF_REG_10);
	emit_alu_constant(emit, BPF_ADD, to, place);
}

void emit_lost(struct emit *emit, uint32_t which) {
	const int key = emit_take(emit, 1);
	size_t missing;

	emit_constant(emit, BPF_REG_1, which);
	emit_store(emit, BPF_REG_10, key, BPF_REG_1);
	emit_map(emit, BPF_REG_1, emit->code->lost);
	address_of(emit, BPF_REG_2, key);
	emit_call(emit, BPF_FUNC_map_lookup_elem);
	missing = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_constant(emit, BPF_REG_1, 1);
	emit_atomic_add(emit, 0);
	emit_land(emit, missing);
	emit_give(emit, 1);
}

/* What finds no room in the ring is counted there. */
void emit_print(struct emit *emit, const struct node *call) {
	size_t words = 2;
	int place;

	for (const struct node *value = call->a->next; value; value = value->next)
		words++;
	place = emit_take(emit, words);
	emit_constant(emit, BPF_REG_0, call->number);
	emit_store(emit, BPF_REG_10, place, BPF_REG_0);
	emit_call(emit, HELPER_TIME);
	emit_store(emit, BPF_REG_10, place + 8, BPF_REG_0);
	words = 2;
	for (const struct node *value = call->a->next; value; value = value->next) {
		emit_expression(emit, value);
		emit_store(emit, BPF_REG_10, place + 8 * (int)words++, BPF_REG_0);
	}
	emit_move(emit, BPF_REG_1, BPF_REG_6);
	emit_map(emit, BPF_REG_2, emit->code->print);
	emit_constant(emit, BPF_REG_3, 0);
	address_of(emit, BPF_REG_4, place);
	emit_constant(emit, BPF_REG_5, 8 * (int64_t)words);
	emit_call(emit, BPF_FUNC_perf_event_output);
	emit_give(emit, words);
}

/* The bucket of R1 into R2. */
static void log_bucket(struct emit *emit) {
	enum {
		HELPER_LOG2 = 530
	};
	size_t negative, zero;

	emit_constant(emit, BPF_REG_2, 0);
	negative = emit_jump_constant(emit, BPF_JSLT, BPF_REG_1, 0);
	emit_constant(emit, BPF_REG_2, 1);
	zero = emit_jump_constant(emit, BPF_JEQ, BPF_REG_1, 0);
	emit_call(emit, HELPER_LOG2);
	emit_move(emit, BPF_REG_2, BPF_REG_0);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_2, 2);
	emit_land(emit, negative);
	emit_land(emit, zero);
}

static void linear_bucket(struct emit *emit, const struct map *map) {
	size_t below, above;

	emit_constant(emit, BPF_REG_2, 0);
	emit_constant(emit, BPF_REG_3, map->min);
	below = emit_jump(emit, BPF_JSLT, BPF_REG_1, BPF_REG_3);
	emit_constant(emit, BPF_REG_2, (int64_t)map_buckets(map) - 1);
	emit_constant(emit, BPF_REG_4, map->max);
	above = emit_jump(emit, BPF_JSGE, BPF_REG_1, BPF_REG_4);
	emit_alu(emit, BPF_SUB, BPF_REG_1, BPF_REG_3);
	emit_constant(emit, BPF_REG_3, map->step);
	emit_alu(emit, BPF_DIV, BPF_REG_1, BPF_REG_3);
	emit_move(emit, BPF_REG_2, BPF_REG_1);
	emit_alu_constant(emit, BPF_ADD, BPF_REG_2, 1);
	emit_land(emit, below);
	emit_land(emit, above);
}

/* Words of a key on the stack: those of the script, then the bucket or the device. */
static size_t key_words(const struct map *map) {
	return code_map_is_array(map)
		       ? 1
		       : map->n_keys + code_map_has_bucket(map) + code_map_has_device(map);
}

/* Evaluates the keys into the stack at @place. The value of the event is at @value. */
static void put_key(struct emit *emit, const struct node *node, int place, int value) {
	const struct map *map = node->map;
	int at = place;

	for (const struct node *key = node->a; key; key = key->next, at += 8) {
		emit_expression(emit, key);
		emit_store(emit, BPF_REG_10, at, BPF_REG_0);
	}
	emit_constant(emit, BPF_REG_2, 0);
	if (code_map_has_bucket(map)) {
		emit_load(emit, BPF_REG_1, BPF_REG_10, value);
		if (map->value == TYPE_FLOAT)
			emit_float_bucket(emit);
		else if (map->kind == MAP_HIST)
			log_bucket(emit);
		else
			linear_bucket(emit, map);
	} else if (code_map_has_device(map)) {
		emit_call(emit, 512); /* bpf_get_device_ordinal */
		emit_move(emit, BPF_REG_2, BPF_REG_0);
	} else if (!code_map_is_array(map)) {
		return;
	}
	emit_store(emit, BPF_REG_10, at, BPF_REG_2);
}

static void lookup(struct emit *emit, const struct map *map, int key) {
	emit_map(emit, BPF_REG_1, map_index(emit, map));
	address_of(emit, BPF_REG_2, key);
	emit_call(emit, BPF_FUNC_map_lookup_elem);
}

/*
 * R0 becomes the address of the element, which is inserted if it is not there: with zeros, or with
 * the words at @first. Returns the jump of the case that there is no room.
 */
static size_t find_element(struct emit *emit, const struct map *map, int key, int first) {
	const size_t words = emit->code->maps[map_index(emit, map)].value_words;
	int zeros = first;
	size_t found = 0;

	lookup(emit, map, key);
	if (!code_map_is_array(map)) {
		found = emit_jump_constant(emit, BPF_JNE, BPF_REG_0, 0);
		if (!first) {
			zeros = emit_take(emit, words);
			emit_constant(emit, BPF_REG_1, 0);
			for (size_t i = 0; i < words; i++)
				emit_store(emit, BPF_REG_10, zeros + 8 * (int)i, BPF_REG_1);
		}
		emit_map(emit, BPF_REG_1, map_index(emit, map));
		address_of(emit, BPF_REG_2, key);
		address_of(emit, BPF_REG_3, zeros);
		emit_constant(emit, BPF_REG_4, BPF_NOEXIST); /* or another thread was faster */
		emit_call(emit, BPF_FUNC_map_update_elem);
		if (!first)
			emit_give(emit, words);
		lookup(emit, map, key);
		emit_land(emit, found);
	}
	return emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
}

/* R0: the element; the value at @value replaces its own if it is better. */
static void keep_best(struct emit *emit, const struct map *map, int value) {
	enum {
		ATOMIC_MIN = 527,
		ATOMIC_MAX = 528
	};

	emit_move(emit, BPF_REG_1, BPF_REG_0);
	emit_load(emit, BPF_REG_2, BPF_REG_10, value);
	emit_call(emit, map->kind == MAP_MIN ? ATOMIC_MIN : ATOMIC_MAX);
}

/* R0: the element, to whose sum the float at @value is added. */
static void add_float(struct emit *emit, const struct map *map, int value) {
	enum {
		ATOMIC_ADD_F64 = 529
	};

	emit_move(emit, BPF_REG_7, BPF_REG_0);
	emit_move(emit, BPF_REG_1, BPF_REG_0);
	emit_load(emit, BPF_REG_2, BPF_REG_10, value);
	emit_call(emit, ATOMIC_ADD_F64);
	if (map->kind == MAP_SUM)
		return;
	emit_move(emit, BPF_REG_0, BPF_REG_7);
	emit_constant(emit, BPF_REG_1, 1);
	emit_atomic_add(emit, 8);
}

/* R0: the element; what the assignment does to it. */
static void change_element(struct emit *emit, const struct node *node, int value) {
	const struct map *map = node->a->map;

	switch (map->kind) {
	case MAP_MIN:
	case MAP_MAX:
		keep_best(emit, map, value);
		return;
	case MAP_COUNT:
	case MAP_HIST:
	case MAP_LHIST:
		emit_constant(emit, BPF_REG_1, 1);
		emit_atomic_add(emit, 0);
		return;
	case MAP_SCALAR:
		emit_load(emit, BPF_REG_1, BPF_REG_10, value);
		if (node->op == OP_NONE) {
			emit_store(emit, BPF_REG_0, 0, BPF_REG_1);
			return;
		}
		if (node->op == OP_SUB)
			emit_alu_constant(emit, BPF_NEG, BPF_REG_1, 0);
		emit_atomic_add(emit, 0);
		return;
	default: /* the sum, and with AVG and STATS how many */
		if (map->value == TYPE_FLOAT) {
			add_float(emit, map, value);
			return;
		}
		emit_load(emit, BPF_REG_1, BPF_REG_10, value);
		emit_atomic_add(emit, 0);
		if (map->kind == MAP_SUM)
			return;
		emit_constant(emit, BPF_REG_1, 1);
		emit_atomic_add(emit, 8);
	}
}

static void assign_map(struct emit *emit, const struct node *node) {
	const struct map *map = node->a->map;
	const size_t words = key_words(map);
	const bool best = map->kind == MAP_MIN || map->kind == MAP_MAX;
	const struct node *argument = map->kind == MAP_SCALAR ? node->b : node->b->a;
	const int value = emit_take(emit, 1), key = emit_take(emit, words ? words : 1);
	size_t full, end, nan = 0;

	if (argument) {
		emit_expression(emit, argument);
		if (best && map->value == TYPE_FLOAT)
			nan = emit_float_order(emit);
		emit_store(emit, BPF_REG_10, value, BPF_REG_0);
	}
	put_key(emit, node->a, key, value);
	full = find_element(emit, map, key, best ? value : 0);
	change_element(emit, node, value);
	end = emit_jump(emit, BPF_JA, 0, 0);
	emit_land(emit, full);
	emit_lost(emit, map_index(emit, map));
	emit_land(emit, end);
	if (nan)
		emit_land(emit, nan);
	emit_give(emit, 1 + (words ? words : 1));
}

void emit_map_read(struct emit *emit, const struct node *node) {
	const size_t words = key_words(node->map);
	const int key = emit_take(emit, words);
	size_t missing;

	put_key(emit, node, key, 0);
	lookup(emit, node->map, key);
	missing = emit_jump_constant(emit, BPF_JEQ, BPF_REG_0, 0);
	emit_load(emit, BPF_REG_0, BPF_REG_0, 0);
	emit_land(emit, missing);
	emit_give(emit, words);
}

void emit_assign(struct emit *emit, const struct node *node) {
	struct node operation;

	emit->place = node->place;
	if (node->a->kind == NODE_MAP) {
		assign_map(emit, node);
		return;
	}
	operation = (struct node){ .kind = NODE_BINARY,
				   .op = node->op,
				   .place = node->place,
				   .a = node->a,
				   .b = node->b };
	emit_expression(emit, node->op == OP_NONE ? node->b : &operation);
	emit_store(emit, BPF_REG_10, -8 * ((int)node->a->local + 1), BPF_REG_0);
}
