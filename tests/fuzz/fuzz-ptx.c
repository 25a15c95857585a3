/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as PTX: parse, read all bodies, write unedited (must be identical), then kprobe_entry
 * on every kernel. What comes out of that must parse, must hold the source as a subsequence of its
 * bytes, and refuses a second pass. A text that begins with '!' is a program's instead, put into a
 * fixed module.
 */

#include "kprobe-entry.h"

#include <stdlib.h>

#define CHECK(condition)          \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static const char program_text[] =
	".visible .global .align 8 .u64 __fuzz_map = 0;\n"
	".func (.param .b64 r) __fuzz_program (.param .b64 ctx)\n{\n\tst.param.b64 [r], 0;\n\tret;\n}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct ptx_error *error, const char *text, size_t length)
{
	CHECK(error->offset <= length && error->line >= 1 && error->column >= 1 &&
	      error->message[0]);
	CHECK(strlen(error->message) < sizeof(error->message) && !strchr(error->message, '\n'));
}

/* Everything a body says must lie within it. */
static void check_body(const struct ptx_body *body)
{
	uint32_t next = 0, begin = body->function->body.offset,
		 end = begin + body->function->body.length;
	const struct ptx_statement *statement;
	struct ptx_call call;

	for (uint32_t i = 0; i < body->token_count; i++)
		CHECK(body->tokens[i].offset >= begin &&
		      body->tokens[i].offset + body->tokens[i].length <= end);
	for (uint32_t i = 0; i < body->statement_count; i++) {
		statement = &body->statements[i];
		CHECK(statement->first == next && statement->end > next &&
		      statement->end <= body->token_count);
		next = statement->end;
		if (statement->partner != PTX_NONE)
			CHECK(body->statements[statement->partner].partner == i);
		for (uint32_t j = 0; j < statement->operand_count; j++) {
			const struct ptx_operand *operand =
				&body->operands[statement->first_operand + j];

			CHECK(operand->first >= statement->first && operand->first < operand->end &&
			      operand->end < statement->end);
		}
		if (ptx_instruction_call(body, statement, &call)) {
			CHECK(call.target < body->token_count);
			CHECK(call.returns <= call.returns_end &&
			      call.returns_end <= body->token_count);
			CHECK(call.arguments <= call.arguments_end &&
			      call.arguments_end <= body->token_count);
		}
		(void)ptx_instruction_has(body, statement, "no_such_part");
		CHECK(ptx_statement_text(body, statement).length > 0);
	}
	CHECK(next == body->token_count);
}

static bool bodies_good(const struct ptx_module *module)
{
	struct ptx_error error;
	struct ptx_body body;
	bool good = true;

	for (uint32_t i = 0; i < module->function_count; i++) {
		if (!module->functions[i].body.length)
			continue;
		if (ptx_body_parse(&body, module, &module->functions[i], &error)) {
			check_error(&error, module->text, module->length);
			good = false;
			continue;
		}
		check_body(&body);
		ptx_body_deinit(&body);
	}
	return good;
}

static bool is_subsequence(const char *part, size_t part_length, const char *whole, size_t length)
{
	size_t at = 0;

	for (size_t i = 0; i < length && at < part_length; i++)
		at += whole[i] == part[at];
	return at == part_length;
}

/* Probes every kernel. Returns the new text, malloced, or NULL. */
static char *probe(const struct ptx_module *module, const struct kprobe_entry_program *program,
		   bool inlined, size_t *length, uint32_t *applied)
{
	static const uint32_t first[] = { 0 };
	const struct ptx_function *kernel = NULL;
	struct kprobe_entry_kernel *kernels;
	struct ptx_error error = { 0 };
	struct ptx_edit *edit;
	char *out = NULL;
	size_t count = 0;
	int r;

	*applied = 0;
	kernels = calloc(module->function_count + 1, sizeof(*kernels));
	CHECK(kernels && !ptx_edit_new(&edit, module->text, module->length));
	while ((kernel = ptx_module_next_kernel(module, kernel)))
		kernels[count++] =
			(struct kprobe_entry_kernel){ kernel, first, 1, false, inlined };
	r = kprobe_entry_apply(edit, module, program, 1, kernels, count, &error);
	CHECK(r >= 0);
	if (r)
		check_error(&error, module->text, module->length);
	else
		CHECK(!ptx_edit_apply(edit, &out, length));
	for (size_t i = 0; i < count; i++)
		*applied += kernels[i].applied;
	ptx_edit_free(edit);
	free(kernels);
	return out;
}

static void fuzz_module(const char *text, size_t length)
{
	const struct kprobe_entry_program program = {
		.symbol = "__fuzz_program",
		.text = program_text,
		.length = sizeof(program_text) - 1,
		.isa = 0,
		.target = 1,
	};
	struct ptx_module module, again;
	struct ptx_error error = { 0 };
	struct ptx_edit *edit;
	size_t out_length;
	uint32_t applied, none;
	char *out, *twice;
	bool good;

	if (ptx_module_parse(&module, text, length, &error)) {
		check_error(&error, text, length);
		return;
	}
	good = bodies_good(&module);
	CHECK(!ptx_edit_new(&edit, text, length) && !ptx_edit_apply(edit, &out, &out_length));
	CHECK(out_length == length && !memcmp(out, text, length));
	ptx_edit_free(edit);
	free(out);
	out = probe(&module, &program, false, &out_length, &applied);
	if (out) {
		CHECK(is_subsequence(text, length, out, out_length));
		CHECK(!ptx_module_parse(&again, out, out_length, &error));
		CHECK(again.function_count == module.function_count + applied + !!applied);
		CHECK(bodies_good(&again) == good);
		twice = probe(&again, &program, false, &out_length, &none);
		CHECK(!twice == !!applied);
		free(twice);
		ptx_module_deinit(&again);
	}
	free(out);
	out = probe(&module, &program, true, &out_length, &applied);
	if (out) {
		CHECK(is_subsequence(text, length, out, out_length));
		CHECK(!ptx_module_parse(&again, out, out_length, &error));
		CHECK(bodies_good(&again) == good);
		ptx_module_deinit(&again);
	}
	free(out);
	ptx_module_deinit(&module);
}

static void fuzz_program(const char *text, size_t length)
{
	static const char host[] =
		".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
	const struct kprobe_entry_program program = {
		.symbol = "p", .text = text, .length = length, .isa = 63, .target = 52
	};
	struct ptx_module module, again;
	struct ptx_error error = { 0 };
	size_t out_length;
	uint32_t applied;
	char *out;

	CHECK(!ptx_module_parse(&module, host, sizeof(host) - 1, &error));
	for (int inlined = 0; inlined < 2; inlined++) {
		out = probe(&module, &program, inlined, &out_length, &applied);
		if (!out)
			continue;
		CHECK(applied == 1 && !ptx_module_parse(&again, out, out_length, &error));
		if (ptx_module_find_function(&again, "__probe_func__k", 15))
			CHECK(ptx_module_find_function(&again, "p", 1));
		else
			CHECK(inlined && bodies_good(&again));
		ptx_module_deinit(&again);
		free(out);
	}
	ptx_module_deinit(&module);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy =
		malloc(size ?: 1); /* exactly as long: a sanitizer sees what is read behind it */

	CHECK(copy);
	if (size && data[0] == '!') {
		memcpy(copy, data + 1, size - 1);
		fuzz_program(copy, size - 1);
	} else {
		if (size)
			memcpy(copy, data, size);
		fuzz_module(copy, size);
	}
	free(copy);
	return 0;
}
