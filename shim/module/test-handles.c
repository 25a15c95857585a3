/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of handles.c: the table of handles alone. The driver under it is a double that reuses
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
#include "shim/driver/test-double.h"
#include "twin.h"

static char handles[17];
#define CONTEXT ((driver_handle) & handles[0])
#define CONTEXT_ID 7
#define OTHER_CONTEXT ((driver_handle) & handles[1])
#define MODULE ((driver_handle) & handles[2])
#define FUNCTION ((driver_handle) & handles[3]) /* "k" of it, */
#define TWIN ((driver_handle) & handles[4]) /* of it */
#define LIBRARY ((driver_handle) & handles[5])
#define KERNEL ((driver_handle) & handles[6])
#define TWIN_OF_KERNEL ((driver_handle) & handles[7])
#define OTHER_FUNCTION ((driver_handle) & handles[8]) /* the same as FUNCTION */

#define OWN_LIBRARY ((driver_handle) & handles[9]) /* of the application: none of ours */
#define OWN_KERNEL ((driver_handle) & handles[10])
#define TWIN_LIBRARY ((driver_handle) & handles[11])
#define TWIN_KERNEL ((driver_handle) & handles[12])
#define TWIN_MODULE ((driver_handle) & handles[13])
#define TWIN_FUNCTION ((driver_handle) & handles[14])
#define MODULE_TWIN ((driver_handle) & handles[15]) /* of MODULE */
#define KERNELS_TWIN ((driver_handle) & handles[16]) /* of LIBRARY */
#define MODULE_ORIGINAL ((struct original *)&originals[2])
#define KERNELS_ORIGINAL ((struct original *)&originals[3])
#define LIBRARY_ORIGINAL ((struct original *)&originals[0])
#define PLACE ((struct original *)&originals[1]) /* of that in CONTEXT */

static char originals[4];
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
	if (strcmp(name, "k"))
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
	assert_ptr_equal(module, MODULE_TWIN);
	return give(out, name, TWIN);
}

static driver_result get_kernel(driver_handle *out, driver_handle library, const char *name) {
	if (library == TWIN_LIBRARY)
		return give_twin(out, name, TWIN_KERNEL);
	assert_ptr_equal(library, KERNELS_TWIN);
	return give(out, name, TWIN_OF_KERNEL);
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
	*value = 0; /* all are as with the twin */
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

const struct double_function double_functions[] = {
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
	{},
};

void *double_lacks(const char *name) {
	return nothing;
}

static struct load module_twin_load = {
	.module_id = 1, .epoch = 1, .kind = LOAD_MODULE, .handle = MODULE_TWIN, .context = CONTEXT
};
static struct load library_twin_load = {
	.module_id = 2, .epoch = 1, .kind = LOAD_LIBRARY, .handle = KERNELS_TWIN
};

static void twin_module(void) {
	handles_twin_changed(MODULE_ORIGINAL, &module_twin_load);
}

/* Another one in its place. */
static void twin_again(void) {
	handles_twin_changed(MODULE_ORIGINAL, NULL);
	twin_module();
}

static void twin_library(void) {
	handles_twin_changed(KERNELS_ORIGINAL, &library_twin_load);
}

static void add_module(void) {
	handles_original_added(MODULE_ORIGINAL, MODULE, CONTEXT, CONTEXT_ID, births);
}

/* What a launch of the handle launches. */
static driver_handle launched(driver_handle handle) {
	struct launch_form form;
	struct original *one;

	handles_twin_resolve(handle, CONTEXT);
	return handles_twin(handle, CONTEXT, &one, &form);
}

static int begin(void **state) {
	current = CONTEXT;
	asked = 0;
	memset(&set, 0, sizeof(set));
	set_result = 0;
	memset(&reported, 0, sizeof(reported));
	add_module();
	handles_original_added(KERNELS_ORIGINAL, LIBRARY, NULL, 0, births);
	handles_got_function(MODULE, FUNCTION, "k");
	handles_got_kernel(LIBRARY, KERNEL, "k");
	return 0;
}

static int end(void **state) {
	handles_original_removed(MODULE_ORIGINAL);
	handles_original_removed(KERNELS_ORIGINAL);
	assert_false(handles_needed());
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
	assert_ptr_equal(launched(KERNEL), KERNEL);
	return 0;
}

/* The driver is asked once, and not before it must be. */
static void test_switch(void **state) {
	assert_false(handles_needed());
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
	assert_int_equal(asked, 0);
	twin_module();
	assert_true(handles_needed());
	assert_int_equal(asked, 0);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_int_equal(asked, 1);
	assert_ptr_equal(launched(KERNEL), KERNEL);
	twin_library();
	assert_ptr_equal(launched(KERNEL), TWIN_OF_KERNEL);
	assert_ptr_equal(launched(CONTEXT), CONTEXT);
	assert_ptr_equal(launched(MODULE), MODULE);
	assert_ptr_equal(launched(NULL), NULL);
	handles_twin_changed(MODULE_ORIGINAL, NULL);
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
	assert_ptr_equal(launched(KERNEL), TWIN_OF_KERNEL);
}

/* What is gone is not known any more, and its handle may be another's. */
static void test_ends(void **state) {
	twin_module();
	assert_ptr_equal(launched(FUNCTION), TWIN);
	handles_original_removed(MODULE_ORIGINAL);
	assert_false(handles_needed());
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
	handles_got_function(MODULE, FUNCTION, "k"); /* the module gets no twin now */
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
	add_module();
	handles_got_function(MODULE, FUNCTION, "k");
	twin_module();
	handles_context_ended(OTHER_CONTEXT, 0, UINT64_MAX);
	handles_context_ended(NULL, 0, UINT64_MAX);
	assert_ptr_equal(launched(FUNCTION), TWIN);
	handles_context_ended(CONTEXT, 0, UINT64_MAX);
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
}

/* A context that has the handle of one that has ended keeps what is its own. */
static void test_reborn(void **state) {
	uint64_t before = births;

	twin_module();
	handles_got_function(MODULE, OTHER_FUNCTION, "k"); /* in the new one */
	assert_ptr_equal(launched(OTHER_FUNCTION), TWIN);
	handles_context_ended(CONTEXT, 0, before);
	assert_ptr_equal(launched(OTHER_FUNCTION), TWIN);
	handles_context_ended(CONTEXT, CONTEXT_ID, UINT64_MAX);
	assert_ptr_equal(launched(OTHER_FUNCTION), TWIN);
	handles_context_ended(CONTEXT, CONTEXT_ID + 1, UINT64_MAX);
	assert_ptr_equal(launched(OTHER_FUNCTION), OTHER_FUNCTION);
}

/* There is none: that is found out once. */
static void test_none(void **state) {
	handles_got_function(MODULE, OTHER_CONTEXT, "other");
	twin_module();
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(launched(OTHER_CONTEXT), OTHER_CONTEXT);
	assert_int_equal(asked, 1);
	assert_ptr_equal(launched(FUNCTION), TWIN);
}

static void test_changes(void **state) {
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 1000, 0);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 2000, 0);
	handles_changed(HANDLES_KERNEL_ATTRIBUTE, KERNEL, 9, 50, 3);
	assert_int_equal(set.count, 0);
	twin_module();
	twin_library();
	assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_int_equal(set.count, 1);
	assert_true(set.handle == TWIN && set.attribute == 8 && set.value == 2000);
	assert_ptr_equal(launched(KERNEL), TWIN_OF_KERNEL);
	assert_true(set.handle == TWIN_OF_KERNEL && set.attribute == 9 && set.value == 50 &&
		    set.device == 3);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 2000, 0); /* as it is */
	assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_int_equal(set.count, 2);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 3000, 0);
	assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_int_equal(set.value, 3000);
	set_result = 1;
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 4000, 0);
	assert_ptr_equal(launched(FUNCTION),
			 FUNCTION); /* only that one is as the application wants it */
	set_result = 0;
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
}

/* Each way to set something is the way in which it is set on the twin. */
static void test_settings(void **state) {
	static const struct {
		enum handles_setting setting;
		driver_handle handle, twin;
		int attribute, device;
	} settings[] = {
		{ HANDLES_FUNCTION_CACHE, FUNCTION, TWIN, 100, -1 },
		{ HANDLES_FUNCTION_BANKS, FUNCTION, TWIN, 101, -1 },
		{ HANDLES_KERNEL_CACHE, KERNEL, TWIN_OF_KERNEL, 102, 5 },
	};

	twin_module();
	twin_library();
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		assert_ptr_equal(launched(settings[i].handle), settings[i].twin);
		handles_changed(settings[i].setting, settings[i].handle, 0, 2, settings[i].device);
		assert_ptr_equal(launched(settings[i].handle), settings[i].twin);
		assert_true(set.handle == settings[i].twin &&
			    set.attribute == settings[i].attribute && set.value == 2 &&
			    set.device == settings[i].device);
	}
}

/* In a context that is not current: it is while the driver is asked, and then the other again. */
static void test_elsewhere(void **state) {
	twin_module();
	current = OTHER_CONTEXT;
	assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_ptr_equal(current, OTHER_CONTEXT);
}

static void change(void) {
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, FUNCTION, 8, 7000, 0);
}

static void unload(void) {
	handles_original_removed(MODULE_ORIGINAL);
}

static void launch_meanwhile(void) {
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
}

/* What happens while somebody asks the driver. */
static void test_meanwhile(void **state) {
	twin_module();
	during = launch_meanwhile; /* in another thread it is the same: not switched yet */
	assert_ptr_equal(launched(FUNCTION), TWIN);
	twin_again();
	during = change;
	assert_ptr_equal(launched(FUNCTION), TWIN);
	assert_int_equal(set.value, 7000);
	twin_again();
	during = unload;
	launched(FUNCTION);
	assert_ptr_equal(launched(FUNCTION), FUNCTION);
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
	handles_got_function_of(OWN_KERNEL, TWIN);
	handles_changed(HANDLES_FUNCTION_ATTRIBUTE, TWIN, 8, 500, 0);
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
	twin_module();
	for (size_t i = 0; i < sizeof(many); i++)
		assert_ptr_equal(launched(&many[i]), TWIN);
	handles_original_removed(MODULE_ORIGINAL);
	for (size_t i = 0; i < sizeof(many); i++)
		assert_ptr_equal(launched(&many[i]), &many[i]);
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
		cmocka_unit_test_setup_teardown(test_place, begin, end),
		cmocka_unit_test_setup_teardown(test_many, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
