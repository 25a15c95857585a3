/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of kernels.c: kernels of modules and outcomes, and lists of instructions from workers,
 * good and hostile.
 */

#include "kernels.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/daemon-private.h"
#include "daemon/gpuprobed/settings/account.h"
#include "proto/kernel-id.h"
#include "daemon/gpuprobed/image/kernel-names.h"
#include "daemon/gpuprobed/image/kernels-list.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "proto/patch.h"

static const char list_of_17[] =
	"[{\"index\":0,\"kernel\":\"_Z1fv\",\"text\":\"ld.global.f32 %f1, "
	"[%rd4];\",\"file\":\"x.cu\",\"line\":12},\n"
	" {\"index\":1,\"kernel\":\"_Z1gv\",\"text\":\"st.shared.u8 [%r1+\\\"}\\\"], %rs1;\"}]";

static const struct kernels_reader everybody = { .all = true };
static unsigned int n_parts; /* of the last list or search */

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

/* A twin with f() and the device function g(), or with f() alone. */
static struct image_result *make_result(uint32_t image, size_t n_kernels,
					const char *instructions) {
	struct image_result *result = NULL;

	assert_int_equal(image_result_new(&result), 0);
	result->made = true;
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

	daemon_connect_rooms(daemon);
	registry_init(&daemon->registry);
	outcome_log_init(&daemon->outcomes);
	process_table_init(&daemon->processes, NULL, NULL, NULL);
	assert_int_equal(image_cache_init(&daemon->image.images), 0);
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
	image_cache_deinit(&world->daemon.image.images);
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

/* The whole list, in replies of a few kernels. */
static json_object *list(const struct daemon *daemon, int64_t pid, bool more) {
	json_object *array = json_object_new_array();
	struct kernels_list list;
	int r;

	assert_int_equal(kernels_list_init(&list, &daemon->image, &everybody, pid, more), 0);
	for (n_parts = 1; (r = kernels_list_gather(&list)) > 0;)
		n_parts++;
	assert_int_equal(r, 0);
	while (kernels_list_take(&list, array, 1000))
		;
	kernels_list_deinit(&list);
	return array;
}

static void test_list(void **state) {
	struct world *world = *state;
	char expected[1024], f[17], g[17], h[17];

	snprintf(f, sizeof(f), "%016llx", (unsigned long long)kernel_id("_Z1fv", 5));
	snprintf(g, sizeof(g), "%016llx", (unsigned long long)kernel_id("_Z1gv", 5));
	snprintf(h, sizeof(h), "%016llx", (unsigned long long)kernel_id("_Z1hv", 5));
	snprintf(expected, sizeof(expected),
		 "[{\"id\":\"%s\",\"name\":\"_Z1hv\",\"demangled\":\"h()\",\"device_function\":"
		 "false,\"pids\":[],\"attachments\":[5]},"
		 "{\"id\":\"%s\",\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"device_function\":"
		 "false,\"pids\":[200,100],"
		 "\"attachments\":[18,17]},"
		 "{\"id\":\"%s\",\"name\":\"_Z1gv\",\"demangled\":\"g()\",\"device_function\":true,"
		 "\"pids\":[100],"
		 "\"attachments\":[17]}]",
		 h, f, g);
	assert_json(list(&world->daemon, 0, false), expected);
	snprintf(expected, sizeof(expected),
		 "[{\"id\":\"%s\",\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"device_function\":"
		 "false,\"pids\":[200],"
		 "\"attachments\":[18]}]",
		 f);
	assert_json(list(&world->daemon, 200, false), expected);
	assert_json(list(&world->daemon, 1, false), "[]");
}

#define F                                                                                  \
	"{\"id\":\"0000001100000000\",\"kernel\":\"_Z1fv\",\"text\":\"ld.global.f32 %f1, " \
	"[%rd4];\",\"file\":\"x.cu\",\"line\":12}"
#define G                                                                            \
	"{\"id\":\"0000001100000001\",\"kernel\":\"_Z1gv\",\"text\":\"st.shared.u8 " \
	"[%r1+\\\"}\\\"], %rs1;\"}"

/* Without a step to spare: as ShowKernel does it on a busy machine. */
static int show(const struct daemon *daemon, const struct kernels_reader *reader,
		const char *kernel, const char *instruction, json_object *array) {
	struct kernels_search *search = NULL;
	int r;

	r = kernels_search_new(&search, &daemon->control, reader, kernel, instruction, array);
	if (r)
		return r;
	for (n_parts = 1; (r = kernels_search_part(search, 0)) == KERNELS_E_AGAIN;)
		n_parts++;
	assert_null(kernels_search_free(search));
	return r;
}

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

		if (show(&world->daemon, &everybody, cases[i].kernel, cases[i].instruction,
			 array) != cases[i].result)
			fail_msg("case %zu", i);
		assert_json(array, cases[i].expected);
	}
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)kernel_id("_Z1gv", 5));
	json_object *array = json_object_new_array();
	assert_int_equal(show(&world->daemon, &everybody, id, NULL, array), 0);
	assert_json(array, "[" G "]");

	fd_close(world->results[0]->instructions); /* what cannot be meant is not read */
	world->results[0]->instructions = 1000;
	array = json_object_new_array();
	assert_int_equal(show(&world->daemon, &everybody, "nobody", NULL, array),
			 KERNELS_E_NOT_FOUND);
	assert_int_equal(show(&world->daemon, &everybody, "g", NULL, array), -EBADF);
	json_object_put(array);
	world->results[0]->instructions = -1;
}

/* ---- kernels of plans ---- */

#define KERNELS 20000
#define LIST_MAX (2 << 20)

struct plan_world {
	struct daemon daemon;
	struct process process;
	struct module module;
	struct image_result *result;
	struct account *account;
	char list[LIST_MAX]; /* of names */
	size_t list_size;
	struct {
		struct patch_plan plan;
		struct patch_kernel kernels[KERNELS];
	} plan;
};

/* One more module with the names PREFIX0 ...; each second one, from the first on, is
 * meant by attachments 7 and 9, or 9 alone. */
static void add_names(struct plan_world *world, uint32_t number, const char *prefix,
		      unsigned int n) {
	struct patch_module *module = (void *)(world->list + world->list_size);
	char *at = (char *)(module + 1);

	for (unsigned int i = 0; i < n; i++) {
		char name[64];
		int length = snprintf(name, sizeof(name), "%s%u", prefix, i);

		memcpy(at, name, (size_t)length + 1);
		at += length + 1;
		if (i % 2 == 0)
			world->plan.kernels[world->plan.plan.kernel_count++] =
				(struct patch_kernel){
					.module = number,
					.name = i,
					.kernel_id = kernel_id(name, (size_t)length),
					.attachments = i % 4 ? 2 : 3,
				};
	}
	while ((at - world->list) % 8)
		*at++ = 0;
	*module = (struct patch_module){ .size = (uint32_t)(at - (char *)module),
					 .number = number,
					 .name_count = n };
	world->list_size = (size_t)(at - world->list);
	assert_true(world->list_size < LIST_MAX);
}

static void seal_plan(struct plan_world *world) {
	const size_t size = sizeof(world->plan.plan) +
			    world->plan.plan.kernel_count * sizeof(world->plan.kernels[0]);
	int list = memfd_new_sealed("names", world->list, world->list_size);

	world->plan.plan.kernels = sizeof(world->plan.plan);
	fd_close(world->result->fd);
	world->result->fd = memfd_new_sealed("plan", &world->plan, size);
	world->result->size = size;
	assert_int_equal(image_result_charge(world->result, world->account, list, world->list_size),
			 0);
	fd_close(list);
}

/* Process 100 has a plan for attachments 7 and 9. */
static int plan_setup(void **state) {
	struct plan_world *world = calloc(1, sizeof(*world));
	static struct account_table accounts;

	daemon_connect_rooms(&world->daemon);
	registry_init(&world->daemon.registry);
	outcome_log_init(&world->daemon.outcomes);
	process_table_init(&world->daemon.processes, NULL, NULL, NULL);
	assert_int_equal(image_cache_init(&world->daemon.image.images), 0);
	assert_int_equal(account_get(&accounts, 1000, &world->account), 0);
	assert_int_equal(image_result_new(&world->result), 0);
	world->result->plan = world->result->made = true;
	world->result->asked = calloc(2, sizeof(uint64_t));
	world->result->asked[0] = 7;
	world->result->asked[1] = 9;
	world->result->n_asked = 2;
	world->process.facts.pid = 100;
	world->module.result = world->result;
	LIST_INIT(&world->process.modules);
	LIST_INSERT_HEAD(&world->daemon.processes.list, &world->process, link);
	LIST_INSERT_HEAD(&world->process.modules, &world->module, link);
	*state = world;
	return 0;
}

static int plan_teardown(void **state) {
	struct plan_world *world = *state;

	image_result_unref(world->result);
	outcome_log_deinit(&world->daemon.outcomes);
	image_cache_deinit(&world->daemon.image.images);
	account_unref(world->account);
	free(world);
	return 0;
}

static size_t length(json_object *array) {
	size_t n = json_object_array_length(array);

	json_object_put(array);
	return n;
}

static const char *member(json_object *array, size_t i, const char *key) {
	return json_object_to_json_string(
		json_object_object_get(json_object_array_get_idx(array, i), key));
}

/* Names that an earlier daemon knew are listed, too, and are no reason to leave out what processes
 * have. */
static void test_kept(void **state) {
	struct world *world = *state;
	json_object *array;
	char name[16];
	bool found = false;

	assert_int_equal(kernel_names_new(&world->daemon.image.names, -1), 0);
	for (unsigned int i = 0; i < KERNELS_MAX + 10; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		kernel_names_add(world->daemon.image.names, 0, name, name, false);
	}
	assert_int_equal(length(list(&world->daemon, 0, true)), 3 + KERNELS_MAX + 10);
	assert_int_equal(length(list(&world->daemon, 100, true)), 2);
	array = list(&world->daemon, 0, false);
	for (size_t i = 0; i < json_object_array_length(array); i++)
		found |= !strcmp(member(array, i, "name"), "\"_Z1fv\"");
	assert_true(found);
	json_object_put(array);
	world->daemon.image.names = kernel_names_free(world->daemon.image.names);
}

static void test_plan(void **state) {
	struct plan_world *world = *state;
	json_object *array;
	char id[20];

	world->result->kernels = calloc(1, sizeof(*world->result->kernels));
	world->result->kernels[world->result->n_kernels++] = make_kernel("a2", "a two", false, 9);
	add_names(world, 3, "a", 5);
	add_names(world, 8, "none", 0);
	add_names(world, 1, "b\033", 1);
	seal_plan(world);
	array = list(&world->daemon, 0, false);
	assert_int_equal(json_object_array_length(array), 4);
	assert_string_equal(member(array, 0, "name"), "\"a2\""); /* the worker's first */
	assert_string_equal(member(array, 0, "demangled"), "\"a two\"");
	assert_string_equal(member(array, 0, "attachments"), "[ 9 ]");
	assert_string_equal(member(array, 0, "pids"), "[ 100 ]");
	assert_string_equal(member(array, 1, "name"), "\"a0\"");
	assert_string_equal(member(array, 1, "demangled"), "\"a0\"");
	assert_string_equal(member(array, 1, "attachments"), "[ 7, 9 ]");
	assert_string_equal(member(array, 2, "name"), "\"a4\"");
	assert_string_equal(member(array, 3, "name"), "\"b?0\""); /* no escape sequences */
	snprintf(id, sizeof(id), "\"%016llx\"", (unsigned long long)kernel_id("b\0330", 3));
	assert_string_equal(member(array, 3, "id"), id);
	json_object_put(array);
	assert_int_equal(length(list(&world->daemon, 100, false)), 4);
	assert_int_equal(length(list(&world->daemon, 200, false)), 0);

	array = json_object_new_array();
	assert_int_equal(show(&world->daemon, &everybody, "a4", NULL, array), 0);
	assert_int_equal(show(&world->daemon, &everybody, "a?", NULL, array), 0);
	id[17] = '\0';
	assert_int_equal(show(&world->daemon, &everybody, id + 1, NULL, array), 0);
	assert_int_equal(show(&world->daemon, &everybody, "a3", NULL, array), KERNELS_E_NOT_FOUND);
	assert_int_equal(json_object_array_length(array), 0); /* patched, not rewritten */
	json_object_put(array);
}

/* One reply holds some, several hold all; in one turn of the loop there is a small part. */
static void test_plan_large(void **state) {
	struct plan_world *world = *state;
	json_object *array;

	add_names(world, 1, "_Z14kernel_of_many", 2 * KERNELS);
	seal_plan(world);
	assert_int_equal(length(list(&world->daemon, 0, false)), KERNELS_MAX);
	array = list(&world->daemon, 0, true);
	assert_int_equal(json_object_array_length(array), KERNELS);
	assert_string_equal(member(array, KERNELS - 1, "name"), "\"_Z14kernel_of_many39998\"");
	assert_in_range(n_parts, KERNELS / 1000, KERNELS);
	json_object_put(array);
	array = json_object_new_array();
	assert_int_equal(show(&world->daemon, &everybody, "*nobody*", NULL, array),
			 KERNELS_E_NOT_FOUND);
	assert_true(n_parts > KERNELS);
	assert_int_equal(show(&world->daemon, &everybody, "*many39998", NULL, array), 0);
	json_object_put(array);
}

/* What does not fit the list ends it, or is left out. */
static void test_plan_hostile(void **state) {
	struct plan_world *world = *state;
	struct patch_kernel *kernels = world->plan.kernels;
	const struct {
		struct patch_kernel kernel;
		size_t n;
	} cases[] = {
		{ { .module = 1, .name = 99, .kernel_id = kernel_id("a2", 2), .attachments = 1 },
		  1 },
		{ { .module = 2, .name = 2, .kernel_id = kernel_id("a2", 2), .attachments = 1 },
		  1 },
		{ { .module = 1, .name = 0, .kernel_id = kernel_id("a0", 2), .attachments = 1 },
		  1 }, /* again */
		{ { .module = 1, .name = 2, .kernel_id = 1, .attachments = 1 },
		  2 }, /* not its number */
		{ { .module = 1, .name = 2, .kernel_id = kernel_id("a2", 2), .attachments = 1 },
		  3 },
	};

	add_names(world, 1, "a", 6);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct image_result *result = NULL;

		kernels[1] = cases[i].kernel;
		assert_int_equal(image_result_new(&result), 0);
		result->plan = result->made = true;
		result->asked = calloc(2, sizeof(uint64_t));
		result->n_asked = 2;
		image_result_unref(world->result);
		world->module.result = world->result = result;
		seal_plan(world);
		assert_int_equal(length(list(&world->daemon, 0, false)), cases[i].n);
	}
}

/* Names of what no process has go first, then the oldest; nobody has more than the quota. */
static void test_names_quota(void **state) {
	struct plan_world *world = *state;
	const uint64_t third = ACCOUNT_KEPT_BYTES_MAX / 3;
	int fd = memfd_new_sealed("names", "x", 1);
	struct image_result *results[6];

	for (int i = 0; i < 6; i++)
		assert_int_equal(image_result_new(&results[i]), 0);
	assert_int_equal(
		image_result_charge(results[5], world->account, fd, ACCOUNT_KEPT_BYTES_MAX + 1), 0);
	assert_int_equal(results[5]->names, -1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(image_result_charge(results[i], world->account, fd, third), 0);
	image_result_ref(results[0]);
	assert_int_equal(image_result_charge(results[3], world->account, fd, third), 0);
	assert_true(results[0]->names >= 0 && results[1]->names < 0 && results[2]->names >= 0 &&
		    results[3]->names >= 0);
	image_result_ref(results[2]);
	image_result_ref(results[3]);
	assert_int_equal(image_result_charge(results[4], world->account, fd, third), 0);
	assert_true(results[0]->names < 0 && results[4]->names >= 0);
	assert_int_equal(world->account->kept_bytes, 3 * third);
	image_result_unref(results[0]);
	image_result_unref(results[2]);
	image_result_unref(results[3]);
	for (int i = 0; i < 6; i++)
		image_result_unref(results[i]);
	assert_int_equal(world->account->kept_bytes, 0);
	assert_int_equal(world->account->result_bytes, 0);
	fd_close(fd);
}

/* What modules hold has a bound: descriptors, and memory. The image itself goes with the cache. */
static void test_modules_quota(void **state) {
	struct plan_world *world = *state;
	struct image_result *results[ACCOUNT_KEPT_MAX + 10], *large;

	for (size_t i = 0; i < ACCOUNT_KEPT_MAX + 10; i++) {
		assert_int_equal(image_result_new(&results[i]), 0);
		results[i]->instructions = memfd_new_sealed("instructions", "[]", 2);
		results[i]->n_instructions = 2;
		results[i]->fd = memfd_new_sealed("image", "x", 1);
		results[i]->size = 1;
		results[i]->cached = true;
		assert_int_equal(image_result_charge(results[i], world->account, -1, 0), 0);
		assert_true(results[i]->fd >= 0);
		image_result_uncache(results[i]);
		assert_int_equal(results[i]->fd, -1);
	}
	assert_int_equal(world->account->n_kept, ACCOUNT_KEPT_MAX);
	for (size_t i = 0; i < ACCOUNT_KEPT_MAX + 10; i++)
		assert_true((results[i]->instructions >= 0) == (i >= 10));
	assert_int_equal(image_result_new(&large), 0);
	large->kernels = calloc(1, sizeof(large->kernels[0]));
	large->kernels[0] = (struct image_kernel){ .name = strdup("k"),
						   .demangled = strdup("k"),
						   .n_attachments = ACCOUNT_RESULT_BYTES_MAX / 8 };
	large->n_kernels = 1;
	assert_int_equal(image_result_charge(large, world->account, -1, 0), ACCOUNT_E_QUOTA);
	large->kernels[0].n_attachments = 0;
	assert_int_equal(image_result_charge(large, world->account, -1, 0), 0);
	image_result_unref(large);
	for (size_t i = 0; i < ACCOUNT_KEPT_MAX + 10; i++)
		image_result_unref(results[i]);
	assert_int_equal(world->account->n_kept, 0);
	assert_int_equal(world->account->kept_bytes, 0);
	assert_int_equal(world->account->result_bytes, 0);
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
		cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_plan, plan_setup, plan_teardown),
		cmocka_unit_test_setup_teardown(test_plan_large, plan_setup, plan_teardown),
		cmocka_unit_test_setup_teardown(test_plan_hostile, plan_setup, plan_teardown),
		cmocka_unit_test_setup_teardown(test_names_quota, plan_setup, plan_teardown),
		cmocka_unit_test_setup_teardown(test_modules_quota, plan_setup, plan_teardown),
		cmocka_unit_test(test_walk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
