/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Adds the block of a launch to the parameters of a kernel (probe-launch.h).
 *
 * Parameters lie as the members of a struct do in C: each behind the one before, at a multiple of
 * its alignment.
 */

#include "probe-launch.h"

#include <string.h>

#include "proto/launch.h"

static uint64_t round_up(uint64_t value, uint32_t alignment) {
	return (value + alignment - 1) / alignment * alignment;
}

/* Bytes of the first `count` parameters of a kernel. False: they are not known. */
static bool add_up(const struct ptx_module *module, const struct ptx_function *kernel,
		   uint32_t count, uint64_t *size) {
	*size = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_variable *parameter =
			&module->parameters[kernel->first_parameter + i];
		uint32_t alignment = ptx_type_size(parameter->type) * parameter->vector;

		if (parameter->alignment > alignment)
			alignment = parameter->alignment;
		if (!parameter->size || !alignment || parameter->type == PTX_TYPE_TEXREF ||
		    parameter->type == PTX_TYPE_SAMPLERREF || parameter->type == PTX_TYPE_SURFREF)
			return false;
		*size = round_up(*size, alignment);
		if (*size > LAUNCH_PARAMETERS_MAX_LARGE ||
		    parameter->size > LAUNCH_PARAMETERS_MAX_LARGE)
			return false;
		*size += parameter->size;
	}
	return true;
}

bool probe_launch_fits(const struct ptx_module *module, const struct ptx_function *kernel) {
	static const char name[] = LAUNCH_BLOCK_PARAMETER;
	const uint64_t most = module->isa >= 81 && module->target.number >= 70
				      ? LAUNCH_PARAMETERS_MAX_LARGE
				      : LAUNCH_PARAMETERS_MAX;
	uint64_t size;

	if (!kernel->entry || module->address_size != 64 ||
	    !add_up(module, kernel, kernel->parameter_count, &size) ||
	    ptx_module_has_symbol(module, name, sizeof(name) - 1))
		return false;
	for (uint32_t i = 0; i < kernel->parameter_count; i++)
		if (ptx_range_is(module->text, module->parameters[kernel->first_parameter + i].name,
				 name))
			return false;
	return round_up(size, LAUNCH_BLOCK_ALIGNMENT) + sizeof(struct launch_block) <= most;
}

int probe_launch_add(struct ptx_edit *edit, const struct ptx_module *module,
		     const struct ptx_function *kernel) {
	static const char format[] = "%s\n\t.param .align %u .b8 " LAUNCH_BLOCK_PARAMETER "[%zu]%s";
	uint32_t at = kernel->name.offset + kernel->name.length;
	const struct ptx_variable *last;
	struct ptx_error error;
	struct ptx_token token;
	struct ptx_lexer lexer;
	bool list;

	if (kernel->parameter_count) {
		last = &module->parameters[kernel->first_parameter + kernel->parameter_count - 1];
		at = last->text.offset + last->text.length;
		return ptx_edit_insertf(edit, at, format, ",", LAUNCH_BLOCK_ALIGNMENT,
					sizeof(struct launch_block), "");
	}
	ptx_lexer_init(&lexer, module->text, at, module->length);
	if (ptx_lexer_next(&lexer, &token, &error))
		return 1;
	list = ptx_token_is_char(module->text, &token, '(');
	if (list)
		at = token.offset + token.length;
	return ptx_edit_insertf(edit, at, format, list ? "" : "(", LAUNCH_BLOCK_ALIGNMENT,
				sizeof(struct launch_block), list ? "" : "\n)");
}

bool probe_launch_has(const struct ptx_module *module, const struct ptx_function *kernel,
		      uint32_t *size, uint32_t *offset) {
	const struct ptx_variable *last;
	uint64_t before;

	if (!kernel->entry || !kernel->parameter_count)
		return false;
	last = &module->parameters[kernel->first_parameter + kernel->parameter_count - 1];
	if (!ptx_range_is(module->text, last->name, LAUNCH_BLOCK_PARAMETER) ||
	    last->size != sizeof(struct launch_block) ||
	    !add_up(module, kernel, kernel->parameter_count - 1, &before))
		return false;
	*size = (uint32_t)before;
	*offset = (uint32_t)round_up(before, LAUNCH_BLOCK_ALIGNMENT);
	return true;
}
