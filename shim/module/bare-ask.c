/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the driver for the bare form of a kernel, module or function (bare-ask.h). bare.c keeps the
 * answers.
 */

#include "bare-ask.h"

#include <stdlib.h>
#include <string.h>

#include "arm.h"

driver_handle bare_context(void) {
	driver_handle context = NULL;

	return driver_own()->ctx_get_current(&context) == 0 ? context : NULL;
}

void bare_note_context(struct bare_origin *origin) {
	origin->context = bare_context();
	origin->context_id =
		origin->context ? driver_context_id(origin->context) : DRIVER_CONTEXT_ID_NONE;
	origin->born = arm_born();
}

/* The bare form of a handle; the context of its origin must be current, if it has one. */
static driver_handle ask(const struct bare_origin *origin, const char *name) {
	const struct driver *driver = driver_own();
	driver_handle kernel = NULL, found = NULL;
	driver_result result = -1;

	if (origin->kind == BARE_FUNCTION) {
		if (driver->module_get_function)
			result = driver->module_get_function(&found, origin->from, name);
	} else if (driver->library_get_kernel) {
		result = driver->library_get_kernel(&kernel, origin->from, name);
		found = kernel;
		if (result == 0 && origin->kind == BARE_KERNEL_FUNCTION)
			result = driver->kernel_get_function
					 ? driver->kernel_get_function(&found, kernel)
					 : -1;
	}
	return result == 0 ? found : NULL;
}

/* Makes the context of an origin current, if it has one; *before is for leave(). */
static bool enter(const struct bare_origin *origin, driver_handle *before) {
	*before = bare_context();
	return !origin->context || origin->context == *before ||
	       driver_own()->ctx_set_current(origin->context) == 0;
}

static void leave(const struct bare_origin *origin, driver_handle before) {
	if (origin->context && origin->context != before)
		driver_own()->ctx_set_current(before);
}

driver_handle bare_ask(const struct bare_origin *origin, const char *name) {
	driver_handle before, found;

	if (!enter(origin, &before))
		return NULL;
	found = ask(origin, name);
	leave(origin, before);
	return found;
}

/* What a module or library gives out, by the driver's function, for the name of a bare kernel
 * without the suffix. */
static driver_handle get_own(driver_result (*get)(driver_handle *, driver_handle, const char *),
			     driver_handle from, const char *bare_name) {
	char *name = strndup(bare_name, strlen(bare_name) - strlen(BARE_SUFFIX));
	driver_handle own = NULL;

	if (name && get(&own, from, name) != 0)
		own = NULL;
	free(name);
	return own;
}

driver_handle bare_ask_own_function(driver_handle function) {
	const struct driver *driver = driver_own();
	driver_handle module;
	const char *name;

	if (!driver->function_get_name || !driver->function_get_module ||
	    !driver->module_get_function || driver->function_get_name(&name, function) != 0 ||
	    !bare_is_name(name) || driver->function_get_module(&module, function) != 0)
		return NULL;
	return get_own(driver->module_get_function, module, name);
}

driver_handle bare_ask_own_kernel(driver_handle kernel) {
	const struct driver *driver = driver_own();
	driver_handle library;
	const char *name;

	if (!driver->kernel_get_name || !driver->kernel_get_library ||
	    !driver->library_get_kernel || driver->kernel_get_name(&name, kernel) != 0 ||
	    !bare_is_name(name) || driver->kernel_get_library(&library, kernel) != 0)
		return NULL;
	return get_own(driver->library_get_kernel, library, name);
}

unsigned bare_ask_threads(const struct bare_origin *origin, driver_handle handle) {
	const struct driver *driver = driver_own();
	driver_result result = -1;
	driver_handle before;
	int threads = 0, device;

	if (!enter(origin, &before))
		return 0;
	if (origin->kind != BARE_KERNEL) {
		if (driver->function_get_attribute)
			result = driver->function_get_attribute(
				&threads, DRIVER_FUNCTION_ATTRIBUTE_THREADS, handle);
	} else if (driver->kernel_get_attribute && driver->ctx_get_device(&device) == 0) {
		result = driver->kernel_get_attribute(&threads, DRIVER_FUNCTION_ATTRIBUTE_THREADS,
						      handle, device);
	}
	leave(origin, before);
	return result == 0 && threads > 0 ? (unsigned)threads : 0;
}

/* Attributes that a program may have set before we saw its calls. */
static const int copied_attributes[] = {
	DRIVER_FUNCTION_ATTRIBUTE_DYNAMIC_SHARED,
	DRIVER_FUNCTION_ATTRIBUTE_CARVEOUT,
	DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_MUST_BE_SET,
	DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_WIDTH,
	DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_HEIGHT,
	DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_DEPTH,
	DRIVER_FUNCTION_ATTRIBUTE_NON_PORTABLE_CLUSTER,
	DRIVER_FUNCTION_ATTRIBUTE_CLUSTER_SCHEDULING,
};

/* Of a function or kernel, in the current context. False: the driver does not know it. */
static bool get_attribute(enum bare_kind kind, driver_handle handle, int attribute, int *value) {
	const struct driver *driver = driver_own();
	int device;

	if (kind != BARE_KERNEL)
		return driver->function_get_attribute &&
		       driver->function_get_attribute(value, attribute, handle) == 0;
	return driver->kernel_get_attribute && driver->ctx_get_device(&device) == 0 &&
	       driver->kernel_get_attribute(value, attribute, handle, device) == 0;
}

static bool set_attribute(enum bare_kind kind, driver_handle handle, int attribute, int value) {
	const struct driver *driver = driver_own();
	int device;

	if (kind != BARE_KERNEL)
		return driver->function_set_attribute &&
		       driver->function_set_attribute(handle, attribute, value) == 0;
	return driver->kernel_set_attribute && driver->ctx_get_device(&device) == 0 &&
	       driver->kernel_set_attribute(attribute, value, handle, device) == 0;
}

bool bare_like(const struct bare_origin *origin, driver_handle other, enum bare_kind kind,
	       driver_handle original) {
	driver_handle before;
	bool good = true;
	int value, now;

	if (!enter(origin, &before))
		return false;
	for (unsigned i = 0; good && i < sizeof(copied_attributes) / sizeof(*copied_attributes);
	     i++) {
		const int attribute = copied_attributes[i];

		if (get_attribute(kind, original, attribute, &value)) /* else an older driver's */
			good = (get_attribute(origin->kind, other, attribute, &now) &&
				now == value) ||
			       set_attribute(origin->kind, other, attribute, value);
	}
	leave(origin, before);
	return good;
}

bool bare_change(const struct bare_change *change, driver_handle bare) {
	const struct driver *driver = driver_own();
	int result = -1;

	switch (change->setting) {
	case BARE_FUNCTION_ATTRIBUTE:
		if (driver->function_set_attribute)
			result = driver->function_set_attribute(bare, change->attribute,
								change->value);
		break;
	case BARE_FUNCTION_CACHE:
		if (driver->function_set_cache)
			result = driver->function_set_cache(bare, change->value);
		break;
	case BARE_FUNCTION_BANKS:
		if (driver->function_set_banks)
			result = driver->function_set_banks(bare, change->value);
		break;
	case BARE_KERNEL_ATTRIBUTE:
		if (driver->kernel_set_attribute)
			result = driver->kernel_set_attribute(change->attribute, change->value,
							      bare, change->device);
		break;
	case BARE_KERNEL_CACHE:
		if (driver->kernel_set_cache)
			result = driver->kernel_set_cache(bare, change->value, change->device);
		break;
	}
	return result == 0;
}

bool bare_repeat(const struct bare_change *change, const char *name) {
	driver_handle before, bare;
	bool good;

	if (!enter(&change->origin, &before))
		return false;
	bare = ask(&change->origin, name);
	good = bare && bare_change(change, bare);
	leave(&change->origin, before);
	return good;
}
