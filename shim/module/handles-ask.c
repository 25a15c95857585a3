/* SPDX-License-Identifier: Apache-2.0 */

/* Asks the driver for kernels of twins (handles-ask.h). handles.c keeps the answers. */

#include "handles-ask.h"

#include "arm.h"

driver_handle handles_context(void) {
	driver_handle context = NULL;

	return driver_own()->ctx_get_current(&context) == 0 ? context : NULL;
}

void handles_note_context(struct handles_origin *origin) {
	origin->context = handles_context();
	origin->context_id =
		origin->context ? driver_context_id(origin->context) : DRIVER_CONTEXT_ID_NONE;
	origin->born = arm_born();
}

/* The kernel of that name; the context of its origin must be current, if it has one. */
static driver_handle ask(const struct handles_origin *origin, const char *name) {
	const struct driver *driver = driver_own();
	driver_handle kernel = NULL, found = NULL;
	driver_result result = -1;

	if (origin->kind == HANDLES_FUNCTION) {
		if (driver->module_get_function)
			result = driver->module_get_function(&found, origin->from, name);
	} else if (driver->library_get_kernel) {
		result = driver->library_get_kernel(&kernel, origin->from, name);
		found = kernel;
		if (result == 0 && origin->kind == HANDLES_KERNEL_FUNCTION)
			result = driver->kernel_get_function
					 ? driver->kernel_get_function(&found, kernel)
					 : -1;
	}
	return result == 0 ? found : NULL;
}

/* Makes the context of an origin current, if it has one; *before is for leave(). */
static bool enter(const struct handles_origin *origin, driver_handle *before) {
	*before = handles_context();
	return !origin->context || origin->context == *before ||
	       driver_own()->ctx_set_current(origin->context) == 0;
}

static void leave(const struct handles_origin *origin, driver_handle before) {
	if (origin->context && origin->context != before)
		driver_own()->ctx_set_current(before);
}

driver_handle handles_ask(const struct handles_origin *origin, const char *name) {
	driver_handle before, found;

	if (!enter(origin, &before))
		return NULL;
	found = ask(origin, name);
	leave(origin, before);
	return found;
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
static bool get_attribute(enum handles_kind kind, driver_handle handle, int attribute, int *value) {
	const struct driver *driver = driver_own();
	int device;

	if (kind != HANDLES_KERNEL)
		return driver->function_get_attribute &&
		       driver->function_get_attribute(value, attribute, handle) == 0;
	return driver->kernel_get_attribute && driver->ctx_get_device(&device) == 0 &&
	       driver->kernel_get_attribute(value, attribute, handle, device) == 0;
}

static bool set_attribute(enum handles_kind kind, driver_handle handle, int attribute, int value) {
	const struct driver *driver = driver_own();
	int device;

	if (kind != HANDLES_KERNEL)
		return driver->function_set_attribute &&
		       driver->function_set_attribute(handle, attribute, value) == 0;
	return driver->kernel_set_attribute && driver->ctx_get_device(&device) == 0 &&
	       driver->kernel_set_attribute(attribute, value, handle, device) == 0;
}

bool handles_like(const struct handles_origin *origin, driver_handle other, enum handles_kind kind,
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

bool handles_change(const struct handles_change *change, driver_handle other) {
	const struct driver *driver = driver_own();
	int result = -1;

	switch (change->setting) {
	case HANDLES_FUNCTION_ATTRIBUTE:
		if (driver->function_set_attribute)
			result = driver->function_set_attribute(other, change->attribute,
								change->value);
		break;
	case HANDLES_FUNCTION_CACHE:
		if (driver->function_set_cache)
			result = driver->function_set_cache(other, change->value);
		break;
	case HANDLES_FUNCTION_BANKS:
		if (driver->function_set_banks)
			result = driver->function_set_banks(other, change->value);
		break;
	case HANDLES_KERNEL_ATTRIBUTE:
		if (driver->kernel_set_attribute)
			result = driver->kernel_set_attribute(change->attribute, change->value,
							      other, change->device);
		break;
	case HANDLES_KERNEL_CACHE:
		if (driver->kernel_set_cache)
			result = driver->kernel_set_cache(other, change->value, change->device);
		break;
	}
	return result == 0;
}

bool handles_repeat(const struct handles_change *change, const char *name) {
	driver_handle before, twin;
	bool good;

	if (!enter(&change->origin, &before))
		return false;
	twin = ask(&change->origin, name);
	good = twin && handles_change(change, twin);
	leave(&change->origin, before);
	return good;
}
