/* SPDX-License-Identifier: Apache-2.0 */

/* A reply as it should be, and each part of it broken alone. */

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
#define PROGRAM(index, context, process)                                                           \
	"{\"index\":" #index ",\"symbol\":\"__gpuprobe_o7_p" #index                                \
	"\",\"size\":10,\"isa\":63,\"target\":52,"                                                 \
	"\"context\":" context ",\"maps\":[0],\"process\":" process ",\"local_bytes\":0}"

static struct map_shape shape_of(uint32_t type, uint32_t key_size, uint32_t value_size,
				 uint32_t place) {
	return (struct map_shape){ .type = type,
				   .key_size = key_size,
				   .value_size = value_size,
				   .max_entries = 4,
				   .place = place };
}

/* One map and one program, number 3 of the object. */
static int parse(struct compiled **compiledp, const struct map_shape *shape, const char *map,
		 const char *program, char error[static COMPILED_ERROR_SIZE]) {
	static const size_t chosen[] = { 3 };
	struct compiled_request request = {
		.object = 7, .n_maps = 1, .shapes = shape, .n_chosen = 1, .chosen = chosen
	};
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
		{ 9, 4, 8, 0, MAP("\"merge\":0,\"resident\":false"), COMPILED_E_INVALID, 0, false },
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
		"{\"index\":3,\"symbol\":\"exit\",\"size\":10,\"isa\":63,\"target\":52,\"context\":[],\"maps\":[0],\"process\":false}",
		"{\"index\":3,\"symbol\":\"__gpuprobe_o7_p3\",\"size\":11,\"isa\":63,\"target\":52,\"context\":[],\"maps\":[0],"
		"\"process\":false}",
		"{\"index\":3,\"symbol\":\"__gpuprobe_o7_p3\",\"size\":10,\"isa\":63,\"target\":52,\"context\":[],\"maps\":[1],"
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
	struct compiled_program program = { .context = { 0, 40, 160 }, .n_context = 3 };
	char error[COMPILED_ERROR_SIZE];

	assert_int_equal(compiled_check_context(&program, "p", false, error), 0);
	assert_int_equal(compiled_check_context(&program, "p", true, error), COMPILED_E_INVALID);
	assert_string_equal(
		error,
		"program p reads byte 160 of its context: at a memory access it has 48 bytes");
	program.n_context = 2;
	assert_int_equal(compiled_check_context(&program, "p", true, error), 0);
	program.context[1] = 48;
	assert_int_equal(compiled_check_context(&program, "p", true, error), COMPILED_E_INVALID);
	program.context[1] = 168;
	assert_int_equal(compiled_check_context(&program, "p", false, error), COMPILED_E_INVALID);
	assert_string_equal(
		error, "program p reads byte 168 of its context: at this point it has 168 bytes");
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
