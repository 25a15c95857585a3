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
#include "passes/probe-launch.h"
#include "proto/twin.h"

struct table {
	struct twin_variable *variables;
	size_t count, allocated;
	struct twin_kernel *kernels;
	size_t kernel_count;
	char *names;
	size_t names_size, names_allocated;
};

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

/* Functions of CUDA's own that code may call without being defined: they are the driver's. */
static bool is_system_call(const char *text, struct ptx_range name) {
	static const char *const known[] = { "vprintf", "malloc", "free", "__assertfail" };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (ptx_range_is(text, name, known[i]))
			return true;
	return false;
}

static bool is_defined(const struct ptx_module *module, const char *name, size_t length) {
	for (uint32_t i = 0; i < module->function_count; i++) {
		const struct ptx_function *function = &module->functions[i];

		if (function->body.length && function->name.length == length &&
		    !memcmp(module->text + function->name.offset, name, length))
			return true;
	}
	return false;
}

static bool has(const struct ptx_module *module, struct ptx_range range, const char *word) {
	return memmem(module->text + range.offset, range.length, word, strlen(word));
}

static bool check_variable(const struct ptx_module *module, const struct ptx_variable *variable,
			   char *reason) {
	const int length = variable->name.length < 120 ? (int)variable->name.length : 120;
	const char *name = module->text + variable->name.offset;

	if (variable->type == PTX_TYPE_TEXREF || variable->type == PTX_TYPE_SAMPLERREF ||
	    variable->type == PTX_TYPE_SURFREF)
		return !refuse(reason, "the module has a texture or surface reference, %.*s",
			       length, name);
	if (has(module, variable->text, ".managed"))
		return !refuse(reason, "the module has a __managed__ variable, %.*s", length, name);
	return true;
}

bool image_twin_possible(const struct ptx_module *original, char reason[IMAGE_TWIN_REASON_MAX]) {
	const struct ptx_range all = { .offset = 0, .length = original->length };

	for (uint32_t i = 0; i < original->variable_count; i++)
		if (!check_variable(original, &original->variables[i], reason))
			return false;
	for (uint32_t i = 0; i < original->function_count; i++) {
		const struct ptx_function *function = &original->functions[i];
		const char *name = original->text + function->name.offset;

		if (!function->body.length && !is_system_call(original->text, function->name) &&
		    !is_defined(original, name, function->name.length))
			return !refuse(reason, "the module calls %.*s, which is outside of it",
				       function->name.length < 120 ? (int)function->name.length
								   : 120,
				       name);
	}
	/* an address of a function is a number that holds in one module alone */
	if (has(original, all, ".callprototype") || has(original, all, ".calltargets"))
		return !refuse(reason, "the module calls functions by pointers");
	return true;
}

/* Does a target mean this kernel? */
static bool is_meant(const struct image_targets *targets, const char *name, size_t length) {
	for (size_t i = 0; i < targets->n; i++) {
		const struct image_target *target = &targets->targets[i];

		if (target->device_function || (strlen(target->name.mangled) == length &&
						!memcmp(target->name.mangled, name, length)))
			return true;
	}
	return false;
}

int image_twin_cut(const struct ptx_module *edited, const struct image_targets *targets,
		   char **text, size_t *length) {
	char *to = malloc((size_t)edited->length + 1);
	uint32_t from = 0;

	if (!to)
		return -ENOMEM;
	*text = to;
	for (uint32_t i = 0; i < edited->function_count; i++) {
		const struct ptx_function *function = &edited->functions[i];

		if (!function->entry ||
		    is_meant(targets, edited->text + function->name.offset, function->name.length))
			continue;
		to = mempcpy(to, edited->text + from, function->text.offset - from);
		from = function->text.offset + function->text.length;
	}
	to = mempcpy(to, edited->text + from, edited->length - from);
	*to = '\0';
	*length = (size_t)(to - *text);
	return 0;
}

static int add_name(struct table *table, const char *name, size_t length, uint32_t *offset) {
	if (table->names_size + length + 1 > table->names_allocated) {
		size_t size = 2 * table->names_allocated + length + 256;
		char *more = realloc(table->names, size);

		if (!more)
			return -ENOMEM;
		table->names = more;
		table->names_allocated = size;
	}
	*offset = (uint32_t)table->names_size;
	memcpy(table->names + table->names_size, name, length);
	table->names[table->names_size + length] = '\0';
	table->names_size += length + 1;
	return 0;
}

/* Notes the kernels that have a block of their launch. */
static int add_kernels(struct table *table, const struct ptx_module *edited, char *reason) {
	const struct ptx_function *kernel = NULL;
	uint32_t size, offset, name;
	int r;

	table->kernels = calloc((size_t)edited->function_count + 1, sizeof(*table->kernels));
	if (!table->kernels)
		return -ENOMEM;
	while ((kernel = ptx_module_next_kernel(edited, kernel))) {
		if (!kernel->body.length || !probe_launch_has(edited, kernel, &size, &offset))
			continue;
		if (table->kernel_count == TWIN_KERNELS_MAX)
			return refuse(reason, "the module has too many kernels");
		r = add_name(table, edited->text + kernel->name.offset, kernel->name.length, &name);
		if (r)
			return r;
		table->kernels[table->kernel_count++] =
			(struct twin_kernel){ .name = name,
					      .parameter_count = kernel->parameter_count - 1,
					      .size = size,
					      .offset = offset };
	}
	return 0;
}

static int add(struct table *table, const struct cubin_relocation *relocation, uint64_t base) {
	struct twin_variable *variable;
	uint32_t name;
	int r;

	if (table->count == table->allocated) {
		size_t allocated = 2 * table->allocated + 16;
		struct twin_variable *more =
			reallocarray(table->variables, allocated, sizeof(*more));

		if (!more)
			return -ENOMEM;
		table->variables = more;
		table->allocated = allocated;
	}
	r = add_name(table, relocation->symbol, strlen(relocation->symbol), &name);
	if (r)
		return r;
	variable = &table->variables[table->count++];
	*variable = (struct twin_variable){ .offset = base + relocation->at,
					    .name = name,
					    .addend = relocation->addend };
	return 0;
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
static int take_addresses(struct table *table, uint8_t *cubin, size_t size, uint64_t base,
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
		if (table->count == TWIN_VARIABLES_MAX)
			return refuse(reason, "the module has too many variables");
		r = add(table, &one, base);
		cubin_relocation_drop(cubin, &one);
	}
	return r == -EINVAL ? refuse(reason, "the compiler's machine code is malformed") : r;
}

/* Puts the table behind the image. */
static int append(struct image_built *result, const struct table *table) {
	const size_t begin = (result->size + 7) & ~(size_t)7;
	const struct twin_table header = {
		.magic = TWIN_MAGIC,
		.version = TWIN_VERSION,
		.variable_count = (uint32_t)table->count,
		.kernel_count = (uint32_t)table->kernel_count,
		.names_size = (uint32_t)table->names_size,
	};
	const size_t variables = table->count * sizeof(*table->variables),
		     kernels = table->kernel_count * sizeof(*table->kernels),
		     size = begin + sizeof(header) + variables + kernels + table->names_size;
	uint8_t *data = realloc(result->data, size), *to;

	if (!data)
		return -ENOMEM;
	memset(data + result->size, 0, begin - result->size);
	to = mempcpy(data + begin, &header, sizeof(header));
	if (variables)
		to = mempcpy(to, table->variables, variables);
	if (kernels)
		to = mempcpy(to, table->kernels, kernels);
	if (table->names_size)
		memcpy(to, table->names, table->names_size);
	result->data = data;
	result->size = size;
	return 0;
}

int image_twin_finish(struct image_built *result, const struct ptx_module *original,
		      const struct ptx_module *edited, char reason[IMAGE_TWIN_REASON_MAX]) {
	struct table table = {};
	struct fatbin fatbin;
	bool found = false;
	int r;

	if (!result->machine_code)
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
		r = found ? append(result, &table) : refuse(reason, "no machine code was made");
	free(table.variables);
	free(table.kernels);
	free(table.names);
	return r;
}
