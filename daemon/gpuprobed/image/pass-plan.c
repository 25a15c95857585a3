/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which passes run on which kernels of an image (pass-plan.h). A definition's globs match a
 * kernel by any of its names, and an attachment by its section. The pass runs where both an
 * attachment and the pass apply.
 */

#include "pass-plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/registry/outcome.h"
#include "pass.h"
#include "lib/json.h"

#define PASS_STUBS_MAX 64 /* that a job can carry */

/* Does one of the globs mean the kernel, by any of its names? */
static bool pass_globs_mean(const struct pass_strings *globs, const char *prefix,
			    const char *kernel, const char *demangled) {
	size_t length = strlen(prefix);

	for (size_t i = 0; i < globs->n; i++)
		if (!strncmp(globs->strings[i], prefix, length) &&
		    globs->strings[i][length] == '/' &&
		    outcome_kernel_means(kernel, demangled, globs->strings[i] + length + 1))
			return true;
	return false;
}

static bool pass_means(const struct pass_definition *definition,
		       const struct attachment *attachment, const char *kernel,
		       const char *demangled) {
	const char *prefix = section_point(&attachment->section)->section;

	if (definition->attach_type != PASS_ATTACH_ANY &&
	    strcmp(pass_attach_types[definition->attach_type], prefix))
		return false;
	if (pass_globs_mean(&definition->exclude, prefix, kernel, demangled))
		return false;
	return pass_definition_means(definition, attachment->section_text) ||
	       pass_globs_mean(&definition->include, prefix, kernel, demangled);
}

/* One run more, unless the same is there. 0 or -ENOMEM. */
static int pass_add_step(struct pass_plan *plan, const struct pass_definition *definition,
			 const char *prefix, const char *kernel, bool device_function) {
	struct pass_step *step = &plan->steps[plan->n_steps];
	char *attach_point;

	if (asprintf(&attach_point, "%s/%s%s", prefix, device_function ? "dev:" : "", kernel) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < plan->n_steps; i++)
		if (plan->steps[i].definition == definition &&
		    !strcmp(plan->steps[i].attach_point, attach_point)) {
			free(attach_point);
			return 0;
		}
	if (plan->n_steps == PASS_RUNS_MAX) {
		plan->truncated = true;
		free(attach_point);
		return 0;
	}
	step->definition = definition;
	step->attach_point = attach_point;
	step->kernel = strdup(kernel);
	plan->n_steps++;
	return step->kernel ? 0 : -ENOMEM;
}

/* The runs of a definition on one member of "kernels". */
static int pass_plan_kernel(struct pass_plan *plan, const struct registry *registry,
			    const struct pass_definition *definition, json_object *kernel) {
	const char *name, *demangled;
	json_object *ids;
	int r = 0;

	if (!json_get_string(kernel, JOB_KEY_NAME, &name) ||
	    !json_get_string(kernel, JOB_KEY_DEMANGLED, &demangled) ||
	    !json_get_array(kernel, JOB_KEY_ATTACHMENTS, SIZE_MAX, &ids))
		return 0;
	for (size_t i = 0; r == 0 && i < json_object_array_length(ids); i++) {
		json_object *id = json_object_array_get_idx(ids, i);
		const struct attachment *attachment =
			registry_attachment(registry, (uint64_t)json_object_get_int64(id));

		if (attachment && pass_means(definition, attachment, name, demangled))
			r = pass_add_step(plan, definition,
					  section_point(&attachment->section)->section, name,
					  json_bool_of(kernel, JOB_KEY_DEVICE_FUNCTION));
	}
	return r;
}

int pass_plan_make(struct pass_plan *plan, const struct pass_set *set,
		   const struct registry *registry, json_object *reply) {
	json_object *kernels;
	bool ours = false;
	int r = 0;

	if (!json_get_array(reply, JOB_KEY_KERNELS, SIZE_MAX, &kernels))
		return 0;
	for (size_t i = 0; i < set->n && r == 0; i++) {
		const struct pass_definition *definition = set->definitions[i];

		if (!definition->executable && !ours) {
			ours = true;
			plan->n_before = plan->n_steps;
		}
		for (size_t k = 0;
		     definition->executable && r == 0 && k < json_object_array_length(kernels); k++)
			r = pass_plan_kernel(plan, registry, definition,
					     json_object_array_get_idx(kernels, k));
	}
	if (!ours)
		plan->n_before = plan->n_steps;
	return r;
}

void pass_plan_deinit(struct pass_plan *plan) {
	for (size_t i = 0; i < plan->n_steps; i++) {
		free(plan->steps[i].attach_point);
		free(plan->steps[i].kernel);
	}
}

bool pass_set_runs_programs(const struct pass_set *set) {
	for (size_t i = 0; i < set->n; i++)
		if (set->definitions[i]->executable)
			return true;
	return false;
}

const struct pass_definition *pass_set_builtin(const struct pass_set *set,
					       const struct section *section,
					       const char *section_text) {
	const char *prefix = section_point(section)->section;

	for (size_t i = 0; i < set->n; i++) {
		const struct pass_definition *definition = set->definitions[i];
		char plain[SECTION_KERNEL_SIZE + 32];

		if (definition->executable)
			continue;
		/* A program in a section of another kind is at the entry. */
		snprintf(plain, sizeof(plain), "%s/%s%s", prefix,
			 section->device_function ? "dev:" : "", section->kernel);
		if (pass_definition_means(definition, section_text) ||
		    pass_definition_means(definition, plain))
			return definition;
	}
	return NULL;
}

/* A parameter of a pass that is built in: an array, or NULL. */
static json_object *pass_parameter(const struct pass_set *set, const char *name,
				   const char *parameter) {
	const struct pass_definition *definition = pass_set_find(set, name);

	return definition && !definition->executable
		       ? json_get(definition->parameters, parameter, json_type_array)
		       : NULL;
}

void pass_set_add_stubs(const struct pass_set *set, json_object *array) {
	json_object *stubs = pass_parameter(set, "kprobe_entry", "stubs");

	for (size_t i = 0; stubs && i < json_object_array_length(stubs); i++) {
		json_object *stub = json_object_array_get_idx(stubs, i);
		bool there = !json_object_is_type(stub, json_type_string) ||
			     json_object_array_length(array) >= PASS_STUBS_MAX;

		for (size_t j = 0; !there && j < json_object_array_length(array); j++)
			there = !strcmp(json_object_get_string(json_object_array_get_idx(array, j)),
					json_object_get_string(stub));
		if (!there)
			json_append(array, json_object_get(stub));
	}
}

uint32_t pass_set_spaces(const struct pass_set *set) {
	json_object *names = pass_parameter(set, "kprobe_memcapture", "spaces");
	uint32_t spaces = 0;

	for (size_t i = 0; names && i < json_object_array_length(names); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(names, i));

		spaces |= name ? point_space(name) : 0;
	}
	return spaces ? spaces : POINT_SPACES_DEFAULT;
}
