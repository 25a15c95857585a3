/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's decoder of PTX (sim-decode.h). Branches, calls, barriers and warp instructions.
 */

#include <stdlib.h>

#include "proto/patch.h"
#include "sim-decode.h"

bool sim_operands(struct sim_decoder *d, uint32_t least, uint32_t most) {
	uint32_t count = d->statement->operand_count;

	if (count >= least && count <= most)
		return true;
	return sim_decode_fail(d, "%u operands where %u to %u belong", count, least, most);
}

static bool plain(struct sim_decoder *d, enum sim_control control) {
	return sim_emit(d, sim_op_control(control));
}

static struct ptx_range operand_name(const struct sim_decoder *d, uint32_t n) {
	const struct ptx_operand *operand = &d->body->operands[d->statement->first_operand + n];

	if (operand->end - operand->first != 1)
		return (struct ptx_range){ 0 };
	return sim_token_range(d, operand->first);
}

static bool find_label(struct sim_decoder *d, struct ptx_range name, uint32_t *label) {
	*label = name.length ? sim_find_label(d, name) : UINT32_MAX;
	if (*label != UINT32_MAX)
		return true;
	return sim_decode_fail(d, "there is no label %.*s",
			       (int)(name.length < 120 ? name.length : 120), sim_text(d, name));
}

static bool branch(struct sim_decoder *d) {
	uint32_t label;

	return sim_operands(d, 1, 1) && find_label(d, operand_name(d, 0), &label) &&
	       plain(d, SIM_CONTROL_BRANCH) && sim_fixup(d, d->insn_count - 1, label, 0);
}

/* brx.idx index, table: the table is the .branchtargets statement behind the label. */
static bool branch_index(struct sim_decoder *d) {
	const struct ptx_statement *targets;
	struct sim_table *table;
	struct sim_insn *insn;
	uint32_t slot, label;

	if (!sim_operands(d, 2, 2) || !sim_source(d, 0, PTX_TYPE_U32, &slot) ||
	    !find_label(d, operand_name(d, 1), &label))
		return false;
	if (d->labels[label].statement + 1 >= d->body->statement_count)
		return sim_decode_fail(d, "there are no branch targets");
	targets = &d->body->statements[d->labels[label].statement + 1];
	if (targets->kind != PTX_STATEMENT_BRANCH_TARGETS)
		return sim_decode_fail(d, "there are no branch targets");
	table = calloc(1, sizeof(*table) + targets->operand_count * sizeof(table->targets[0]));
	if (!sim_keep(d, table))
		return false;
	for (uint32_t n = 0; n < targets->operand_count; n++) {
		const struct ptx_operand *operand = &d->body->operands[targets->first_operand + n];

		if (operand->end - operand->first != 1 ||
		    !find_label(d, sim_token_range(d, operand->first), &label))
			return sim_decode_fail(d, "a branch target is no label");
		table->targets[table->count++] = (const struct sim_insn *)(uintptr_t)label;
	}
	insn = sim_emit(d, sim_op_control(SIM_CONTROL_BRANCH_INDEX));
	if (!insn)
		return false;
	insn->a = slot;
	insn->data = table;
	return true;
}

/* One argument or result: a variable of the frame, a register, or a number. */
static bool argument(struct sim_decoder *d, uint32_t first, uint32_t end,
		     struct sim_argument *out) {
	const struct sim_symbol *symbol = NULL;
	uint32_t index;

	if (end - first == 1 && d->body->tokens[first].kind == PTX_TOKEN_WORD)
		symbol = sim_find_symbol(d, sim_token_range(d, first), &index);
	if (symbol && symbol->kind == SIM_SYMBOL_FRAME) {
		*out = (struct sim_argument){ .offset = symbol->offset, .size = symbol->size };
		return true;
	}
	*out = (struct sim_argument){ .size = 8, .is_register = true };
	if (first < end && sim_token_char(d, first, '['))
		return sim_decode_fail(d, "an argument in brackets");
	return sim_source_tokens(d, first, end, PTX_TYPE_B64, &out->slot);
}

/* Tokens between parentheses, cut at commas. */
static bool arguments(struct sim_decoder *d, uint32_t first, uint32_t end, struct sim_argument *out,
		      uint32_t *count) {
	uint32_t start = first;

	*count = 0;
	if (first >= end)
		return true;
	for (uint32_t at = first; at <= end; at++) {
		if (at < end && !sim_token_char(d, at, ','))
			continue;
		if (!argument(d, start, at, &out[(*count)++]))
			return false;
		start = at + 1;
	}
	return true;
}

static bool call_outside(struct sim_decoder *d, struct ptx_range name, struct sim_call *site) {
	enum sim_control control;
	struct sim_insn *insn;

	if (ptx_range_is(d->module->text, name, "vprintf") && site->argument_count == 2 &&
	    site->return_count <= 1)
		control = SIM_CONTROL_PRINT;
	else if (ptx_range_is(d->module->text, name, SIM_SET_CONDITION) &&
		 site->argument_count == 2 && !site->return_count)
		control = SIM_CONTROL_CONDITION;
	else if (ptx_range_is(d->module->text, name, "__assertfail"))
		control = SIM_CONTROL_ASSERT;
	else
		return sim_decode_fail(d, "unresolved extern function %.*s",
				       (int)(name.length < 120 ? name.length : 120),
				       sim_text(d, name));
	insn = sim_emit(d, sim_op_control(control));
	if (!insn)
		return false;
	insn->data = site;
	return true;
}

static bool call(struct sim_decoder *d) {
	const struct sim_symbol *symbol;
	struct ptx_call parsed;
	struct sim_call *site;
	struct sim_insn *insn;
	struct ptx_range name;
	uint32_t slot, index;

	if (!ptx_instruction_call(d->body, d->statement, &parsed))
		return sim_decode_fail(d, "the call is not understood");
	site = calloc(1, sizeof(*site) + (parsed.returns_end - parsed.returns +
					  parsed.arguments_end - parsed.arguments + 2) *
						 sizeof(struct sim_argument));
	if (!sim_keep(d, site))
		return false;
	site->program = d->function->program;
	site->arguments = (struct sim_argument *)(site + 1);
	if (!arguments(d, parsed.arguments, parsed.arguments_end, site->arguments,
		       &site->argument_count) ||
	    !arguments(d, parsed.returns, parsed.returns_end,
		       site->arguments + site->argument_count, &site->return_count))
		return false;
	name = sim_token_range(d, parsed.target);
	symbol = sim_find_symbol(d, name, &index);
	if (symbol && symbol->kind != SIM_SYMBOL_REGISTER)
		return sim_decode_fail(d, "a call of a variable");
	slot = symbol ? symbol->slot + index : d->zero;
	if (!symbol) {
		site->target = sim_program_function(d->function->program, d->module,
						    sim_text(d, name), name.length);
		if (!site->target)
			return call_outside(d, name, site);
		if (site->target->entry || site->target->parameter_count != site->argument_count ||
		    site->target->return_count != site->return_count)
			return sim_decode_fail(d, "the call does not fit the function %s",
					       site->target->name);
	}
	insn = sim_emit(d, sim_op_control(SIM_CONTROL_CALL));
	if (!insn)
		return false;
	insn->a = slot;
	insn->data = site;
	return sim_site(d, (struct sim_site){ .patch = PATCH_CALL });
}

/*
 * bar and barrier: [.cta].sync a [, b]; .arrive a, b; .red.{popc.u32,and.pred,or.pred} d, a [, b],
 * [!]c
 */
static bool barrier(struct sim_decoder *d) {
	uint32_t count = d->statement->operand_count, slots[2] = { d->zero, d->zero },
		 destination = d->sink, predicate = d->zero, mode = 0;
	uint32_t first = 0, last = count;
	struct sim_insn *insn;

	if (sim_has_part(d, "warp"))
		return sim_decode_fail(d, "bar.warp without .sync");
	if (sim_has_part(d, "cluster")) /* clusters of one block */
		return plain(d, SIM_CONTROL_FENCE);
	if (sim_has_part(d, "arrive"))
		mode = 1;
	else if (sim_has_part(d, "red"))
		mode = sim_has_part(d, "popc") ? 2 : sim_has_part(d, "and") ? 3 : 4;
	else if (!sim_has_part(d, "sync"))
		return sim_decode_fail(d, "a barrier of an unknown kind");
	if (mode >= 2) {
		if (!sim_operands(d, 3, 4) || !sim_destination(d, 0, &destination) ||
		    !sim_predicate_source(d, count - 1, &predicate))
			return false;
		first = 1;
		last = count - 1;
	} else if (!sim_operands(d, 0, 2)) {
		return false;
	}
	for (uint32_t n = first; n < last && n - first < 2; n++)
		if (!sim_source(d, n, PTX_TYPE_U32, &slots[n - first]))
			return false;
	insn = sim_emit(d, sim_op_control(SIM_CONTROL_BARRIER));
	if (!insn)
		return false;
	insn->a = slots[0];
	insn->b = slots[1];
	insn->c = predicate;
	insn->d = destination;
	insn->mode = mode;
	return sim_site(d, (struct sim_site){ .patch = PATCH_BARRIER });
}

static bool emit_warp(struct sim_decoder *d, enum sim_warp_kind kind, uint32_t detail,
		      uint32_t mask, struct sim_insn slots) {
	struct sim_insn *insn = sim_emit(d, sim_op_control(SIM_CONTROL_WARP));

	if (!insn)
		return false;
	insn->d = slots.d;
	insn->a = slots.a;
	insn->b = slots.b;
	insn->c = slots.c;
	insn->e = slots.e;
	insn->width = slots.width;
	insn->mode = kind | detail << 8;
	insn->bits = mask;
	return true;
}

/* The parts that name a detail, in the order of the enum. */
static bool detail_of(struct sim_decoder *d, const char *const *names, uint32_t *detail) {
	for (*detail = 0; names[*detail]; ++*detail)
		if (sim_has_part(d, names[*detail]))
			return true;
	return sim_decode_fail(d, "%.*s of an unknown kind", (int)d->parts[0].length,
			       sim_text(d, d->parts[0]));
}

static bool shuffle(struct sim_decoder *d) {
	static const char *const names[] = { "up", "down", "bfly", "idx", NULL };
	struct sim_insn slots = { 0 };
	uint32_t detail, mask;

	return detail_of(d, names, &detail) && sim_operands(d, 5, 5) &&
	       sim_destination_pair(d, 0, &slots.d, &slots.e) &&
	       sim_source(d, 1, PTX_TYPE_B32, &slots.a) &&
	       sim_source(d, 2, PTX_TYPE_U32, &slots.b) &&
	       sim_source(d, 3, PTX_TYPE_U32, &slots.c) && sim_source(d, 4, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_SHFL, detail, mask, slots) &&
	       sim_site(d, (struct sim_site){ .patch = PATCH_SHFL });
}

static bool vote(struct sim_decoder *d) {
	static const char *const names[] = { "all", "any", "uni", "ballot", NULL };
	struct sim_insn slots = { .e = d->sink };
	uint32_t detail, mask;

	return detail_of(d, names, &detail) && sim_operands(d, 3, 3) &&
	       sim_destination(d, 0, &slots.d) && sim_predicate_source(d, 1, &slots.a) &&
	       sim_source(d, 2, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_VOTE, detail, mask, slots);
}

static bool match(struct sim_decoder *d) {
	static const char *const names[] = { "any", "all", NULL };
	struct sim_insn slots = { .width = sim_has_part(d, "b64") ? 8 : 4 };
	uint32_t detail, mask;

	return detail_of(d, names, &detail) && sim_operands(d, 3, 3) &&
	       sim_destination_pair(d, 0, &slots.d, &slots.e) &&
	       sim_source(d, 1, PTX_TYPE_B64, &slots.a) && sim_source(d, 2, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_MATCH, detail, mask, slots);
}

static bool redux(struct sim_decoder *d) {
	static const char *const names[] = { "add", "min", "max", "umin", "umax",
					     "and", "or",  "xor", NULL };
	struct sim_insn slots = { .e = d->sink };
	uint32_t detail, mask;

	if (!detail_of(d, names, &detail))
		return false;
	if (sim_has_part(d, "f32"))
		return sim_decode_fail(d, "redux of f32 is not supported");
	if (sim_has_part(d, "u32") && (detail == SIM_REDUX_MIN || detail == SIM_REDUX_MAX))
		detail += SIM_REDUX_UMIN - SIM_REDUX_MIN;
	return sim_operands(d, 3, 3) && sim_destination(d, 0, &slots.d) &&
	       sim_source(d, 1, PTX_TYPE_U32, &slots.a) && sim_source(d, 2, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_REDUX, detail, mask, slots);
}

static bool elect(struct sim_decoder *d) {
	struct sim_insn slots = { .a = d->zero };
	uint32_t mask;

	return sim_operands(d, 2, 2) && sim_destination_pair(d, 0, &slots.d, &slots.e) &&
	       sim_source(d, 1, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_ELECT, 0, mask, slots);
}

static bool warp_barrier(struct sim_decoder *d) {
	struct sim_insn slots = { .d = d->sink, .e = d->sink, .a = d->zero };
	uint32_t mask;

	return sim_operands(d, 1, 1) && sim_source(d, 0, PTX_TYPE_U32, &mask) &&
	       emit_warp(d, SIM_WARP_SYNC, 0, mask, slots) &&
	       sim_site(d, (struct sim_site){ .patch = PATCH_SYNCWARP });
}

/* ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared].b16 {...}, [row]: one instruction for each
 * matrix. */
static bool load_matrix(struct sim_decoder *d) {
	uint32_t to[8], count, mask,
		number = sim_has_part(d, "x4")   ? 4
			 : sim_has_part(d, "x2") ? 2
						 : 1;
	uint32_t transposed = sim_has_part(d, "trans") ? SIM_MATRIX_TRANSPOSED : 0;
	struct sim_address address;
	struct sim_insn slots = { .e = d->sink }, *insn;

	if (!sim_has_part(d, "m8n8") || !sim_has_part(d, "b16") ||
	    !(sim_has_part(d, "shared") || sim_has_part(d, "shared::cta")))
		return sim_decode_fail(d, "ldmatrix of this kind is not supported");
	if (!sim_operands(d, 2, 2) || !sim_vector_operand(d, 0, PTX_TYPE_B32, false, to, &count) ||
	    !sim_address(d, 1, true, 16, &address) || !sim_constant(d, UINT32_MAX, &mask) ||
	    !sim_temporary(d, &slots.a))
		return false;
	if (count != number || address.access != SIM_ACCESS_SHARED)
		return sim_decode_fail(d, "ldmatrix of %u into %u registers", number, count);
	insn = sim_emit(d, sim_op_copy_register()); /* its register may be a destination */
	if (!insn)
		return false;
	insn->d = slots.a;
	insn->a = address.slot;
	slots.width = (uint32_t)address.offset;
	for (uint32_t n = 0; n < number; n++) {
		slots.d = to[n];
		if (!emit_warp(d, SIM_WARP_MATRIX, n | transposed, mask, slots))
			return false;
	}
	return true;
}

static bool active_mask(struct sim_decoder *d) {
	struct sim_insn *insn;
	uint32_t slot;

	if (!sim_operands(d, 1, 1) || !sim_destination(d, 0, &slot))
		return false;
	insn = sim_emit(d, sim_op_control(SIM_CONTROL_ACTIVEMASK));
	if (!insn)
		return false;
	insn->d = slot;
	return true;
}

bool sim_decode_control(struct sim_decoder *d, bool *known) {
	static const char *const nops[] = { "nanosleep",      "pmevent",       "setmaxnreg",
					    "griddepcontrol", "prefetch",      "prefetchu",
					    "discard",        "applypriority", NULL };

	*known = true;
	if (sim_part_is(d, 0, "bra"))
		return branch(d);
	if (sim_part_is(d, 0, "brx"))
		return branch_index(d);
	if (sim_part_is(d, 0, "call"))
		return call(d);
	if (sim_part_is(d, 0, "ret"))
		return plain(d, SIM_CONTROL_RETURN) &&
		       sim_site(d, (struct sim_site){ .patch = d->function->entry ? PATCH_BLOCK_EXIT
										  : PATCH_RET });
	if (sim_part_is(d, 0, "exit"))
		return plain(d, SIM_CONTROL_EXIT) &&
		       sim_site(d, (struct sim_site){ .patch = PATCH_BLOCK_EXIT });
	if (sim_part_is(d, 0, "trap") || sim_part_is(d, 0, "brkpt"))
		return plain(d, SIM_CONTROL_TRAP);
	if (sim_part_is(d, 0, "membar") || sim_part_is(d, 0, "fence"))
		return plain(d, SIM_CONTROL_FENCE);
	if (sim_part_is(d, 0, "bar") && sim_has_part(d, "warp") && sim_has_part(d, "sync"))
		return warp_barrier(d);
	if (sim_part_is(d, 0, "bar") || sim_part_is(d, 0, "barrier"))
		return barrier(d);
	if (sim_part_is(d, 0, "shfl") && sim_has_part(d, "sync"))
		return shuffle(d);
	if (sim_part_is(d, 0, "vote") && sim_has_part(d, "sync"))
		return vote(d);
	if (sim_part_is(d, 0, "match"))
		return match(d);
	if (sim_part_is(d, 0, "redux"))
		return redux(d);
	if (sim_part_is(d, 0, "elect"))
		return elect(d);
	if (sim_part_is(d, 0, "ldmatrix"))
		return load_matrix(d);
	if (sim_part_is(d, 0, "activemask"))
		return active_mask(d);
	for (uint32_t n = 0; nops[n]; n++)
		if (sim_part_is(d, 0, nops[n]))
			return plain(d, SIM_CONTROL_NOP);
	*known = false;
	return true;
}
