/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Chooses which programs of an object are attached, where, and on the GPU or the host
 * (attach-choose.h).
 *
 * A program is for the GPU if `link` says so. If it says so of none, --kernel or --point make GPU
 * programs of those that could be (an object of another tool, whose section is kprobe/ and that
 * uses nothing of the GPU). The others run on the host.
 */

#include "attach-choose.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/job.h"

/* Fills in *trouble; returns result. */
__attribute__((format(printf, 4, 5))) static int trouble_set(struct attach_trouble *trouble,
							     int result, const char *program,
							     const char *format, ...) {
	va_list arguments;

	trouble->program = program;
	va_start(arguments, format);
	vsnprintf(trouble->reason, sizeof(trouble->reason), format, arguments);
	va_end(arguments);
	return result;
}

/* Whether the engine that was asked for has the point; the program is taken if so. */
static int choose_engine(struct attach_choices *choices, const struct linked_program *program,
			 enum engine engine, struct attach_trouble *trouble) {
	const struct attach_choice *choice = &choices->programs[choices->n];
	const char *why = section_needs_ptx(&choice->section);

	if (why && (engine == ENGINE_SANITIZER || section_needs_sass(&choice->section)))
		trouble->parameter = engine == ENGINE_SANITIZER ? "engine" : "point";
	else if (engine == ENGINE_PTX && section_needs_sass(&choice->section))
		trouble->parameter = "engine";
	if (trouble->parameter)
		return trouble_set(trouble, ATTACH_CHOOSE_E_ARGUMENT, program->name, "%.128s: %s",
				   choice->text, why ?: "only the sanitizer engine has this point");
	choices->n++;
	return 0;
}

/*
 * Whether the program is written for the context that it gets there. Its argument may be any other
 * type (void *, the struct of another project): only a context of ours that is not the point's is a
 * mistake. section: NULL on the host, where there is none of them.
 */
static int choose_context(const struct linked_program *program, const char *text,
			  const struct section *section, struct attach_trouble *trouble) {
	const struct point *point = section ? section_point(section) : NULL;
	bool ours = false;

	for (size_t i = 0; i < POINT_CONTEXTS; i++)
		ours = ours || strcmp(program->context, point_contexts[i].name) == 0;
	if (!ours || (point && point_takes(point->context, program->context)))
		return 0;
	if (!point)
		return trouble_set(trouble, ATTACH_CHOOSE_E_OBJECT, program->name,
				   "program %s takes a struct %s, which programs on the host "
				   "(%.100s) do not get",
				   program->name, program->context, text);
	return trouble_set(trouble, ATTACH_CHOOSE_E_OBJECT, program->name,
			   "program %s takes a struct %s, but %.100s%s gives a struct %s: change "
			   "its argument, or its section",
			   program->name, program->context, text, strlen(text) > 100 ? "..." : "",
			   point_contexts[point->context].name);
}

/* Adds a GPU program. */
static int choose_one(struct attach_choices *choices, const struct linked *linked, size_t index,
		      const struct attach_wish *wish, struct attach_trouble *trouble) {
	const struct linked_program *program = &linked->programs[index];
	struct attach_choice *choice = &choices->programs[choices->n];
	char error[SECTION_ERROR_SIZE];
	int r;

	if (!program->insns.count)
		return trouble_set(trouble, ATTACH_CHOOSE_E_OBJECT, program->name,
				   "program %s has no instructions", program->name);
	if (choices->n == JOB_COMPILE_PROGRAMS_MAX)
		return trouble_set(trouble, ATTACH_CHOOSE_E_LIMIT, NULL,
				   "GPU programs of one object");
	choice->program = index;
	choice->text = wish->point ?: program->section;
	if (section_parse(&choice->section, choice->text, wish->kernel, error)) {
		trouble->parameter = wish->point ? "point" : "kernel";
		return trouble_set(trouble,
				   wish->point ? ATTACH_CHOOSE_E_ARGUMENT : ATTACH_CHOOSE_E_OBJECT,
				   program->name, "%s", error);
	}
	if (wish->point && !choice->section.known) {
		trouble->parameter = "point";
		return trouble_set(
			trouble, ATTACH_CHOOSE_E_ARGUMENT, program->name,
			"%.100s: expected kprobe/, kretprobe/ or memcapture/ and a kernel",
			wish->point);
	}
	if (!choice->section.kernel[0]) {
		trouble->parameter = "kernel";
		return trouble_set(
			trouble, ATTACH_CHOOSE_E_ARGUMENT, program->name,
			"section \"%.128s\" of program %s names no kernel: say which with --kernel",
			choice->text, program->name);
	}
	r = choose_context(program, choice->text, &choice->section, trouble);
	return r ?: choose_engine(choices, program, wish->engine, trouble);
}

/* All that are to be looked at, in the order of the object. */
static int choose_all(struct attach_choices *choices, const struct linked *linked,
		      const struct attach_wish *wish, bool all_may,
		      struct attach_trouble *trouble) {
	bool found = false;
	int r;

	for (size_t i = 0; i < linked->n_programs; i++) {
		const struct linked_program *program = &linked->programs[i];

		if (wish->program && fnmatch(wish->program, program->name, 0) != 0)
			continue;
		found = true;
		if (!program->gpu && !(all_may && program->insns.count)) {
			choices->hosts[choices->n_hosts++] = i;
			r = choose_context(program, program->section, NULL, trouble);
			if (r)
				return r;
			continue;
		}
		r = choose_one(choices, linked, i, wish, trouble);
		if (r)
			return r;
	}
	if (!found && wish->program)
		return trouble_set(trouble, ATTACH_CHOOSE_E_NOT_FOUND, NULL, "%.200s",
				   wish->program);
	return 0;
}

/* Whether --spaces means anybody. */
static bool any_memory(const struct attach_choices *choices) {
	for (size_t i = 0; i < choices->n; i++)
		if (choices->programs[i].section.point == POINT_MEMORY)
			return true;
	return false;
}

int attach_choose(struct attach_choices *choices, const struct linked *linked,
		  const struct attach_wish *wish, struct attach_trouble *trouble) {
	size_t n_gpu = 0;
	int r;

	*choices = (struct attach_choices){};
	*trouble = (struct attach_trouble){};
	choices->programs = calloc(JOB_COMPILE_PROGRAMS_MAX, sizeof(*choices->programs));
	if (!choices->programs)
		return -ENOMEM;
	for (size_t i = 0; i < linked->n_programs; i++)
		n_gpu += linked->programs[i].gpu;
	r = choose_all(choices, linked, wish, !n_gpu && (wish->kernel || wish->point), trouble);
	if (r == 0 && !choices->n && !choices->n_hosts)
		r = trouble_set(trouble, ATTACH_CHOOSE_E_OBJECT, NULL, "the object has no program");
	if (r == 0 && wish->spaces && !any_memory(choices)) {
		trouble->parameter = "spaces";
		r = trouble_set(trouble, ATTACH_CHOOSE_E_ARGUMENT, NULL,
				"none of the programs stands at memory instructions (memcapture/)");
	}
	if (r)
		attach_choices_deinit(choices);
	return r;
}

void attach_choices_deinit(struct attach_choices *choices) {
	free(choices->programs);
	*choices = (struct attach_choices){};
}
