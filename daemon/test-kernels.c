/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels of modules and outcomes, and workers' lists of instructions, good and hostile. */

#include "kernels.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "kernel-id.h"
#include "memfd.h"

static const char list_of_17[] =
	"[{\"index\":0,\"kernel\":\"_Z1fv\",\"text\":\"ld.global.f32 %f1, [%rd4];\",\"file\":\"x.cu\",\"line\":12},\n"
	" {\"index\":1,\"kernel\":\"_Z1gv\",\"text\":\"st.shared.u8 [%r1+\\\"}\\\"], %rs1;\"}]";

struct world {
	struct daemon daemon;
	struct process processes[2];
	struct module modules[4];
	struct image_result *results[2];
};

static struct image_kernel make_kernel(const char *name, const char *demangled, bool device,
				       uint64_t attachment) {
	struct image_kernel kernel = { .name = strdup(name),
				       .demangled = strdup(demangled),
				       .device_function = device,
				       .n_attachments = 1 };

	kernel.attachments = malloc(sizeof(uint64_t));
	kernel.attachments[0] = attachment;
	return kernel;
}

/* A replaced image with f() and the device function g(), or with f() alone. */
static struct image_result *make_result(uint32_t image, size_t n_kernels,
					const char *instructions) {
	struct image_result *result = NULL;

	assert_int_equal(image_result_new(&result), 0);
	result->replaced = true;
	result->image = image;
	result->kernels = calloc(n_kernels, sizeof(*result->kernels));
	result->kernels[0] = make_kernel("_Z1fv", "f()", false, image);
	if (n_kernels > 1)
		result->kernels[1] = make_kernel("_Z1gv", "g()", true, image);
	result->n_kernels = n_kernels;
	if (instructions) {
		result->n_instructions = strlen(instructions);
		result->instructions =
			memfd_new_sealed("instructions", instructions, strlen(instructions));
	}
	return result;
}

/* Process 100 has image 17 twice and 18; process 200 has 18; a third one missed h(). */
static int setup(void **state) {
	static const uint64_t missed[] = { 5 };
	struct world *world = calloc(1, sizeof(*world));
	struct daemon *daemon = &world->daemon;
	const size_t owner[] = { 0, 0, 1, 0 }, image[] = { 0, 1, 1, 0 };

	registry_init(&daemon->registry);
	outcome_log_init(&daemon->outcomes);
	process_table_init(&daemon->processes);
	assert_int_equal(image_cache_init(&daemon->images), 0);
	world->results[0] = make_result(17, 2, list_of_17);
	world->results[1] = make_result(18, 1, NULL);
	for (int i = 0; i < 2; i++) {
		world->processes[i].facts.pid = 100 * (i + 1);
		LIST_INIT(&world->processes[i].modules);
		LIST_INSERT_HEAD(&daemon->processes.list, &world->processes[i], link);
	}
	for (int i = 0; i < 4; i++) {
		world->modules[i].result = world->results[image[i]];
		LIST_INSERT_HEAD(&world->processes[owner[i]].modules, &world->modules[i], link);
	}
	outcome_log_add(&daemon->outcomes, 0, 300, "x", OUTCOME_NOT_PROBED,
			&(struct outcome_subject){ "_Z1hv", "h()", false, missed, 1 }, "no PTX");
	outcome_log_add(&daemon->outcomes, 0, 300, "x", OUTCOME_FAILED, &(struct outcome_subject){},
			"no kernel in it");
	*state = world;
	return 0;
}

static int teardown(void **state) {
	struct world *world = *state;

	image_result_unref(world->results[0]);
	image_result_unref(world->results[1]);
	outcome_log_deinit(&world->daemon.outcomes);
	image_cache_deinit(&world->daemon.images);
	free(world);
	return 0;
}

static void assert_json(json_object *array, const char *expected) {
	json_object *want = json_tokener_parse(expected);

	assert_non_null(want);
	assert_string_equal(json_object_to_json_string(array), json_object_to_json_string(want));
	json_object_put(want);
	json_object_put(array);
}

static void test_list(void **state) {
	struct world *world = *state;
	char expected[1024], f[17], g[17], h[17];

	snprintf(f, sizeof(f), "%016llx", (unsigned long long)kernel_id("_Z1fv", 5));
	snprintf(g, sizeof(g), "%016llx", (unsigned long long)kernel_id("_Z1gv", 5));
	snprintf(h, sizeof(h), "%016llx", (unsigned long long)kernel_id("_Z1hv", 5));
	snprintf(
		expected, sizeof(expected),
		"[{\"id\":\"%s\",\"name\":\"_Z1hv\",\"demangled\":\"h()\",\"device_function\":false,\"pids\":[],\"attachments\":[5]},"
		"{\"id\":\"%s\",\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"device_function\":false,\"pids\":[200,100],"
		"\"attachments\":[18,17]},"
		"{\"id\":\"%s\",\"name\":\"_Z1gv\",\"demangled\":\"g()\",\"device_function\":true,\"pids\":[100],"
		"\"attachments\":[17]}]",
		h, f, g);
	assert_json(kernels_list(&world->daemon, NULL, 0), expected);
	snprintf(
		expected, sizeof(expected),
		"[{\"id\":\"%s\",\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"device_function\":false,\"pids\":[200],"
		"\"attachments\":[18]}]",
		f);
	assert_json(kernels_list(&world->daemon, NULL, 200), expected);
	assert_json(kernels_list(&world->daemon, NULL, 1), "[]");
}

#define F                                                                                          \
	"{\"id\":\"0000001100000000\",\"kernel\":\"_Z1fv\",\"text\":\"ld.global.f32 %f1, [%rd4];\",\"file\":\"x.cu\",\"line\":12}"
#define G                                                                                          \
	"{\"id\":\"0000001100000001\",\"kernel\":\"_Z1gv\",\"text\":\"st.shared.u8 [%r1+\\\"}\\\"], %rs1;\"}"

static void test_show(void **state) {
	static const struct {
		const char *kernel, *instruction, *expected;
		int result;
	} cases[] = {
		{ "f", NULL, "[" F "]", 0 },
		{ "_Z1gv", NULL, "[" G "]", 0 },
		{ "_Z1?v", NULL, "[" F "," G "]", 0 },
		{ NULL, "0000001100000001", "[" G "]", 0 },
		{ NULL, "0x1100000000", "[" F "]", 0 },
		{ NULL, "1100000002", "[]", KERNELS_E_NOT_FOUND },
		{ NULL, "1200000000", "[]", KERNELS_E_NOT_FOUND }, /* that image has none */
		{ NULL, "f", "[]", KERNELS_E_NOT_FOUND },
		{ NULL, "g", "[]", KERNELS_E_INVALID },
		{ NULL, "", "[]", KERNELS_E_INVALID },
		{ NULL, "11111111111111111", "[]", KERNELS_E_INVALID },
		{ "nobody", NULL, "[]", KERNELS_E_NOT_FOUND },
		{ "h", NULL, "[]",
		  KERNELS_E_NOT_FOUND }, /* it was missed: no image of it is here */
	};
	struct world *world = *state;
	char id[17];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_object *array = json_object_new_array();

		if (kernels_show(&world->daemon, NULL, cases[i].kernel, cases[i].instruction,
				 array) != cases[i].result)
			fail_msg("case %zu", i);
		assert_json(array, cases[i].expected);
	}
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)kernel_id("_Z1gv", 5));
	json_object *array = json_object_new_array();
	assert_int_equal(kernels_show(&world->daemon, NULL, id, NULL, array), 0);
	assert_json(array, "[" G "]");

	fd_close(world->results[0]->instructions); /* what cannot be meant is not read */
	world->results[0]->instructions = 1000;
	array = json_object_new_array();
	assert_int_equal(kernels_show(&world->daemon, NULL, "nobody", NULL, array),
			 KERNELS_E_NOT_FOUND);
	assert_int_equal(kernels_show(&world->daemon, NULL, "g", NULL, array), -EBADF);
	json_object_put(array);
	world->results[0]->instructions = -1;
}

static int count(json_object *item, void *userdata) {
	++*(int *)userdata;
	return json_object_object_get_ex(item, "stop", NULL) ? 42 : 0;
}

static int walk(const char *text, int *n) {
	*n = 0;
	return kernels_walk(text, strlen(text), count, n);
}

static void test_walk(void **state) {
	static const struct {
		const char *text;
		int result, n;
	} cases[] = {
		{ "[]", 0, 0 },
		{ "[{\"a\":1}]", 0, 1 },
		{ " [{}]", KERNELS_E_INVALID, 0 },
		{ "[ {\"a\":\"\\\\\"} , {\"b\":\"}]{\\\"\"}\n]", 0, 2 },
		{ "[{\"stop\":1},{}]", 42, 1 },
		{ "", KERNELS_E_INVALID, 0 },
		{ "{}", KERNELS_E_INVALID, 0 },
		{ "[", KERNELS_E_INVALID, 0 },
		{ "[{\"a\":1}", KERNELS_E_INVALID, 1 },
		{ "[{\"a\":1},7]", KERNELS_E_INVALID, 1 },
		{ "[{\"a\":{]", KERNELS_E_INVALID, 0 },
		{ "[{\"a\":\"}]", KERNELS_E_INVALID, 0 },
		{ "[{a:1}]", KERNELS_E_INVALID, 0 },
		{ "[{\"a\":\"\xff\"}]", KERNELS_E_INVALID, 0 },
		{ "[{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}]", KERNELS_E_INVALID, 0 },
		{ "[{\"a\":\"\\", KERNELS_E_INVALID, 0 },
	};
	char *large;
	int n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (walk(cases[i].text, &n) != cases[i].result || n != cases[i].n)
			fail_msg("%s: %d elements", cases[i].text, n);
	large = malloc(200 * 1024);
	memset(large, 'x', 200 * 1024);
	memcpy(large, "[{\"a\":\"", 7);
	assert_int_equal(kernels_walk(large, 200 * 1024, count, &n), KERNELS_E_INVALID);
	free(large);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_show, setup, teardown),
		cmocka_unit_test(test_walk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
