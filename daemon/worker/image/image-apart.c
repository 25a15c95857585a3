/* SPDX-License-Identifier: Apache-2.0 */

/* Makes values of a warp ones of its threads (image-apart.h). */

#include "image-apart.h"

#include <errno.h>
#include <string.h>

/* Special registers that all threads of a warp have the same value in; beginnings of names. */
static const char *const specials[] = {
	"%ntid",
	"%ctaid",
	"%nctaid",
	"%smid",
	"%nsmid",
	"%warpid",
	"%nwarpid",
	"%gridid",
	"%dynamic_smem_size",
	"%total_smem_size",
	"%cluster",
	"%ncluster",
};

static bool is_special(const char *text, const struct ptx_token *token) {
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++) {
		const size_t length = strlen(specials[i]);

		if (token->length >= length && !memcmp(text + token->offset, specials[i], length))
			return true;
	}
	return false;
}

/* The first token of an operand; NULL: there is none. */
static const struct ptx_token *operand_token(const struct ptx_body *body,
					     const struct ptx_statement *statement, uint32_t n) {
	return n < statement->operand_count
		       ? &body->tokens[body->operands[statement->first_operand + n].first]
		       : NULL;
}

/* Bits of what an instruction writes: by its last part. 0: neither 32 nor 64. */
static unsigned bits_of(const struct ptx_body *body, const struct ptx_statement *statement) {
	static const char *const types[] = { "u32", "b32", "s32", "u64", "b64", "s64" };

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (ptx_instruction_has(body, statement, types[i]))
			return i < 3 ? 32 : 64;
	return 0;
}

/* Is what an instruction writes the same in a whole warp, whatever its operands? */
static bool is_uniform(const struct ptx_body *body, const struct ptx_statement *statement) {
	const char *text = body->module->text;
	const struct ptx_token *source = operand_token(body, statement, 1);

	if (ptx_instruction_is(body, statement, "activemask"))
		return true;
	if (ptx_instruction_is(body, statement, "ld"))
		return ptx_instruction_has(body, statement, "const") ||
		       ptx_instruction_has(body, statement, "param");
	if (!ptx_instruction_is(body, statement, "mov") || !source ||
	    source->kind != PTX_TOKEN_WORD)
		return false;
	return text[source->offset] != '%' || is_special(text, source); /* or an address */
}

static int add_zero(struct ptx_edit *edit, const struct ptx_body *body,
		    const struct ptx_statement *statement) {
	const struct ptx_range range = ptx_statement_text(body, statement);
	const struct ptx_token *result = operand_token(body, statement, 0);
	const unsigned bits = bits_of(body, statement);

	if (!bits || !result || result->kind != PTX_TOKEN_WORD)
		return 0; /* the rewriter finds what is left */
	return ptx_edit_insertf(edit, range.offset + range.length,
				"\n\tor.b%u %.*s, %.*s, %%gpuprobe_zero%u;", bits,
				(int)result->length, body->module->text + result->offset,
				(int)result->length, body->module->text + result->offset, bits);
}

int image_apart(struct ptx_edit *edit, const struct ptx_module *module,
		const struct ptx_function *kernel) {
	struct ptx_error error;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, module, kernel, &error);
	if (r)
		return r < 0 ? r : -EINVAL;
	for (uint32_t i = 0; !r && i < body.statement_count; i++) {
		const struct ptx_statement *statement = &body.statements[i];

		if (statement->opcode != PTX_NONE && statement->guard == PTX_NONE &&
		    is_uniform(&body, statement))
			r = add_zero(edit, &body, statement);
	}
	ptx_body_deinit(&body);
	return r;
}
