/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Replaces the call of a stub in a kernel, such as __bpftime_cuda__kernel_trace, by the programs
 * that run there (probe-stub.h).
 *
 * ptxas 13 dies of a signal when a parameter is read that no call has written: so reads of a result
 * become moves of 0, from the call to the end of its scope, or up to another call that writes the
 * same one.
 */

#include "probe-stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

struct replacer {
	struct ptx_edit *edit;
	const struct probe_names *names;
	const struct ptx_body *body;
	const char *text;
	struct ptx_error *error;
};

static bool same_text(const struct replacer *replacer, uint32_t left, uint32_t right) {
	const struct ptx_token *a = &replacer->body->tokens[left],
			       *b = &replacer->body->tokens[right];

	return a->length == b->length &&
	       !memcmp(replacer->text + a->offset, replacer->text + b->offset, a->length);
}

/* Writes `mov REGISTER, 0;` with the statement's guard; false if it is no register for a mov. */
static bool write_zero(const struct replacer *replacer, FILE *stream, uint32_t statement,
		       uint32_t token) {
	const struct ptx_token *name = &replacer->body->tokens[token];
	struct probe_register found;
	unsigned int size;

	if (ptx_token_is(replacer->text, name, "_"))
		return true;
	if (!probe_names_register(replacer->names, statement, token, &found) || found.vector != 1)
		return false;
	size = ptx_type_size(found.type);
	if (size != 2 && size != 4 && size != 8)
		return false;
	ptx_statement_write_guard(replacer->body, &replacer->body->statements[statement], false,
				  stream);
	if (found.type == PTX_TYPE_F32 || found.type == PTX_TYPE_F64)
		fprintf(stream, "mov.f%u %.*s, 0%c%0*u; ", 8 * size, (int)name->length,
			replacer->text + name->offset, size == 4 ? 'f' : 'd', 2 * (int)size, 0);
	else
		fprintf(stream, "mov.b%u %.*s, 0; ", 8 * size, (int)name->length,
			replacer->text + name->offset);
	return true;
}

/* A list of registers: a, or {a, b}. */
static int replace_read(const struct replacer *replacer, uint32_t index) {
	const struct ptx_statement *statement = &replacer->body->statements[index];
	const struct ptx_operand *to = &replacer->body->operands[statement->first_operand];
	char *bytes = NULL;
	bool good = true;
	size_t length;
	FILE *stream;
	int r;

	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	for (uint32_t i = to->first; i < to->end; i++)
		if (replacer->body->tokens[i].kind == PTX_TOKEN_WORD)
			good &= write_zero(replacer, stream, index, i);
	if (fclose(stream)) {
		r = -ENOMEM;
	} else if (!good) {
		ptx_error_set(replacer->error, replacer->text,
			      replacer->body->tokens[to->first].offset,
			      "what a stub returns goes to something that is not understood");
		r = PROBE_E_FUNCTION;
	} else {
		r = ptx_edit_replace(replacer->edit, ptx_statement_text(replacer->body, statement),
				     bytes, length);
	}
	free(bytes);
	return r;
}

/* Does another call write that parameter? */
static bool is_written(const struct replacer *replacer, const struct ptx_statement *statement,
		       uint32_t name) {
	struct ptx_call call;

	if (!ptx_instruction_call(replacer->body, statement, &call))
		return false;
	for (uint32_t i = call.returns; i < call.returns_end; i++)
		if (same_text(replacer, i, name))
			return true;
	return false;
}

/* Is it ld.param ..., [name...]? */
static bool reads(const struct replacer *replacer, const struct ptx_statement *statement,
		  uint32_t name) {
	uint32_t from;

	if (statement->operand_count < 2 || !ptx_instruction_is(replacer->body, statement, "ld"))
		return false;
	from = probe_names_addressed(replacer->body,
				     &replacer->body->operands[statement->first_operand + 1]);
	return from != PTX_NONE && same_text(replacer, from, name);
}

/* One result of the call: a parameter, or a register in old PTX. */
static int replace_result(const struct replacer *replacer, uint32_t index, uint32_t name) {
	const struct ptx_body *body = replacer->body;
	uint32_t open = replacer->names->scopes[index];
	uint32_t end = open == PTX_NONE ? body->statement_count : body->statements[open].partner;
	int r = 0;

	for (uint32_t i = index + 1; i < end && !r; i++) {
		if (is_written(replacer, &body->statements[i], name))
			break;
		if (reads(replacer, &body->statements[i], name))
			r = replace_read(replacer, i);
	}
	return r;
}

/* A result in a register, as old PTX has it, is 0 behind the bytes. */
static int add_zeroes(const struct replacer *replacer, uint32_t statement,
		      const struct ptx_call *call, FILE *stream) {
	struct probe_register found;

	for (uint32_t i = call->returns; i < call->returns_end; i++) {
		if (replacer->body->tokens[i].kind != PTX_TOKEN_WORD ||
		    !probe_names_register(replacer->names, statement, i, &found))
			continue;
		if (write_zero(replacer, stream, statement, i))
			continue;
		ptx_error_set(replacer->error, replacer->text, replacer->body->tokens[i].offset,
			      "what a stub returns goes to something that is not understood");
		return PROBE_E_FUNCTION;
	}
	return 0;
}

/* The call itself. */
static int replace_call(const struct replacer *replacer, uint32_t statement,
			const struct ptx_call *call, const char *bytes, size_t length) {
	char *whole = NULL;
	size_t whole_length;
	FILE *stream;
	int r;

	stream = open_memstream(&whole, &whole_length);
	if (!stream)
		return -ENOMEM;
	fwrite(bytes, 1, length, stream);
	r = add_zeroes(replacer, statement, call, stream);
	if (fclose(stream))
		r = -ENOMEM;
	if (!r)
		r = ptx_edit_replace(replacer->edit,
				     ptx_statement_text(replacer->body,
							&replacer->body->statements[statement]),
				     whole, whole_length);
	free(whole);
	return r;
}

int probe_stub_replace(struct ptx_edit *edit, const struct probe_names *names, uint32_t statement,
		       const char *bytes, size_t length, struct ptx_error *error) {
	const struct ptx_body *body = names->body;
	struct replacer replacer = {
		.edit = edit,
		.names = names,
		.body = body,
		.text = body->module->text,
		.error = error,
	};
	struct ptx_call call;
	int r;

	if (!ptx_instruction_call(body, &body->statements[statement], &call))
		return -EINVAL;
	r = replace_call(&replacer, statement, &call, bytes, length);
	for (uint32_t i = call.returns; i < call.returns_end && !r; i++)
		if (body->tokens[i].kind == PTX_TOKEN_WORD)
			r = replace_result(&replacer, statement, i);
	return r;
}
