/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of fit.c. The driver under it is a double whose answers the test sets. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "fit.h"
#include "shim/driver/test-double.h"

static char handles[4096];
#define CONTEXT ((driver_handle) & handles[0])
#define OTHER ((driver_handle) & handles[1])
#define ORIGINAL ((driver_handle) & handles[2])
#define TWIN ((driver_handle) & handles[3])
#define STREAM ((driver_handle) & handles[4])

static struct {
	int original, twin; /* blocks that fit on a multiprocessor; -1: the driver does not say */
	int original_clusters, twin_clusters; /* on the device; -1: the driver does not say */
	bool required; /* the kernel itself says how large they are */
	bool refuses_clusters; /* where it has none, the driver answers with an error */
	unsigned processors, green, affinity; /* of the device; of the context, 0: not said */
	unsigned asked, asked_clusters;
	bool cannot_enter;
	int mode; /* of captures */
	driver_handle current;
} driver_double;

static driver_result get_current(driver_handle *context) {
	*context = driver_double.current;
	return 0;
}

static driver_result set_current(driver_handle context) {
	if (driver_double.cannot_enter && context == CONTEXT)
		return 201;
	driver_double.current = context;
	return 0;
}

static driver_result exchange_mode(int *mode) {
	int before = driver_double.mode;

	driver_double.mode = *mode;
	*mode = before;
	return 0;
}

static driver_result get_device(int *device) {
	*device = 3;
	return 0;
}

static driver_result get_device_attribute(int *value, int attribute, int device) {
	if (attribute != 16 || device != 3)
		return 1;
	*value = (int)driver_double.processors;
	return 0;
}

static driver_result count_blocks(int *count, driver_handle function, int threads, size_t shared) {
	/* in a relaxed mode, and where it will run */
	assert_int_equal(driver_double.mode, DRIVER_CAPTURE_MODE_RELAXED);
	assert_ptr_equal(driver_double.current, CONTEXT);
	driver_double.asked++;
	*count = function == ORIGINAL ? driver_double.original : driver_double.twin;
	return *count < 0 ? 1 : 0;
}

static driver_result count_clusters(int *count, driver_handle function, const void *given) {
	const struct fit_configuration *configuration = given;

	assert_ptr_equal(driver_double.current, CONTEXT);
	driver_double.asked_clusters++;
	if (configuration->count) {
		assert_int_equal(configuration->attributes->id, 4);
		assert_int_equal(configuration->attributes->value[0], 2);
	} else if (!driver_double.required) { /* what an H100 answers */
		*count = 0;
		return driver_double.refuses_clusters ? DRIVER_ERROR_CLUSTER_SIZE : 0;
	}
	*count = function == ORIGINAL ? driver_double.original_clusters
				      : driver_double.twin_clusters;
	return *count < 0 ? 1 : 0;
}

static driver_result get_resource(driver_handle context, void *resource, int type) {
	const unsigned count = driver_double.green;

	assert_ptr_equal(context, CONTEXT);
	assert_int_equal(type, 1);
	memcpy((char *)resource + 96, &count, sizeof(count));
	return count ? 0 : 801;
}

static driver_result get_affinity(void *affinity, int type) {
	assert_int_equal(type, 0);
	memcpy((char *)affinity + 4, &driver_double.affinity, sizeof(unsigned));
	return driver_double.affinity ? 0 : 224;
}

static driver_result nothing(void) {
	return 0;
}

const struct double_function double_functions[] = {
	{ "cuCtxGetCurrent", get_current },
	{ "cuCtxSetCurrent", set_current },
	{ "cuThreadExchangeStreamCaptureMode", exchange_mode },
	{ "cuCtxGetDevice", get_device },
	{ "cuDeviceGetAttribute", get_device_attribute },
	{ "cuOccupancyMaxActiveBlocksPerMultiprocessor", count_blocks },
	{ "cuOccupancyMaxActiveClusters", count_clusters },
	{ "cuCtxGetDevResource", get_resource },
	{ "cuCtxGetExecAffinity", get_affinity },
	{},
};

void *double_lacks(const char *name) {
	return nothing;
}

static int begin(void **state) {
	fit_forget();
	memset(&driver_double, 0, sizeof(driver_double));
	driver_double.original = driver_double.twin = 2;
	driver_double.processors = 100;
	driver_double.current = CONTEXT;
	return 0;
}

static int end(void **state) {
	assert_int_equal(driver_double.mode, 0);
	return 0;
}

static struct twin_shape shape_of(unsigned blocks) {
	return (struct twin_shape){ .function = ORIGINAL,
				    .context = CONTEXT,
				    .grid = { blocks, 1, 1 },
				    .block = { 32, 2, 1 } };
}

static enum fit ask(unsigned blocks) {
	const struct twin_shape shape = shape_of(blocks);

	return fit_ask(&shape, TWIN);
}

static enum fit ask_cooperative(unsigned blocks) {
	struct twin_shape shape = shape_of(blocks);

	shape.cooperative = true;
	return fit_ask(&shape, TWIN);
}

static enum fit ask_cluster(unsigned blocks) {
	struct twin_shape shape = shape_of(blocks);

	shape.cluster[0] = 2;
	shape.cluster[1] = shape.cluster[2] = 1;
	return fit_ask(&shape, TWIN);
}

/* As many as of the original, or more: any grid. It is asked once. */
static void test_same(void **state) {
	for (int twin = 2; twin <= 3; twin++) {
		fit_forget();
		driver_double.asked = 0;
		driver_double.twin = twin;
		assert_int_equal(ask(1), FIT_YES);
		assert_int_equal(ask(200), FIT_YES);
		assert_int_equal(ask(1000000), FIT_YES);
		assert_int_equal(ask_cooperative(200), FIT_YES);
		assert_int_equal(driver_double.asked, 2);
	}
}

/* Fewer: only what fits with both, or with neither. */
static void test_fewer(void **state) {
	driver_double.twin = 1;
	assert_int_equal(ask(100), FIT_YES);
	assert_int_equal(ask(101), FIT_NOT_AT_ONCE);
	assert_int_equal(ask(200), FIT_NOT_AT_ONCE);
	assert_int_equal(ask(201), FIT_YES);
	assert_int_equal(ask_cooperative(100), FIT_YES);
	assert_int_equal(ask_cooperative(101), FIT_NOT_AT_ONCE);
	assert_int_equal(ask_cooperative(201), FIT_NOT_AT_ONCE);
	assert_int_equal(driver_double.asked, 2);
}

/* A grid of three dimensions, and one whose size is more than 64 bits. */
static void test_grid(void **state) {
	struct twin_shape shape = shape_of(5);

	driver_double.twin = 1;
	shape.grid[1] = 5;
	shape.grid[2] = 5;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_NOT_AT_ONCE);
	shape.grid[2] = 4;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_YES);
	shape.grid[0] = shape.grid[1] = shape.grid[2] = UINT32_MAX;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_YES);
}

static void test_none(void **state) {
	driver_double.twin = 0;
	assert_int_equal(ask(1), FIT_NO_REGISTERS);
	assert_int_equal(ask(1000000), FIT_NO_REGISTERS);
	assert_int_equal(ask_cooperative(1), FIT_NO_REGISTERS);
}

/* What is not known is not kept: the next launch asks again. */
static void test_unknown(void **state) {
	struct twin_shape shape = shape_of(1);

	driver_double.twin = -1;
	assert_int_equal(ask(1), FIT_UNKNOWN);
	driver_double.twin = 2;
	assert_int_equal(ask(1), FIT_YES);
	driver_double.cannot_enter = true;
	driver_double.current = OTHER;
	fit_forget();
	assert_int_equal(ask(1), FIT_UNKNOWN);
	assert_ptr_equal(driver_double.current, OTHER);
	driver_double.cannot_enter = false;
	shape.own = true;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_UNKNOWN);
	shape = shape_of(1);
	shape.context = NULL;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_UNKNOWN);
	shape = shape_of(1);
	shape.block[2] = 0;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_UNKNOWN);
	shape.block[0] = shape.block[1] = shape.block[2] = UINT32_MAX;
	assert_int_equal(fit_ask(&shape, TWIN), FIT_UNKNOWN);
	driver_double.processors = 0;
	driver_double.twin = 1;
	assert_int_equal(ask(1), FIT_UNKNOWN);
}

/* The context of the launch is current while the driver is asked, and then the other again. */
static void test_elsewhere(void **state) {
	driver_double.current = OTHER;
	assert_int_equal(ask(1), FIT_YES);
	assert_ptr_equal(driver_double.current, OTHER);
	fit_forget();
	driver_double.current = NULL;
	assert_int_equal(ask(1), FIT_YES);
	assert_null(driver_double.current);
}

/* A part of the device: what fits is counted with the part, and what does not with all of it. */
static void test_green(void **state) {
	for (int i = 0; i < 2; i++) {
		fit_forget();
		driver_double.green = i ? 0 : 8;
		driver_double.affinity = i ? 8 : 0;
		driver_double.twin = 1;
		assert_int_equal(ask(8), FIT_YES);
		assert_int_equal(ask(9), FIT_NOT_AT_ONCE);
		assert_int_equal(ask(200), FIT_NOT_AT_ONCE);
		assert_int_equal(ask(201), FIT_YES);
	}
}

static void test_clusters(void **state) {
	driver_double.original_clusters = 90; /* of 2 blocks: some multiprocessors are left over */
	driver_double.twin_clusters = 90;
	assert_int_equal(ask_cluster(1000), FIT_YES);
	fit_forget();
	driver_double.twin_clusters = 45;
	driver_double.twin = 1;
	assert_int_equal(ask_cluster(90), FIT_YES);
	assert_int_equal(ask_cluster(92), FIT_NOT_AT_ONCE);
	assert_int_equal(ask_cluster(200), FIT_NOT_AT_ONCE);
	assert_int_equal(ask_cluster(202), FIT_YES);
	fit_forget();
	driver_double.twin = 2; /* fewer clusters, though not fewer blocks */
	assert_int_equal(ask_cluster(92), FIT_NOT_AT_ONCE);
	fit_forget();
	driver_double.green = 8; /* of how many clusters a part has room for nobody says anything */
	assert_int_equal(ask_cluster(2), FIT_NOT_AT_ONCE);
	fit_forget();
	driver_double.twin_clusters = 0;
	assert_int_equal(ask_cluster(1000), FIT_NO_REGISTERS);
}

/* Without clusters the driver's number of them, 0, says nothing about room. */
static void test_no_clusters(void **state) {
	driver_double.twin = 1;
	for (int i = 0; i < 2; i++) {
		fit_forget();
		driver_double.refuses_clusters = i;
		assert_int_equal(ask(100), FIT_YES);
		assert_int_equal(ask(101), FIT_NOT_AT_ONCE);
		assert_int_equal(ask(201), FIT_YES);
		assert_int_equal(ask_cooperative(100), FIT_YES);
	}
}

/* Clusters that a kernel itself has: nothing is sure with fewer blocks of the twin. */
static void test_required_clusters(void **state) {
	driver_double.required = true;
	driver_double.original_clusters = 90;
	driver_double.twin_clusters = 45;
	assert_int_equal(ask(1), FIT_YES);
	assert_int_equal(driver_double.asked_clusters, 0);
	fit_forget();
	driver_double.twin = 1;
	assert_int_equal(ask(1), FIT_NOT_AT_ONCE);
	assert_int_equal(ask(201), FIT_YES);
	fit_forget();
	driver_double.twin_clusters = 0;
	assert_int_equal(ask(1), FIT_NO_REGISTERS);
	fit_forget();
	driver_double.twin_clusters = -1;
	assert_int_equal(ask(1), FIT_UNKNOWN);
}

/* Each part of a shape has an answer of its own. */
static void test_shapes(void **state) {
	struct twin_shape shape = shape_of(1);
	unsigned asked = 0;

#define ASKED_ANEW(change)                                         \
	do {                                                       \
		change;                                            \
		assert_int_equal(fit_ask(&shape, TWIN), FIT_YES);  \
		assert_int_equal(fit_ask(&shape, TWIN), FIT_YES);  \
		assert_int_equal(driver_double.asked, asked += 2); \
	} while (0)
	driver_double.original_clusters = driver_double.twin_clusters = 90;
	ASKED_ANEW((void)0);
	ASKED_ANEW(shape.block[0] = 64);
	ASKED_ANEW(shape.shared = 1);
	ASKED_ANEW((shape.cluster[0] = 2, shape.cluster[1] = shape.cluster[2] = 1));
	ASKED_ANEW(shape.cluster[1] = 2);
	ASKED_ANEW(shape.function = STREAM);
	ASKED_ANEW(fit_forget());
	shape.stream = STREAM; /* not this one: the context is known */
	assert_int_equal(fit_ask(&shape, TWIN), FIT_YES);
	assert_int_equal(driver_double.asked, asked);
	assert_int_equal(fit_ask(&shape, OTHER), FIT_YES);
	assert_int_equal(driver_double.asked, asked + 2);
}

/* More shapes than there is room for: answers are right all the same. */
static void test_many(void **state) {
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 3000; i++) {
			struct twin_shape shape = shape_of(150);

			shape.function = ORIGINAL;
			shape.shared = i;
			driver_double.twin = i % 3;
			assert_int_equal(fit_ask(&shape, TWIN), i % 3 == 0   ? FIT_NO_REGISTERS
								: i % 3 == 1 ? FIT_NOT_AT_ONCE
									     : FIT_YES);
		}
}

static void *ask_often(void *context) {
	for (unsigned i = 0; i < 20000; i++) {
		struct twin_shape shape = shape_of(150);

		shape.shared = i % 700;
		shape.context = context;
		if (i % 5000 == 4999)
			fit_forget();
		if (fit_ask(&shape, &handles[i % 3]) != FIT_YES)
			return context;
	}
	return NULL;
}

static driver_result always_two(int *count, driver_handle function, int threads, size_t shared) {
	*count = 2;
	return 0;
}

static driver_result no_mode(int *mode) {
	return 0;
}

/* Threads that ask at the same time, of a driver without a state. */
static void test_threads(void **state) {
	struct driver *driver = (struct driver *)driver_own();
	pthread_t threads[4];
	void *failed;

	driver->count_blocks = always_two;
	driver->exchange_capture_mode = no_mode;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, CONTEXT), 0);
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	driver->count_blocks = count_blocks;
	driver->exchange_capture_mode = exchange_mode;
}

/* Each attribute of cuda.h, and those that it does not have. */
static void test_attributes(void **state) {
	static const bool harmless[] = {
		[0] = true,  [1] = true,  [3] = true,  [5] = true,   [6] = true,
		[7] = true,  [8] = true,  [9] = true,  [10] = true,  [11] = true,
		[12] = true, [14] = true, [16] = true, [20] = false,
	};
	const unsigned value[16] = { 1, 2, 3 };

	for (int id = -1; id <= 20; id++) {
		struct twin_shape shape = { 0 };

		fit_add_attribute(&shape, id, value);
		assert_int_equal(shape.cooperative, id == 2);
		assert_int_equal(shape.cluster[2], id == 4 ? 3 : 0);
		assert_int_equal(shape.own, id != 2 && id != 4 && (id < 0 || !harmless[id]));
	}
}

static void test_configuration(void **state) {
	const struct fit_attribute attributes[] = { { .id = 8 },
						    { .id = 4, .value = { 4, 1, 1 } },
						    { .id = 13, .value = { 0 } } };
	const struct fit_configuration configuration = { .grid = { 1, 2, 3 },
							 .block = { 4, 5, 6 },
							 .shared = 7,
							 .stream = STREAM,
							 .attributes = attributes,
							 .count = 3 };
	const struct twin_shape wanted = { .function = ORIGINAL,
					   .stream = STREAM,
					   .grid = { 1, 2, 3 },
					   .block = { 4, 5, 6 },
					   .shared = 7,
					   .cluster = { 4, 1, 1 } };
	struct twin_shape shape = fit_shape(ORIGINAL, &configuration);

	assert_memory_equal(&shape, &wanted, sizeof(shape));
	assert_true(fit_shape(ORIGINAL, NULL).own);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same, begin, end),
		cmocka_unit_test_setup_teardown(test_fewer, begin, end),
		cmocka_unit_test_setup_teardown(test_grid, begin, end),
		cmocka_unit_test_setup_teardown(test_none, begin, end),
		cmocka_unit_test_setup_teardown(test_unknown, begin, end),
		cmocka_unit_test_setup_teardown(test_elsewhere, begin, end),
		cmocka_unit_test_setup_teardown(test_green, begin, end),
		cmocka_unit_test_setup_teardown(test_clusters, begin, end),
		cmocka_unit_test_setup_teardown(test_no_clusters, begin, end),
		cmocka_unit_test_setup_teardown(test_required_clusters, begin, end),
		cmocka_unit_test_setup_teardown(test_shapes, begin, end),
		cmocka_unit_test_setup_teardown(test_many, begin, end),
		cmocka_unit_test_setup_teardown(test_threads, begin, end),
		cmocka_unit_test_setup_teardown(test_attributes, begin, end),
		cmocka_unit_test_setup_teardown(test_configuration, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
