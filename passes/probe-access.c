/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds out what a memory instruction of PTX does (probe-access.h): space, size, kind, operands.
 * Only the pass `probe` uses it.
 */

#include "probe-access.h"

/* What the parts of a mnemonic say, in whatever order they come. */
struct parts {
	struct ptx_range first, second;
	enum ptx_type type; /* the last one that is named */
	uint32_t vector;
	enum probe_space space; /* the first one that is named */
	enum probe_space other; /* the second: of copies */
	uint32_t spaces;
	bool cluster, cas, tensor;
};

static bool is_space(const char *text, struct ptx_range part, enum probe_space *space,
		     bool *cluster) {
	static const struct {
		const char *name;
		enum probe_space space;
	} names[] = {
		{ "global", PROBE_SPACE_GLOBAL },      { "shared", PROBE_SPACE_SHARED },
		{ "shared::cta", PROBE_SPACE_SHARED }, { "shared::cluster", PROBE_SPACE_SHARED },
		{ "local", PROBE_SPACE_LOCAL },        { "const", PROBE_SPACE_CONST },
		{ "param", PROBE_SPACE_PARAM },        { "param::entry", PROBE_SPACE_PARAM },
		{ "param::func", PROBE_SPACE_PARAM },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!ptx_range_is(text, part, names[i].name))
			continue;
		*space = names[i].space;
		*cluster = !strcmp(names[i].name, "shared::cluster");
		return true;
	}
	return false;
}

static void read_part(const char *text, struct ptx_range part, struct parts *parts) {
	enum probe_space space;
	enum ptx_type type;
	bool cluster;

	if (is_space(text, part, &space, &cluster)) {
		if (!parts->spaces) {
			parts->space = space;
			parts->cluster = cluster;
		} else if (parts->spaces == 1) {
			parts->other = space;
		}
		parts->spaces++;
	} else if (ptx_range_is(text, part, "v2")) {
		parts->vector = 2;
	} else if (ptx_range_is(text, part, "v4")) {
		parts->vector = 4;
	} else if (ptx_range_is(text, part, "v8")) {
		parts->vector = 8;
	} else if (ptx_range_is(text, part, "cas")) {
		parts->cas = true;
	} else if (ptx_range_is(text, part, "tensor")) {
		parts->tensor = true;
	} else {
		type = ptx_type_from_name(text + part.offset, part.length);
		if (type != PTX_TYPE_NONE)
			parts->type = type;
	}
}

static void read_parts(const struct ptx_body *body, const struct ptx_statement *statement,
		       struct parts *parts) {
	struct ptx_range part;

	*parts = (struct parts){ .vector = 1 };
	for (uint32_t token = statement->opcode, number = 0; token < statement->opcode_end;
	     token++) {
		const char *text = body->module->text;
		uint32_t at = body->tokens[token].offset, end = at + body->tokens[token].length;

		while (at < end) {
			const char *dot;

			at += text[at] == '.';
			dot = memchr(text + at, '.', end - at);
			part = (struct ptx_range){ at, (dot ? (uint32_t)(dot - text) : end) - at };
			at += part.length;
			if (number == 0)
				parts->first = part;
			else if (number == 1)
				parts->second = part;
			if (number++)
				read_part(text, part, parts);
		}
	}
}

/* [x+4] or x[1]. */
static bool is_address(const struct ptx_body *body, uint32_t operand) {
	return probe_names_addressed(body, &body->operands[operand]) != PTX_NONE;
}

/* The n-th operand that is an address; PTX_NONE. */
static uint32_t find_address(const struct ptx_body *body, const struct ptx_statement *statement,
			     uint32_t n) {
	for (uint32_t i = 0; i < statement->operand_count; i++)
		if (is_address(body, statement->first_operand + i) && !n--)
			return statement->first_operand + i;
	return PTX_NONE;
}

/* The operand n after another, if the instruction has it. */
static uint32_t operand_after(const struct ptx_statement *statement, uint32_t operand, uint32_t n) {
	if (operand == PTX_NONE ||
	    operand + n >= statement->first_operand + statement->operand_count)
		return PTX_NONE;
	return operand + n;
}

/* Registers in {a, b, c}, or 1. */
static uint32_t count_elements(const struct ptx_body *body, uint32_t operand) {
	const struct ptx_operand *range = &body->operands[operand];
	uint32_t count = 1;

	for (uint32_t i = range->first; i < range->end; i++)
		count += ptx_token_is_char(body->module->text, &body->tokens[i], ',');
	return count;
}

/*
 * [to], [from], bytes; or [map, {x, y}] on one side. False for what only waits, commits or
 * prefetches.
 */
static bool read_copy(const struct ptx_body *body, const struct ptx_statement *statement,
		      const struct parts *parts, struct probe_access *out) {
	uint32_t to = find_address(body, statement, 0), from = find_address(body, statement, 1);

	if (parts->spaces < 2 || to == PTX_NONE || from == PTX_NONE ||
	    ptx_instruction_has(body, statement, "prefetch"))
		return false;
	out->kind = PROBE_ACCESS_ASYNC_COPY;
	out->address = parts->space != PROBE_SPACE_GLOBAL && parts->other == PROBE_SPACE_GLOBAL
			       ? from
			       : to;
	out->space = out->address == from ? parts->other : parts->space;
	out->cluster = out->address == to && parts->cluster;
	if (parts->tensor) {
		out->space = PROBE_SPACE_GENERIC;
		return true;
	}
	out->size_operand = operand_after(statement, from, 1);
	return true;
}

/* `st.bulk [to], size, 0` moves as many bytes as it says. */
static void read_store(const struct ptx_body *body, const struct ptx_statement *statement,
		       const struct parts *parts, struct probe_access *out) {
	out->kind = PROBE_ACCESS_STORE;
	out->value = operand_after(statement, out->address, 1);
	if (ptx_range_is(body->module->text, parts->second, "bulk")) {
		out->size_operand = out->value;
		out->value = PTX_NONE;
	}
}

/* ldmatrix, stmatrix: each thread has some 32-bit registers. */
static void read_matrix(const struct ptx_body *body, const struct ptx_statement *statement,
			bool store, struct probe_access *out) {
	uint32_t registers =
		store ? operand_after(statement, out->address, 1) : statement->first_operand;

	out->kind = store ? PROBE_ACCESS_STORE : PROBE_ACCESS_MATRIX_LOAD;
	out->value = store ? registers : PTX_NONE;
	out->type = PTX_TYPE_B32;
	out->element = 4;
	out->size = registers == PTX_NONE ? 0 : 4 * count_elements(body, registers);
}

/* Is it an argument or a result of a call that is just being made? */
static bool is_call_frame(const struct probe_names *names, uint32_t statement,
			  const struct probe_access *access) {
	const struct ptx_variable *variable;
	uint32_t name;

	if (access->kind == PROBE_ACCESS_STORE)
		return true;
	if (access->address == PTX_NONE)
		return false;
	name = probe_names_addressed(names->body, &names->body->operands[access->address]);
	variable = probe_names_variable(names, statement, name);
	return variable && variable->space == PTX_SPACE_PARAM;
}

bool probe_access_read(const struct probe_names *names, uint32_t index, struct probe_access *out) {
	const struct ptx_body *body = names->body;
	const struct ptx_statement *statement = &body->statements[index];
	const char *text = body->module->text;
	struct parts parts;

	if (statement->kind != PTX_STATEMENT_INSTRUCTION)
		return false;
	read_parts(body, statement, &parts);
	*out = (struct probe_access){
		.space = parts.space,
		.cluster = parts.cluster,
		.address = find_address(body, statement, 0),
		.value = PTX_NONE,
		.type = parts.type,
		.element = ptx_type_size(parts.type),
		.size = ptx_type_size(parts.type) * parts.vector,
		.size_operand = PTX_NONE,
	};
	if (ptx_range_is(text, parts.first, "multimem"))
		parts.first = parts.second;
	if (ptx_range_is(text, parts.first, "cp"))
		return ptx_instruction_has(body, statement, "async") &&
		       read_copy(body, statement, &parts, out);
	if (ptx_range_is(text, parts.first, "ld") || ptx_range_is(text, parts.first, "ldu") ||
	    ptx_range_is(text, parts.first, "ld_reduce"))
		out->kind = PROBE_ACCESS_LOAD;
	else if (ptx_range_is(text, parts.first, "st"))
		read_store(body, statement, &parts, out);
	else if (ptx_range_is(text, parts.first, "atom"))
		out->kind = PROBE_ACCESS_ATOMIC;
	else if (ptx_range_is(text, parts.first, "red"))
		out->kind = PROBE_ACCESS_REDUCTION;
	else if (ptx_range_is(text, parts.first, "ldmatrix") ||
		 ptx_range_is(text, parts.first, "stmatrix"))
		read_matrix(body, statement, text[parts.first.offset] == 's', out);
	else
		return false;
	if (out->kind == PROBE_ACCESS_ATOMIC || out->kind == PROBE_ACCESS_REDUCTION)
		out->value = operand_after(statement, out->address, parts.cas ? 2 : 1);
	return out->space != PROBE_SPACE_PARAM || !is_call_frame(names, index, out);
}
