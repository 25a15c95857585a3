/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One program while it is made: instructions, jumps, places on the stack. R6 is the context. An
 * expression leaves its value in R0; other registers do not survive it, places on the stack do.
 */

#include "code.h"
#include "words.h"

#define HELPER_TIME 502 /* bpf_get_globaltimer */

struct emit {
	struct code *code;
	struct code_program *program;
	const struct clause *clause;
	const struct probe *probe;
	struct place place; /* for errors */
	size_t insns_room, references_room;
	size_t stack; /* bytes in use */
	bool in_lane; /* what is evaluated is of the lane, not of the warp */
	int lanes[SCRIPT_LANES_MAX]; /* any() and its like: places on the stack */
	int words[3]; /* lanes, sectors, bytes of the warp: places on the stack */
	int duration; /* place on the stack of the duration; 0: none */
};

void emit_fail(struct emit *emit, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- instructions; offsets of the stack are negative, from R10 ---- */

void emit_insn(struct emit *emit, struct bpf_insn insn);
void emit_move(struct emit *emit, int to, int from);
void emit_constant(struct emit *emit, int to, int64_t value);
/* to op= from, or a constant of 32 bits; BPF_ADD and its like. */
void emit_alu(struct emit *emit, int op, int to, int from);
void emit_alu_constant(struct emit *emit, int op, int to, int32_t value);
void emit_load(struct emit *emit, int to, int from, int offset); /* 8 bytes */
void emit_store(struct emit *emit, int to, int offset, int from);
void emit_call(struct emit *emit, int helper);
void emit_map(struct emit *emit, int to, uint32_t map);
/* Adds R1 to the 8 bytes at R0 and the offset, for all threads. */
void emit_atomic_add(struct emit *emit, int offset);
void emit_exit(struct emit *emit);

/* A jump that goes to where emit_land() is called, or back to a place. */
size_t emit_jump(struct emit *emit, int op, int a, int b); /* BPF_JEQ, ...; BPF_JA: always */
size_t emit_jump_constant(struct emit *emit, int op, int a, int32_t value);
void emit_land(struct emit *emit, size_t jump);
void emit_jump_back(struct emit *emit, int op, int a, int32_t value, size_t to);

/* ---- the stack: words are given back in the opposite order ---- */

int emit_take(struct emit *emit, size_t words); /* the offset of the lowest one */
void emit_give(struct emit *emit, size_t words);

/* ---- emit-expression.c, emit-word.c, emit-map.c ---- */

void emit_expression(struct emit *emit, const struct node *node);
/* A word that a probe has. True: it was one that can be loaded into a register at once. */
bool emit_word_direct(struct emit *emit, const struct node *node, int to);
void emit_word(struct emit *emit, const struct node *node);
/* R0 = R0 op R1 */
void emit_operation(struct emit *emit, enum op op);
/* emit-float.c: f32() and its like, isnan() and isinf(). */
void emit_float_call(struct emit *emit, const struct node *node);
/* The same as emit_operation(), of two floats. */
void emit_float_compare(struct emit *emit, enum op op);
/* R0, a float, becomes an integer that is in order as floats are. Returns the jump of NaN. */
size_t emit_float_order(struct emit *emit);
/* The bucket of R1, a float, into R2. */
void emit_float_bucket(struct emit *emit);
/* Leaves the program unless the thread is the one that a probe means. */
void emit_filter(struct emit *emit);
/* emit-part.c: one thread enters a part of a grid, or leaves it; all but the first or the last one
 * leave the program. The parts are in a map; the one behind it has the blocks of a grid. */
void emit_part(struct emit *emit, uint32_t map, bool leaves);
/* Blocks of the grid, or threads of a block, in R0. */
void emit_volume(struct emit *emit, bool of_grid);
/* The launch and the kernel, two words of a key, onto the stack. */
void emit_launch_key(struct emit *emit, int place);
/* The number of the block in the grid and of the thread in the block, in R0. */
void emit_block_number(struct emit *emit);
void emit_thread_number(struct emit *emit);
/* What assigns to a map or a variable. */
void emit_assign(struct emit *emit, const struct node *node);
void emit_map_read(struct emit *emit, const struct node *node);
/* Whether a tree, or a list of statements, has a word. */
bool code_has_word(const struct node *list, enum word_id id);
/* emit-lanes.c: what all lanes of a warp give; then all but the lowest one leave the program. */
void emit_lanes(struct emit *emit);
/* Of the lanes that are together all but the lowest one leave the program, which stores how many
 * they were. */
void emit_lowest(struct emit *emit, int to);
/* any() and its like, when it is used. */
void emit_lane_call(struct emit *emit, const struct node *node);
/* A printf(): a record in the ring. */
void emit_print(struct emit *emit, const struct node *call);
/* Counts one event that found no room. */
void emit_lost(struct emit *emit, uint32_t which);
/* The two halves of a duration: the time is kept at the entry, and taken at the end. */
void emit_keep_time(struct emit *emit, uint32_t map);
void emit_take_time(struct emit *emit, uint32_t map);
