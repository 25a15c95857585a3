/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Hides bare kernels from an application that lists the kernels of a module, and notes the handles
 * that it got. entry.c calls it behind the driver's functions that list.
 */

#include <stdlib.h>
#include <string.h>

#include "bare-ask.h"

/* The calls for modules and their functions, or for libraries and their kernels. */
struct calls {
	driver_result (*count)(unsigned *, driver_handle);
	driver_result (*list)(driver_handle *, unsigned, driver_handle);
	driver_result (*get_name)(const char **, driver_handle);
	void (*got)(driver_handle, driver_handle, const char *);
};

static bool get_calls(bool library, struct calls *calls) {
	const struct driver *driver = driver_own();

	if (!driver)
		return false;
	if (library)
		*calls = (struct calls){ driver->library_get_kernel_count,
					 driver->library_enumerate_kernels, driver->kernel_get_name,
					 bare_got_kernel };
	else
		*calls = (struct calls){ driver->module_get_function_count,
					 driver->module_enumerate_functions,
					 driver->function_get_name, bare_got_function };
	return calls->count && calls->list && calls->get_name;
}

/* All handles but those of bare kernels, for the caller to free; NULL: the driver does not say. */
static driver_handle *get_handles(bool library, driver_handle container, unsigned *count) {
	driver_handle *handles;
	struct calls calls;
	unsigned all = 0, kept = 0;
	const char *name;

	if (!get_calls(library, &calls) || calls.count(&all, container) != 0)
		return NULL;
	handles = calloc((size_t)all + 1, sizeof(*handles));
	if (!handles || (all && calls.list(handles, all, container) != 0)) {
		free(handles);
		return NULL;
	}
	for (unsigned i = 0; i < all; i++) {
		if (calls.get_name(&name, handles[i]) != 0) {
			free(handles);
			return NULL;
		}
		if (bare_is_name(name))
			continue;
		calls.got(container, handles[i], name);
		handles[kept++] = handles[i];
	}
	*count = kept;
	return handles;
}

void bare_count(bool library, driver_handle container, unsigned *count) {
	driver_handle *handles;

	if (bare_is_container(container)) {
		handles = get_handles(library, container, count);
		free(handles);
	}
}

bool bare_list(bool library, driver_handle container, driver_handle *list, unsigned limit) {
	driver_handle *handles;
	unsigned count;

	if (!list || !limit || !bare_is_container(container))
		return false;
	handles = get_handles(library, container, &count);
	if (!handles)
		return false;
	memcpy(list, handles, (count < limit ? count : limit) * sizeof(*list));
	free(handles);
	return true;
}

void bare_listed(bool library, driver_handle container, driver_handle *list, unsigned limit) {
	struct calls calls;
	unsigned count = 0;
	const char *name;

	if (!bare_is_original(container) || !get_calls(library, &calls) ||
	    calls.count(&count, container) != 0)
		return;
	for (unsigned i = 0; i < count && i < limit; i++)
		if (calls.get_name(&name, list[i]) == 0)
			calls.got(container, list[i], name);
}
