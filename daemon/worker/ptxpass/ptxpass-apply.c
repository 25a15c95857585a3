/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Applies a pass to the functions of a module (ptxpass.h).
 *
 * Which functions are meant, and what is done to them. A kernel that is not there, or an attach
 * point that the definition does not mean, changes nothing and is no error: whoever runs passes
 * runs them one after the other.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kernel-name.h"
#include "passes/probe.h"
#include "ptxpass.h"
#include "lib/pass/section.h"

#define EVERY_KERNEL "kprobe/__memcapture"

/* The passes, each for the point of that kind. */
static const char *const passes[] = {
	[POINT_ENTRY] = "kprobe_entry",
	[POINT_RETURN] = "kretprobe",
	[POINT_MEMORY] = "kprobe_memcapture",
};

struct work {
	const struct pass_definition *definition;
	struct ptxpass_request *request;
	struct section section;
	struct probe_use use;
	struct ptx_module module;
	struct probe_function *functions; /* owned */
	size_t n_functions;
	struct probe_use *uses; /* owned: one for each function of the module */
	const char *stubs[64];
	size_t n_stubs;
};

/* "stubs" and "spaces" of the definition. */
static int read_parameters(struct work *work, struct ptxpass_error *error) {
	json_object *array;

	if (json_object_object_get_ex(work->definition->parameters, "stubs", &array)) {
		if (!json_object_is_type(array, json_type_array) ||
		    json_object_array_length(array) > 64)
			return ptxpass_fail(error, PTXPASS_CONFIGURATION,
					    "parameters.stubs is no array of at most 64 names");
		for (size_t i = 0; i < json_object_array_length(array); i++)
			work->stubs[work->n_stubs++] =
				json_object_get_string(json_object_array_get_idx(array, i));
	}
	work->use.spaces = POINT_SPACES_DEFAULT;
	if (!json_object_object_get_ex(work->definition->parameters, "spaces", &array))
		return 0;
	if (!json_object_is_type(array, json_type_array))
		return ptxpass_fail(error, PTXPASS_CONFIGURATION, "parameters.spaces is no array");
	work->use.spaces = 0;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(array, i));
		uint32_t space = name ? point_space(name) : 0;

		if (!space)
			return ptxpass_fail(error, PTXPASS_CONFIGURATION,
					    "parameters.spaces: there is no space %.32s",
					    name ? name : "null");
		work->use.spaces |= space;
	}
	return 0;
}

/* What the attach point asks for. 1: not ours; 0, or an exit status. */
static int read_attach_point(struct work *work, const char *attach_point,
			     struct ptxpass_error *error) {
	char why[SECTION_ERROR_SIZE], made[SECTION_KERNEL_SIZE + 16];
	const char *kernel = work->request->kernel;
	enum point_kind pass = POINT_ENTRY;

	while (pass < POINT_MEMORY && strcmp(passes[pass], work->definition->name))
		pass++;
	if (!attach_point) {
		if (!kernel)
			return ptxpass_fail(error, PTXPASS_CONFIGURATION,
					    PTXPASS_ATTACH_POINT
					    " is not set, and the request has no to_patch_kernel");
		snprintf(made, sizeof(made), "%s/%s", point_table[pass].section, kernel);
		attach_point = made;
	}
	if (!pass_definition_means(work->definition, attach_point))
		return 1;
	if (section_parse(&work->section, attach_point, kernel, why))
		return ptxpass_fail(error, PTXPASS_CONFIGURATION, PTXPASS_ATTACH_POINT "=%s", why);
	if (section_needs_sass(&work->section))
		return ptxpass_fail(error, PTXPASS_CONFIGURATION,
				    PTXPASS_ATTACH_POINT "=%s: PTX has no such point",
				    attach_point);
	work->use.point = pass;
	if (pass == POINT_ENTRY &&
	    (work->section.point == POINT_LINE || work->section.point == POINT_BLOCK))
		work->use.point = work->section.point;
	work->use.file = work->section.file;
	work->use.line = work->section.line;
	work->use.block = work->section.block;
	if (!*work->section.kernel || (!kernel && !strcmp(attach_point, EVERY_KERNEL)))
		strcpy(work->section.kernel, "*");
	return 0;
}

/* Is this function meant? 1, 0, or -ENOMEM. */
static int is_meant(const struct work *work, const struct ptx_function *function) {
	struct kernel_name name;
	char *mangled;
	int r;

	if (!function->body.length || function->entry == work->section.device_function)
		return 0;
	mangled = strndup(work->module.text + function->name.offset, function->name.length);
	if (!mangled)
		return -ENOMEM;
	kernel_name_init(&name, mangled);
	r = kernel_name_match(&name, work->section.kernel);
	kernel_name_deinit(&name);
	free(mangled);
	return r;
}

static int find_functions(struct work *work, struct ptxpass_error *error) {
	uint32_t count = work->module.function_count;
	int r = 0;

	work->functions = calloc(count + 1, sizeof(*work->functions));
	work->uses = calloc(count + 1, sizeof(*work->uses));
	if (!work->functions || !work->uses)
		r = -ENOMEM;
	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		r = is_meant(work, &work->module.functions[i]);
		if (r <= 0)
			continue;
		work->uses[work->n_functions] = work->use;
		work->functions[work->n_functions] = (struct probe_function){
			.function = &work->module.functions[i],
			.uses = &work->uses[work->n_functions],
			.use_count = 1,
		};
		work->n_functions++;
	}
	return r < 0 ? ptxpass_fail(error, PTXPASS_INTERNAL, "no memory") : 0;
}

/* The edited text, or NULL if the program found no place. */
static int edit(struct work *work, const struct ptxpass_program *program, char **output,
		size_t *length, struct ptxpass_error *error) {
	const struct probe_options options = { .stubs = work->stubs,
					       .n_stubs = work->n_stubs,
					       .call = true };
	const struct probe_program probe = {
		.symbol = program->symbol,
		.text = program->text,
		.length = strlen(program->text),
		.isa = program->isa,
		.target = program->target,
		.context = program->context,
		.context_count = program->context_count,
	};
	struct probe_result result = {};
	struct ptx_error why = {};
	struct ptx_edit *edits;
	uint32_t sites = 0;
	int r;

	r = ptx_edit_new(&edits, work->module.text, work->module.length);
	if (r)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "%s", strerror(-r));
	r = probe_apply(edits, &work->module, &options, &probe, 1, work->functions,
			work->n_functions, &result, &why);
	for (size_t i = 0; i < work->n_functions; i++)
		sites += work->uses[i].sites;
	if (!r && sites)
		r = ptx_edit_apply(edits, output, length);
	free(result.instructions);
	ptx_edit_free(edits);
	if (r > 0)
		return ptxpass_fail(error, PTXPASS_TRANSFORM, "%s",
				    why.message[0] ? why.message : "edits contradict each other");
	return r ? ptxpass_fail(error, PTXPASS_INTERNAL, "%s", strerror(-r)) : 0;
}

/* A name for the program that no pass before us has taken. */
static void name_program(const struct work *work, struct ptxpass_program *program) {
	for (unsigned int i = 0;; i++) {
		int length = snprintf(program->symbol, sizeof(program->symbol),
				      "__gpuprobe_pass_program_%u", i);

		if (!ptx_module_has_symbol(&work->module, program->symbol, (size_t)length))
			return;
	}
}

static int apply(struct work *work, char **output, size_t *length, struct ptxpass_error *error) {
	struct ptxpass_program program = {};
	int r;

	r = find_functions(work, error);
	if (r || !work->n_functions)
		return r;
	name_program(work, &program);
	r = ptxpass_program_make(&program, work->request, error);
	if (!r)
		r = edit(work, &program, output, length, error);
	ptxpass_program_deinit(&program);
	return r;
}

int ptxpass_apply(const struct pass_definition *definition, struct ptxpass_request *request,
		  const char *attach_point, char **output, size_t *length,
		  struct ptxpass_error *error) {
	struct work work = { .definition = definition, .request = request };
	struct ptx_error why = {};
	int r;

	*output = NULL;
	r = read_parameters(&work, error);
	if (!r)
		r = read_attach_point(&work, attach_point, error);
	if (r)
		return r == 1 ? 0 : r;
	r = ptx_module_parse(&work.module, request->ptx, request->ptx_length, &why);
	if (r > 0)
		return ptxpass_fail(error, PTXPASS_TRANSFORM, "full_ptx, line %u: %s", why.line,
				    why.message);
	if (r < 0)
		return ptxpass_fail(error, PTXPASS_INTERNAL, "%s", strerror(-r));
	r = apply(&work, output, length, error);
	free(work.functions);
	free(work.uses);
	ptx_module_deinit(&work.module);
	return r;
}
