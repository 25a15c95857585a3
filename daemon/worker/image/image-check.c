/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks whether PTX from a user's pass may stand for the original (image-edit.h).
 *
 * PTX that a user's pass made stands for the original only if who launches its kernels cannot tell
 * the difference: the same kernels with the same parameters, the same variables, for the same
 * devices. What the kernels *do* is the pass's business.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image-edit.h"
#include "passes/probe-launch.h"

#define NAME(module, range) \
	(int)((range).length < 120 ? (range).length : 120), (module)->text + (range).offset

__attribute__((format(printf, 2, 3))) static int refuse(struct ptx_error *error, const char *format,
							...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	return IMAGE_EDIT_E_TRANSFORM;
}

static bool same_parameter(const struct ptx_variable *a, const struct ptx_variable *b) {
	return a->size == b->size && a->alignment == b->alignment && a->type == b->type &&
	       a->vector == b->vector && a->array == b->array && a->elements == b->elements;
}

static uint32_t count_kernels(const struct ptx_module *module) {
	const struct ptx_function *kernel = NULL;
	uint32_t n = 0;

	while ((kernel = ptx_module_next_kernel(module, kernel)))
		n += kernel->body.length != 0;
	return n;
}

/*
 * Has a kernel of the foreign module the parameters of one of the original? launch: it may have
 * the block of a launch behind them, which the edit put there.
 */
static int check_parameters(const struct ptx_module *foreign, const struct ptx_module *original,
			    const struct ptx_function *other, const struct ptx_function *kernel,
			    bool launch, struct ptx_error *error) {
	uint32_t count = other->parameter_count, size, offset;

	if (launch && probe_launch_has(foreign, other, &size, &offset))
		count--;
	if (count != kernel->parameter_count)
		return refuse(error, "kernel %.*s has %u parameters instead of %u",
			      NAME(foreign, other->name), count, kernel->parameter_count);
	for (uint32_t i = 0; i < kernel->parameter_count; i++)
		if (!same_parameter(&original->parameters[kernel->first_parameter + i],
				    &foreign->parameters[other->first_parameter + i]))
			return refuse(error, "parameter %u of kernel %.*s is another", i,
				      NAME(foreign, other->name));
	return 0;
}

static int check_kernel(const struct ptx_module *foreign, const struct ptx_module *original,
			const struct ptx_function *kernel, bool launch, struct ptx_error *error) {
	const struct ptx_function *other;

	other = ptx_module_find_function(foreign, original->text + kernel->name.offset,
					 kernel->name.length);
	if (!other || !other->entry || !other->body.length)
		return refuse(error, "kernel %.*s is gone", NAME(original, kernel->name));
	return check_parameters(foreign, original, other, kernel, launch, error);
}

static bool is_known(uint8_t linkage) {
	return linkage == PTX_LINKAGE_VISIBLE || linkage == PTX_LINKAGE_WEAK ||
	       linkage == PTX_LINKAGE_COMMON;
}

/* Variables that the driver finds by name. Those of programs may be in either space: probe.h. */
static int check_variables(const struct ptx_module *foreign, const struct ptx_module *original,
			   bool of_program, struct ptx_error *error) {
	for (uint32_t i = 0; i < original->variable_count; i++) {
		const struct ptx_variable *variable = &original->variables[i], *other;

		if (!is_known(variable->linkage))
			continue;
		other = ptx_module_find_variable(foreign, original->text + variable->name.offset,
						 variable->name.length);
		if (!other || !is_known(other->linkage))
			return refuse(error, "variable %.*s is gone",
				      NAME(original, variable->name));
		if (other->size != variable->size || other->count != variable->count ||
		    (other->space != variable->space &&
		     (!of_program || other->space != PTX_SPACE_GLOBAL)))
			return refuse(error, "variable %.*s is another",
				      NAME(original, variable->name));
	}
	return 0;
}

/* The variables of one program, which is a module but for its header. */
static int check_program(const struct ptx_module *foreign, const struct probe_program *program,
			 struct ptx_error *error) {
	struct ptx_module module;
	char *text;
	int length, r;

	length = asprintf(&text, ".version %u.%u\n.target sm_%u\n.address_size 64\n%.*s",
			  program->isa / 10, program->isa % 10, program->target,
			  (int)program->length, program->text);
	if (length < 0)
		return -ENOMEM;
	r = ptx_module_parse(&module, text, (size_t)length, error);
	if (!r) {
		r = check_variables(foreign, &module, true, error);
		ptx_module_deinit(&module);
	}
	free(text);
	return r > 0 ? IMAGE_EDIT_E_TRANSFORM : r;
}

/* Which programs stand somewhere. */
static int check_programs(const struct ptx_module *foreign, const struct image_request *request,
			  const struct image_targets *targets, struct ptx_error *error) {
	bool *used = calloc(request->n_programs + 1, sizeof(*used));
	int r = 0;

	if (!used)
		return -ENOMEM;
	for (size_t i = 0; i < targets->n; i++)
		for (uint32_t j = 0; j < targets->targets[i].count; j++)
			used[targets->targets[i].uses[j].program] = true;
	for (size_t i = 0; !r && i < request->n_programs; i++)
		if (used[i])
			r = check_program(foreign, &request->programs[i], error);
	free(used);
	return r;
}

/* Nothing newer than the image, the programs, or what the request allows. */
static int check_header(const struct ptx_module *foreign, const struct ptx_module *original,
			const struct image_request *request, struct ptx_error *error) {
	uint32_t isa = original->isa > request->isa ? original->isa : request->isa;
	uint32_t target = original->target.number > request->target ? original->target.number
								    : request->target;

	for (size_t i = 0; i < request->n_programs; i++) {
		isa = request->programs[i].isa > isa ? request->programs[i].isa : isa;
		target =
			request->programs[i].target > target ? request->programs[i].target : target;
	}
	if (foreign->isa > isa)
		return refuse(error, ".version %u.%u is newer than %u.%u", foreign->isa / 10,
			      foreign->isa % 10, isa / 10, isa % 10);
	if (foreign->target.number > target || foreign->target.number < original->target.number ||
	    foreign->target.suffix != original->target.suffix)
		return refuse(error, ".target %.*s instead of %.*s",
			      NAME(foreign, foreign->target.range),
			      NAME(original, original->target.range));
	if (foreign->address_size != original->address_size)
		return refuse(error, ".address_size %u instead of %u", foreign->address_size,
			      original->address_size);
	return 0;
}

int image_check(const struct ptx_module *foreign, const struct ptx_module *original,
		const struct image_request *request, const struct image_targets *targets,
		struct ptx_error *error) {
	const bool edited = request->stage >= JOB_STAGE_CHECK_EDITED;
	const struct ptx_function *kernel = NULL;
	int r;

	r = check_header(foreign, original, request, error);
	while (!r && (kernel = ptx_module_next_kernel(original, kernel)))
		if (kernel->body.length)
			r = check_kernel(foreign, original, kernel, edited, error);
	if (!r && count_kernels(foreign) != count_kernels(original))
		r = refuse(error, "it has %u kernels instead of %u", count_kernels(foreign),
			   count_kernels(original));
	if (!r)
		r = check_variables(foreign, original, false, error);
	return r ? r : check_programs(foreign, request, targets, error);
}
