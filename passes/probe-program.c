/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Puts the PTX of programs into the probed module (probe-program.h).
 *
 * A program's text is parsed as a module of its own to find its global variables and functions.
 * Variables that another program has brought already (maps that programs share) are cut out; any
 * other clash of names is the caller's to hear of.
 *
 * Constant memory is the same 64 KiB for the module and for us. Where both do not fit, the
 * programs' slots move to global memory before anything else is done with the text, so that inlined
 * bodies read them there, too.
 */

#include "probe-program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe-context.h"
#include "probe-thread.h"
#include "lib/ptx/ptx-inline.h"

#define PROGRAM_HEADER ".version 9.9\n.target sm_999\n.address_size 64\n"
#define CONSTANT_BANK 65536
#define PROCESS "__gpuprobe_process" /* WIRE_PROCESS_SYMBOL of proto/wire.h */
#define PROCESS_SIZE 64
#define PARAMETERS_MAX 64
#define RAISE_TARGET_MIN 20 /* see check_target() */
#define RAISE_TARGET_END 70
#define RELAXED_TARGET 70 /* has relaxed loads */

static int program_error(struct program_set *set, const struct probe_program *program,
			 const char *what) {
	ptx_error_set(set->error, set->module->text, 0, "program %.80s: %s",
		      probe_program_label(program), what);
	return PROBE_E_PROGRAM;
}

static int taken(struct program_set *set, const char *name, size_t length) {
	ptx_error_set(set->error, set->module->text, 0, "the module already has a symbol %.*s%s",
		      length > 160 ? 160 : (int)length, name, length > 160 ? "..." : "");
	return PROBE_E_TAKEN;
}

static struct placed_name *find_placed(struct program_set *set, const char *name, size_t length) {
	for (size_t i = 0; i < set->placed_count; i++)
		if (!strncmp(set->placed[i].name, name, length) && !set->placed[i].name[length])
			return &set->placed[i];
	return NULL;
}

static int place(struct program_set *set, const char *name, size_t length, bool shared) {
	struct placed_name *larger;
	size_t capacity;

	if (set->placed_count == set->placed_capacity) {
		capacity = set->placed_capacity ? set->placed_capacity * 2 : 16;
		larger = reallocarray(set->placed, capacity, sizeof(*larger));
		if (!larger)
			return -ENOMEM;
		set->placed = larger;
		set->placed_capacity = capacity;
	}
	set->placed[set->placed_count] = (struct placed_name){ strndup(name, length), shared };
	if (!set->placed[set->placed_count].name)
		return -ENOMEM;
	set->placed_count++;
	return 0;
}

/*
 * Something brings this name. Returns 0 if it is new (and now placed), PROBE_E_TAKEN if that may
 * not be, and -EEXIST if what brings it is to be left out.
 */
static int bring(struct program_set *set, const char *name, size_t length, bool shared) {
	struct placed_name *before = find_placed(set, name, length);

	if (before && before->shared && shared)
		return -EEXIST;
	if (before || ptx_module_has_symbol(set->module, name, length))
		return taken(set, name, length);
	return place(set, name, length, shared);
}

int program_set_place(struct program_set *set, const char *name) {
	return bring(set, name, strlen(name), false);
}

static bool is_shared(const struct ptx_variable *variable) {
	return variable->linkage == PTX_LINKAGE_VISIBLE || variable->linkage == PTX_LINKAGE_EXTERN;
}

/* Cuts the global variables out that are there already. */
static int merge_variables(struct program_set *set, const struct probe_program *program,
			   const struct ptx_module *text, struct ptx_edit *edit) {
	const struct ptx_variable *variable;
	bool several;
	int r;

	for (uint32_t i = 0; i < text->variable_count; i++) {
		variable = &text->variables[i];
		several = (i && variable[-1].text.offset == variable->text.offset) ||
			  (i + 1 < text->variable_count &&
			   variable[1].text.offset == variable->text.offset);
		r = bring(set, text->text + variable->name.offset, variable->name.length,
			  is_shared(variable));
		if (r == -EEXIST && several)
			return program_error(
				set, program,
				"shares a variable that is declared together with others");
		if (r == -EEXIST)
			r = ptx_edit_replace(edit, variable->text, NULL, 0);
		if (r)
			return r;
	}
	return 0;
}

/*
 * Finds functions whose names clash. Prototypes (of vprintf) stay, though the module may have them
 * too: ptxas takes them twice, and wants one before the first call.
 */
static int check_functions(struct program_set *set, const struct ptx_module *text) {
	int r = 0;

	for (uint32_t i = 0; !r && i < text->function_count; i++)
		if (text->functions[i].body.length)
			r = bring(set, text->text + text->functions[i].name.offset,
				  text->functions[i].name.length, false);
	return r;
}

/* Is it a parameter of 8 bytes, or a result with `words` of a thread's variables behind it? */
static bool is_parameter(const struct ptx_variable *parameter, uint32_t words) {
	if (parameter->space != PTX_SPACE_PARAM || parameter->size != 8 * (1 + words))
		return false;
	return words ? parameter->array && parameter->type == PTX_TYPE_B8
		     : !parameter->array && ptx_type_size(parameter->type) == 8;
}

/* Does the program define .func (.param .b64 r) SYMBOL (.param .b64 c0, ...), as it says? */
static int check_symbol(struct program_set *set, const struct probe_program *program,
			const struct ptx_module *text) {
	const struct ptx_function *function =
		ptx_module_find_function(text, program->symbol, strlen(program->symbol));
	const uint32_t words = probe_thread_words(program);

	if (!function || function->entry || !function->body.length)
		return program_error(set, program,
				     "its text does not define a function of that name");
	if (function->return_count != 1 || function->parameter_count != program->context_count ||
	    function->parameter_count > PARAMETERS_MAX)
		return program_error(set, program,
				     "its function has not one result and one parameter for each "
				     "field that it reads");
	for (uint32_t i = 0; i <= function->parameter_count; i++) {
		const struct ptx_variable *parameter =
			i < function->parameter_count
				? &text->parameters[function->first_parameter + i]
				: &text->parameters[function->first_return];

		if (!is_parameter(parameter, i < function->parameter_count ? 0 : words))
			return program_error(set, program,
					     "its parameters and its result must be .param .b64");
	}
	for (uint32_t i = 0; i < program->context_count; i++)
		if (program->context[i] % 8 || (program->context[i] >= 8 * PROBE_FIELDS &&
						!point_is_thread(program->context[i])))
			return program_error(set, program,
					     "it reads a field that its context does not have");
	return 0;
}

/*
 * Can the module hold the program at all? A .target is raised only where the same PTX means the
 * same for both. Floating point differs before sm_20. Below sm_70 the threads of a warp may rely on
 * running together, and drivers look at the target that machine code was made from. A target with a
 * suffix, as in sm_90a, means one architecture alone.
 */
static int check_target(struct program_set *set, const struct probe_program *program) {
	const struct ptx_target *target = &set->module->target;
	const uint32_t least = program->target < RAISE_TARGET_END ? RAISE_TARGET_MIN
			       : target->suffix                   ? program->target
								  : RAISE_TARGET_END;

	if (set->capability && program->target > set->capability) {
		ptx_error_set(set->error, set->module->text, target->range.offset,
			      "program %.80s needs a GPU of sm_%u or newer, this one is sm_%u",
			      probe_program_label(program), program->target, set->capability);
		return PROBE_E_TARGET;
	}
	if (set->module->address_size == 64 && target->number >= least)
		return 0;
	ptx_error_set(set->error, set->module->text, target->range.offset,
		      "program %.80s needs PTX for sm_%u or newer with 64-bit addresses, "
		      "the module's is for %.*s with %u-bit ones",
		      probe_program_label(program), least, (int)target->range.length,
		      set->module->text + target->range.offset, set->module->address_size);
	return PROBE_E_TARGET;
}

/* Is the program one function that ptx_inline_write() understands? */
static int find_simple(struct parsed_program *parsed, uint32_t words) {
	const char *arguments[PARAMETERS_MAX];
	char *bytes = NULL;
	size_t length;
	FILE *stream;
	int r;

	parsed->simple = false;
	parsed->loops = ptx_inline_has_loop(&parsed->module);
	if (parsed->module.function_count != 1)
		return 0;
	for (size_t i = 0; i < PARAMETERS_MAX; i++)
		arguments[i] = "0";
	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	r = ptx_inline_write(stream, &parsed->module, parsed->function, arguments, arguments, words,
			     "");
	if (fclose(stream))
		r = -ENOMEM;
	free(bytes);
	parsed->simple = !r;
	parsed->block = length;
	return r < 0 ? r : 0;
}

static int find_local(struct parsed_program *parsed) {
	struct ptx_error error;
	struct ptx_body body;
	int r;

	parsed->local = 0;
	if (!parsed->simple)
		return 0;
	r = ptx_body_parse(&body, &parsed->module, parsed->function, &error);
	if (r)
		return r < 0 ? r : 0;
	for (uint32_t i = 0; i < body.variable_count; i++)
		if (body.variables[i].space == PTX_SPACE_LOCAL)
			parsed->local += body.variables[i].size;
	ptx_body_deinit(&body);
	return 0;
}

/* text becomes the program's, also on failure. */
static int parse_consume(struct program_set *set, size_t index, char *text, size_t length) {
	const struct probe_program *program = &set->programs[index];
	struct parsed_program *parsed = &set->parsed[index];
	struct ptx_error inner;
	int r;

	r = ptx_module_parse(&parsed->module, text, length, &inner);
	if (r) {
		free(text);
		if (r < 0)
			return r;
		ptx_error_set(set->error, set->module->text, 0, "program %.80s, line %u: %s",
			      probe_program_label(program), inner.line > 3 ? inner.line - 3 : 1,
			      inner.message);
		return PROBE_E_PROGRAM;
	}
	parsed->text = text;
	r = check_symbol(set, program, &parsed->module);
	if (r)
		return r;
	parsed->function =
		ptx_module_find_function(&parsed->module, program->symbol, strlen(program->symbol));
	r = find_simple(parsed, probe_thread_words(program));
	return r ? r : find_local(parsed);
}

/* Copies a program's text behind the header. `relaxed`: its volatile loads become relaxed ones. */
static char *copy_text(const struct probe_program *program, bool relaxed, size_t *length) {
	static const char from[] = PTX_LOAD_VOLATILE ".b", to[] = PTX_LOAD_RELAXED ".b";
	const char *text = program->text, *end = text + program->length, *found;
	char *copy = NULL;
	FILE *stream = open_memstream(&copy, length);

	if (!stream)
		return NULL;
	fputs(PROGRAM_HEADER, stream);
	while (relaxed && (found = memmem(text, (size_t)(end - text), from, sizeof(from) - 1))) {
		fwrite(text, 1, (size_t)(found - text), stream);
		fputs(to, stream);
		text = found + sizeof(from) - 1;
	}
	fwrite(text, 1, (size_t)(end - text), stream);
	if (!fclose(stream))
		return copy;
	free(copy);
	return NULL;
}

static int parse_program(struct program_set *set, size_t index) {
	const struct probe_program *program = &set->programs[index];
	size_t length;
	char *text;
	int r;

	r = check_target(set, program);
	if (r)
		return r;
	if (program->length > PTX_SOURCE_MAX / 2)
		return program_error(set, program, "its text is too large");
	text = copy_text(program, set->module->target.number >= RELAXED_TARGET, &length);
	if (!text)
		return -ENOMEM;
	return parse_consume(set, index, text, length);
}

static bool is_slot(const struct ptx_variable *variable) {
	return variable->space == PTX_SPACE_CONST && is_shared(variable);
}

/* Lays variables out one behind the other, as constant memory might be. */
static void add_constant(uint64_t *end, const struct ptx_variable *variable) {
	uint64_t alignment = ptx_type_size(variable->type) * (uint64_t)variable->vector;
	uint64_t size = variable->size, last = variable->count ? variable->count - 1 : 0;

	if (alignment < variable->alignment)
		alignment = variable->alignment;
	if (alignment > 1)
		*end = (*end + alignment - 1) & -alignment;
	if (__builtin_mul_overflow((size + alignment - 1) & -alignment, last, &last) ||
	    __builtin_add_overflow(size, last, &size) || __builtin_add_overflow(*end, size, end))
		*end = UINT64_MAX / 2;
}

/* Has an earlier program that slot? */
static bool is_repeated(const struct program_set *set, size_t index, const char *name,
			size_t length) {
	for (size_t i = 0; i < index; i++)
		if (set->parsed[i].text &&
		    ptx_module_find_variable(&set->parsed[i].module, name, length))
			return true;
	return false;
}

/* What the module's constants and ours take together, at the most. */
static bool constant_overflows(const struct program_set *set) {
	uint64_t end = 0, ours = 0;

	for (uint32_t i = 0; i < set->module->variable_count; i++)
		if (set->module->variables[i].space == PTX_SPACE_CONST)
			add_constant(&end, &set->module->variables[i]);
	end = (end + 7) & -UINT64_C(8);
	for (size_t i = 0; i < set->count; i++) {
		const struct ptx_module *text = &set->parsed[i].module;

		for (uint32_t j = 0; set->parsed[i].text && j < text->variable_count; j++) {
			const struct ptx_variable *variable = &text->variables[j];

			if (variable->space == PTX_SPACE_CONST &&
			    !is_repeated(set, i, text->text + variable->name.offset,
					 variable->name.length))
				add_constant(&ours, variable);
		}
	}
	return end + ours + PROCESS_SIZE > CONSTANT_BANK;
}

/* The name in [NAME] or [NAME+...], if the operand is of that form. */
static const struct ptx_token *address_name(const struct ptx_body *body,
					    const struct ptx_statement *statement,
					    uint32_t operand) {
	const struct ptx_operand *range;

	if (operand >= statement->operand_count)
		return NULL;
	range = &body->operands[statement->first_operand + operand];
	if (range->end - range->first < 3 ||
	    !ptx_token_is_char(body->module->text, &body->tokens[range->first], '['))
		return NULL;
	return &body->tokens[range->first + 1];
}

/* ld.const of slots becomes ld.global. */
static int move_loads(const struct ptx_module *text, const struct ptx_function *function,
		      struct ptx_edit *edit) {
	const struct ptx_variable *variable;
	const struct ptx_token *name;
	struct ptx_error error;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, text, function, &error);
	if (r)
		return r < 0 ? r : 0; /* as ptxas will say */
	for (uint32_t i = 0; !r && i < body.statement_count; i++) {
		const struct ptx_statement *statement = &body.statements[i];

		if (!ptx_instruction_is(&body, statement, "ld") ||
		    !ptx_instruction_has(&body, statement, "const"))
			continue;
		name = address_name(&body, statement, 1);
		variable = name ? ptx_module_find_variable(text, text->text + name->offset,
							   name->length)
				: NULL;
		if (!variable || !is_slot(variable))
			continue;
		for (unsigned int part = 1;; part++) {
			struct ptx_range range = ptx_instruction_part(&body, statement, part);

			if (!ptx_range_is(text->text, range, "const"))
				continue;
			r = ptx_edit_replace(edit, range, "global", 6);
			break;
		}
	}
	ptx_body_deinit(&body);
	return r;
}

/* .const of a slot's declaration becomes .global. */
static int move_slot(const struct ptx_module *text, const struct ptx_variable *variable,
		     struct ptx_edit *edit) {
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	int r;

	ptx_lexer_init(&lexer, text->text, variable->text.offset,
		       variable->text.offset + variable->text.length);
	do {
		r = ptx_lexer_next(&lexer, &token, &error);
		if (!r && ptx_token_is(text->text, &token, ".const"))
			return ptx_edit_replace(edit,
						(struct ptx_range){ token.offset, token.length },
						".global", 7);
	} while (!r && token.kind != PTX_TOKEN_END);
	return r < 0 ? r : -EINVAL; /* it was parsed before */
}

/* Moves the program's slots out of constant memory: it is parsed once more. */
static int move_constants(struct program_set *set, size_t index) {
	struct parsed_program *parsed = &set->parsed[index];
	const struct ptx_module *text = &parsed->module;
	struct ptx_edit *edit;
	char *moved = NULL;
	size_t length;
	int r;

	r = ptx_edit_new(&edit, text->text, text->length);
	if (r)
		return r;
	for (uint32_t i = 0; !r && i < text->variable_count; i++)
		if (is_slot(&text->variables[i]) &&
		    (!i || text->variables[i - 1].text.offset != text->variables[i].text.offset))
			r = move_slot(text, &text->variables[i], edit);
	for (uint32_t i = 0; !r && i < text->function_count; i++)
		if (text->functions[i].body.length)
			r = move_loads(text, &text->functions[i], edit);
	if (!r)
		r = ptx_edit_apply(edit, &moved, &length);
	ptx_edit_free(edit);
	if (r)
		return r < 0 ? r : -EINVAL; /* no two edits overlap */
	ptx_module_deinit(&parsed->module);
	free(parsed->text);
	parsed->text = NULL;
	return parse_consume(set, index, moved, length);
}

int program_set_parse(struct program_set *set, const bool *listed) {
	int r = 0;

	set->parsed = calloc(set->count + 1, sizeof(*set->parsed));
	if (!set->parsed)
		return -ENOMEM;
	for (size_t i = 0; i < set->count && !r; i++)
		if (listed[i])
			r = parse_program(set, i);
	if (r || !constant_overflows(set))
		return r;
	set->constant_full = true;
	for (size_t i = 0; i < set->count && !r; i++)
		if (set->parsed[i].text)
			r = move_constants(set, i);
	return r;
}

/* Puts what is left of the program's text into the module. */
static int insert_rest(struct program_set *set, const struct ptx_edit *edit) {
	static const size_t header = sizeof(PROGRAM_HEADER) - 1;
	size_t length;
	char *rest;
	int r;

	r = ptx_edit_apply(edit, &rest, &length);
	if (r > 0)
		return -EINVAL; /* no two cuts overlap */
	if (r)
		return r;
	r = ptx_edit_insert_after_header(set->edit, set->module, rest + header, length - header);
	free(rest);
	return r;
}

/* Adds one program to the module: its variables, and its functions if it is called. */
static int insert_program(struct program_set *set, size_t index) {
	const struct probe_program *program = &set->programs[index];
	const struct parsed_program *parsed = &set->parsed[index];
	const struct ptx_module *text = &parsed->module;
	struct ptx_edit *edit;
	int r;

	r = ptx_edit_new(&edit, text->text, text->length);
	if (r)
		return r;
	r = merge_variables(set, program, text, edit);
	if (!r && parsed->called)
		r = check_functions(set, text);
	else if (!r)
		r = ptx_edit_replace(edit, parsed->function->text, NULL, 0);
	if (!r)
		r = insert_rest(set, edit);
	ptx_edit_free(edit);
	if (r)
		return r;
	r = ptx_edit_raise_version(set->edit, set->module, program->isa);
	if (!r || r == PTX_EDIT_E_KEPT)
		r = ptx_edit_raise_target(set->edit, set->module, program->target);
	return r == PTX_EDIT_E_KEPT ? 0 : r;
}

int program_set_insert(struct program_set *set) {
	char line[96];
	int r = 0;

	for (size_t i = 0; i < set->count && !r; i++)
		if (set->parsed[i].used)
			r = insert_program(set, i);
	if (r || !set->needs_process)
		return r;
	r = bring(set, PROCESS, strlen(PROCESS), true);
	if (r)
		return r == -EEXIST ? 0 : r;
	snprintf(line, sizeof(line), ".visible .%s .align 8 .b8 " PROCESS "[%d];\n",
		 set->constant_full ? "global" : "const", PROCESS_SIZE);
	return ptx_edit_insert_after_header(set->edit, set->module, line, strlen(line));
}

void program_set_deinit(struct program_set *set) {
	for (size_t i = 0; i < set->placed_count; i++)
		free(set->placed[i].name);
	free(set->placed);
	for (size_t i = 0; set->parsed && i < set->count; i++) {
		if (set->parsed[i].text)
			ptx_module_deinit(&set->parsed[i].module);
		free(set->parsed[i].text);
	}
	free(set->parsed);
}
