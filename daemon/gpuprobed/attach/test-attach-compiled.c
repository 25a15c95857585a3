/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of attach-compiled.c: a correct reply, and each part of it broken alone. */

#include "attach-compiled.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The pool's part of a task: outputs from 1 on hold 10 bytes each. */
uint64_t worker_task_output_size(const struct worker_task *task, unsigned int index) {
	return 10;
}

int worker_task_steal_fd(struct worker_task *task, unsigned int index) {
	return dup(STDERR_FILENO);
}

#define MAP(members) "{\"used\":true," members "}"
#define PROGRAM(index, context, process)                            \
	"{\"index\":" #index ",\"symbol\":\"__gpuprobe_o7_p" #index \
	"\",\"size\":10,\"isa\":63,\"target\":52,"                  \
	"\"context\":" context ",\"maps\":[0],\"process\":" process ",\"local_bytes\":0}"

static struct map_shape shape_of(uint32_t type, uint32_t key_size, uint32_t value_size,
				 uint32_t place) {
	return (struct map_shape){ .type = type,
				   .key_size = key_size,
				   .value_size = value_size,
				   .max_entries = 4,
				   .place = place };
}

static size_t n_patches; /* asked for */

/* One map and one program, number 3 of the object. */
static int parse(struct compiled **compiledp, const struct map_shape *shape, const char *map,
		 const char *program, char error[static COMPILED_ERROR_SIZE]) {
	static const size_t chosen[] = { 3 };
	struct compiled_request request = { .prefix = "__gpuprobe_o7",
					    .n_maps = 1,
					    .shapes = shape,
					    .n_chosen = 1,
					    .chosen = chosen,
					    .n_patches = n_patches,
					    .no_patch = "not asked for" };
	json_object *reply;
	char text[2048];
	int r;

	snprintf(text, sizeof(text), "{\"maps\":[%s],\"programs\":[%s]}", map, program);
	reply = json_tokener_parse(text);
	assert_non_null(reply);
	error[0] = '\0';
	r = compiled_from_json(compiledp, reply, NULL, &request, error);
	json_object_put(reply);
	return r;
}

static void test_maps(void **state) {
	static const struct {
		uint32_t type, key_size, value_size, place;
		const char *map;
		int result;
		uint32_t merge; /* expected of a good one */
		bool resident;
	} cases[] = {
		{ 2, 4, 8, 0, MAP("\"merge\":1,\"resident\":true"), 0, MAP_MERGE_SUM64, true },
		{ 2, 4, 8, 0, MAP("\"merge\":0,\"resident\":false"), 0, MAP_MERGE_NONE, false },
		{ 1503, 4, 4, 0, MAP("\"merge\":2,\"resident\":false"), 0, MAP_MERGE_SUM32, false },
		{ 2, 4, 8, 0, MAP("\"merge\":4,\"resident\":false"), 0, MAP_MERGE_LATEST, false },
		{ 2, 4, 8, 0, MAP("\"merge\":4,\"resident\":true"), 0, MAP_MERGE_LATEST, true },
		{ 6, 4, 8, 0, MAP("\"merge\":3,\"resident\":false"), 0, MAP_MERGE_PERCPU, false },
		{ 5, 8, 8, 0, MAP("\"merge\":3,\"resident\":false"), 0, MAP_MERGE_PERCPU, false },
		{ 10, 8, 8, 0, MAP("\"merge\":3,\"resident\":false"), 0, MAP_MERGE_PERCPU, false },
		{ 9, 8, 8, 0, MAP("\"merge\":0,\"resident\":false"), 0, MAP_MERGE_NONE, false },
		{ 1501, 8, 8, 0, MAP("\"merge\":0,\"resident\":false"), 0, MAP_MERGE_NONE, false },
		{ 1527, 0, 0, 0, MAP("\"merge\":0,\"resident\":false"), 0, MAP_MERGE_NONE, false },
		{ 2, 4, 8, 1, MAP("\"merge\":0,\"resident\":false"), 0, MAP_MERGE_NONE, false },
		/* not possible for the map */
		{ 2, 4, 8, 0, MAP("\"merge\":3,\"resident\":false"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 16, 0, MAP("\"merge\":4,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		{ 2, 4, 8, 1, MAP("\"merge\":1,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false }, /* in host memory */
		{ 1513, 4, 8, 0, MAP("\"merge\":1,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		{ 1501, 8, 8, 0, MAP("\"merge\":1,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		{ 1502, 4, 8, 0, MAP("\"merge\":1,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		{ 6, 4, 8, 0, MAP("\"merge\":1,\"resident\":false"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, MAP("\"merge\":5,\"resident\":false"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, MAP("\"merge\":-1,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		/* modules hold sums only, and small ones */
		{ 2, 4, 8, 0, MAP("\"merge\":0,\"resident\":true"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 65536, 0, MAP("\"merge\":1,\"resident\":true"), COMPILED_E_INVALID, 0,
		  false },
		/* no map of a GPU, or no answer */
		{ 11, 4, 8, 0, MAP("\"merge\":0,\"resident\":false"), COMPILED_E_INVALID, 0,
		  false },
		{ 2, 8, 8, 0, MAP("\"merge\":0,\"resident\":false"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, MAP("\"merge\":0"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, MAP("\"resident\":false"), COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, "{\"merge\":0,\"resident\":false}", COMPILED_E_INVALID, 0, false },
		{ 2, 4, 8, 0, "7", COMPILED_E_INVALID, 0, false },
		/* the program uses a map that is said to be unused */
		{ 2, 4, 8, 0, "{\"used\":false}", COMPILED_E_INVALID, 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct map_shape shape = shape_of(cases[i].type, cases[i].key_size,
						  cases[i].value_size, cases[i].place),
				 with;
		struct compiled *compiled = NULL;
		char error[COMPILED_ERROR_SIZE];
		struct map_layout layout;

		if (parse(&compiled, &shape, cases[i].map, PROGRAM(3, "[]", "false"), error) !=
		    cases[i].result)
			fail_msg("case %zu: %s", i, error);
		assert_int_equal(!*error, cases[i].result == 0);
		if (cases[i].result)
			continue;
		with = shape;
		with.merge = cases[i].merge;
		assert_null(map_layout_init(&layout, &with));
		assert_memory_equal(&layout, &compiled->maps[0].layout, sizeof(layout));
		assert_int_equal(compiled->maps[0].resident, cases[i].resident);
		assert_int_equal(compiled->programs[0].maps, 1);
		compiled_free(compiled);
	}
}

static void test_programs(void **state) {
	static const char *const broken[] = {
		PROGRAM(2, "[]", "false"), /* not the one asked for */
		PROGRAM(3, "[4]", "false"),
		PROGRAM(3, "[-8]", "false"),
		PROGRAM(3, "[8,8]", "false"),
		PROGRAM(3, "[65536]", "false"),
		PROGRAM(3, "[\"8\"]", "false"),
		PROGRAM(3, "{}", "false"),
		PROGRAM(3, "[]", "1"),
		"{\"index\":3,\"symbol\":\"exit\",\"size\":10,\"isa\":63,\"target\":52,\"context\":"
		"[],\"maps\":[0],\"process\":false}",
		"{\"index\":3,\"symbol\":\"__gpuprobe_o7_p3\",\"size\":11,\"isa\":63,\"target\":52,"
		"\"context\":[],\"maps\":[0],"
		"\"process\":false}",
		"{\"index\":3,\"symbol\":\"__gpuprobe_o7_p3\",\"size\":10,\"isa\":63,\"target\":52,"
		"\"context\":[],\"maps\":[1],"
		"\"process\":false}",
	};
	struct map_shape shape = shape_of(2, 4, 8, 0);
	const char *map = MAP("\"merge\":0,\"resident\":false");
	struct compiled *compiled = NULL;
	char error[COMPILED_ERROR_SIZE];

	assert_int_equal(parse(&compiled, &shape, map, PROGRAM(3, "[64,80]", "true"), error), 0);
	assert_int_equal(compiled->programs[0].n_context, 2);
	assert_int_equal(compiled->programs[0].context[1], 80);
	assert_true(compiled->programs[0].process);
	compiled_free(compiled);
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		if (parse(&compiled, &shape, map, broken[i], error) != COMPILED_E_INVALID)
			fail_msg("%s", broken[i]);
}

static void test_context(void **state) {
	struct gpu_program program = { .context = { 0, 40, 160 }, .n_context = 3 };
	char error[COMPILED_ERROR_SIZE];

	assert_int_equal(compiled_check_context(&program, "p", POINT_ENTRY, error), 0);
	assert_int_equal(compiled_check_context(&program, "p", POINT_MEMORY, error),
			 COMPILED_E_INVALID);
	assert_string_equal(
		error,
		"program p reads byte 160 of its context: at a memory access it has 80 bytes");
	program.n_context = 2;
	assert_int_equal(compiled_check_context(&program, "p", POINT_MEMORY, error), 0);
	program.context[1] = 80;
	assert_int_equal(compiled_check_context(&program, "p", POINT_MEMORY, error),
			 COMPILED_E_INVALID);
	program.context[1] = 72; /* its launch */
	assert_int_equal(compiled_check_context(&program, "p", POINT_MEMORY, error), 0);
	program.context[1] = 192; /* and that of a kernel's context */
	assert_int_equal(compiled_check_context(&program, "p", POINT_ENTRY, error), 0);
	program.context[1] = POINT_UNIFORM; /* the pass gives it, at any place */
	assert_int_equal(compiled_check_context(&program, "p", POINT_ENTRY, error), 0);
	program.context[1] = 208;
	assert_int_equal(compiled_check_context(&program, "p", POINT_ENTRY, error),
			 COMPILED_E_INVALID);
	assert_string_equal(
		error, "program p reads byte 208 of its context: at this point it has 200 bytes");
	program.context[1] = 40;
	assert_int_equal(compiled_check_context(&program, "p", POINT_CLASS, error),
			 COMPILED_E_INVALID);
	assert_string_equal(
		error, "program p reads byte 40 of its context: at this point it has 40 bytes");
	program.context[1] = 32;
	assert_int_equal(compiled_check_context(&program, "p", POINT_CLASS, error), 0);
}

/* Variables of a thread are no field of the context; kernels have them. */
static void test_thread(void **state) {
	struct gpu_program program = { .context = { 0, POINT_THREAD + 16, POINT_THREAD + 56 },
				       .n_context = 3 };
	struct section section = { .point = POINT_ENTRY };
	char error[COMPILED_ERROR_SIZE];

	assert_int_equal(gpu_program_words(&program), 0x84);
	assert_int_equal(compiled_check_context(&program, "p", POINT_MEMORY, error), 0);
	assert_int_equal(compiled_check_thread(&program, "p", &section, error), 0);
	section.device_function = true;
	assert_int_equal(compiled_check_thread(&program, "p", &section, error), COMPILED_E_INVALID);
	assert_string_equal(error, "program p uses variables of a thread (.thread), which kernels "
				   "keep and device functions do not have: attach it to a kernel");
	program.n_context = 1;
	assert_int_equal(compiled_check_thread(&program, "p", &section, error), 0);
	program.context[0] = POINT_THREAD + 64;
	assert_int_equal(gpu_program_words(&program), 0);
	assert_int_equal(compiled_check_context(&program, "p", POINT_ENTRY, error),
			 COMPILED_E_INVALID);
}

/* The patch form: where it is, what is said when there is none, and lies. */
static void test_patch(void **state) {
	static const struct {
		const char *members;
		int result;
		bool has;
		const char *reason;
	} cases[] = {
		{ "\"patch_size\":10,\"patch_maps\":2", 0, true, "" },
		{ "\"patch_size\":0,\"patch_maps\":0,\"patch_reason\":\"it has\\na barrier\"", 0,
		  false, "it has?a barrier" },
		{ "\"patch_size\":0", 0, false,
		  "the program has no form for the sanitizer engine" },
		{ "\"x\":0", 0, false, "the program has no form for the sanitizer engine" },
		{ "\"patch_size\":9,\"patch_maps\":2", COMPILED_E_INVALID, false, NULL },
		{ "\"patch_size\":-1,\"patch_maps\":2", COMPILED_E_INVALID, false, NULL },
		{ "\"patch_size\":\"10\",\"patch_maps\":2", COMPILED_E_INVALID, false, NULL },
		{ "\"patch_size\":10,\"patch_maps\":1", COMPILED_E_INVALID, false, NULL },
		{ "\"patch_size\":10,\"patch_maps\":3", COMPILED_E_INVALID, false, NULL },
		{ "\"patch_size\":10", COMPILED_E_INVALID, false, NULL },
	};
	const struct map_shape shape = shape_of(2, 4, 8, 0);
	const char *map = MAP("\"merge\":0,\"resident\":false");
	struct compiled *compiled = NULL;
	char error[COMPILED_ERROR_SIZE], program[1024];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(program, sizeof(program),
			 "{\"index\":3,\"symbol\":\"__gpuprobe_o7_p3\",\"size\":10,\"isa\":63,"
			 "\"target\":52,\"context\":[0],"
			 "\"maps\":[0],\"process\":true,\"local_bytes\":24,%s}",
			 cases[i].members);
		n_patches = 1;
		if (parse(&compiled, &shape, map, program, error) != cases[i].result)
			fail_msg("%s: %s", cases[i].members, error);
		n_patches = 0;
		if (cases[i].result)
			continue;
		assert_int_equal(compiled->programs[0].patch_fd >= 0, cases[i].has);
		assert_string_equal(compiled->programs[0].patch_reason, cases[i].reason);
		assert_int_equal(compiled->programs[0].local_bytes, 24);
		assert_int_equal(compiled->programs[0].n_patch_maps, 1);
		compiled_free(compiled);
	}
	assert_int_equal(parse(&compiled, &shape, map, PROGRAM(3, "[0]", "true"), error),
			 0); /* not asked for */
	assert_int_equal(compiled->programs[0].patch_fd, -1);
	assert_string_equal(compiled->programs[0].patch_reason, "not asked for");
	compiled_free(compiled);
}

/* What the sanitizer engine does not know at a point takes the patch form away, and says why. */
static void test_check_patch(void **state) {
	static const struct {
		const char *section;
		uint16_t context;
		uint32_t spaces;
		bool has;
	} cases[] = {
		{ "kprobe/f", 48, 0x1f, true },      { "kprobe/f", 56, 0x1f, false },
		{ "kretprobe/f", 160, 0x1f, false }, { "memcapture/f", 40, 0x1f, true },
		{ "memcapture/f", 40, 0x10, false }, { "memcapture/f", 0, 0x1, true },
		{ "kprobe/f@call", 32, 0, true },    { "kprobe/f@x:1", 0, 0x1f, false },
		{ "kprobe/dev:f", 0, 0x1f, false },  { "kprobe/f", 192, 0x1f, true },
		{ "memcapture/f", 72, 0x1f, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpu_program program = { .context = { cases[i].context },
					       .n_context = 1,
					       .patch_fd = dup(STDERR_FILENO) };
		char error[SECTION_ERROR_SIZE];
		struct section section;

		assert_int_equal(section_parse(&section, cases[i].section, NULL, error), 0);
		compiled_check_patch(&program, &section, cases[i].spaces);
		if ((program.patch_fd >= 0) != cases[i].has)
			fail_msg("%s, byte %u", cases[i].section, cases[i].context);
		assert_int_equal(!program.patch_reason[0], cases[i].has);
		if (program.patch_fd >= 0)
			close(program.patch_fd);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_maps),    cmocka_unit_test(test_programs),
		cmocka_unit_test(test_context), cmocka_unit_test(test_thread),
		cmocka_unit_test(test_patch),   cmocka_unit_test(test_check_patch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
