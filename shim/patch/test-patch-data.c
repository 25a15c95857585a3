/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of patch-data.c: cells that cannot be written, and what is reported about a map that
 * was to be taken out of them.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "shim/module/arm.h"
#include "patch-data.h"
#include "shim/engine/sass.h"

#define OLD_MAP 0x1000
#define NEW_MAP 0x2000
#define SLOT (sizeof(struct patch_data) / 8) /* of the only one */
#define IMAGE 7

static bool fails, arrives; /* writes; all the same */
static void *memory;

uint64_t arm_born(void) {
	return 1;
}

uint64_t driver_context_id(driver_handle context) {
	return DRIVER_CONTEXT_ID_NONE;
}

static const char *alloc(driver_handle context, driver_pointer *address, size_t size) {
	memory = calloc(1, size);
	*address = (driver_pointer)(uintptr_t)memory;
	return NULL;
}

static const char *write_memory(driver_handle context, driver_pointer address, const void *bytes,
				size_t size) {
	if (!fails || arrives)
		memcpy((void *)(uintptr_t)address, bytes, size);
	return fails ? "it fails" : NULL;
}

static const struct sass_engine engine = { .abi = SASS_ABI, .alloc = alloc, .write = write_memory };
static const struct patch_view view = { .image_id = IMAGE,
					.data_size = sizeof(struct patch_data) + 16 };
static uint64_t attachments = 1, kernel_id = 2;
static struct patch_module_entry entry;
static struct patch_context *context;

static uint64_t word(size_t number) {
	return ((uint64_t *)memory)[number];
}

static const char *prepare(uint64_t map) {
	context->data[SLOT] = map;
	return patch_cells_prepare(context, &engine, &entry, &view);
}

static bool forget(uint64_t map) {
	return patch_cells_forget(context, &engine, &entry, map);
}

static int begin(void **state) {
	fails = arrives = false;
	context = patch_context_get((driver_handle)&entry);
	entry = (struct patch_module_entry){ .names = { .count = 1 },
					     .attachments = &attachments,
					     .kernel_ids = &kernel_id };
	return !context || prepare(OLD_MAP);
}

static int end(void **state) {
	patch_cells_free(context, &entry);
	patch_context_forget(context->handle, 0, UINT64_MAX);
	free(memory);
	return 0;
}

static void test_forgotten(void **state) {
	assert_int_equal(word(SLOT), OLD_MAP);
	assert_true(forget(NEW_MAP));
	assert_int_equal(word(SLOT), OLD_MAP);
	assert_true(forget(OLD_MAP));
	assert_int_equal(word(SLOT), 0);
	assert_int_equal(word(0), attachments);
}

/* What was not written is written later. */
static void test_write_fails(void **state) {
	fails = true;
	assert_false(forget(OLD_MAP));
	assert_false(forget(OLD_MAP));
	fails = false;
	assert_true(forget(OLD_MAP));
	assert_int_equal(word(SLOT), 0);
}

/* The memory has a map that was to be replaced by another one. */
static void test_replacing_fails(void **state) {
	fails = true;
	assert_non_null(prepare(NEW_MAP));
	assert_false(forget(OLD_MAP));
	fails = false;
	assert_true(forget(OLD_MAP));
	assert_int_equal(word(SLOT), NEW_MAP);
}

/* Nothing is meant any more, but the patches were not told. */
static void test_finishing_fails(void **state) {
	fails = true;
	patch_cells_finish(context, &engine, &entry, NULL);
	assert_int_equal(word(0), attachments);
	assert_false(forget(OLD_MAP));
	fails = false;
	assert_true(forget(OLD_MAP));
	assert_int_equal(word(0), 0);
}

/* Who has no attachments looks at no map. */
static void test_finished(void **state) {
	patch_cells_finish(context, &engine, &entry, NULL);
	fails = true;
	assert_true(forget(OLD_MAP));
	assert_int_equal(word(0), 0);
}

/* A write that fails may have arrived. */
static void test_arrives(void **state) {
	patch_cells_finish(context, &engine, &entry, NULL);
	fails = arrives = true;
	assert_non_null(prepare(NEW_MAP));
	assert_int_equal(word(0), attachments);
	arrives = false;
	assert_false(forget(NEW_MAP));
	fails = false;
	patch_cells_finish(context, &engine, &entry, NULL);
	assert_int_equal(word(0), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_forgotten, begin, end),
		cmocka_unit_test_setup_teardown(test_write_fails, begin, end),
		cmocka_unit_test_setup_teardown(test_replacing_fails, begin, end),
		cmocka_unit_test_setup_teardown(test_finishing_fails, begin, end),
		cmocka_unit_test_setup_teardown(test_finished, begin, end),
		cmocka_unit_test_setup_teardown(test_arrives, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
