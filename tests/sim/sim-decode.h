/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The decoder's state and what its files use of each other. */

#include "sim-op.h"
#include "sim-program.h"

#define SIM_PARTS 20

enum sim_symbol_kind {
	SIM_SYMBOL_REGISTER,
	SIM_SYMBOL_FRAME, /* a variable in the frame */
	SIM_SYMBOL_ADDRESS, /* a variable elsewhere: shared, global, const */
};

struct sim_symbol {
	struct ptx_range name;
	uint32_t next; /* in the bucket; UINT32_MAX ends */
	uint32_t bucket;
	enum sim_symbol_kind kind;
	uint8_t type; /* registers: enum ptx_type */
	enum ptx_space space;
	uint32_t slot, count; /* registers */
	int64_t offset; /* in the frame */
	uint64_t address, size;
};

struct sim_label {
	struct ptx_range name;
	uint32_t scope;
	uint32_t statement; /* of the label */
	uint32_t insn; /* where it leads, once decoded */
};

struct sim_fixup {
	uint32_t insn;
	uint32_t label; /* UINT32_MAX: `target` is an insn already */
	uint32_t target;
};

struct sim_decoder {
	struct sim_function *function;
	const struct ptx_module *module;
	const struct ptx_body *body;
	char *message;
	size_t message_size;
	CUresult result;

	struct sim_insn *insns;
	uint32_t insn_count, insn_allocated;
	uint64_t *constants; /* slot register_count + n */
	bool *temporary;
	uint32_t constant_count, constant_allocated;
	uint32_t sink, zero;

	struct sim_symbol *symbols;
	uint32_t symbol_count, symbol_allocated;
	uint32_t buckets[256];
	uint32_t *scopes; /* symbol counts at the scopes that are open */
	uint32_t scope_depth;
	uint32_t *scope_parent; /* by number of scope */
	uint32_t scope_count, scope, scope_next;
	struct sim_label *labels;
	uint32_t label_count;
	struct sim_fixup *fixups;
	uint32_t fixup_count, fixup_allocated;
	uint32_t site_allocated;
	uint8_t *used; /* variables of the program that count as shared memory of this kernel */

	/* the statement being decoded */
	const struct ptx_statement *statement;
	uint32_t statement_index;
	struct ptx_range parts[SIM_PARTS];
	uint32_t part_count;
};

/* All return false after having said what is wrong (d->result). */
bool sim_decode_fail(struct sim_decoder *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
bool sim_decode_no_memory(struct sim_decoder *d);

/* Adds an instruction; NULL: no memory. The pointer is good until the next one. */
struct sim_insn *sim_emit(struct sim_decoder *d, sim_op op);
bool sim_constant(struct sim_decoder *d, uint64_t value, uint32_t *slot);
bool sim_temporary(struct sim_decoder *d, uint32_t *slot);
/* The instruction that was emitted last belongs to a class that can be patched; its insn is filled
 * in. */
bool sim_site(struct sim_decoder *d, struct sim_site site);
bool sim_fixup(struct sim_decoder *d, uint32_t insn, uint32_t label, uint32_t target);
/* The function keeps it and frees it. */
bool sim_keep(struct sim_decoder *d, void *data);
/* The label of that name that the current scope sees; UINT32_MAX. */
uint32_t sim_find_label(const struct sim_decoder *d, struct ptx_range name);
const struct sim_symbol *sim_find_symbol(const struct sim_decoder *d, struct ptx_range name,
					 uint32_t *index);

/* sim-operand.c: operand number n of the statement, or tokens */
bool sim_source(struct sim_decoder *d, uint32_t n, enum ptx_type type, uint32_t *slot);
bool sim_source_tokens(struct sim_decoder *d, uint32_t first, uint32_t end, enum ptx_type type,
		       uint32_t *slot);
bool sim_predicate_source(struct sim_decoder *d, uint32_t n, uint32_t *slot);
bool sim_destination(struct sim_decoder *d, uint32_t n, uint32_t *slot);
/* d|p; without |p the second is the sink */
bool sim_destination_pair(struct sim_decoder *d, uint32_t n, uint32_t *slot, uint32_t *second);
/* {a, b, ...} of registers (or constants if is_source); *count is 0 if it is no vector. */
bool sim_vector_operand(struct sim_decoder *d, uint32_t n, enum ptx_type type, bool is_source,
			uint32_t slots[8], uint32_t *count);
struct sim_address {
	enum sim_access access;
	uint32_t slot;
	int64_t offset;
};
/* [x+4]: size bytes are accessed; shared if the instruction says .shared. */
bool sim_address(struct sim_decoder *d, uint32_t n, bool shared, uint32_t size,
		 struct sim_address *address);

/* The text of a token or a range. */
static inline const char *sim_text(const struct sim_decoder *d, struct ptx_range range) {
	return d->module->text + range.offset;
}

static inline struct ptx_range sim_token_range(const struct sim_decoder *d, uint32_t token) {
	return (struct ptx_range){ d->body->tokens[token].offset, d->body->tokens[token].length };
}

static inline bool sim_token_char(const struct sim_decoder *d, uint32_t token, char c) {
	return ptx_token_is_char(d->module->text, &d->body->tokens[token], c);
}

static inline bool sim_part_is(const struct sim_decoder *d, uint32_t part, const char *name) {
	return part < d->part_count && ptx_range_is(d->module->text, d->parts[part], name);
}

static inline bool sim_has_part(const struct sim_decoder *d, const char *name) {
	for (uint32_t n = 1; n < d->part_count; n++)
		if (sim_part_is(d, n, name))
			return true;
	return false;
}

static inline enum ptx_type sim_part_type(const struct sim_decoder *d, uint32_t part) {
	return ptx_type_from_name(sim_text(d, d->parts[part]), d->parts[part].length);
}

/* sim-decode-insn.c: the current statement, an instruction without its guard. */
bool sim_decode_instruction(struct sim_decoder *d);
/* sim-decode-memory.c, sim-decode-control.c: *known is set if they know the mnemonic. */
bool sim_decode_memory(struct sim_decoder *d, bool *known);
bool sim_decode_control(struct sim_decoder *d, bool *known);
/* A number of operands was expected. */
bool sim_operands(struct sim_decoder *d, uint32_t least, uint32_t most);
