/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of attach-choose.c: which programs of an object an attach request selects, at which
 * points, and which requests are refused.
 */

#include "attach-choose.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct linked *linked, const char *name, const char *section, bool gpu,
		uint32_t insns) {
	struct linked_program *program = &linked->programs[linked->n_programs++];

	strcpy(program->name, name);
	strcpy(program->section, section);
	program->gpu = gpu;
	program->insns.count = insns;
}

static void test_points(void **state) {
	struct linked *linked = calloc(1, sizeof(*linked));
	struct attach_choices choices;
	struct attach_trouble trouble;
	struct attach_wish wish = {};

	add(linked, "cuda__in", "kprobe/f", true, 2);
	add(linked, "cuda__out", "kretprobe/f", true, 2);
	add(linked, "cuda__memory", "memcapture/g", true, 2);
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	assert_int_equal(choices.n, 3);
	assert_int_equal(choices.n_hosts, 0);
	assert_int_equal(choices.programs[1].section.point, POINT_RETURN);
	assert_string_equal(choices.programs[2].section.kernel, "g");
	attach_choices_deinit(&choices);

	wish = (struct attach_wish){ .program = "cuda__out",
				     .kernel = "h*",
				     .point = "kprobe/f@x.cu:3" };
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	assert_int_equal(choices.n, 1);
	assert_int_equal(choices.programs[0].program, 1);
	assert_int_equal(choices.programs[0].section.point, POINT_LINE);
	assert_string_equal(choices.programs[0].section.kernel, "h*");
	assert_string_equal(choices.programs[0].text, "kprobe/f@x.cu:3");
	attach_choices_deinit(&choices);

	wish = (struct attach_wish){ .program = "cuda__memory", .spaces = 2 };
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	attach_choices_deinit(&choices);
	free(linked);
}

/* What a program's argument may be, where. */
static void test_contexts(void **state) {
	static const struct {
		const char *context, *section, *point;
		bool gpu;
		const char *reason; /* NULL: fine */
	} cases[] = {
		{ "", "kprobe/f", NULL, true, NULL },
		{ "pt_regs", "kprobe/f", NULL, true, NULL },
		{ "gpuprobe_of_another_project", "kprobe/f", NULL, true, NULL },
		{ "gpuprobe_kernel_ctx", "kprobe/f", NULL, true, NULL },
		{ "gpuprobe_kernel_ctx", "kretprobe/f", NULL, true, NULL },
		{ "gpuprobe_launch_ctx", "kprobe/f", NULL, true, NULL },
		{ "gpuprobe_launch_ctx", "kprobe/f@block:3", NULL, true, NULL },
		{ "gpuprobe_launch_ctx", "memcapture/f", NULL, true,
		  "program p takes a struct gpuprobe_launch_ctx, but memcapture/f gives a struct "
		  "gpuprobe_memory_ctx: change its argument, or its section" },
		{ "gpuprobe_kernel_ctx", "kprobe/f@x.cu:3", NULL, true, NULL },
		{ "gpuprobe_kernel_ctx", "kprobe/f@block:3", NULL, true, NULL },
		{ "gpuprobe_memory_ctx", "memcapture/f", NULL, true, NULL },
		{ "gpuprobe_memory_ctx", "kprobe/__memcapture", NULL, true, NULL },
		{ "gpuprobe_event_ctx", "kprobe/f@call", NULL, true, NULL },
		{ "gpuprobe_memory_ctx", "kprobe/f", "memcapture/f", true, NULL },
		{ "pt_regs", "tracepoint/a/b", NULL, false, NULL },
		{ "gpuprobe_memory_ctx", "kprobe/f", NULL, true,
		  "program p takes a struct gpuprobe_memory_ctx, but kprobe/f gives a struct "
		  "gpuprobe_kernel_ctx: change its argument, or its section" },
		{ "gpuprobe_memory_ctx", "kretprobe/f", NULL, true,
		  "program p takes a struct gpuprobe_memory_ctx, but kretprobe/f gives a struct "
		  "gpuprobe_kernel_ctx: change its argument, or its section" },
		{ "gpuprobe_kernel_ctx", "memcapture/f", NULL, true,
		  "program p takes a struct gpuprobe_kernel_ctx, but memcapture/f gives a struct "
		  "gpuprobe_memory_ctx: change its argument, or its section" },
		{ "gpuprobe_kernel_ctx", "kprobe/f@malloc", NULL, true,
		  "program p takes a struct gpuprobe_kernel_ctx, but kprobe/f@malloc gives a "
		  "struct gpuprobe_event_ctx: change its argument, or its section" },
		{ "gpuprobe_event_ctx", "kprobe/f@block:1", NULL, true,
		  "program p takes a struct gpuprobe_event_ctx, but kprobe/f@block:1 gives a "
		  "struct gpuprobe_kernel_ctx: change its argument, or its section" },
		{ "gpuprobe_kernel_ctx", "kprobe/f", "memcapture/f", true,
		  "program p takes a struct gpuprobe_kernel_ctx, but memcapture/f gives a struct "
		  "gpuprobe_memory_ctx: change its argument, or its section" },
		{ "gpuprobe_kernel_ctx", "tracepoint/a/b", NULL, false,
		  "program p takes a struct gpuprobe_kernel_ctx, which programs on the host "
		  "(tracepoint/a/b) do not get" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct linked *linked = calloc(1, sizeof(*linked));
		struct attach_wish wish = { .point = cases[i].point };
		struct attach_choices choices;
		struct attach_trouble trouble;
		int r;

		add(linked, "p", cases[i].section, cases[i].gpu, cases[i].gpu ? 2 : 0);
		strcpy(linked->programs[0].context, cases[i].context);
		r = attach_choose(&choices, linked, &wish, &trouble);
		assert_int_equal(r, cases[i].reason ? ATTACH_CHOOSE_E_OBJECT : 0);
		if (r)
			assert_string_equal(trouble.reason, cases[i].reason);
		attach_choices_deinit(&choices);
		free(linked);
	}
}

static void test_refused(void **state) {
	static const struct {
		struct attach_wish wish;
		const char *section;
		int result;
		const char *parameter, *reason;
	} cases[] = {
		{ { .program = "nobody" }, "kprobe/f", ATTACH_CHOOSE_E_NOT_FOUND, NULL, "nobody" },
		{ {},
		  "gpu",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "kernel",
		  "section \"gpu\" of program cuda__p names no kernel: say which with --kernel" },
		{ {},
		  "kprobe",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "kernel",
		  "section \"kprobe\" of program cuda__p names no kernel: say which with "
		  "--kernel" },
		{ {},
		  "kprobe/f@x.cu",
		  ATTACH_CHOOSE_E_OBJECT,
		  "kernel",
		  "kprobe/f@x.cu: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ { .point = "kprobe/f@x.cu" },
		  "kprobe/f",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "point",
		  "kprobe/f@x.cu: expected FILE:LINE, block:N, or one of call, ret, barrier, "
		  "syncwarp, shfl, malloc, free after @" },
		{ { .point = "entry" },
		  "kprobe/f",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "point",
		  "entry: expected kprobe/, kretprobe/ or memcapture/ and a kernel" },
		{ { .engine = ENGINE_PTX },
		  "kprobe/f@call",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "engine",
		  "kprobe/f@call: only the sanitizer engine has this point" },
		{ { .engine = ENGINE_SANITIZER },
		  "kprobe/f@x.cu:3",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "engine",
		  "kprobe/f@x.cu:3: source lines are points of PTX: the sanitizer engine has "
		  "none" },
		{ { .engine = ENGINE_SANITIZER },
		  "kprobe/f@block:3",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "engine",
		  "kprobe/f@block:3: basic blocks are points of PTX: the sanitizer engine has "
		  "none" },
		{ { .engine = ENGINE_SANITIZER },
		  "kretprobe/dev:g",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "engine",
		  "kretprobe/dev:g: device functions are functions of PTX: the sanitizer engine "
		  "sees "
		  "kernels" },
		{ { .engine = ENGINE_SANITIZER },
		  "kprobe/__directly_run",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "engine",
		  "kprobe/__directly_run: __directly_run is launched from PTX" },
		/* neither engine has it */
		{ { .kernel = "dev:g" },
		  "kprobe/f@ret",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "point",
		  "kprobe/f@ret: device functions are functions of PTX: the sanitizer engine sees "
		  "kernels" },
		{ { .spaces = 2 },
		  "kprobe/f",
		  ATTACH_CHOOSE_E_ARGUMENT,
		  "spaces",
		  "none of the programs stands at memory instructions (memcapture/)" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct linked *linked = calloc(1, sizeof(*linked));
		struct attach_choices choices;
		struct attach_trouble trouble;

		add(linked, "cuda__p", cases[i].section, true, 2);
		assert_int_equal(attach_choose(&choices, linked, &cases[i].wish, &trouble),
				 cases[i].result);
		assert_string_equal(trouble.reason, cases[i].reason);
		if (cases[i].parameter)
			assert_string_equal(trouble.parameter, cases[i].parameter);
		free(linked);
	}
}

/* Who runs on the host: the function of host programs is told, and nobody else is chosen for it. */
static void test_hosts(void **state) {
	struct linked *linked = calloc(1, sizeof(*linked));
	struct attach_wish wish = {};
	struct attach_choices choices;
	struct attach_trouble trouble;

	add(linked, "on_launch", "uprobe/cuLaunchKernel", false, 0);
	add(linked, "cuda__p", "kprobe/f", true, 2);
	add(linked, "plain", "kprobe/do_sys_open", false, 2);
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	assert_int_equal(choices.n, 1);
	assert_int_equal(choices.n_hosts, 2);
	assert_int_equal(choices.hosts[0], 0);
	assert_int_equal(choices.hosts[1], 2);
	attach_choices_deinit(&choices);

	/* nothing says that it is for the GPU, but --kernel: a program that can only run on the
	 * host stays there */
	linked->programs[1].gpu = false;
	wish.kernel = "k";
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	assert_int_equal(choices.n, 2);
	assert_int_equal(choices.n_hosts, 1);
	assert_string_equal(choices.programs[1].section.kernel, "k");
	attach_choices_deinit(&choices);
	free(linked);
}

static void test_bounds(void **state) {
	struct linked *linked = calloc(1, sizeof(*linked));
	struct attach_wish wish = {};
	struct attach_choices choices;
	struct attach_trouble trouble;
	char name[32];

	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), ATTACH_CHOOSE_E_OBJECT);
	assert_string_equal(trouble.reason, "the object has no program");
	for (int i = 0; i < JOB_COMPILE_PROGRAMS_MAX; i++) {
		snprintf(name, sizeof(name), "cuda__%d", i);
		add(linked, name, "kprobe/f", true, 2);
	}
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), 0);
	attach_choices_deinit(&choices);
	add(linked, "cuda__more", "kprobe/f", true, 2);
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), ATTACH_CHOOSE_E_LIMIT);
	linked->programs[3].insns.count = 0;
	assert_int_equal(attach_choose(&choices, linked, &wish, &trouble), ATTACH_CHOOSE_E_OBJECT);
	assert_string_equal(trouble.program, "cuda__3");
	free(linked);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_points),  cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
