/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's decoder of PTX (sim-decode.h). A function's body becomes an array of struct
 * sim_insn. Names are resolved to places of the frame as they are declared, scope by scope; labels
 * are collected first, since branches go forward too. A guard becomes a branch around its
 * instruction.
 *
 * A frame is: variables (parameters, results, .local, .param), registers, constants and
 * temporaries. Registers have index 0 and up, variables negative offsets.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim-decode.h"

#define FRAME_MAX (64u << 20)
#define REGISTERS_MAX (4u << 20)

bool sim_decode_fail(struct sim_decoder *d, const char *format, ...) {
	char text[256];
	uint32_t offset, line = 1;
	va_list arguments;

	if (d->result != CUDA_SUCCESS)
		return false;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	offset = d->statement ? ptx_statement_text(d->body, d->statement).offset
			      : d->function->source->text.offset;
	for (uint32_t n = 0; n < offset && n < d->module->length; n++)
		line += d->module->text[n] == '\n';
	d->result = sim_say(d->message, d->message_size, CUDA_ERROR_INVALID_PTX, "%s, line %u: %s",
			    d->function->name, line, text);
	return false;
}

bool sim_decode_no_memory(struct sim_decoder *d) {
	if (d->result == CUDA_SUCCESS)
		d->result = sim_say(d->message, d->message_size, CUDA_ERROR_OUT_OF_MEMORY,
				    "%s: no memory", d->function->name);
	return false;
}

/* Makes room for one more element. */
static bool grow(struct sim_decoder *d, void *array, uint32_t *allocated, uint32_t count,
		 size_t size) {
	void **pointer = array, *bigger;
	uint32_t room = *allocated ? *allocated * 2 : 64;

	if (count < *allocated)
		return true;
	bigger = realloc(*pointer, room * size);
	if (!bigger)
		return sim_decode_no_memory(d);
	*pointer = bigger;
	*allocated = room;
	return true;
}

struct sim_insn *sim_emit(struct sim_decoder *d, sim_op op) {
	struct sim_insn *insn;

	if (!op) {
		sim_decode_fail(d, "the instruction is not supported with this type");
		return NULL;
	}
	if (!grow(d, &d->insns, &d->insn_allocated, d->insn_count, sizeof(*d->insns)))
		return NULL;
	insn = &d->insns[d->insn_count++];
	*insn = (struct sim_insn){
		.op = op, .d = d->sink, .a = d->zero, .b = d->zero, .c = d->zero, .e = d->sink
	};
	if (d->statement)
		insn->position = ptx_statement_text(d->body, d->statement).offset;
	return insn;
}

static bool new_slot(struct sim_decoder *d, uint64_t value, bool temporary, uint32_t *slot) {
	uint32_t allocated = d->constant_allocated;

	if (!grow(d, &d->temporary, &allocated, d->constant_count, sizeof(*d->temporary)) ||
	    !grow(d, &d->constants, &d->constant_allocated, d->constant_count,
		  sizeof(*d->constants)))
		return false;
	if (d->constant_count >= REGISTERS_MAX)
		return sim_decode_fail(d, "too many constants");
	d->constants[d->constant_count] = value;
	d->temporary[d->constant_count] = temporary;
	*slot = d->function->register_count + d->constant_count++;
	return true;
}

bool sim_constant(struct sim_decoder *d, uint64_t value, uint32_t *slot) {
	/* the last ones only: enough to keep frames small, and never quadratic */
	uint32_t first = d->constant_count > 64 ? d->constant_count - 64 : 0;

	for (uint32_t n = first; n < d->constant_count; n++)
		if (!d->temporary[n] && d->constants[n] == value) {
			*slot = d->function->register_count + n;
			return true;
		}
	return new_slot(d, value, false, slot);
}

bool sim_temporary(struct sim_decoder *d, uint32_t *slot) {
	return new_slot(d, 0, true, slot);
}

bool sim_fixup(struct sim_decoder *d, uint32_t insn, uint32_t label, uint32_t target) {
	if (!grow(d, &d->fixups, &d->fixup_allocated, d->fixup_count, sizeof(*d->fixups)))
		return false;
	d->fixups[d->fixup_count++] = (struct sim_fixup){ insn, label, target };
	return true;
}

bool sim_site(struct sim_decoder *d, struct sim_site site) {
	struct sim_function *function = d->function;

	if (!grow(d, &function->sites, &d->site_allocated, function->site_count,
		  sizeof(*function->sites)))
		return false;
	site.insn = d->insn_count - 1;
	function->sites[function->site_count++] = site;
	return true;
}

bool sim_keep(struct sim_decoder *d, void *data) {
	struct sim_function *function = d->function;
	void **tables;

	if (!data)
		return sim_decode_no_memory(d);
	if (!(function->table_count & (function->table_count + 1))) { /* 0, 1, 3, 7 ... are full */
		tables = realloc(function->tables,
				 (2 * (size_t)function->table_count + 1) * sizeof(*tables));
		if (!tables) {
			free(data);
			return sim_decode_no_memory(d);
		}
		function->tables = tables;
	}
	function->tables[function->table_count++] = data;
	return true;
}

/* --- names --- */

static bool same_name(const struct sim_decoder *d, struct ptx_range a, const char *name,
		      size_t length) {
	return a.length == length && !memcmp(sim_text(d, a), name, length);
}

static bool add_symbol(struct sim_decoder *d, struct sim_symbol symbol) {
	uint32_t bucket = sim_hash(sim_text(d, symbol.name), symbol.name.length) % 256;

	if (!grow(d, &d->symbols, &d->symbol_allocated, d->symbol_count, sizeof(*d->symbols)))
		return false;
	symbol.next = d->buckets[bucket];
	symbol.bucket = bucket;
	d->buckets[bucket] = d->symbol_count;
	d->symbols[d->symbol_count++] = symbol;
	return true;
}

static const struct sim_symbol *find(const struct sim_decoder *d, const char *name, size_t length,
				     bool numbered) {
	uint32_t at = d->buckets[sim_hash(name, length) % 256];

	for (; at != UINT32_MAX; at = d->symbols[at].next)
		if (!!d->symbols[at].count == numbered &&
		    same_name(d, d->symbols[at].name, name, length))
			return &d->symbols[at];
	return NULL;
}

/* %r12 may be the register %r12, or number 12 of %r<n>, or number 2 of %r1<n>. */
const struct sim_symbol *sim_find_symbol(const struct sim_decoder *d, struct ptx_range name,
					 uint32_t *index) {
	const char *text = sim_text(d, name);
	const struct sim_symbol *symbol = find(d, text, name.length, false);
	uint64_t number = 0, scale = 1;

	*index = 0;
	if (symbol)
		return symbol;
	for (uint32_t length = name.length;
	     length > 1 && text[length - 1] >= '0' && text[length - 1] <= '9' && scale < 1000000000;
	     length--) {
		number += scale * (text[length - 1] - '0');
		scale *= 10;
		symbol = find(d, text, length - 1, true);
		if (symbol && number < symbol->count) {
			*index = number;
			return symbol;
		}
	}
	return NULL;
}

uint32_t sim_find_label(const struct sim_decoder *d, struct ptx_range name) {
	uint32_t scope = d->scope;

	for (;;) {
		for (uint32_t n = 0; n < d->label_count; n++)
			if (d->labels[n].scope == scope &&
			    d->labels[n].name.length == name.length &&
			    !memcmp(sim_text(d, d->labels[n].name), sim_text(d, name), name.length))
				return n;
		if (!scope)
			return UINT32_MAX;
		scope = d->scope_parent[scope];
	}
}

/* Labels and scopes, before anything else. */
static bool collect_labels(struct sim_decoder *d) {
	const struct ptx_body *body = d->body;
	uint32_t scope = 0, count = 1;

	d->labels = calloc(body->statement_count + 1, sizeof(*d->labels));
	d->scope_parent = calloc(body->statement_count + 1, sizeof(*d->scope_parent));
	d->scopes = calloc(body->statement_count + 1, sizeof(*d->scopes));
	if (!d->labels || !d->scope_parent || !d->scopes)
		return sim_decode_no_memory(d);
	for (uint32_t n = 0; n < body->statement_count; n++) {
		const struct ptx_statement *statement = &body->statements[n];

		if (statement->kind == PTX_STATEMENT_SCOPE_OPEN) {
			d->scope_parent[count] = scope;
			scope = count++;
		} else if (statement->kind == PTX_STATEMENT_SCOPE_CLOSE) {
			scope = d->scope_parent[scope];
		} else if (statement->kind == PTX_STATEMENT_LABEL) {
			d->labels[d->label_count++] = (struct sim_label){
				.name = sim_token_range(d, statement->first),
				.scope = scope,
				.statement = n,
				.insn = UINT32_MAX,
			};
		}
	}
	return true;
}

/* --- the frame --- */

static bool add_register(struct sim_decoder *d, struct ptx_range name, enum ptx_type type,
			 uint32_t count, uint32_t *slot) {
	struct sim_symbol symbol = { .name = name,
				     .kind = SIM_SYMBOL_REGISTER,
				     .type = type,
				     .slot = *slot,
				     .count = count };

	*slot += count ? count : 1;
	return add_symbol(d, symbol);
}

/* Parameters and results, in the frame or as its first registers. The parameters' places were made
 * by sim_decode_frame(). */
static bool declare_parameters(struct sim_decoder *d, uint32_t *slot) {
	struct sim_function *function = d->function;
	const struct ptx_function *source = function->source;

	for (uint32_t n = 0; n < source->return_count + source->parameter_count; n++) {
		bool result = n < source->return_count;
		uint32_t index = result ? n : n - source->return_count;
		const struct ptx_variable *variable =
			&d->module->parameters[(result ? source->first_return
						       : source->first_parameter) +
					       index];
		struct sim_parameter *place =
			result ? &function->returns[index] : &function->parameters[index];

		if (variable->space == PTX_SPACE_REG) {
			place->offset = *slot * 8;
			if (!add_register(d, variable->name, variable->type, 0, slot))
				return false;
		} else if (!add_symbol(d, (struct sim_symbol){ .name = variable->name,
							       .kind = SIM_SYMBOL_FRAME,
							       .space = PTX_SPACE_PARAM,
							       .offset = place->offset,
							       .size = place->size })) {
			return false;
		}
	}
	return true;
}

static uint32_t parameter_size(const struct ptx_variable *variable) {
	return variable->size < SIM_PARAMETERS_MAX + 1 ? variable->size : SIM_PARAMETERS_MAX + 1;
}

/* Places from the bottom of the frame upwards; made negative when the size of the variables is
 * known. */
static CUresult place_parameters(struct sim_function *function, uint64_t *bottom) {
	const struct ptx_function *source = function->source;
	uint64_t buffer = 0;

	function->return_count = source->return_count;
	function->parameter_count = source->parameter_count;
	function->returns = calloc(source->return_count + 1, sizeof(*function->returns));
	function->parameters = calloc(source->parameter_count + 1, sizeof(*function->parameters));
	if (!function->returns || !function->parameters)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t n = 0; n < source->return_count + source->parameter_count; n++) {
		bool result = n < source->return_count;
		uint32_t index = result ? n : n - source->return_count;
		const struct ptx_variable *variable =
			&function->module->parameters[(result ? source->first_return
							      : source->first_parameter) +
						      index];
		struct sim_parameter *place =
			result ? &function->returns[index] : &function->parameters[index];
		uint32_t alignment = sim_variable_alignment(variable);

		place->size = parameter_size(variable);
		if (!result) {
			buffer = sim_align(buffer, alignment);
			place->buffer_offset = buffer;
			buffer += place->size;
		}
		if (variable->space == PTX_SPACE_REG)
			continue;
		*bottom = sim_align(*bottom, alignment < 16 ? alignment : 16);
		place->offset = *bottom;
		*bottom += place->size;
	}
	if (buffer > SIM_PARAMETERS_MAX && function->entry)
		return CUDA_ERROR_INVALID_PTX;
	function->parameter_bytes = buffer;
	return CUDA_SUCCESS;
}

static void directive_numbers(const struct sim_function *function, const char *name,
			      uint32_t out[3]) {
	const struct ptx_directive *directive =
		ptx_function_directive(function->module, function->source, name);
	const char *text;
	uint32_t at = 0;

	out[0] = out[1] = out[2] = 0;
	if (!directive)
		return;
	text = function->module->text + directive->arguments.offset;
	out[0] = out[1] = out[2] = 1;
	for (uint32_t n = 0; n < directive->arguments.length && at < 3; n++) {
		if (text[n] >= '0' && text[n] <= '9') {
			uint64_t value = 0;

			for (; n < directive->arguments.length && text[n] >= '0' && text[n] <= '9';
			     n++)
				value = value < 100000 ? value * 10 + (text[n] - '0') : value;
			out[at++] = value;
		}
	}
}

static void read_directives(struct sim_function *function) {
	uint32_t most[3];

	directive_numbers(function, ".reqntid", function->required);
	directive_numbers(function, ".maxntid", most);
	if (!most[0])
		memcpy(most, function->required, sizeof(most));
	if (most[0] && (uint64_t)most[0] * most[1] * most[2] < SIM_BLOCK_MAX)
		function->max_threads = most[0] * most[1] * most[2];
}

/* Everything in the body that has a size. */
static CUresult place_variables(struct sim_function *function, uint64_t *bottom) {
	const struct ptx_body *body = function->body;
	struct sim_program *program = function->program;

	function->shared = calloc(body->variable_count + 1, sizeof(*function->shared));
	if (!function->shared)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t n = 0; n < body->variable_count; n++) {
		const struct ptx_variable *variable = &body->variables[n];
		uint32_t alignment = sim_variable_alignment(variable);

		if (variable->size > FRAME_MAX)
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (variable->space == PTX_SPACE_SHARED) {
			program->shared_size = sim_align(program->shared_size, alignment);
			function->shared[n] = program->shared_size;
			program->shared_size += variable->size;
			function->shared_size += variable->size;
		} else if (variable->space == PTX_SPACE_LOCAL ||
			   variable->space == PTX_SPACE_PARAM) {
			*bottom = sim_align(*bottom, alignment < 16 ? alignment : 16) +
				  variable->size;
			function->local_size +=
				variable->space == PTX_SPACE_LOCAL ? variable->size : 0;
		}
		if (*bottom > FRAME_MAX || program->shared_size > FRAME_MAX)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult sim_decode_frame(struct sim_function *function, char *message, size_t message_size) {
	struct ptx_error error = { 0 };
	uint64_t bottom = 0, registers = 0;
	CUresult result;
	int r;

	function->body = calloc(1, sizeof(*function->body));
	if (!function->body)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = ptx_body_parse(function->body, function->module, function->source, &error);
	if (r) {
		free(function->body);
		function->body = NULL;
		return r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
				    : sim_say(message, message_size, CUDA_ERROR_INVALID_PTX,
					      "%s: line %u, column %u: %s", function->name,
					      error.line, error.column, error.message);
	}
	read_directives(function);
	result = place_parameters(function, &bottom);
	function->parameters_end = bottom;
	if (result == CUDA_SUCCESS)
		result = place_variables(function, &bottom);
	for (uint32_t n = 0; n < function->body->register_count; n++)
		registers +=
			function->body->registers[n].count ? function->body->registers[n].count : 1;
	if (result != CUDA_SUCCESS || registers > REGISTERS_MAX)
		return sim_say(message, message_size,
			       result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_PTX,
			       "%s: too many or too large parameters, variables or registers",
			       function->name);
	function->register_count = registers + function->return_count + function->parameter_count;
	function->variable_size = sim_align(bottom, 16);
	for (uint32_t n = 0; n < function->return_count; n++)
		function->returns[n].offset -= function->variable_size;
	for (uint32_t n = 0; n < function->parameter_count; n++)
		function->parameters[n].offset -= function->variable_size;
	return CUDA_SUCCESS;
}

/* --- statements --- */

static bool declare_variables(struct sim_decoder *d, const struct ptx_statement *statement,
			      int64_t *bottom) {
	for (uint32_t n = 0; n < statement->declaration_count; n++) {
		uint32_t index = statement->first_declaration + n;
		const struct ptx_variable *variable = &d->body->variables[index];
		struct sim_symbol symbol = { .name = variable->name,
					     .space = variable->space,
					     .size = variable->size };
		uint32_t alignment = sim_variable_alignment(variable);

		switch (variable->space) {
		case PTX_SPACE_SHARED:
			symbol.kind = SIM_SYMBOL_ADDRESS;
			symbol.address =
				variable->linkage == PTX_LINKAGE_EXTERN
					? sim_align(d->function->program->shared_size, 1024)
					: d->function->shared[index];
			break;
		case PTX_SPACE_LOCAL:
		case PTX_SPACE_PARAM:
			*bottom = (int64_t)sim_align(*bottom, alignment < 16 ? alignment : 16);
			symbol.kind = SIM_SYMBOL_FRAME;
			symbol.offset = *bottom - d->function->variable_size;
			*bottom += variable->size;
			break;
		default:
			return sim_decode_fail(
				d, "a variable of this kind in a body is not supported");
		}
		if (!add_symbol(d, symbol))
			return false;
	}
	return true;
}

static bool declare_registers(struct sim_decoder *d, const struct ptx_statement *statement,
			      uint32_t *slot) {
	for (uint32_t n = 0; n < statement->declaration_count; n++) {
		const struct ptx_register *reg =
			&d->body->registers[statement->first_declaration + n];

		if (reg->vector > 1)
			return sim_decode_fail(d, "vector registers are not supported");
		if (reg->type == PTX_TYPE_B128)
			return sim_decode_fail(d, "128-bit registers are not supported");
		if (!add_register(d, reg->name, reg->type, reg->count, slot))
			return false;
	}
	return true;
}

static void close_scope(struct sim_decoder *d) {
	uint32_t count = d->scopes[--d->scope_depth];

	while (d->symbol_count > count) {
		struct sim_symbol *symbol = &d->symbols[--d->symbol_count];

		d->buckets[symbol->bucket] = symbol->next;
	}
	d->scope = d->scope_parent[d->scope];
}

/* A guard is a branch around the instruction; around a branch alone it is that branch's own
 * condition (sim-decode-control.c). */
static bool guarded_instruction(struct sim_decoder *d) {
	const struct ptx_statement *statement = d->statement;
	uint32_t guard = UINT32_MAX, slot;
	struct sim_insn *insn;

	d->part_count = 0;
	while (d->part_count < SIM_PARTS) {
		struct ptx_range part = ptx_instruction_part(d->body, statement, d->part_count);

		if (!part.length)
			break;
		d->parts[d->part_count++] = part;
	}
	if (!d->part_count || d->part_count == SIM_PARTS)
		return sim_decode_fail(d, "a mnemonic with too many parts");
	if (statement->guard != PTX_NONE) {
		if (!sim_source_tokens(d, statement->guard, statement->guard + 1, PTX_TYPE_PRED,
				       &slot))
			return false;
		insn = sim_emit(d, sim_op_control(statement->guard_negated
							  ? SIM_CONTROL_BRANCH_IF
							  : SIM_CONTROL_BRANCH_UNLESS));
		if (!insn)
			return false;
		insn->a = slot;
		guard = d->insn_count - 1;
	}
	if (!sim_decode_instruction(d))
		return false;
	return guard == UINT32_MAX || sim_fixup(d, guard, UINT32_MAX, d->insn_count);
}

static bool decode_statements(struct sim_decoder *d) {
	const struct ptx_body *body = d->body;
	uint32_t slot = 0, label = 0;
	int64_t bottom = d->function->parameters_end;

	if (!declare_parameters(d, &slot))
		return false;
	for (uint32_t n = 0; n < body->statement_count; n++) {
		const struct ptx_statement *statement = &body->statements[n];
		bool good = true;

		d->statement = statement;
		d->statement_index = n;
		switch (statement->kind) {
		case PTX_STATEMENT_INSTRUCTION:
			good = guarded_instruction(d);
			break;
		case PTX_STATEMENT_LABEL:
			d->labels[label++].insn = d->insn_count;
			break;
		case PTX_STATEMENT_REGISTERS:
			good = declare_registers(d, statement, &slot);
			break;
		case PTX_STATEMENT_VARIABLE:
			good = declare_variables(d, statement, &bottom);
			break;
		case PTX_STATEMENT_SCOPE_OPEN:
			d->scopes[d->scope_depth++] = d->symbol_count;
			d->scope = ++d->scope_next;
			break;
		case PTX_STATEMENT_SCOPE_CLOSE:
			close_scope(d);
			break;
		}
		if (!good)
			return false;
	}
	d->statement = NULL;
	return sim_emit(d, sim_op_control(SIM_CONTROL_END));
}

/* Labels become pointers. */
static bool finish(struct sim_decoder *d) {
	struct sim_function *function = d->function;

	for (uint32_t n = 0; n < d->fixup_count; n++) {
		const struct sim_fixup *fixup = &d->fixups[n];
		uint32_t target =
			fixup->label == UINT32_MAX ? fixup->target : d->labels[fixup->label].insn;
		struct sim_insn *insn = &d->insns[fixup->insn];

		if (insn->op == sim_op_control(SIM_CONTROL_BRANCH) && target <= fixup->insn)
			insn->op = sim_op_control(SIM_CONTROL_BRANCH_BACK);
		insn->target = &d->insns[target];
	}
	for (uint32_t n = 0; n < d->insn_count; n++) {
		struct sim_table *table;

		if (d->insns[n].op != sim_op_control(SIM_CONTROL_BRANCH_INDEX))
			continue;
		table = (struct sim_table *)d->insns[n].data;
		for (uint32_t k = 0; k < table->count; k++)
			table->targets[k] = &d->insns[d->labels[(uintptr_t)table->targets[k]].insn];
	}
	function->insns = d->insns;
	function->insn_count = d->insn_count;
	function->constants = d->constants;
	function->constant_count = d->constant_count;
	function->frame_size =
		sim_align(function->variable_size +
				  8 * ((uint64_t)function->register_count + d->constant_count),
			  16);
	d->insns = NULL;
	d->constants = NULL;
	return true;
}

CUresult sim_decode(struct sim_function *function, char *message, size_t message_size) {
	struct sim_decoder d = {
		.function = function,
		.module = function->module,
		.body = function->body,
		.message = message,
		.message_size = message_size,
	};

	memset(d.buckets, 0xff, sizeof(d.buckets));
	d.used = calloc(function->program->variable_count + 1, 1);
	if (!d.used)
		sim_decode_no_memory(&d);
	if (d.used && collect_labels(&d) && sim_constant(&d, 0, &d.zero) &&
	    sim_temporary(&d, &d.sink) && decode_statements(&d))
		finish(&d);
	free(d.insns);
	free(d.constants);
	free(d.temporary);
	free(d.symbols);
	free(d.scopes);
	free(d.scope_parent);
	free(d.labels);
	free(d.fixups);
	free(d.used);
	ptx_body_deinit(function->body);
	free(function->body);
	function->body = NULL;
	return d.result;
}

void sim_function_deinit(struct sim_function *function) {
	if (function->body)
		ptx_body_deinit(function->body);
	for (uint32_t n = 0; n < function->table_count; n++)
		free(function->tables[n]);
	free(function->body);
	free(function->shared);
	free(function->tables);
	free(function->insns);
	free(function->sites);
	free(function->constants);
	free(function->parameters);
	free(function->returns);
	free(function->name);
}
