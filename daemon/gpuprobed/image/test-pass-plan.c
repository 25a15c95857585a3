/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of pass-plan.c: which passes run on which kernels, in which order; the points of
 * definitions; parameters.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pass-plan.h"
#include "pass.h"

/* A set made of texts; its folder is gone afterwards. */
static void make_set(struct pass_set *set, const char *const *texts) {
	char folder[] = "/tmp/test-pass-plan-XXXXXX", path[64], command[64];
	const char *const folders[] = { folder };

	assert_non_null(mkdtemp(folder));
	for (size_t i = 0; texts[i]; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "%s/%zu.json", folder, i);
		file = fopen(path, "w");
		fputs(texts[i], file);
		fclose(file);
	}
	assert_int_equal(pass_set_load(set, folders, 1, NULL, NULL), 0);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

#define USER(name, order, include)                                           \
	"{\"name\":\"" name "\",\"executable\":\"/bin/sh\",\"order\":" order \
	",\"attach_points\":{\"include\":[" include "]}}"

/* Attachments by their sections, in a registry of their own; ids from 1. */
static void make_registry(struct registry *registry, struct attachment *attachments,
			  const char *const *sections, size_t n) {
	registry_init(registry);
	for (size_t i = 0; i < n; i++) {
		char error[SECTION_ERROR_SIZE];

		attachments[i] = (struct attachment){ .id = i + 1 };
		assert_int_equal(section_parse(&attachments[i].section, sections[i], NULL, error),
				 0);
		strcpy(attachments[i].section_text, sections[i]);
		TAILQ_INSERT_TAIL(&registry->attachments, &attachments[i], link);
		registry->sorted[registry->n_attachments++] = &attachments[i];
	}
}

/* The plan as text: "name attach_point;" for each step, "|" where ours come. */
static void expect_plan(const struct pass_set *set, const struct registry *registry,
			const char *kernels, const char *wanted) {
	json_object *reply = json_tokener_parse(kernels);
	struct pass_plan plan = {};
	char text[4096] = "";

	assert_non_null(reply);
	assert_int_equal(pass_plan_make(&plan, set, registry, reply), 0);
	for (size_t i = 0; i <= plan.n_steps; i++) {
		if (i == plan.n_before)
			strcat(text, "|");
		if (i < plan.n_steps)
			sprintf(text + strlen(text), "%s %s;", plan.steps[i].definition->name,
				plan.steps[i].attach_point);
	}
	assert_string_equal(text, wanted);
	pass_plan_deinit(&plan);
	json_object_put(reply);
}

static void test_plan(void **state) {
	static const char *const texts[] = {
		USER("entry", "10", "\"kprobe/f\""),
		USER("all", "20", "\"*\""),
		USER("late", "150", "\"kretprobe/_Z1fv\",\"memcapture/*\""),
		USER("never", "30", "\"kprobe/other\""),
		"{\"name\":\"typed\",\"executable\":\"/bin/"
		"sh\",\"order\":500,\"attach_type\":\"kretprobe\","
		"\"attach_points\":{\"include\":[\"*\"],\"exclude\":[\"kretprobe/g\"]}}",
		NULL,
	};
	static const char *const sections[] = { "kprobe/f*", "kretprobe/*", "kprobe/__memcapture",
						"kprobe/dev:h" };
	struct attachment attachments[4];
	struct registry registry;
	struct pass_set set;

	make_set(&set, texts);
	make_registry(&registry, attachments, sections, 4);
	assert_true(pass_set_runs_programs(&set));
	expect_plan(&set, &registry, "{}", "|");
	expect_plan(&set, &registry, "{\"kernels\":[]}", "|");
	/* By any name of the kernel, whatever the attachment called it. */
	expect_plan(
		&set, &registry,
		"{\"kernels\":[{\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"attachments\":[1]}]}",
		"entry kprobe/_Z1fv;all kprobe/_Z1fv;|");
	expect_plan(
		&set, &registry,
		"{\"kernels\":[{\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"attachments\":[2]}]}",
		"all kretprobe/_Z1fv;|late kretprobe/_Z1fv;typed kretprobe/_Z1fv;");
	expect_plan(
		&set, &registry,
		"{\"kernels\":[{\"name\":\"_Z1gv\",\"demangled\":\"g()\",\"attachments\":[2,3]}]}",
		"all kretprobe/_Z1gv;all memcapture/_Z1gv;|late memcapture/_Z1gv;");
	/* Two attachments at one point are one run; one that is gone is none. */
	expect_plan(&set, &registry,
		    "{\"kernels\":[{\"name\":\"f\",\"demangled\":\"f\",\"attachments\":[1,1,99]}]}",
		    "entry kprobe/f;all kprobe/f;|");
	expect_plan(&set, &registry,
		    "{\"kernels\":[{\"name\":\"h\",\"demangled\":\"h\",\"device_function\":true,"
		    "\"attachments\":[4]}]}",
		    "all kprobe/dev:h;|");
	/* What a worker might say that is none. */
	expect_plan(&set, &registry,
		    "{\"kernels\":[3,{},{\"name\":1,\"demangled\":\"f\",\"attachments\":[1]}]}",
		    "|");
	pass_set_deinit(&set);
}

static void test_many(void **state) {
	static const char *const texts[] = { USER("all", "20", "\"*\""), NULL };
	static const char *const sections[] = { "kprobe/*" };
	json_object *reply = json_object_new_object(), *kernels = json_object_new_array();
	struct attachment attachment;
	struct registry registry;
	struct pass_plan plan = {};
	struct pass_set set;

	make_set(&set, texts);
	make_registry(&registry, &attachment, sections, 1);
	for (int i = 0; i < 2 * PASS_RUNS_MAX; i++) {
		char text[128];

		snprintf(text, sizeof(text),
			 "{\"name\":\"k%d\",\"demangled\":\"k%d\",\"attachments\":[1]}", i, i);
		json_object_array_add(kernels, json_tokener_parse(text));
	}
	json_object_object_add(reply, "kernels", kernels);
	assert_int_equal(pass_plan_make(&plan, &set, &registry, reply), 0);
	assert_int_equal(plan.n_steps, PASS_RUNS_MAX);
	assert_true(plan.truncated);
	pass_plan_deinit(&plan);
	json_object_put(reply);
	pass_set_deinit(&set);
}

static const char *builtin(const struct pass_set *set, const char *text) {
	const struct pass_definition *definition;
	char error[SECTION_ERROR_SIZE];
	struct section section;

	assert_int_equal(section_parse(&section, text, "k", error), 0);
	definition = pass_set_builtin(set, &section, text);
	return definition ? definition->name : "none";
}

static void test_builtins(void **state) {
	static const char *const nothing[] = { NULL };
	static const char *const some[] = {
		"{\"name\":\"kretprobe\",\"attach_points\":{\"include\":[\"kretprobe/"
		"*\"],\"exclude\":[\"kretprobe/k\"]}}",
		"{\"name\":\"kprobe_entry\",\"attach_points\":{\"include\":[\"kprobe/*\"]},"
		"\"parameters\":{\"stubs\":[\"a\",\"b\",3]}}",
		"{\"name\":\"kprobe_memcapture\",\"attach_points\":{\"include\":[\"memcapture/"
		"*\"]},"
		"\"parameters\":{\"spaces\":[\"shared\",\"nothing\"]}}",
		NULL,
	};
	json_object *stubs = json_tokener_parse("[\"b\",\"c\"]");
	struct pass_set set;

	make_set(&set, nothing);
	assert_false(pass_set_runs_programs(&set));
	assert_string_equal(builtin(&set, "kprobe/k"), "kprobe_entry");
	assert_string_equal(builtin(&set, "kprobe/k@x.cu:3"), "kprobe_entry");
	assert_string_equal(builtin(&set, "kprobe/dev:k"), "kprobe_entry");
	assert_string_equal(builtin(&set, "gpu/whatever"), "kprobe_entry");
	assert_string_equal(builtin(&set, "kretprobe/k"), "kretprobe");
	assert_string_equal(builtin(&set, "memcapture/k"), "kprobe_memcapture");
	assert_string_equal(builtin(&set, "kprobe/__memcapture"), "kprobe_memcapture");
	assert_int_equal(pass_set_spaces(&set), POINT_SPACES_DEFAULT);
	pass_set_deinit(&set);

	make_set(&set, some);
	assert_string_equal(builtin(&set, "kretprobe/k"), "none");
	assert_string_equal(builtin(&set, "memcapture/k"), "kprobe_memcapture");
	assert_int_equal(pass_set_spaces(&set), point_space("shared"));
	pass_set_add_stubs(&set, stubs);
	assert_string_equal(json_object_to_json_string_ext(stubs, JSON_C_TO_STRING_PLAIN),
			    "[\"b\",\"c\",\"a\"]");
	json_object_put(stubs);
	pass_set_deinit(&set);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_builtins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
