/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as PTX: parse, read all bodies, write unedited (must be identical), then
 * probes at every kind of point of every function, called and inlined, with and without stubs. What
 * comes out of that must parse, must hold the source as a subsequence of its bytes (where no call
 * of a stub goes), and refuses a second pass. A text that begins with '!' is a program's instead,
 * put into a fixed module.
 */

#include "passes/probe.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)          \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

#define USES 8

static const char program_text[] =
	".visible .const .align 8 .u64 __fuzz_map;\n"
	".func (.param .b64 r) __fuzz_program (.param .b64 c0, .param .b64 c1, .param .b64 c2, "
	".param .b64 c3, .param .b64 c4)\n{\n"
	"\t.reg .b64 %rd<3>;\n\tld.const.b64 %rd1, [__fuzz_map];\n\tld.param.b64 %rd2, "
	"[c1];\n\tst.param.b64 [r], 0;\n\tret;\n}\n";
static const uint16_t fields[] = { 0, 8, 16, 40, 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct ptx_error *error, const char *text, size_t length) {
	CHECK(error->offset <= length && error->line >= 1 && error->column >= 1 &&
	      error->message[0]);
	CHECK(strlen(error->message) < sizeof(error->message) && !strchr(error->message, '\n'));
}

/* Everything a body says must lie within it. */
static void check_body(const struct ptx_body *body) {
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

static bool bodies_good(const struct ptx_module *module) {
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

static bool is_subsequence(const char *part, size_t part_length, const char *whole, size_t length) {
	size_t at = 0;

	for (size_t i = 0; i < length && at < part_length; i++)
		at += whole[i] == part[at];
	return at == part_length;
}

static void check_instructions(const struct ptx_module *module, const struct probe_result *result) {
	for (size_t i = 0; i < result->n_instructions; i++) {
		const struct probe_instruction *one = &result->instructions[i];

		CHECK(one->index == i && one->text.length);
		CHECK(one->text.offset >= one->function->body.offset &&
		      one->text.offset + one->text.length <
			      one->function->body.offset + one->function->body.length);
		CHECK(one->file.offset + one->file.length <= module->length);
		CHECK(!i || one->text.offset > one[-1].text.offset);
	}
}

/* Probes every function everywhere. Returns the new text, malloced, or NULL. */
static char *probe(const struct ptx_module *module, const struct probe_program *program,
		   const struct probe_options *options, size_t *length, uint32_t *sites) {
	static const struct probe_use everywhere[USES] = {
		{ .point = POINT_ENTRY },
		{ .point = POINT_RETURN },
		{ .point = POINT_MEMORY, .spaces = 0x3f },
		{ .point = POINT_MEMORY, .spaces = 2 },
		{ .point = POINT_LINE, .file = "x.cu", .line = 1 },
		{ .point = POINT_BLOCK },
		{ .point = POINT_BLOCK, .block = 2 },
		{ .point = POINT_ENTRY },
	};
	struct probe_function *functions;
	struct probe_result result = { 0 };
	struct ptx_error error = { 0 };
	struct probe_use *uses;
	struct ptx_edit *edit;
	char *out = NULL;
	int r;

	*sites = 0;
	functions = calloc(module->function_count + 1, sizeof(*functions));
	uses = calloc((size_t)module->function_count + 1, sizeof(everywhere));
	CHECK(functions && uses && !ptx_edit_new(&edit, module->text, module->length));
	for (uint32_t i = 0; i < module->function_count; i++) {
		functions[i] = (struct probe_function){ &module->functions[i],
							uses + (size_t)i * USES, USES };
		memcpy(functions[i].uses, everywhere, sizeof(everywhere));
	}
	r = probe_apply(edit, module, options, program, 1, functions, module->function_count,
			&result, &error);
	CHECK(r >= 0);
	if (r) {
		check_error(&error, module->text, module->length);
	} else {
		CHECK(!ptx_edit_apply(edit, &out, length));
		check_instructions(module, &result);
		for (uint32_t i = 0; i < module->function_count * USES; i++)
			*sites += uses[i].sites;
	}
	ptx_edit_free(edit);
	free(result.instructions);
	free(uses);
	free(functions);
	return out;
}

/* One way of probing it. */
static void fuzz_way(const struct ptx_module *module, bool good, bool call, bool stubs) {
	static const char *const names[] = { "stub", "ns::stub" };
	const struct probe_program program = {
		.symbol = "__fuzz_program",
		.text = program_text,
		.length = sizeof(program_text) - 1,
		.target = 1,
		.context = fields,
		.context_count = sizeof(fields) / sizeof(fields[0]),
	};
	const struct probe_options options = {
		.stubs = names, .n_stubs = stubs ? 2 : 0, .image = 1, .call = call
	};
	struct ptx_module again;
	struct ptx_error error;
	uint32_t sites, none;
	size_t length;
	char *out, *twice;

	out = probe(module, &program, &options, &length, &sites);
	if (!out)
		return;
	CHECK(good && (stubs || is_subsequence(module->text, module->length, out, length)));
	CHECK(!ptx_module_parse(&again, out, length, &error));
	CHECK(bodies_good(&again) && again.function_count >= module->function_count);
	CHECK(!call || (again.function_count > module->function_count) == !!sites);
	twice = probe(&again, &program, &options, &length, &none);
	CHECK(!twice == !!sites);
	free(twice);
	ptx_module_deinit(&again);
	free(out);
}

static void fuzz_module(const char *text, size_t length) {
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_edit *edit;
	size_t out_length;
	char *out;
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
	for (int way = 0; way < 4; way++)
		fuzz_way(&module, good, way & 1, way & 2);
	ptx_module_deinit(&module);
}

/* A program, with room in the constant bank and without. */
static void fuzz_program(const char *text, size_t length) {
	static const char *const hosts[] = {
		".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
		".version 8.0\n.target sm_80\n.address_size 64\n.const .b8 c[65536];\n.visible "
		".entry k() { ret; }\n",
	};
	struct probe_program program = { .symbol = "p",
					 .text = text,
					 .length = length,
					 .isa = 63,
					 .target = 52,
					 .context = fields };
	struct ptx_module module, again;
	struct ptx_error error = { 0 };
	size_t out_length;
	uint32_t sites;
	char *out;

	for (int way = 0; way < 8; way++) {
		const struct probe_options options = { .call = way & 1 };

		program.context_count = way & 4 ? 1 : 0;
		CHECK(!ptx_module_parse(&module, hosts[(way & 2) / 2], strlen(hosts[(way & 2) / 2]),
					&error));
		out = probe(&module, &program, &options, &out_length, &sites);
		if (out) {
			CHECK(sites == 4 && !ptx_module_parse(&again, out, out_length, &error));
			if (ptx_module_find_function(&again, "__probe_func__k", 15))
				CHECK(ptx_module_find_function(&again, "p", 1));
			else
				CHECK(!options.call && bodies_good(&again));
			ptx_module_deinit(&again);
		}
		free(out);
		ptx_module_deinit(&module);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
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
