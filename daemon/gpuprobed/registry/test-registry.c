/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of registry.c: attaching and detaching, ids, limits for each user, and unique prefixes
 * of symbols.
 */

#include "registry.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static struct map *make_map(struct map_accounts *accounts, uint64_t id) {
	struct map_shape shape = { .type = 2, .key_size = 4, .value_size = 8, .max_entries = 1 };
	struct map_spec spec = { .name = "m",
				 .type = 2,
				 .key_size = 4,
				 .value_size = 8,
				 .max_entries = 1,
				 .kernel_fd = -1 };
	struct map *map = NULL;

	assert_null(map_layout_init(&spec.layout, &shape));
	assert_int_equal(map_new(&map, id, 1, 0, &spec, accounts), 0);
	return map;
}

/* Order is that of attaching, whatever went away meanwhile; ids are never used again; the rest of
 * an object stays. */
static void test_order_and_detach(void **state) {
	struct map_accounts *accounts = NULL;
	struct attachment *attachments[3], *more[1], *attachment;
	struct object *first = NULL, *second = NULL;
	struct registry registry;
	const struct map *map;
	uint64_t last = 0;

	registry_init(&registry);
	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 30), 0);
	assert_int_equal(object_new(&first, 1, 0), 0);
	first->n_maps = 2;
	map = first->maps[0] = make_map(accounts, 11);
	first->maps[1] = make_map(accounts, 12);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(attachment_new(&attachments[i], first, ATTACHMENT_GPU), 0);
		attachments[i]->of.gpu.maps = i == 1 ? 3 : 2;
	}
	registry_link(&registry, first, attachments, 3);
	assert_int_equal(attachments[0]->id, 1);
	assert_int_equal(attachments[2]->id, 3);
	assert_true(registry_map_used(&registry, map));
	registry_remove(&registry, attachments[1]);
	assert_false(registry_map_used(&registry, map)); /* but the object has it still */
	assert_ptr_equal(registry_map(&registry, 11, NULL), map);
	assert_ptr_equal(registry_attachment(&registry, 1), attachments[0]);
	assert_null(registry_attachment(&registry, 2));
	assert_ptr_equal(registry_attachment(&registry, 3), attachments[2]);

	assert_int_equal(object_new(&second, 2, 0), 0);
	assert_int_equal(attachment_new(&more[0], second, ATTACHMENT_GPU), 0);
	registry_link(&registry, second, more, 1);
	assert_int_equal(more[0]->id, 4);
	TAILQ_FOREACH(attachment, &registry.attachments, link) {
		assert_true(attachment->id > last);
		last = attachment->id;
	}
	assert_int_equal(registry.n_attachments, 3);
	registry_remove(&registry, attachments[0]);
	registry_remove(&registry, attachments[2]);
	assert_null(registry_map(&registry, 11, NULL));
	registry_deinit(&registry);
	map_accounts_free(accounts);
}

/* An attachment on the host has no program on the GPU: no engine has it, it uses no map of a
 * module, and the page does not name it. */
static void test_kinds(void **state) {
	struct interest_rule rules[REGISTRY_ATTACHMENTS_MAX];
	struct map_accounts *accounts = NULL;
	struct attachment *attachments[2];
	struct object *object = NULL;
	struct registry registry;

	registry_init(&registry);
	assert_int_equal(map_accounts_new(&accounts, UINT64_C(1) << 30), 0);
	assert_int_equal(object_new(&object, 1, 0), 0);
	assert_int_equal(host_adopt(&object->host), 0);
	object->n_maps = 1;
	object->maps[0] = make_map(accounts, 11);
	assert_int_equal(attachment_new(&attachments[0], object, ATTACHMENT_HOST), 0);
	assert_int_equal(attachment_new(&attachments[1], object, ATTACHMENT_GPU), 0);
	attachments[0]->of.host.index = 3;
	attachments[1]->of.gpu.maps = 1;
	registry_link(&registry, object, attachments, 2);
	assert_null(attachment_gpu(NULL));
	assert_null(attachment_host(NULL));
	assert_null(attachment_gpu(attachments[0]));
	assert_int_equal(attachment_host(attachments[0])->index, 3);
	assert_false(attachment_on_ptx(attachments[0]) || attachment_on_sass(attachments[0]));
	assert_false(attachment_uses(attachments[0], object->maps[0]));
	assert_null(attachment_host(attachments[1]));
	assert_ptr_equal(attachment_gpu(attachments[1]), &attachments[1]->of.gpu);
	assert_true(attachment_on_ptx(attachments[1]) &&
		    attachment_uses(attachments[1], object->maps[0]));
	assert_int_equal(attachments[1]->of.gpu.fd, -1);
	assert_int_equal(attachments[1]->of.gpu.patch_fd, -1);
	assert_int_equal(registry_rules(&registry, rules), 1);
	registry_deinit(&registry);
	map_accounts_free(accounts);
}

/* An object of n attachments. */
static int attach_some(struct registry *registry, uid_t owner, size_t n) {
	struct attachment *attachments[64];
	struct object *object = NULL;
	int r = registry_room(registry, owner, n);

	if (r)
		return r;
	assert_int_equal(object_new(&object, 1, owner), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(attachment_new(&attachments[i], object, ATTACHMENT_GPU), 0);
	registry_link(registry, object, attachments, n);
	return 0;
}

/* Users who have taken all that they can get leave some to a user who has none, and to root. */
static void test_room(void **state) {
	struct registry registry;
	unsigned int n = 0;

	registry_init(&registry);
	while (attach_some(&registry, 1001 + n % 2, 64) == 0)
		n++;
	assert_int_equal(attach_some(&registry, 1001, 1), REGISTRY_E_LIMIT);
	assert_int_equal(attach_some(&registry, 1003, 60), 0);
	for (uid_t uid = 2000; attach_some(&registry, uid, 1) == 0; uid++)
		assert_true(registry.n_attachments < REGISTRY_ATTACHMENTS_MAX);
	assert_int_equal(attach_some(&registry, 1004, 1), REGISTRY_E_LIMIT);
	assert_int_equal(attach_some(&registry, 0, REGISTRY_KEPT_FOR_ROOT), 0);
	assert_int_equal(attach_some(&registry, 0, 1), REGISTRY_E_LIMIT);
	registry_deinit(&registry);
}

/* Symbols of objects that live at a time differ; one that is gone leaves its to the next. What was
 * restored has its own. */
static void test_prefixes(void **state) {
	struct prefix *a = NULL, *b = NULL, *c = NULL;
	struct attachment *attachments[1];
	struct object *object = NULL;
	struct registry registry;

	registry_init(&registry);
	assert_int_equal(registry_prefix_new(&registry, "__gpuprobe_oab", &a), 0);
	assert_int_equal(registry_prefix_new(&registry, "__gpuprobe_oab", &b), 0);
	assert_string_equal(a->text, "__gpuprobe_oab");
	assert_string_equal(b->text, "__gpuprobe_oabx2");
	prefix_free(a);
	assert_int_equal(registry_prefix_new(&registry, "__gpuprobe_oab", &a), 0);
	assert_string_equal(a->text, "__gpuprobe_oab");

	assert_int_equal(object_new(&object, 1, 0), 0);
	assert_int_equal(attachment_new(&attachments[0], object, ATTACHMENT_GPU), 0);
	attachments[0]->id = 5;
	strcpy(attachments[0]->of.gpu.symbol, "__gpuprobe_ocd_p0");
	registry_adopt(&registry, object, attachments, 1);
	assert_string_equal(object->prefix->text, "__gpuprobe_ocd");
	assert_int_equal(registry_prefix_new(&registry, "__gpuprobe_ocd", &c), 0);
	assert_string_equal(c->text, "__gpuprobe_ocdx2");
	prefix_free(a);
	prefix_free(b);
	prefix_free(c);
	registry_deinit(&registry);
	assert_true(LIST_EMPTY(&registry.prefixes));
}

int main(void) {
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_order_and_detach),
					    cmocka_unit_test(test_kinds),
					    cmocka_unit_test(test_room),
					    cmocka_unit_test(test_prefixes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
