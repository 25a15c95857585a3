/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two places of a module change: behind its header go the programs and one function per kernel, and
 * each kernel gets
 *
 *	{
 *	call __probe_func__<kernel>;
 *	}
 *
 * (or the programs' bodies themselves: kprobe_entry_kernel.inlined) as its first statement, behind
 * the declarations it begins with. It stands before the first label, so a loop to the kernel's
 * beginning does not come by again; and before the first .loc and .pragma, because a pragma may
 * speak of the instruction after it. Nothing has .noinline.
 *
 * A program's text is parsed as a module of its own to find its global variables and functions.
 * Variables that another program has brought already (maps that programs share) are cut out; any
 * other clash of names is the caller's to hear of.
 */

#include "kprobe-entry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx-inline.h"

#define PREFIX "__probe_func__"
#define INLINE_MAX 16384 /* bytes of a kernel's programs that are put into it */
#define INLINE_TOTAL_MAX ((size_t)16 << 20) /* of all kernels; the others call */
#define PROGRAM_HEADER ".version 9.9\n.target sm_999\n.address_size 64\n"

static const char *const no_context[] = { "0" };

/* A program, parsed as a module of its own. */
struct parsed {
	char *text;
	struct ptx_module module;
	bool called; /* by a kernel that does not have it inlined: its functions are needed */
	bool simple; /* its one function can be inlined */
};

/* A name that is in the new module and was not in the old one. */
struct placed {
	char *name;
	bool shared; /* another program may bring it again: it is dropped then */
};

struct pass {
	struct ptx_edit *edit;
	const struct ptx_module *module;
	const struct kprobe_entry_program *programs;
	size_t program_count;
	bool *used; /* by program */
	struct parsed *parsed; /* by program; text NULL: not used */
	struct placed *placed;
	size_t placed_count, placed_capacity;
	struct ptx_error *error;
};

/* An error about a program. */
static int program_error(struct pass *pass, const struct kprobe_entry_program *program,
			 const char *what)
{
	ptx_error_set(pass->error, pass->module->text, 0, "program %.80s: %s", program->symbol,
		      what);
	return KPROBE_ENTRY_E_PROGRAM;
}

static int taken(struct pass *pass, const char *name)
{
	ptx_error_set(pass->error, pass->module->text, 0,
		      "the module already has a symbol %.160s%s", name,
		      strlen(name) > 160 ? "..." : "");
	return KPROBE_ENTRY_E_TAKEN;
}

static struct placed *find_placed(struct pass *pass, const char *name, size_t length)
{
	for (size_t i = 0; i < pass->placed_count; i++)
		if (!strncmp(pass->placed[i].name, name, length) && !pass->placed[i].name[length])
			return &pass->placed[i];
	return NULL;
}

static int place(struct pass *pass, const char *name, size_t length, bool shared)
{
	struct placed *larger;
	size_t capacity;

	if (pass->placed_count == pass->placed_capacity) {
		capacity = pass->placed_capacity ? pass->placed_capacity * 2 : 16;
		larger = reallocarray(pass->placed, capacity, sizeof(*larger));
		if (!larger)
			return -ENOMEM;
		pass->placed = larger;
		pass->placed_capacity = capacity;
	}
	pass->placed[pass->placed_count] = (struct placed){ strndup(name, length), shared };
	if (!pass->placed[pass->placed_count].name)
		return -ENOMEM;
	pass->placed_count++;
	return 0;
}

/*
 * A program brings this name. Returns 0 if it is new (and now placed), KPROBE_ENTRY_E_TAKEN if that
 * may not be, and -EEXIST if the statement that brings it is to be cut out.
 */
static int bring(struct pass *pass, const struct ptx_module *text, struct ptx_range range,
		 bool shared)
{
	const char *name = text->text + range.offset;
	struct placed *before;
	char *copy;
	int r;

	before = find_placed(pass, name, range.length);
	if (before && before->shared && shared)
		return -EEXIST;
	if (!before && !ptx_module_has_symbol(pass->module, name, range.length))
		return place(pass, name, range.length, shared);
	copy = strndup(name, range.length);
	if (!copy)
		return -ENOMEM;
	r = taken(pass, copy);
	free(copy);
	return r;
}

/* Cuts the global variables out that are there already. */
static int merge_variables(struct pass *pass, const struct kprobe_entry_program *program,
			   const struct ptx_module *text, struct ptx_edit *edit)
{
	const struct ptx_variable *variable;
	bool shared, several;
	int r;

	for (uint32_t i = 0; i < text->variable_count; i++) {
		variable = &text->variables[i];
		shared = variable->linkage == PTX_LINKAGE_VISIBLE ||
			 variable->linkage == PTX_LINKAGE_EXTERN;
		several = (i && variable[-1].text.offset == variable->text.offset) ||
			  (i + 1 < text->variable_count &&
			   variable[1].text.offset == variable->text.offset);
		r = bring(pass, text, variable->name, shared);
		if (r == -EEXIST && several)
			return program_error(
				pass, program,
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
static int check_functions(struct pass *pass, const struct ptx_module *text)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < text->function_count; i++)
		if (text->functions[i].body.length)
			r = bring(pass, text, text->functions[i].name, false);
	return r;
}

/* Does the program define .func (.param .b64 r) SYMBOL (.param .b64 ctx)? */
static int check_symbol(struct pass *pass, const struct kprobe_entry_program *program,
			const struct ptx_module *text)
{
	const struct ptx_function *function =
		ptx_module_find_function(text, program->symbol, strlen(program->symbol));
	const struct ptx_variable *parameters[2];

	if (!function || function->entry || !function->body.length)
		return program_error(pass, program,
				     "its text does not define a function of that name");
	if (function->return_count != 1 || function->parameter_count != 1)
		return program_error(pass, program,
				     "its function has not one parameter and one result");
	parameters[0] = &text->parameters[function->first_return];
	parameters[1] = &text->parameters[function->first_parameter];
	for (int i = 0; i < 2; i++)
		if (parameters[i]->space != PTX_SPACE_PARAM || parameters[i]->size != 8 ||
		    parameters[i]->array || ptx_type_size(parameters[i]->type) != 8)
			return program_error(pass, program,
					     "its parameter and its result must be .param .b64");
	return 0;
}

/* Puts what is left of the program's text into the module. */
static int insert_rest(struct pass *pass, const struct ptx_edit *edit, size_t header)
{
	size_t length;
	char *rest;
	int r;

	r = ptx_edit_apply(edit, &rest, &length);
	if (r > 0)
		return -EINVAL; /* no two cuts overlap */
	if (r)
		return r;
	r = ptx_edit_insert_after_header(pass->edit, pass->module, rest + header, length - header);
	free(rest);
	return r;
}

static int insert_parsed(struct pass *pass, const struct kprobe_entry_program *program,
			 const struct parsed *parsed, size_t header)
{
	const struct ptx_module *text = &parsed->module;
	struct ptx_edit *edit;
	int r;

	r = ptx_edit_new(&edit, text->text, text->length);
	if (r)
		return r;
	r = merge_variables(pass, program, text, edit);
	if (!r && parsed->called)
		r = check_functions(pass, text);
	else if (!r)
		r = ptx_edit_replace(edit, text->functions[0].text, NULL, 0);
	if (!r)
		r = insert_rest(pass, edit, header);
	ptx_edit_free(edit);
	return r;
}

/* Can the module hold the program at all? */
static int check_target(struct pass *pass, const struct kprobe_entry_program *program)
{
	if (pass->module->address_size == 64 && program->target <= pass->module->target.number)
		return 0;
	ptx_error_set(pass->error, pass->module->text, pass->module->target.range.offset,
		      "program %.80s needs sm_%u and 64-bit addresses, "
		      "the module is for %.*s with %u-bit ones",
		      program->symbol, program->target, (int)pass->module->target.range.length,
		      pass->module->text + pass->module->target.range.offset,
		      pass->module->address_size);
	return KPROBE_ENTRY_E_TARGET;
}

/* Is the program one function that ptx_inline_write() understands? */
static int find_simple(struct parsed *parsed, const struct kprobe_entry_program *program)
{
	const struct ptx_function *function =
		ptx_module_find_function(&parsed->module, program->symbol, strlen(program->symbol));
	char *bytes = NULL;
	size_t length;
	FILE *stream;
	int r;

	parsed->simple = false;
	if (parsed->module.function_count != 1 || program->length > INLINE_MAX)
		return 0;
	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	r = ptx_inline_write(stream, &parsed->module, function, no_context, "");
	if (fclose(stream))
		r = -ENOMEM;
	free(bytes);
	parsed->simple = !r;
	return r < 0 ? r : 0;
}

static int parse_program(struct pass *pass, size_t index)
{
	const struct kprobe_entry_program *program = &pass->programs[index];
	struct parsed *parsed = &pass->parsed[index];
	struct ptx_error inner;
	size_t length = sizeof(PROGRAM_HEADER) - 1 + program->length;
	char *text;
	int r;

	r = check_target(pass, program);
	if (r)
		return r;
	if (program->length > PTX_SOURCE_MAX / 2)
		return program_error(pass, program, "its text is too large");
	text = malloc(length);
	if (!text)
		return -ENOMEM;
	memcpy(mempcpy(text, PROGRAM_HEADER, sizeof(PROGRAM_HEADER) - 1), program->text,
	       program->length);
	r = ptx_module_parse(&parsed->module, text, length, &inner);
	if (r) {
		free(text);
		if (r < 0)
			return r;
		ptx_error_set(pass->error, pass->module->text, 0, "program %.80s, line %u: %s",
			      program->symbol, inner.line > 3 ? inner.line - 3 : 1, inner.message);
		return KPROBE_ENTRY_E_PROGRAM;
	}
	parsed->text = text;
	r = check_symbol(pass, program, &parsed->module);
	return r ? r : find_simple(parsed, program);
}

/* Adds one program to the module: its variables, and its functions if it is called. */
static int insert_program(struct pass *pass, size_t index)
{
	const struct kprobe_entry_program *program = &pass->programs[index];
	int r;

	r = insert_parsed(pass, program, &pass->parsed[index], sizeof(PROGRAM_HEADER) - 1);
	if (!r) {
		r = ptx_edit_raise_version(pass->edit, pass->module, program->isa);
		if (r == PTX_EDIT_E_KEPT)
			r = 0;
	}
	return r;
}

/* Which kernels have their programs inlined, and which programs are called nevertheless. */
static void choose_inlined(struct pass *pass, struct kprobe_entry_kernel *kernels, size_t count)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++) {
		struct kprobe_entry_kernel *kernel = &kernels[i];
		size_t length = 0;

		if (!kernel->kernel->body.length)
			continue;
		for (uint32_t j = 0; j < kernel->program_count; j++) {
			length += pass->programs[kernel->programs[j]].length;
			if (!pass->parsed[kernel->programs[j]].simple || length > INLINE_MAX ||
			    length > INLINE_TOTAL_MAX - total)
				kernel->inlined = false;
		}
		if (kernel->inlined)
			total += length;
		for (uint32_t j = 0; j < kernel->program_count && !kernel->inlined; j++)
			pass->parsed[kernel->programs[j]].called = true;
	}
}

/* The kernel's programs, one block after the other, where the call would be. */
static int insert_inlined(struct pass *pass, const struct kprobe_entry_kernel *kernel,
			  uint32_t offset)
{
	char *bytes = NULL, suffix[32];
	size_t length = 0;
	FILE *stream;
	int r = 0;

	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	for (uint32_t i = 0; i < kernel->program_count && !r; i++) {
		const struct ptx_module *text = &pass->parsed[kernel->programs[i]].module;

		snprintf(suffix, sizeof(suffix), "__gpuprobe%u", i);
		r = ptx_inline_write(stream, text, &text->functions[0], no_context, suffix);
	}
	fputc('\t', stream);
	if (fclose(stream))
		r = -ENOMEM;
	if (!r)
		r = ptx_edit_insert(pass->edit, offset, bytes, length);
	free(bytes);
	return r > 0 ? -EINVAL : r; /* it was possible before */
}

/* Writes the function that calls the kernel's programs. name: with the prefix. */
static int insert_caller(struct pass *pass, const struct kprobe_entry_kernel *kernel,
			 const char *name)
{
	char *bytes = NULL;
	size_t length = 0;
	FILE *stream;
	int r;

	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	fprintf(stream, ".func %s()\n{\n", name);
	for (uint32_t i = 0; i < kernel->program_count; i++)
		fprintf(stream,
			"\t{\n\t.param .b64 context;\n\t.param .b64 result;\n"
			"\tst.param.b64 [context], 0;\n\tcall (result), %s, (context);\n\t}\n",
			pass->programs[kernel->programs[i]].symbol);
	fputs("\tret;\n}\n", stream);
	r = fclose(stream) ? -ENOMEM
			   : ptx_edit_insert_after_header(pass->edit, pass->module, bytes, length);
	free(bytes);
	return r;
}

/*
 * Where the call goes: before the first statement that is no declaration, at the latest before the
 * `}`.
 */
static int entry_offset(struct pass *pass, const struct ptx_function *kernel, uint32_t *offset)
{
	struct ptx_error inner;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, pass->module, kernel, &inner);
	if (r > 0) {
		*pass->error = inner;
		return KPROBE_ENTRY_E_KERNEL;
	}
	if (r)
		return r;
	*offset = kernel->body.offset + kernel->body.length - 1;
	for (uint32_t i = 0; i < body.statement_count; i++) {
		if (body.statements[i].kind != PTX_STATEMENT_REGISTERS &&
		    body.statements[i].kind != PTX_STATEMENT_VARIABLE) {
			*offset = body.tokens[body.statements[i].first].offset;
			break;
		}
	}
	ptx_body_deinit(&body);
	return 0;
}

static int probe_named(struct pass *pass, const struct kprobe_entry_kernel *kernel,
		       const char *name)
{
	uint32_t offset;
	int r;

	if (ptx_module_has_symbol(pass->module, name, strlen(name)) ||
	    find_placed(pass, name, strlen(name)))
		return taken(pass, name);
	r = entry_offset(pass, kernel->kernel, &offset);
	if (!r)
		r = insert_caller(pass, kernel, name);
	if (!r)
		r = ptx_edit_insertf(pass->edit, offset, "{\n\tcall %s;\n\t}\n\t", name);
	return r;
}

static int probe_kernel(struct pass *pass, struct kprobe_entry_kernel *kernel)
{
	uint32_t offset;
	char *name;
	int r;

	if (kernel->inlined) {
		r = entry_offset(pass, kernel->kernel, &offset);
		if (!r)
			r = insert_inlined(pass, kernel, offset);
		kernel->applied = !r;
		return r;
	}
	/* which may only stand at the start of a name */
	if (pass->module->text[kernel->kernel->name.offset] == '%') {
		ptx_error_set(pass->error, pass->module->text, kernel->kernel->name.offset,
			      "a kernel whose name begins with %% cannot call a function named "
			      "after it");
		return KPROBE_ENTRY_E_KERNEL;
	}
	if (asprintf(&name, PREFIX "%.*s", (int)kernel->kernel->name.length,
		     pass->module->text + kernel->kernel->name.offset) < 0)
		return -ENOMEM;
	r = probe_named(pass, kernel, name);
	free(name);
	kernel->applied = !r;
	return r;
}

/* Is the caller's list sound? Notes which programs are used. */
static int check_kernels(struct pass *pass, struct kprobe_entry_kernel *kernels, size_t count)
{
	const struct ptx_module *module = pass->module;
	bool *seen;
	int r = 0;

	seen = calloc(module->function_count + 1, sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	for (size_t i = 0; i < count && !r; i++) {
		kernels[i].applied = false;
		if (kernels[i].kernel < module->functions ||
		    kernels[i].kernel >= module->functions + module->function_count ||
		    !kernels[i].kernel->entry || seen[kernels[i].kernel - module->functions])
			r = -EINVAL;
		else
			seen[kernels[i].kernel - module->functions] = true;
		for (uint32_t j = 0; j < kernels[i].program_count && !r; j++) {
			if (kernels[i].programs[j] >= pass->program_count)
				r = -EINVAL;
			else if (kernels[i].kernel->body.length)
				pass->used[kernels[i].programs[j]] = true;
		}
	}
	free(seen);
	return r;
}

int kprobe_entry_apply(struct ptx_edit *edit, const struct ptx_module *module,
		       const struct kprobe_entry_program *programs, size_t program_count,
		       struct kprobe_entry_kernel *kernels, size_t kernel_count,
		       struct ptx_error *error)
{
	struct pass pass = {
		.edit = edit,
		.module = module,
		.programs = programs,
		.program_count = program_count,
		.error = error,
	};
	int r;

	pass.used = calloc(program_count + 1, sizeof(*pass.used));
	pass.parsed = calloc(program_count + 1, sizeof(*pass.parsed));
	r = pass.used && pass.parsed ? check_kernels(&pass, kernels, kernel_count) : -ENOMEM;
	for (size_t i = 0; i < program_count && !r; i++)
		if (pass.used[i])
			r = parse_program(&pass, i);
	if (!r)
		choose_inlined(&pass, kernels, kernel_count);
	for (size_t i = 0; i < program_count && !r; i++)
		if (pass.used[i])
			r = insert_program(&pass, i);
	for (size_t i = 0; i < kernel_count && !r; i++)
		if (kernels[i].kernel->body.length && kernels[i].program_count)
			r = probe_kernel(&pass, &kernels[i]);
	for (size_t i = 0; i < pass.placed_count; i++)
		free(pass.placed[i].name);
	free(pass.placed);
	for (size_t i = 0; pass.parsed && i < program_count; i++) {
		if (pass.parsed[i].text)
			ptx_module_deinit(&pass.parsed[i].module);
		free(pass.parsed[i].text);
	}
	free(pass.parsed);
	free(pass.used);
	return r;
}
