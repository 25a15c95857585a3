/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of bare.c: the table of handles alone. The driver under it is a double that reuses
 * handles as the test wants, and counts its calls.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "arm.h"
#include "handles.h"
#include "load.h"
#include "twin.h"

static char handles[16];
#define CONTEXT ((driver_handle) & handles[0])
#define CONTEXT_ID 7
#define OTHER_CONTEXT ((driver_handle) & handles[1])
#define MODULE ((driver_handle) & handles[2])
#define FUNCTION ((driver_handle) & handles[3]) /* "k" of it, */
#define BARE ((driver_handle) & handles[4]) /* and as it was */
#define LIBRARY ((driver_handle) & handles[5])
#define KERNEL ((driver_handle) & handles[6])
#define BARE_KERNEL_HANDLE ((driver_handle) & handles[7])
#define OTHER_FUNCTION ((driver_handle) & handles[8]) /* the same as FUNCTION */

#define OWN_LIBRARY ((driver_handle) & handles[9]) /* of the application: none of ours */
#define OWN_KERNEL ((driver_handle) & handles[10])
#define TWIN_LIBRARY ((driver_handle) & handles[11])
#define TWIN_KERNEL ((driver_handle) & handles[12])
#define TWIN_MODULE ((driver_handle) & handles[13])
#define TWIN_FUNCTION ((driver_handle) & handles[14])
#define LIBRARY_ORIGINAL ((struct original *)&originals[0])
#define PLACE ((struct original *)&originals[1]) /* of that in CONTEXT */

static char originals[2];
static driver_handle current;
static unsigned asked; /* for functions and kernels */
static uint64_t births;
static struct {
	unsigned count;
	driver_handle handle;
	int attribute, value, device;
} set;
static driver_result set_result;
static void (*during)(void); /* runs once, while the driver is asked */
static struct {
	int probed, bare; /* threads that a block can have; 0: the driver does not say */
	unsigned asked;
} threads;
static struct {
	unsigned count, launches;
	uint64_t module;
	enum handles_why why;
	char kernel[100];
} reported;

static driver_result get_current(driver_handle *context) {
	*context = current;
	return 0;
}

static driver_result get_id(driver_handle context, unsigned long long *id) {
	*id = CONTEXT_ID;
	return 0;
}

static driver_result set_current(driver_handle context) {
	current = context;
	return 0;
}

static driver_result give(driver_handle *out, const char *name, driver_handle handle) {
	void (*run)(void) = during;

	during = NULL;
	if (run)
		run();
	asked++;
	if (strcmp(name, "k" BARE_SUFFIX))
		return DRIVER_ERROR_NOT_FOUND;
	*out = handle;
	return 0;
}

static driver_result give_twin(driver_handle *out, const char *name, driver_handle handle) {
	assert_string_equal(name, "k");
	assert_ptr_equal(current, CONTEXT);
	asked++;
	*out = handle;
	return 0;
}

static driver_result get_function(driver_handle *out, driver_handle module, const char *name) {
	if (module == TWIN_MODULE)
		return give_twin(out, name, TWIN_FUNCTION);
	assert_ptr_equal(module, MODULE);
	return give(out, name, BARE);
}

static driver_result get_kernel(driver_handle *out, driver_handle library, const char *name) {
	if (library == TWIN_LIBRARY)
		return give_twin(out, name, TWIN_KERNEL);
	assert_ptr_equal(library, LIBRARY);
	return give(out, name, BARE_KERNEL_HANDLE);
}

static driver_result function_set(driver_handle handle, int attribute, int value) {
	set.count++;
	set.handle = handle;
	set.attribute = attribute;
	set.value = value;
	set.device = -1;
	return set_result;
}

static driver_result kernel_set(int attribute, int value, driver_handle handle, int device) {
	function_set(handle, attribute, value);
	set.device = device;
	return set_result;
}

static driver_result function_set_cache(driver_handle handle, int value) {
	return function_set(handle, 100, value);
}

static driver_result function_set_banks(driver_handle handle, int value) {
	return function_set(handle, 101, value);
}

static driver_result kernel_set_cache(driver_handle handle, int value, int device) {
	return kernel_set(102, value, handle, device);
}

static driver_result get_attribute(int *value, int attribute, driver_handle handle) {
	if (attribute != DRIVER_FUNCTION_ATTRIBUTE_THREADS) { /* all are as with the twin */
		*value = 0;
		return 0;
	}
	threads.asked++;
	*value = handle == FUNCTION || handle == KERNEL ? threads.probed : threads.bare;
	return 0;
}

static driver_result get_kernel_attribute(int *value, int attribute, driver_handle handle,
					  int device) {
	assert_int_equal(device, 2);
	return get_attribute(value, attribute, handle);
}

static driver_result get_device(int *device) {
	*device = 2;
	return 0;
}

void load_report_own(uint64_t module_id, uint64_t epoch, const char *kernel, enum handles_why why,
		      unsigned launches) {
	assert_int_equal(epoch, 1);
	reported.count++;
	reported.module = module_id;
	reported.launches = launches;
	reported.why = why;
	snprintf(reported.kernel, sizeof(reported.kernel), "%s", kernel);
}

struct launch_form twin_form(struct original *original, const char *kernel) {
	return (struct launch_form){};
}

uint64_t arm_born(void) {
	return ++births;
}

static driver_result nothing(void) {
	return 0;
}

bool driver_is_in_use(void) {
	return true;
}

void *driver_symbol(const char *name) {
	static const struct {
		const char *name;
		void *function;
	} functions[] = {
		{ "cuCtxGetCurrent", get_current },
		{ "cuCtxSetCurrent", set_current },
		{ "cuModuleGetFunction", get_function },
		{ "cuLibraryGetKernel", get_kernel },
		{ "cuFuncSetAttribute", function_set },
		{ "cuKernelSetAttribute", kernel_set },
		{ "cuFuncSetCacheConfig", function_set_cache },
		{ "cuKernelSetCacheConfig", kernel_set_cache },
		{ "cuFuncSetSharedMemConfig", function_set_banks },
		{ "cuFuncGetAttribute", get_attribute },
		{ "cuKernelGetAttribute", get_kernel_attribute },
		{ "cuCtxGetDevice", get_device },
		{ "cuCtxGetId", get_id },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return nothing;
}

static struct load module_load = {
	.module_id = 1, .epoch = 1, .kind = LOAD_MODULE, .handle = MODULE, .context = CONTEXT
};
static struct load library_load = {
	.module_id = 2, .epoch = 1, .kind = LOAD_LIBRARY, .handle = LIBRARY
};

static int begin(void **state) {
	current = CONTEXT;
	asked = 0;
	memset(&set, 0, sizeof(set));
	set_result = 0;
	memset(&threads, 0, sizeof(threads));
	memset(&reported, 0, sizeof(reported));
	bare_load_added(&module_load);
	bare_load_added(&library_load);
	handles_got_function(MODULE, FUNCTION, "k");
	handles_got_kernel(LIBRARY, KERNEL, "k");
	return 0;
}

static int end(void **state) {
	bare_load_removed(&module_load);
	bare_load_removed(&library_load);
	assert_false(handles_needed());
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
	assert_ptr_equal(bare_function(KERNEL), KERNEL);
	return 0;
}

/* The driver is asked once, and not before it must be. */
static void test_switch(void **state) {
	assert_false(handles_needed());
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
	assert_int_equal(asked, 0);
	assert_true(bare_is_awaited(1));
	assert_false(bare_is_awaited(2));
	bare_retire(1, 2); /* of another daemon */
	assert_false(handles_needed());
	bare_retire(1, 1);
	assert_true(handles_needed());
	assert_true(bare_is_awaited(1));
	assert_int_equal(asked, 0);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_int_equal(asked, 1);
	assert_ptr_equal(bare_function(KERNEL), KERNEL);
	bare_retire(2, 1);
	assert_ptr_equal(bare_function(KERNEL), BARE_KERNEL_HANDLE);
	assert_false(bare_is_awaited(1));
	assert_ptr_equal(bare_function(CONTEXT), CONTEXT);
	assert_ptr_equal(bare_function(MODULE), MODULE);
	assert_ptr_equal(bare_function(NULL), NULL);
}

/* What is gone is not known any more, and its handle may be another's. */
static void test_ends(void **state) {
	bare_retire(1, 1);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	bare_load_removed(&module_load);
	assert_false(handles_needed());
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
	handles_got_function(MODULE, FUNCTION, "k"); /* the module is none of ours now */
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
	bare_load_added(&module_load);
	handles_got_function(MODULE, FUNCTION, "k");
	bare_retire(1, 1);
	handles_context_ended(OTHER_CONTEXT, 0, UINT64_MAX);
	handles_context_ended(NULL, 0, UINT64_MAX);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	handles_context_ended(CONTEXT, 0, UINT64_MAX);
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
}

/* A context that has the handle of one that has ended keeps what is its own. */
static void test_reborn(void **state) {
	uint64_t before = births;

	bare_retire(1, 1);
	handles_got_function(MODULE, OTHER_FUNCTION, "k"); /* in the new one */
	assert_ptr_equal(bare_function(OTHER_FUNCTION), BARE);
	handles_context_ended(CONTEXT, 0, before);
	assert_ptr_equal(bare_function(OTHER_FUNCTION), BARE);
	handles_context_ended(CONTEXT, CONTEXT_ID, UINT64_MAX);
	assert_ptr_equal(bare_function(OTHER_FUNCTION), BARE);
	handles_context_ended(CONTEXT, CONTEXT_ID + 1, UINT64_MAX);
	assert_ptr_equal(bare_function(OTHER_FUNCTION), OTHER_FUNCTION);
}

/* There is none: that is found out once. */
static void test_none(void **state) {
	handles_got_function(MODULE, OTHER_CONTEXT, "other");
	bare_retire(1, 1);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(bare_function(OTHER_CONTEXT), OTHER_CONTEXT);
	assert_int_equal(asked, 1);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
}

static void test_changes(void **state) {
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 1000, 0);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 2000, 0);
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, KERNEL, 9, 50, 3);
	assert_int_equal(set.count, 0);
	bare_retire(1, 1);
	bare_retire(2, 1);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_int_equal(set.count, 1);
	assert_true(set.handle == BARE && set.attribute == 8 && set.value == 2000);
	assert_ptr_equal(bare_function(KERNEL), BARE_KERNEL_HANDLE);
	assert_true(set.handle == BARE_KERNEL_HANDLE && set.attribute == 9 && set.value == 50 &&
		    set.device == 3);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 2000, 0); /* as it is */
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_int_equal(set.count, 2);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 3000, 0);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_int_equal(set.value, 3000);
	set_result = 1;
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 4000, 0);
	assert_ptr_equal(bare_function(FUNCTION),
			 FUNCTION); /* only that one is as the application wants it */
	set_result = 0;
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
}

/* Each way to set something is the way in which it is set on the bare one. */
static void test_settings(void **state) {
	static const struct {
		enum handles_setting setting;
		driver_handle handle, bare;
		int attribute, device;
	} settings[] = {
		{ HANDLES_FUNCTION_CACHE, FUNCTION, BARE, 100, -1 },
		{ HANDLES_FUNCTION_BANKS, FUNCTION, BARE, 101, -1 },
		{ HANDLES_KERNEL_CACHE, KERNEL, BARE_KERNEL_HANDLE, 102, 5 },
	};

	bare_retire(1, 1);
	bare_retire(2, 1);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		assert_ptr_equal(bare_function(settings[i].handle), settings[i].bare);
		handles_changed(settings[i].setting, settings[i].handle, 0, 2, settings[i].device);
		assert_ptr_equal(bare_function(settings[i].handle), settings[i].bare);
		assert_true(set.handle == settings[i].bare &&
			    set.attribute == settings[i].attribute && set.value == 2 &&
			    set.device == settings[i].device);
	}
}

/* In a context that is not current: it is while the driver is asked, and then the other again. */
static void test_elsewhere(void **state) {
	bare_retire(1, 1);
	current = OTHER_CONTEXT;
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_ptr_equal(current, OTHER_CONTEXT);
}

static void change(void) {
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 7000, 0);
}

static void unload(void) {
	bare_load_removed(&module_load);
}

static void launch(void) {
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
}

/* What happens while somebody asks the driver. */
static void test_meanwhile(void **state) {
	bare_retire(1, 1);
	during = launch; /* in another thread it is the same: not switched yet */
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 6000, 0);
	during = change;
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_int_equal(set.value, 7000);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 8000, 0);
	during = unload;
	bare_function(FUNCTION);
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
}

/* Large blocks go to the bare one where that can have them; how large, is asked once. */
static void test_blocks(void **state) {
	threads.probed = 640;
	threads.bare = 960;
	assert_ptr_equal(bare_for_block(FUNCTION, 640), FUNCTION);
	assert_ptr_equal(bare_for_block(FUNCTION, 1024), FUNCTION);
	assert_int_equal(reported.count, 0);
	for (unsigned i = 1; i <= 200; i++) {
		assert_ptr_equal(bare_for_block(FUNCTION, 641), BARE);
		assert_int_equal(reported.count, 1 + (i >= 100));
	}
	assert_true(reported.module == 1 && reported.launches == 100);
	assert_string_equal(reported.kernel, "k");
	assert_ptr_equal(bare_function(FUNCTION), FUNCTION);
	assert_ptr_equal(bare_for_block(KERNEL, 960), BARE_KERNEL_HANDLE);
	assert_int_equal(reported.module, 2);
	assert_int_equal(asked, 2);
	assert_int_equal(threads.asked, 4);
	bare_retire(1, 1);
	assert_ptr_equal(bare_function(FUNCTION), BARE);
	assert_ptr_equal(bare_for_block(NULL, 1024), NULL);
	assert_ptr_equal(bare_for_block(MODULE, 1024), MODULE);
	assert_ptr_equal(bare_for_block(OTHER_CONTEXT, 1024), OTHER_CONTEXT);
}

/* Where the bare one would be of no help, or there is none, nothing is asked a second time. */
static void test_blocks_in_vain(void **state) {
	static const int limits[][2] = {
		{ 1024, 1024 }, { 512, 512 }, { 512, 256 }, { 0, 1024 }, { 512, 0 }
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		threads.probed = limits[i][0];
		threads.bare = limits[i][1];
		handles_got_function(MODULE, FUNCTION, "k");
		assert_ptr_equal(bare_for_block(FUNCTION, 1024), FUNCTION);
		threads.asked = 0;
		assert_ptr_equal(bare_for_block(FUNCTION, 1024), FUNCTION);
		assert_int_equal(threads.asked, 0);
		bare_load_removed(&module_load);
		bare_load_added(&module_load);
	}
	handles_got_function(MODULE, FUNCTION, "other");
	assert_ptr_equal(bare_for_block(FUNCTION, 1024), FUNCTION);
	assert_int_equal(reported.count, 0);
}

/* What the driver refuses for want of registers is tried once more. */
static void test_refused(void **state) {
	threads.probed = threads.bare = 1024;
	assert_null(bare_instead(FUNCTION, 0));
	assert_null(bare_instead(FUNCTION, 1));
	assert_null(bare_instead(FUNCTION, 700));
	assert_null(bare_instead(NULL, 701));
	assert_null(bare_instead(OTHER_CONTEXT, 701));
	assert_int_equal(asked, 0);
	assert_ptr_equal(bare_instead(FUNCTION, 701), BARE);
	assert_ptr_equal(bare_instead(KERNEL, 720), BARE_KERNEL_HANDLE);
	assert_null(bare_instead(BARE, 701));
	assert_int_equal(reported.count, 0);
	bare_launched(FUNCTION);
	assert_int_equal(reported.count, 1);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 1000, 0);
	assert_ptr_equal(bare_instead(FUNCTION, 701), BARE);
	assert_true(set.handle == BARE && set.value == 1000);
}

static void check_place(driver_handle twin) {
	struct launch_form form;
	struct original *one;

	assert_true(handles_twin_is_open(OWN_KERNEL, CONTEXT));
	assert_ptr_equal(handles_twin(OWN_KERNEL, CONTEXT, &one, &form), OWN_KERNEL);
	current = OTHER_CONTEXT;
	handles_twin_resolve(OWN_KERNEL, CONTEXT);
	assert_ptr_equal(current, OTHER_CONTEXT);
	assert_false(handles_twin_is_open(OWN_KERNEL, CONTEXT));
	assert_ptr_equal(handles_twin(OWN_KERNEL, CONTEXT, &one, &form), twin);
	assert_ptr_equal(one, PLACE);
	assert_ptr_equal(handles_twin(OWN_KERNEL, OTHER_CONTEXT, &one, &form), OWN_KERNEL);
	assert_ptr_equal(one, LIBRARY_ORIGINAL);
	assert_ptr_equal(set.handle, twin);
}

/* Of a kernel with a twin in one context: what is changed follows at once. */
static void check_changes(driver_handle twin, int device) {
	struct launch_form form;
	struct original *one;
	unsigned before;

	before = set.count;
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, OWN_KERNEL, 8, 200, 2);
	assert_int_equal(set.count, before + 1);
	assert_true(set.handle == twin && set.value == 200 && set.device == device);
	assert_ptr_equal(handles_twin(OWN_KERNEL, CONTEXT, &one, &form), twin);
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, OWN_KERNEL, 8, 200, 2); /* nothing new */
	assert_int_equal(set.count, before + 1);
	set_result = 1;
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, OWN_KERNEL, 8, 300, 2);
	assert_ptr_equal(handles_twin(OWN_KERNEL, CONTEXT, &one, &form), OWN_KERNEL);
	set_result = 0;
	handles_twin_resolve(OWN_KERNEL, CONTEXT);
	assert_ptr_equal(handles_twin(OWN_KERNEL, CONTEXT, &one, &form), twin);
	assert_true(set.handle == twin && set.value == 300 && set.device == device);
}

/* Reported at the first launch without the twin, and not before handles_say(). */
static void check_refusals(uint64_t module) {
	memset(&reported, 0, sizeof(reported));
	for (unsigned i = 1; i <= 200; i++) {
		handles_twin_refused(OWN_KERNEL, CONTEXT, HANDLES_NOT_AT_ONCE);
		assert_int_equal(handles_unsaid, i == 1 || i == 100);
		assert_int_equal(reported.count, i > 100 ? 2 : i > 1);
		if (handles_unsaid)
			handles_say();
	}
	assert_true(reported.module == module && reported.why == HANDLES_NOT_AT_ONCE);
	assert_int_equal(reported.launches, 100);
	assert_string_equal(reported.kernel, "k");
}

/* A library has a twin in one context: as a library, then as a module. */
static void test_place(void **state) {
	static struct load library_twin = {
		.module_id = 8, .epoch = 1, .kind = LOAD_LIBRARY, .handle = TWIN_LIBRARY
	};
	static struct load module_twin = {
		.module_id = 9, .epoch = 1, .kind = LOAD_MODULE, .handle = TWIN_MODULE
	};

	handles_original_added(LIBRARY_ORIGINAL, OWN_LIBRARY, NULL, 0, 1);
	handles_got_kernel(OWN_LIBRARY, OWN_KERNEL, "k");
	assert_ptr_equal(handles_original(OWN_KERNEL, CONTEXT), LIBRARY_ORIGINAL);
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, OWN_KERNEL, 8, 100, 2);
	assert_int_equal(set.count, 0);
	handles_original_added(PLACE, NULL, CONTEXT, CONTEXT_ID, 2);
	assert_false(handles_place_add(FUNCTION, PLACE, OTHER_CONTEXT, 1)); /* of another context */
	assert_true(handles_place_add(OWN_KERNEL, PLACE, CONTEXT, CONTEXT_ID));
	assert_ptr_equal(handles_original(OWN_KERNEL, CONTEXT), PLACE);
	assert_ptr_equal(handles_original(OWN_KERNEL, OTHER_CONTEXT), LIBRARY_ORIGINAL);
	assert_ptr_equal(handles_original(OWN_KERNEL, NULL), LIBRARY_ORIGINAL);

	handles_twin_changed(PLACE, &library_twin);
	check_place(TWIN_KERNEL);
	assert_true(set.count == 1 && set.value == 100 && set.device == 2);
	check_changes(TWIN_KERNEL, 2);
	check_refusals(8);

	handles_twin_changed(PLACE, &module_twin);
	check_place(TWIN_FUNCTION);
	assert_true(set.value == 300 && set.device == -1);
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, OWN_KERNEL, 8, 100, 2);
	check_changes(TWIN_FUNCTION, -1);
	check_refusals(9);

	/* by handles that were never launched there: of another context, and of that one */
	handles_got_function_of(OWN_KERNEL, OTHER_FUNCTION);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, OTHER_FUNCTION, 8, 400, 0);
	assert_false(handles_twin_is_open(OWN_KERNEL, CONTEXT));
	assert_int_equal(set.value, 300);
	current = CONTEXT;
	handles_got_function_of(OWN_KERNEL, BARE);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, BARE, 8, 500, 0);
	assert_true(handles_twin_is_open(OWN_KERNEL, CONTEXT));
	handles_twin_resolve(OWN_KERNEL, CONTEXT);
	assert_true(set.handle == TWIN_FUNCTION && set.value == 500);
	handles_original_removed(PLACE);
	assert_ptr_equal(handles_original(OWN_KERNEL, CONTEXT), LIBRARY_ORIGINAL);
	handles_original_removed(LIBRARY_ORIGINAL);
	assert_null(handles_original(OWN_KERNEL, CONTEXT));
}

/* Many handles: buckets are chains. */
static void test_many(void **state) {
	static char many[5000];

	for (size_t i = 0; i < sizeof(many); i++)
		handles_got_function(MODULE, &many[i], "k");
	bare_retire(1, 1);
	for (size_t i = 0; i < sizeof(many); i++)
		assert_ptr_equal(bare_function(&many[i]), BARE);
	bare_load_removed(&module_load);
	for (size_t i = 0; i < sizeof(many); i++)
		assert_ptr_equal(bare_function(&many[i]), &many[i]);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_switch, begin, end),
		cmocka_unit_test_setup_teardown(test_ends, begin, end),
		cmocka_unit_test_setup_teardown(test_reborn, begin, end),
		cmocka_unit_test_setup_teardown(test_none, begin, end),
		cmocka_unit_test_setup_teardown(test_changes, begin, end),
		cmocka_unit_test_setup_teardown(test_settings, begin, end),
		cmocka_unit_test_setup_teardown(test_elsewhere, begin, end),
		cmocka_unit_test_setup_teardown(test_meanwhile, begin, end),
		cmocka_unit_test_setup_teardown(test_blocks, begin, end),
		cmocka_unit_test_setup_teardown(test_blocks_in_vain, begin, end),
		cmocka_unit_test_setup_teardown(test_refused, begin, end),
		cmocka_unit_test_setup_teardown(test_place, begin, end),
		cmocka_unit_test_setup_teardown(test_many, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
