/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the image of a twin (image-twin.h).
 *
 * A twin's module declares the variables of the original, because its code was made from the same
 * PTX, but must not use its own copies of them. Machine code finds the address of a variable in a
 * slot of the section .nv.constant4; a relocation makes the driver fill it in. Here these
 * relocations become void, and the table says which variable's address each slot is to hold.
 * Variables of probes keep their relocations: they are the twin's own. Where code refers to a
 * variable in any other way, there is no twin.
 */

#include "image-twin.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/compiler/cubin-relocation.h"
#include "lib/ptx/ptx-lexer.h"
#include "image-pointer.h"
#include "image-table.h"
#include "lib/ptx/ptx-edit.h"
#include "passes/probe-launch.h"

__attribute__((format(printf, 2, 3))) static int refuse(char *reason, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, IMAGE_TWIN_REASON_MAX, format, arguments);
	va_end(arguments);
	return 1;
}

/* Where a token has `.const`: a directive, or a part of a mnemonic. NULL: it has none. */
static const char *find_constant(const char *text, const struct ptx_token *token) {
	static const char constant[] = ".const";
	const char *word = text + token->offset;
	const size_t length = sizeof(constant) - 1;

	if (token->kind != PTX_TOKEN_DIRECTIVE && token->kind != PTX_TOKEN_WORD)
		return NULL;
	for (size_t i = 0; i + length <= token->length; i++)
		if (!memcmp(word + i, constant, length) &&
		    (i + length == token->length || word[i + length] == '.' ||
		     word[i + length] == ':'))
			return word + i;
	return NULL;
}

/* Does it mean the same with `.global` in that place? A declaration, a load, or a conversion. */
static bool can_be_global(const char *text, const struct ptx_token *token,
			  const struct ptx_token *before, const struct ptx_token *next) {
	const char *word = text + token->offset;

	if (token->kind == PTX_TOKEN_DIRECTIVE) /* .const[2] is a bank, .ptr .const a parameter's */
		return !ptx_token_is_char(text, next, '[') && !ptx_token_is(text, before, ".ptr");
	return token->length > 3 && (!memcmp(word, "ld.", 3) || !memcmp(word, "cvta", 4));
}

int image_twin_constants(char **out, size_t *size, const char *text, size_t length,
			 char reason[IMAGE_TWIN_REASON_MAX]) {
	static const char constant[] = ".const", global[] = ".global";
	struct ptx_token token = {}, next = {}, before;
	struct ptx_error error;
	struct ptx_lexer lexer;
	size_t from = 0;
	bool refused = false;
	FILE *stream;
	int r;

	*out = NULL;
	if (!memmem(text, length, constant, sizeof(constant) - 1))
		return 0;
	stream = open_memstream(out, size);
	if (!stream)
		return -ENOMEM;
	ptx_lexer_init(&lexer, text, 0, (uint32_t)length);
	r = ptx_lexer_next(&lexer, &next, &error);
	while (!r && next.kind != PTX_TOKEN_END) {
		const char *place;

		before = token;
		token = next;
		r = ptx_lexer_next(&lexer, &next, &error);
		place = r ? NULL : find_constant(text, &token);
		if (!place)
			continue;
		refused = !can_be_global(text, &token, &before, &next);
		if (refused)
			break;
		fwrite(text + from, 1, (size_t)(place - text) - from, stream);
		fputs(global, stream);
		from = (size_t)(place - text) + sizeof(constant) - 1;
	}
	fwrite(text + from, 1, length - from, stream);
	if (fclose(stream)) {
		free(*out);
		*out = NULL;
		return -ENOMEM;
	}
	if (r || refused) { /* of a syntax error the parser says where: the text stays */
		free(*out);
		*out = NULL;
	}
	return refused ? refuse(reason, "the module has constant memory of an old kind") : 0;
}

bool image_twin_possible(const struct ptx_module *original, char reason[IMAGE_TWIN_REASON_MAX]) {
	for (uint32_t i = 0; i < original->variable_count; i++) {
		const struct ptx_variable *variable = &original->variables[i];

		if (variable->type == PTX_TYPE_TEXREF || variable->type == PTX_TYPE_SAMPLERREF ||
		    variable->type == PTX_TYPE_SURFREF)
			return !refuse(
				reason, "the module has a texture or surface reference, %.*s",
				variable->name.length < 120 ? (int)variable->name.length : 120,
				original->text + variable->name.offset);
	}
	return true;
}

/* Looks from the kernels that targets mean; where one is a device function, from all. */
static int look(struct image_pointer *pointer, const struct ptx_module *module,
		const struct image_targets *targets) {
	bool *roots = calloc((size_t)module->function_count + 1, sizeof(*roots)), all = false;
	int r;

	*pointer = (struct image_pointer){};
	if (!roots)
		return -ENOMEM;
	for (size_t i = 0; i < targets->n; i++) {
		const char *name = targets->targets[i].name.mangled;
		const struct ptx_function *function =
			ptx_module_find_function(module, name, strlen(name));

		all |= targets->targets[i].device_function;
		if (function && function->entry && function->body.length)
			roots[function - module->functions] = true;
	}
	for (uint32_t i = 0; all && i < module->function_count; i++)
		roots[i] = module->functions[i].entry && module->functions[i].body.length;
	r = image_pointer_init(pointer, module, roots);
	free(roots);
	return r;
}

/* The target's function is in no twin: its index, else PTX_NONE. */
static uint32_t find_left_out(const struct image_pointer *pointer,
			      const struct image_target *target) {
	const char *name = target->name.mangled;
	const uint32_t function = image_pointer_definition(pointer, name, strlen(name));

	return function == PTX_NONE || pointer->functions[function].kept ? PTX_NONE : function;
}

static int why_left_out(char **reason, const struct image_target *target, void *userdata) {
	const struct image_pointer *pointer = userdata;
	const uint32_t function = find_left_out(pointer, target);
	char why[IMAGE_TWIN_REASON_MAX];

	if (function == PTX_NONE)
		return 0;
	image_pointer_reason(pointer, function, why, sizeof(why));
	return asprintf(reason, IMAGE_TWIN_NONE "%s", why) < 0 ? -ENOMEM : 0;
}

int image_twin_leave_out(struct image_targets *targets, const struct ptx_module *original) {
	struct image_pointer pointer;
	int r;

	r = look(&pointer, original, targets);
	if (!r)
		r = image_targets_leave_out(targets, why_left_out, &pointer);
	image_pointer_deinit(&pointer);
	return r;
}

/* Removes functions that are not in the twin, with their prototypes and aliases. */
static int cut_functions(struct ptx_edit *edit, const struct image_pointer *pointer) {
	const struct ptx_module *module = pointer->module;
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	int r = 0;

	for (uint32_t i = 0; !r && i < module->function_count; i++) {
		const uint32_t function = pointer->definitions[i];

		if (function != PTX_NONE && !pointer->functions[function].kept)
			r = ptx_edit_replace(edit, module->functions[i].text, NULL, 0);
	}
	for (uint32_t i = 0; !r && i < module->item_count; i++) {
		const struct ptx_range text = module->items[i].text;
		uint32_t function = PTX_NONE;

		if (module->items[i].kind != PTX_ITEM_ALIAS)
			continue;
		ptx_lexer_init(&lexer, module->text, text.offset, text.offset + text.length);
		while (function == PTX_NONE && !ptx_lexer_next(&lexer, &token, &error) &&
		       token.kind != PTX_TOKEN_END)
			if (token.kind == PTX_TOKEN_WORD)
				function = image_pointer_definition(
					pointer, module->text + token.offset, token.length);
		if (function != PTX_NONE && !pointer->functions[function].kept)
			r = ptx_edit_replace(edit, text, NULL, 0);
	}
	return r;
}

/* The twin's own copy of a variable is not used, so functions in it may be any number. */
static int cut_initializer(struct ptx_edit *edit, const struct ptx_module *module,
			   struct ptx_range text) {
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;
	int r = 0;

	ptx_lexer_init(&lexer, module->text, text.offset, text.offset + text.length);
	while (!r && !ptx_lexer_next(&lexer, &token, &error) && token.kind != PTX_TOKEN_END)
		if (image_pointer_is_function(module, &token))
			r = ptx_edit_replace(edit, (struct ptx_range){ token.offset, token.length },
					     "0", 1);
	return r;
}

/* `.attribute(.managed)`: the twin's copy need not be where the host can read it. */
static int cut_attribute(struct ptx_edit *edit, const struct ptx_module *module,
			 struct ptx_range text) {
	uint32_t from = PTX_NONE, depth = 0;
	struct ptx_lexer lexer;
	struct ptx_token token;
	struct ptx_error error;

	ptx_lexer_init(&lexer, module->text, text.offset, text.offset + text.length);
	while (!ptx_lexer_next(&lexer, &token, &error) && token.kind != PTX_TOKEN_END) {
		if (ptx_token_is(module->text, &token, ".attribute"))
			from = token.offset;
		else if (from != PTX_NONE && ptx_token_is_char(module->text, &token, '('))
			depth++;
		else if (from != PTX_NONE && ptx_token_is_char(module->text, &token, ')') &&
			 !--depth)
			return ptx_edit_replace(
				edit, (struct ptx_range){ from, token.offset + 1 - from }, NULL, 0);
	}
	return 0;
}

/* Of the original's variables alone: those of programs are the twin's own. */
static int cut_variables(struct ptx_edit *edit, const struct ptx_module *edited,
			 const struct ptx_module *original) {
	uint32_t statement = PTX_NONE; /* which several variables may share */
	int r = 0;

	for (uint32_t i = 0; !r && i < edited->variable_count; i++) {
		const struct ptx_variable *variable = &edited->variables[i];

		if (!ptx_module_find_variable(original, edited->text + variable->name.offset,
					      variable->name.length))
			continue;
		r = cut_initializer(edit, edited, variable->initializer);
		if (!r && variable->text.offset != statement)
			r = cut_attribute(edit, edited, variable->text);
		statement = variable->text.offset;
	}
	return r;
}

/* Does a program, or a pass of the user, put something into a kernel that a twin cannot have? */
static int check_kept(const struct image_pointer *pointer, const struct image_targets *targets,
		      char *reason) {
	char why[IMAGE_TWIN_REASON_MAX];

	for (size_t i = 0; i < targets->n; i++) {
		const uint32_t function = find_left_out(pointer, &targets->targets[i]);

		if (function == PTX_NONE || !pointer->functions[function].fault)
			continue; /* or no kernel calls it any more */
		image_pointer_reason(pointer, function, why, sizeof(why));
		return refuse(reason, "with what is put into %.120s, %.200s",
			      targets->targets[i].name.mangled, why);
	}
	return 0;
}

int image_twin_cut(const struct ptx_module *edited, const struct ptx_module *original,
		   const struct image_targets *targets, char **text, size_t *length,
		   char reason[IMAGE_TWIN_REASON_MAX]) {
	struct image_pointer pointer;
	struct ptx_edit *edit = NULL;
	int r, refused = 0;

	r = look(&pointer, edited, targets);
	if (!r)
		r = refused = check_kept(&pointer, targets, reason);
	if (!r)
		r = ptx_edit_new(&edit, edited->text, edited->length);
	if (!r)
		r = cut_functions(edit, &pointer);
	if (!r)
		r = cut_variables(edit, edited, original);
	if (!r)
		r = ptx_edit_apply(edit, text, length);
	ptx_edit_free(edit);
	image_pointer_deinit(&pointer);
	return r > 0 && !refused ? -EINVAL : r;
}

/* Notes the kernels that have a block of their launch. */
static int add_kernels(struct image_table *table, const struct ptx_module *edited, char *reason) {
	const struct ptx_function *kernel = NULL;
	uint32_t size, offset;
	int r = 0;

	while (!r && (kernel = ptx_module_next_kernel(edited, kernel)))
		if (kernel->body.length && probe_launch_has(edited, kernel, &size, &offset))
			r = image_table_add_kernel(table, edited->text + kernel->name.offset,
						   kernel->name.length, kernel->parameter_count - 1,
						   size, offset);
	return r > 0 ? refuse(reason, "the module has too many kernels") : r;
}

/* Is a section read by debuggers alone, or data of the twin that nothing uses? */
static bool is_unused(const char *section) {
	return !strncmp(section, ".debug", 6) || !strncmp(section, ".nv_debug", 9) ||
	       !strncmp(section, ".nv.global", 10);
}

static bool is_theirs(const struct ptx_module *module, const char *name) {
	return ptx_module_find_variable(module, name, strlen(name));
}

/* Takes the addresses of the original's variables out of a cubin. `base`: where it is in the image.
 */
static int take_addresses(struct image_table *table, uint8_t *cubin, size_t size, uint64_t base,
			  const struct ptx_module *original, const struct ptx_module *edited,
			  char *reason) {
	struct cubin_relocations relocations;
	struct cubin_relocation one;
	int r = 0;

	if (!cubin_relocations_init(&relocations, cubin, size))
		return refuse(reason, "the compiler's machine code is malformed");
	while (!r && (r = cubin_relocations_next(&relocations, &one)) == 1) {
		r = 0;
		if (!one.variable || is_unused(one.section) ||
		    (!is_theirs(original, one.symbol) && is_theirs(edited, one.symbol)))
			continue;
		if (!is_theirs(original, one.symbol))
			return refuse(reason,
				      "the module has a variable inside of a function, %.120s",
				      one.symbol);
		if (strcmp(one.section, CUBIN_ADDRESSES) || one.type != CUBIN_RELOCATION_64 ||
		    !one.at)
			return refuse(reason,
				      "machine code refers to the variable %.120s in a way that "
				      "twins do not know (%.40s, type %u)",
				      one.symbol, one.section, one.type);
		r = image_table_add_variable(table, one.symbol, base + one.at, one.addend);
		if (r > 0)
			return refuse(reason, "the module has too many variables");
		cubin_relocation_drop(cubin, &one);
	}
	return r == -EINVAL ? refuse(reason, "the compiler's machine code is malformed") : r;
}

int image_twin_finish(struct image_built *result, const struct ptx_module *original,
		      const struct ptx_module *edited, char reason[IMAGE_TWIN_REASON_MAX]) {
	struct image_table table = {};
	struct fatbin fatbin;
	bool found = false;
	int r;

	if (!result->data)
		return refuse(reason, "there is no compiler for this device");
	r = fatbin_parse(&fatbin, result->data, result->size);
	if (r)
		return r < 0 ? r : refuse(reason, "%s", fatbin_strerror(r));
	for (size_t i = 0; !r && i < fatbin.n_entries && !found; i++) {
		const struct fatbin_entry *entry = &fatbin.entries[i];
		const size_t at = (size_t)(entry->payload - result->data);

		found = entry->kind == FATBIN_KIND_ELF &&
			fatbin_entry_compression(entry) == FATBIN_RAW;
		if (found)
			r = take_addresses(&table, result->data + at, entry->payload_size, at,
					   original, edited, reason);
	}
	fatbin_deinit(&fatbin);
	if (!r)
		r = add_kernels(&table, edited, reason);
	if (!r)
		r = found ? image_table_append(&table, result)
			  : refuse(reason, "no machine code was made");
	image_table_deinit(&table);
	return r;
}
