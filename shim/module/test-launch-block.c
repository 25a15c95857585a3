/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of launch-block.c: what the driver gets for the arguments of a launch. */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "launch-block.h"

#define STREAM UINT64_C(0x1234)

static void check_block(const void *bytes) {
	struct launch_block block;

	memcpy(&block, bytes, sizeof(block));
	assert_int_not_equal(block.id, 0);
	assert_int_equal(block.stream, STREAM);
	assert_int_equal(block.thread, syscall(SYS_gettid));
	assert_int_equal(block.node, 0);
}

/* The pointers of the program, and one more: few, and so many that they need memory. */
static void test_pointers(void **state) {
	static const uint16_t counts[] = { 0, 1, 3, 127, 128, 4000 };
	static int values[4000];
	static void *arguments[4000];

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		const struct launch_form form = { counts[i], 4 * counts[i], 4 * counts[i], 1 };
		void **parameters = counts[i] ? arguments : NULL, **extra = NULL;
		struct launch_frame frame = {};

		for (size_t k = 0; k < counts[i]; k++)
			arguments[k] = &values[k];
		errno = 77;
		assert_true(launch_block_begin(&frame, &form, STREAM, &parameters, &extra));
		assert_true(parameters != arguments);
		for (size_t k = 0; k < counts[i]; k++)
			assert_ptr_equal(parameters[k], &values[k]);
		check_block(parameters[counts[i]]);
		assert_null(extra);
		launch_block_end(&frame);
		assert_ptr_equal(parameters, counts[i] ? arguments : NULL);
		assert_int_equal(errno, 77);
	}
}

/* The call has no `extra`. */
static void test_cooperative(void **state) {
	const struct launch_form form = { 1, 4, 8, 1 };
	int value;
	void *arguments[] = { &value }, **parameters = arguments;
	struct launch_frame frame = {};

	assert_true(launch_block_begin(&frame, &form, STREAM, &parameters, NULL));
	assert_ptr_equal(parameters[0], &value);
	check_block(parameters[1]);
	launch_block_end(&frame);
	assert_ptr_equal(parameters, arguments);
}

/* A buffer: the block goes behind its last parameter, wherever the program's ends. */
static void test_buffer(void **state) {
	static const struct {
		size_t has, size, offset;
	} shapes[] = { { 12, 12, 16 }, { 16, 12, 16 }, { 40, 12, 16 }, { 4000, 4000, 4000 } };
	static unsigned char bytes[4000];

	memset(bytes, 0xa5, sizeof(bytes));
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		size_t has = shapes[i].has, size = shapes[i].size, offset = shapes[i].offset;
		void *list[] = { (void *)2, &has, (void *)1, bytes, NULL };
		void **parameters = NULL, **extra = list;
		struct launch_frame frame = {};
		const struct launch_form form = { 1, (uint16_t)size, (uint16_t)offset, 1 };
		const unsigned char *got;

		assert_true(launch_block_begin(&frame, &form, STREAM, &parameters, &extra));
		assert_null(parameters);
		assert_ptr_equal(extra[0], (void *)1);
		assert_ptr_equal(extra[2], (void *)2);
		assert_null(extra[4]);
		got = extra[1];
		assert_int_equal(*(size_t *)extra[3], offset + sizeof(struct launch_block));
		assert_memory_equal(got, bytes, size);
		check_block(got + offset);
		launch_block_end(&frame);
		assert_ptr_equal(extra, list);
	}
}

/* What the driver would refuse, it is to refuse of the original. */
static void test_wrong(void **state) {
	int value;
	size_t size = 8;
	void *arguments[] = { &value }, *good[] = { (void *)1, &value, (void *)2, &size, NULL };
	void *small[] = { (void *)1, &value, (void *)2, &size, NULL };
	void *unknown[] = { (void *)3, &value, NULL }, *empty[] = { NULL };
	void *open[] = { (void *)2, NULL, NULL };
	const struct {
		void **parameters, **extra;
		uint16_t size;
	} calls[] = {
		{ NULL, NULL, 8 },    { arguments, good, 8 }, { NULL, small, 9 },
		{ NULL, unknown, 8 }, { NULL, empty, 8 },     { NULL, open, 8 },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void **parameters = calls[i].parameters, **extra = calls[i].extra;
		const struct launch_form form = { 1, calls[i].size, 16, 1 };
		struct launch_frame frame = {};

		assert_false(launch_block_begin(&frame, &form, STREAM, &parameters, &extra));
		assert_false(frame.used);
		assert_ptr_equal(parameters, calls[i].parameters);
		assert_ptr_equal(extra, calls[i].extra);
	}
}

#define IDS 10000

static void *take_ids(void *argument) {
	uint64_t *ids = argument;
	struct launch_block block;

	for (size_t i = 0; i < IDS; i++) {
		launch_block_fill(&block, STREAM);
		ids[i] = block.id;
	}
	return NULL;
}

static int compare(const void *a, const void *b) {
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void test_ids(void **state) {
	static uint64_t ids[4][IDS];
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_ids, ids[i]), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(ids[0][1], ids[0][0] + 1);
	qsort(ids, sizeof(ids) / sizeof(ids[0][0]), sizeof(ids[0][0]), compare);
	for (size_t i = 1; i < sizeof(ids) / sizeof(ids[0][0]); i++)
		assert_true((&ids[0][0])[i] > (&ids[0][0])[i - 1]);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pointers), cmocka_unit_test(test_cooperative),
		cmocka_unit_test(test_buffer),   cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
