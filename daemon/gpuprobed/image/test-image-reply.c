/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of image-reply.c: slots of all kinds, kernels, instructions; and replies that lie. */

#include "image-reply.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/wire.h"

/* The pool's part of a task: a twin's image of 100 bytes and 20 bytes of instructions. */
uint64_t worker_task_output_size(const struct worker_task *task, unsigned int index) {
	return index == IMAGE_REPLY_OUTPUT ? 100 : index == IMAGE_REPLY_INSTRUCTIONS ? 20 : 0;
}

int worker_task_steal_fd(struct worker_task *task, unsigned int index) {
	return dup(STDERR_FILENO);
}

struct world {
	struct registry registry;
	struct map_accounts *accounts;
};

/* One object with maps 11 (resident), 12 and 13; attachment 1 uses 11 and 12, 2 uses 12 and knows
 * its process, 3 uses none. */
static int setup(void **state) {
	struct map_shape shape = { .type = 2,
				   .key_size = 4,
				   .value_size = 8,
				   .max_entries = 1,
				   .merge = MAP_MERGE_SUM64 };
	struct map_spec spec = { .name = "m",
				 .type = 2,
				 .key_size = 4,
				 .value_size = 8,
				 .max_entries = 1,
				 .kernel_fd = -1 };
	static const uint64_t uses[] = { 3, 2, 0 };
	struct world *world = calloc(1, sizeof(*world));
	struct attachment *attachments[3];
	struct object *object;

	registry_init(&world->registry);
	assert_int_equal(map_accounts_new(&world->accounts, UINT64_C(1) << 30), 0);
	assert_null(map_layout_init(&spec.layout, &shape));
	assert_int_equal(object_new(&object, 1, 0), 0);
	object->n_maps = 3;
	object->resident = 1;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(map_new(&object->maps[i], 11 + i, 1, 0, &spec, world->accounts),
				 0);
		strcpy(object->slots[i], (const char *[]){ "data", "pointer", "unused" }[i]);
		assert_int_equal(attachment_new(&attachments[i], object, ATTACHMENT_GPU), 0);
		attachments[i]->of.gpu.maps = uses[i];
		attachments[i]->of.gpu.process = i == 1;
	}
	registry_link(&world->registry, object, attachments, 3);
	*state = world;
	return 0;
}

static int teardown(void **state) {
	struct world *world = *state;

	registry_deinit(&world->registry);
	map_accounts_free(world->accounts);
	free(world);
	return 0;
}

static int parse(const struct world *world, const char *text, struct image_result **resultp) {
	static const uint64_t offered[] = { 1, 2, 3 };
	struct image_reply_request request = { .registry = &world->registry,
					       .attachments = offered,
					       .n_attachments = 3,
					       .image = 17 };
	json_object *reply = json_tokener_parse(text);
	int r;

	assert_non_null(reply);
	*resultp = NULL;
	r = image_reply_parse(resultp, reply, NULL, &request);
	json_object_put(reply);
	return r;
}

#define KERNELS                                                                          \
	"\"kernels\":[{\"name\":\"_Z1fv\",\"demangled\":\"f()\",\"attachments\":[1,2]}," \
	"{\"name\":\"_Z1gv\",\"demangled\":\"g()\",\"device_function\":true,\"attachments\":[2]}]"

static void test_replaced(void **state) {
	struct image_result *result;

	assert_int_equal(parse(*state,
			       "{\"status\":\"made\",\"size\":100,\"applied\":[1,2]," KERNELS
			       ",\"kernel_count\":2,\"instructions_size\":20}",
			       &result),
			 0);
	assert_true(result->made);
	assert_int_equal(result->image, 17);
	assert_true(result->instructions >= 0);
	assert_int_equal(result->n_instructions, 20);
	assert_int_equal(result->n_kernels, 2);
	assert_false(result->kernels[0].device_function);
	assert_true(result->kernels[1].device_function);
	assert_int_equal(result->n_slots, 3); /* each once */
	assert_int_equal(result->slots[0].map, 11);
	assert_int_equal(result->slots[0].kind, WIRE_SLOT_DATA);
	assert_string_equal(result->slots[0].symbol, "data");
	assert_int_equal(result->slots[1].map, 12);
	assert_int_equal(result->slots[1].kind, WIRE_SLOT_POINTER);
	assert_int_equal(result->slots[2].map, 0);
	assert_int_equal(result->slots[2].kind, WIRE_SLOT_PROCESS);
	assert_string_equal(result->slots[2].symbol, WIRE_PROCESS_SYMBOL);
	image_result_unref(result);

	assert_int_equal(
		parse(*state, "{\"status\":\"made\",\"size\":100,\"applied\":[3]}", &result), 0);
	assert_int_equal(result->n_slots, 0);
	assert_int_equal(result->instructions, -1);
	image_result_unref(result);
}

static void test_missing(void **state) {
	struct image_result *result;

	assert_int_equal(parse(*state,
			       "{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":["
			       "{\"name\":\"f\",\"attachments\":"
			       "[1],\"missing\":[{\"id\":3,\"point\":\"line "
			       "x.cu:12\"},{\"id\":2,\"point\":\"block 9\"}]}]}",
			       &result),
			 0);
	assert_int_equal(result->kernels[0].n_missing, 2);
	assert_int_equal(result->kernels[0].missing[0], 3);
	assert_string_equal(result->kernels[0].missing_text, "line x.cu:12");
	assert_false(result->kernels[0].left_out);
	image_result_unref(result);
	/* left out: the reason says it all */
	assert_int_equal(parse(*state,
			       "{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":["
			       "{\"name\":\"f\",\"attachments\":[],\"reason\":\"no\\ntwin\","
			       "\"missing\":[{\"id\":3,\"point\":\"entry\"}]}]}",
			       &result),
			 0);
	assert_int_equal(result->kernels[0].n_attachments, 0);
	assert_int_equal(result->kernels[0].n_missing, 1);
	assert_true(result->kernels[0].left_out);
	assert_string_equal(result->kernels[0].missing_text, "no?twin");
	image_result_unref(result);
}

static void test_own(void **state) {
	struct image_result *result;

	assert_int_equal(parse(*state,
			       "{\"status\":\"own\",\"reason\":\"no such point in kernel f: line "
			       "x.cu:12\",\"kernels\":[{\"name\":"
			       "\"_Z1fv\",\"demangled\":\"f()\",\"attachments\":[1]}]}",
			       &result),
			 0);
	assert_false(result->made);
	assert_false(result->failed);
	assert_string_equal(result->reason, "no such point in kernel f: line x.cu:12");
	assert_int_equal(result->n_kernels, 1);
	image_result_unref(result);
}

/* The cause says that an image has no PTX, and the text of the reason does not. */
static void test_no_ptx(void **state) {
	static const struct {
		const char *reply;
		bool no_ptx;
	} replies[] = {
		{ "{\"status\":\"own\",\"reason\":\"x\",\"cause\":\"no_ptx\"}", true },
		{ "{\"status\":\"own\",\"reason\":\"no PTX\"}", false },
		{ "{\"status\":\"own\",\"reason\":\"no PTX\",\"cause\":\"other\"}", false },
		{ "{\"status\":\"own\",\"reason\":\"no PTX\",\"cause\":1}", false },
	};
	struct image_result *result;

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		assert_int_equal(parse(*state, replies[i].reply, &result), 0);
		assert_int_equal(result->no_ptx, replies[i].no_ptx);
		image_result_unref(result);
	}
}

static void test_lies(void **state) {
	static const char *const lies[] = {
		"{}",
		"{\"status\":7}",
		"{\"status\":\"text\",\"size\":100,\"applied\":[1]}",
		"{\"status\":\"made\",\"size\":99,\"applied\":[1]}",
		"{\"status\":\"made\",\"size\":100}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[4]}", /* was not asked for */
		"{\"status\":\"made\",\"size\":100,\"applied\":[1,1,2,3]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"instructions_size\":19}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"instructions_size\":"
		"\"20\"}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":[{\"name\":1}]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":[{\"name\":"
		"\"f\",\"missing\":[{\"id\":4}]}]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":[{\"name\":"
		"\"f\",\"missing\":[1]}]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":[{\"name\":"
		"\"f\",\"missing\":{}}]}",
		"{\"status\":\"made\",\"size\":100,\"applied\":[1],\"kernels\":[{\"name\":"
		"\"f\",\"attachments\":[9]}]}",
	};
	struct image_result *result;

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		if (parse(*state, lies[i], &result) != IMAGE_REPLY_E_INVALID)
			fail_msg("%s", lies[i]);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(test_missing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_ptx, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
