/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the CPU driver (tests/sim). A module: parses the texts, gives every variable its place,
 * makes all functions known, then fills in initial values and decodes the bodies, so that whatever
 * is not understood fails the load and not a launch.
 *
 * Static shared memory has one layout for the whole program: the address of a variable is the same
 * for every kernel. A kernel's own share (sim_function_shared) is what it names.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim-program.h"
#include "sim-thread.h"

#define VARIABLES_MAX (UINT64_C(1) << 30)
#define ISA_MAX 90

struct sim_index_entry {
	const char *name;
	struct sim_function *function;
	uint32_t variable;
	struct sim_index_entry *next;
};

struct sim_index {
	size_t mask;
	struct sim_index_entry *entries;
	size_t count, allocated;
	struct sim_index_entry *buckets[];
};

struct loader {
	struct sim_program *program;
	const struct sim_elsewhere *addresses;
	char *message;
	size_t message_size;
};

CUresult sim_say(char *message, size_t size, CUresult result, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	if (size)
		vsnprintf(message, size, format, arguments);
	va_end(arguments);
	return result;
}

#define SAY(loader, result, ...) \
	sim_say((loader)->message, (loader)->message_size, result, __VA_ARGS__)

uint32_t sim_hash(const char *name, size_t length) {
	uint32_t hash = 2166136261u;

	for (size_t n = 0; n < length; n++)
		hash = (hash ^ (unsigned char)name[n]) * 16777619u;
	return hash ^ hash >> 15;
}

static struct sim_index *index_new(size_t capacity) {
	size_t size = 16;
	struct sim_index *index;

	while (size < capacity)
		size *= 2;
	index = calloc(1, sizeof(*index) + size * sizeof(index->buckets[0]));
	if (!index)
		return NULL;
	index->mask = size - 1;
	index->allocated = capacity;
	index->entries = calloc(capacity + 1, sizeof(*index->entries));
	if (!index->entries) {
		free(index);
		return NULL;
	}
	return index;
}

/* There is room for as many as index_new() was told. */
static void index_add(struct sim_index *index, const char *name, struct sim_function *function,
		      uint32_t variable) {
	struct sim_index_entry *entry = &index->entries[index->count++];
	size_t bucket = sim_hash(name, strlen(name)) & index->mask;

	*entry = (struct sim_index_entry){ name, function, variable, index->buckets[bucket] };
	index->buckets[bucket] = entry;
}

static const struct sim_index_entry *index_next(const struct sim_index *index,
						const struct sim_index_entry *after,
						const char *name, size_t length) {
	const struct sim_index_entry *entry =
		after ? after->next : index->buckets[sim_hash(name, length) & index->mask];

	for (; entry; entry = entry->next)
		if (strlen(entry->name) == length && !memcmp(entry->name, name, length))
			return entry;
	return NULL;
}

struct sim_function *sim_program_function(const struct sim_program *program,
					  const struct ptx_module *module, const char *name,
					  size_t length) {
	const struct sim_index_entry *entry = NULL;
	struct sim_function *other = NULL;

	while ((entry = index_next(program->index, entry, name, length))) {
		if (!entry->function)
			continue;
		if (entry->function->module == module)
			return entry->function;
		if (entry->function->source->linkage != PTX_LINKAGE_LOCAL || entry->function->entry)
			other = entry->function;
	}
	return other;
}

const struct sim_variable *sim_program_variable(const struct sim_program *program,
						const struct ptx_module *module, const char *name,
						size_t length) {
	const struct sim_index_entry *entry = NULL;
	const struct sim_variable *other = NULL;

	while ((entry = index_next(program->index, entry, name, length))) {
		const struct sim_variable *variable;

		if (entry->function)
			continue;
		variable = &program->variables[entry->variable];
		if (module == &program->modules[variable->module])
			return variable;
		if (variable->linkage != PTX_LINKAGE_LOCAL)
			other = variable;
	}
	return other;
}

const struct sim_variable *sim_program_global(const struct sim_program *program, const char *name) {
	for (uint32_t n = 0; n < program->module_count; n++) {
		const struct sim_variable *variable =
			sim_program_variable(program, &program->modules[n], name, strlen(name));

		if (variable && (variable->memory || variable->managed))
			return variable;
	}
	return NULL;
}

struct sim_function *sim_program_kernel(const struct sim_program *program, const char *name) {
	struct sim_function *function = sim_program_function(program, NULL, name, strlen(name));

	return function && function->entry ? function : NULL;
}

uint32_t sim_function_shared(const struct sim_function *function) {
	return function->shared_size;
}

uint64_t sim_align(uint64_t value, uint64_t alignment) {
	return alignment > 1 ? (value + alignment - 1) / alignment * alignment : value;
}

uint32_t sim_variable_alignment(const struct ptx_variable *variable) {
	uint32_t natural = ptx_type_size(variable->type);

	if (variable->alignment && !(variable->alignment & (variable->alignment - 1)) &&
	    variable->alignment <= 4096)
		return variable->alignment;
	return natural ? natural * variable->vector : 1;
}

static char *copy_range(const char *text, struct ptx_range range) {
	return strndup(text + range.offset, range.length);
}

/* Real memory, zeroed, in the table of ranges. */
static CUresult give_memory(struct loader *loader, struct sim_variable *variable,
			    uint32_t alignment) {
	size_t size = variable->size ? variable->size : 1;
	enum sim_region_kind kind =
		variable->space == PTX_SPACE_CONST ? SIM_REGION_CONSTANT : SIM_REGION_GLOBAL;

	if (alignment < 256)
		alignment = 256;
	variable->memory = aligned_alloc(alignment, sim_align(size, alignment));
	if (!variable->memory)
		return SAY(loader, CUDA_ERROR_OUT_OF_MEMORY, "no memory for %s", variable->name);
	memset(variable->memory, 0, size);
	variable->address = (uint64_t)(uintptr_t)variable->memory;
	return sim_memory_add(variable->address, size, kind, 0);
}

/* Does a variable lie elsewhere? */
static bool lies_elsewhere(const struct loader *loader, struct sim_variable *variable) {
	const struct sim_elsewhere *one = loader->addresses;

	while (one && one->name && strcmp(one->name, variable->name))
		one++;
	if (!one || !one->name)
		return false;
	variable->address = one->address;
	return true;
}

/* Gives one variable of a module its place; extern ones that another module defines get theirs by
 * name. */
static CUresult place_variable(struct loader *loader, uint32_t module,
			       const struct ptx_variable *source) {
	struct sim_program *program = loader->program;
	struct sim_variable *variable = &program->variables[program->variable_count];
	uint32_t alignment = sim_variable_alignment(source);

	*variable = (struct sim_variable){
		.name = copy_range(program->modules[module].text, source->name),
		.size = source->size,
		.space = source->space,
		.linkage = source->linkage,
		.module = module,
		.managed = memmem(program->modules[module].text + source->text.offset,
				  source->text.length, ".managed", strlen(".managed")),
	};
	if (!variable->name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	program->variable_count++;
	if (source->size > VARIABLES_MAX)
		return SAY(loader, CUDA_ERROR_OUT_OF_MEMORY, "%s has %llu bytes", variable->name,
			   (unsigned long long)source->size);
	switch (source->space) {
	case PTX_SPACE_SHARED:
		if (source->linkage == PTX_LINKAGE_EXTERN)
			return CUDA_SUCCESS; /* dynamic: placed when the static ones are */
		program->shared_size = sim_align(program->shared_size, alignment);
		variable->address = program->shared_size;
		if (source->size > VARIABLES_MAX - program->shared_size)
			return SAY(loader, CUDA_ERROR_OUT_OF_MEMORY, "too much shared memory");
		program->shared_size += source->size;
		return CUDA_SUCCESS;
	case PTX_SPACE_GLOBAL:
		if (lies_elsewhere(loader, variable))
			return CUDA_SUCCESS;
		/* fall through */
	case PTX_SPACE_CONST:
		if (source->linkage == PTX_LINKAGE_EXTERN)
			return CUDA_SUCCESS;
		return give_memory(loader, variable, alignment);
	default:
		return SAY(loader, CUDA_ERROR_INVALID_PTX,
			   "%s: textures and the like are not supported", variable->name);
	}
}

/* An extern variable is the definition in another module; a module without one cannot be loaded. */
static CUresult resolve_externs(struct loader *loader) {
	struct sim_program *program = loader->program;

	for (uint32_t n = 0; n < program->variable_count; n++) {
		struct sim_variable *variable = &program->variables[n];
		const struct sim_index_entry *entry = NULL;

		if (variable->linkage != PTX_LINKAGE_EXTERN)
			continue;
		if (variable->space == PTX_SPACE_SHARED) {
			variable->address = sim_align(program->shared_size, 1024);
			continue;
		}
		while ((entry = index_next(program->index, entry, variable->name,
					   strlen(variable->name)))) {
			const struct sim_variable *other = &program->variables[entry->variable];

			if (!entry->function && other->memory &&
			    other->linkage != PTX_LINKAGE_LOCAL)
				break;
		}
		if (!entry)
			return SAY(loader, CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
				   "unresolved extern variable %s", variable->name);
		variable->address = program->variables[entry->variable].address;
		variable->size = program->variables[entry->variable].size;
	}
	for (uint32_t n = 0; n < program->variable_count; n++)
		if (program->variables[n].space == PTX_SPACE_SHARED &&
		    program->variables[n].linkage == PTX_LINKAGE_EXTERN) {
			program->shared_size = sim_align(program->shared_size, 1024);
			break;
		}
	return CUDA_SUCCESS;
}

static CUresult add_function(struct loader *loader, uint32_t module,
			     const struct ptx_function *source) {
	struct sim_program *program = loader->program;
	struct sim_function *function = calloc(1, sizeof(*function));

	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	function->number = program->function_count;
	program->functions[program->function_count++] = function;
	function->program = program;
	function->module = &program->modules[module];
	function->source = source;
	function->entry = source->entry;
	function->max_threads = SIM_BLOCK_MAX;
	function->max_dynamic_shared = SIM_SHARED_DEFAULT;
	function->carveout = -1;
	function->name = copy_range(function->module->text, source->name);
	return function->name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check_module(struct loader *loader, const struct ptx_module *module) {
	const struct ptx_target *target = &module->target;
	uint32_t capability = sim_capability();

	if (module->isa > ISA_MAX)
		return SAY(loader, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
			   "PTX version %u.%u is newer than this driver's %u.%u", module->isa / 10,
			   module->isa % 10, ISA_MAX / 10, ISA_MAX % 10);
	if (module->address_size != 64)
		return SAY(loader, CUDA_ERROR_INVALID_PTX, "the module is for 32-bit addresses");
	if (target->number > capability || (target->suffix == 'a' && target->number != capability))
		return SAY(loader, CUDA_ERROR_NO_BINARY_FOR_GPU,
			   "the module is for sm_%u%.1s, the device is sm_%u", target->number,
			   target->suffix ? &target->suffix : "", capability);
	return CUDA_SUCCESS;
}

static CUresult parse_modules(struct loader *loader, const char *const *texts,
			      const size_t *lengths, uint32_t n) {
	struct sim_program *program = loader->program;
	struct ptx_error error = { 0 };

	for (uint32_t k = 0; k < n; k++) {
		CUresult result;
		int r;

		program->texts[k] = malloc(lengths[k] + 1);
		if (!program->texts[k])
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(program->texts[k], texts[k], lengths[k]);
		program->texts[k][lengths[k]] = '\0';
		r = ptx_module_parse(&program->modules[k], program->texts[k], lengths[k], &error);
		if (r == -ENOMEM)
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (r)
			return SAY(loader, CUDA_ERROR_INVALID_PTX, "line %u, column %u: %s",
				   error.line, error.column, error.message);
		program->module_count++;
		result = check_module(loader, &program->modules[k]);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

static CUresult make_symbols(struct loader *loader) {
	struct sim_program *program = loader->program;
	size_t functions = 0, variables = 0;
	CUresult r;

	for (uint32_t n = 0; n < program->module_count; n++) {
		functions += program->modules[n].function_count;
		variables += program->modules[n].variable_count;
	}
	program->functions = calloc(functions + 1, sizeof(*program->functions));
	program->variables = calloc(variables + 1, sizeof(*program->variables));
	program->index = index_new(functions + variables);
	if (!program->functions || !program->variables || !program->index)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t n = 0; n < program->module_count; n++) {
		const struct ptx_module *module = &program->modules[n];

		for (uint32_t k = 0; k < module->variable_count; k++) {
			r = place_variable(loader, n, &module->variables[k]);
			if (r != CUDA_SUCCESS)
				return r;
			index_add(program->index,
				  program->variables[program->variable_count - 1].name, NULL,
				  program->variable_count - 1);
		}
		for (uint32_t k = 0; k < module->function_count; k++) {
			if (!module->functions[k].body.length)
				continue;
			r = add_function(loader, n, &module->functions[k]);
			if (r != CUDA_SUCCESS)
				return r;
			index_add(program->index,
				  program->functions[program->function_count - 1]->name,
				  program->functions[program->function_count - 1], 0);
		}
	}
	return CUDA_SUCCESS;
}

static CUresult fill_in(struct loader *loader) {
	struct sim_program *program = loader->program;
	uint32_t at = 0;

	for (uint32_t n = 0; n < program->module_count; n++)
		for (uint32_t k = 0; k < program->modules[n].variable_count; k++, at++) {
			CUresult r = sim_initialize(program, &program->variables[at],
						    &program->modules[n].variables[k],
						    loader->message, loader->message_size);
			if (r != CUDA_SUCCESS)
				return r;
		}
	return CUDA_SUCCESS;
}

/*
 * What the functions of a program take of a thread's stack if each calls the next. Registers lie in
 * a frame, so that a large function takes more here than on a GPU.
 */
static size_t chain_size(const struct sim_program *program) {
	size_t size = 0;

	for (uint32_t n = 0; n < program->function_count; n++)
		if (!program->functions[n]->entry)
			size += sizeof(struct sim_frame) + program->functions[n]->frame_size;
	return size;
}

CUresult sim_program_new(struct sim_program **out, const char *const *texts, const size_t *lengths,
			 uint32_t n, const struct sim_elsewhere *addresses, char *message,
			 size_t message_size) {
	struct loader loader = { .addresses = addresses,
				 .message = message,
				 .message_size = message_size };
	struct sim_program *program = calloc(1, sizeof(*program));
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (message_size)
		message[0] = '\0';
	if (!program)
		return r;
	loader.program = program;
	program->texts = calloc(n + 1, sizeof(*program->texts));
	program->modules = calloc(n + 1, sizeof(*program->modules));
	if (program->texts && program->modules)
		r = parse_modules(&loader, texts, lengths, n);
	if (r == CUDA_SUCCESS)
		r = make_symbols(&loader);
	for (uint32_t k = 0; r == CUDA_SUCCESS && k < program->function_count; k++)
		r = sim_decode_frame(program->functions[k], message, message_size);
	if (r == CUDA_SUCCESS)
		r = resolve_externs(&loader);
	if (r == CUDA_SUCCESS)
		r = fill_in(&loader);
	for (uint32_t k = 0; r == CUDA_SUCCESS && k < program->function_count; k++)
		r = sim_decode(program->functions[k], message, message_size);
	if (r != CUDA_SUCCESS) {
		sim_program_free(program);
		return r;
	}
	program->chain_size = chain_size(program);
	*out = program;
	return CUDA_SUCCESS;
}

struct sim_program *sim_program_free(struct sim_program *program) {
	if (!program)
		return NULL;
	sim_unpatch(program);
	for (uint32_t n = 0; n < program->function_count; n++) {
		sim_function_deinit(program->functions[n]);
		free(program->functions[n]);
	}
	for (uint32_t n = 0; n < program->variable_count; n++) {
		struct sim_variable *variable = &program->variables[n];

		if (variable->memory) {
			sim_memory_remove((uintptr_t)variable->memory,
					  variable->space == PTX_SPACE_CONST ? SIM_REGION_CONSTANT
									     : SIM_REGION_GLOBAL,
					  NULL);
			free(variable->memory);
		}
		free(variable->name);
	}
	for (uint32_t n = 0; n < program->module_count; n++)
		ptx_module_deinit(&program->modules[n]);
	for (uint32_t n = 0; program->texts && program->texts[n]; n++)
		free(program->texts[n]);
	if (program->index)
		free(program->index->entries);
	free(program->index);
	free(program->functions);
	free(program->variables);
	free(program->modules);
	free(program->texts);
	free(program);
	return NULL;
}
