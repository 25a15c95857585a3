/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Parses the patch form of a program and checks that it fits into a patch (patch-program.h).
 *
 * A patch runs wherever an instruction of its class does, also where half a warp is: what waits for
 * other threads would hang a kernel, what ends a thread would change it. Shared and constant memory
 * are the kernel's own, and ptxas does not take them. ptxas takes the barriers, so they are looked
 * for here.
 */

#include "patch-program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_HEADER ".version 9.9\n.target sm_999\n.address_size 64\n"
#define NAME(module, range) \
	(int)((range).length < 80 ? (range).length : 80), (module)->text + (range).offset

__attribute__((format(printf, 3, 4))) static int unfit(const struct patch_program *parsed,
						       struct ptx_error *error, const char *format,
						       ...) {
	char what[160];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	snprintf(error->message, sizeof(error->message), "program %.60s: %s",
		 probe_program_label(parsed->program), what);
	return PATCH_PROGRAM_E_UNFIT;
}

/* .func (.param .b64 r) SYMBOL(.param .b64 slots, one for each field that it reads) */
static int check_symbol(struct patch_program *parsed, struct ptx_error *error) {
	const struct ptx_module *module = &parsed->module;
	const struct probe_program *program = parsed->program;
	const struct ptx_function *function =
		ptx_module_find_function(module, program->symbol, strlen(program->symbol));

	if (!function || function->entry || !function->body.length)
		return unfit(parsed, error, "its text does not define a function of that name");
	if (function->return_count != 1 || function->parameter_count != program->context_count + 1)
		return unfit(parsed, error,
			     "its function has not one result, a parameter for its slots, and one "
			     "for each field that it reads");
	for (uint32_t i = 0; i <= function->parameter_count; i++) {
		const struct ptx_variable *variable =
			i < function->parameter_count
				? &module->parameters[function->first_parameter + i]
				: &module->parameters[function->first_return];

		if (variable->space != PTX_SPACE_PARAM || variable->size != 8 || variable->array ||
		    ptx_type_size(variable->type) != 8)
			return unfit(parsed, error,
				     "its parameters and its result must be .param .b64");
	}
	parsed->function = function;
	return 0;
}

static int check_variable(const struct patch_program *parsed, const struct ptx_variable *variable,
			  struct ptx_error *error) {
	if (variable->space == PTX_SPACE_SHARED || variable->space == PTX_SPACE_CONST)
		return unfit(parsed, error, "%.*s is in .%s memory, which a patch has none of",
			     NAME(&parsed->module, variable->name),
			     variable->space == PTX_SPACE_SHARED ? "shared" : "const");
	return 0;
}

static int check_instruction(const struct patch_program *parsed, const struct ptx_body *body,
			     const struct ptx_statement *statement, struct ptx_error *error) {
	static const char *const refused[] = { "bar", "barrier", "mbarrier", "exit" };
	struct ptx_range text;

	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		if (!ptx_instruction_is(body, statement, refused[i]) ||
		    (!i && ptx_instruction_has(body, statement, "warp"))) /* of its own threads */
			continue;
		text = ptx_statement_text(body, statement);
		return unfit(parsed, error, "`%.*s` in a patch would hang or end its kernel",
			     NAME(&parsed->module, text));
	}
	return 0;
}

static int check_body(const struct patch_program *parsed, const struct ptx_function *function,
		      struct ptx_error *error) {
	struct ptx_error inner = {};
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, &parsed->module, function, &inner);
	if (r)
		return r < 0 ? r
			     : unfit(parsed, error, "line %u: %.100s", inner.line - 3,
				     inner.message);
	for (uint32_t i = 0; !r && i < body.variable_count; i++)
		r = check_variable(parsed, &body.variables[i], error);
	for (uint32_t i = 0; !r && i < body.statement_count; i++)
		if (body.statements[i].kind == PTX_STATEMENT_INSTRUCTION)
			r = check_instruction(parsed, &body, &body.statements[i], error);
	ptx_body_deinit(&body);
	return r;
}

static int check(struct patch_program *parsed, struct ptx_error *error) {
	const struct ptx_module *module = &parsed->module;
	int r;

	r = check_symbol(parsed, error);
	for (uint32_t i = 0; !r && i < module->variable_count; i++)
		r = check_variable(parsed, &module->variables[i], error);
	for (uint32_t i = 0; !r && i < module->function_count; i++) {
		if (module->functions[i].entry)
			return unfit(parsed, error, "it has a kernel");
		if (module->functions[i].body.length)
			r = check_body(parsed, &module->functions[i], error);
	}
	return r;
}

int patch_program_parse(struct patch_program *parsed, const struct probe_program *program,
			struct ptx_error *error) {
	size_t length = sizeof(PROGRAM_HEADER) - 1 + program->length;
	struct ptx_error inner = {};
	int r;

	*parsed = (struct patch_program){ .program = program };
	parsed->text = malloc(length + 1);
	if (!parsed->text)
		return -ENOMEM;
	memcpy(mempcpy(parsed->text, PROGRAM_HEADER, sizeof(PROGRAM_HEADER) - 1), program->text,
	       program->length);
	r = ptx_module_parse(&parsed->module, parsed->text, length, &inner);
	if (r) {
		free(parsed->text);
		parsed->text = NULL;
		return r < 0 ? r
			     : unfit(parsed, error, "line %u: %.100s",
				     inner.line > 3 ? inner.line - 3 : 1, inner.message);
	}
	return check(parsed, error);
}

void patch_program_deinit(struct patch_program *parsed) {
	if (parsed->text)
		ptx_module_deinit(&parsed->module);
	free(parsed->text);
	*parsed = (struct patch_program){};
}

static struct patch_symbol *find_symbol(struct patch_symbols *symbols, const char *name) {
	for (size_t i = 0; i < symbols->n; i++)
		if (!strcmp(symbols->symbols[i].name, name))
			return &symbols->symbols[i];
	return NULL;
}

/*
 * Something brings a name: 0, if it is new; -EEXIST, if the same variable is there already; or it
 * is unfit. `declaration` of a function has length 0.
 */
static int bring(const struct patch_program *parsed, struct patch_symbols *symbols,
		 struct ptx_range range, struct ptx_range declaration, struct ptx_error *error) {
	const char *text = parsed->module.text;
	char *name = strndup(text + range.offset, range.length), *statement = NULL;
	struct patch_symbol *there, *more;

	if (declaration.length)
		statement = strndup(text + declaration.offset, declaration.length);
	if (!name || (declaration.length && !statement))
		goto no_memory;
	there = find_symbol(symbols, name);
	if (there) {
		int r = statement && there->text && !strcmp(statement, there->text)
				? -EEXIST
				: unfit(parsed, error, "another program has a symbol %.100s", name);

		free(name);
		free(statement);
		return r;
	}
	if (symbols->n == symbols->n_allocated) {
		size_t n = symbols->n ? 2 * symbols->n : 16;

		more = reallocarray(symbols->symbols, n, sizeof(*more));
		if (!more)
			goto no_memory;
		symbols->symbols = more;
		symbols->n_allocated = n;
	}
	symbols->symbols[symbols->n++] = (struct patch_symbol){ name, statement };
	return 0;

no_memory:
	free(name);
	free(statement);
	return -ENOMEM;
}

void patch_symbols_deinit(struct patch_symbols *symbols) {
	for (size_t i = 0; i < symbols->n; i++) {
		free(symbols->symbols[i].name);
		free(symbols->symbols[i].text);
	}
	free(symbols->symbols);
	*symbols = (struct patch_symbols){};
}

/* Cuts out what is not to be there. */
static int cut(const struct patch_program *parsed, struct patch_symbols *symbols,
	       struct ptx_edit *edit, struct ptx_error *error) {
	const struct ptx_module *module = &parsed->module;
	int r = 0;

	for (uint32_t i = 0; !r && i < module->variable_count; i++) {
		const struct ptx_variable *variable = &module->variables[i];

		r = bring(parsed, symbols, variable->name, variable->text, error);
		if (r == -EEXIST)
			r = ptx_edit_replace(edit, variable->text, NULL, 0);
	}
	for (uint32_t i = 0; !r && i < module->function_count; i++) {
		const struct ptx_function *function = &module->functions[i];

		if (function == parsed->function && !parsed->called)
			r = ptx_edit_replace(edit, function->text, NULL, 0);
		else if (function->body.length)
			r = bring(parsed, symbols, function->name, (struct ptx_range){}, error);
	}
	return r;
}

int patch_program_write(FILE *stream, const struct patch_program *parsed,
			struct patch_symbols *symbols, struct ptx_error *error) {
	static const size_t header = sizeof(PROGRAM_HEADER) - 1;
	struct ptx_edit *edit;
	char *text = NULL;
	size_t length;
	int r;

	r = ptx_edit_new(&edit, parsed->module.text, parsed->module.length);
	if (r)
		return r;
	r = cut(parsed, symbols, edit, error);
	if (!r) {
		r = ptx_edit_apply(edit, &text, &length);
		if (r > 0) /* x, y; of one statement, of which another program has x alone */
			r = unfit(parsed, error, "shares variables that are declared together");
	}
	ptx_edit_free(edit);
	if (!r) {
		fwrite(text + header, 1, length - header, stream);
		fputc('\n', stream);
	}
	free(text);
	return r;
}
