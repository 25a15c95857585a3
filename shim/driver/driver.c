/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of driver functions that the shim itself calls (driver.h). It is filled once, when the
 * driver is in use; no thread waits for another.
 */

#include "driver.h"

#include <stdlib.h>

static const struct driver *complete; /* the table, if the driver has all that must be in it */
static bool looked_up;

/*
 * No thread waits here for another one: a thread in a library's constructor has the lock of
 * dlopen(), which the other thread's dlsym() waits for. Threads that come here at the same time
 * find the same; the first table stays.
 */
static void look_up(void) {
	struct driver *table = calloc(1, sizeof(*table));
	const struct driver *none = NULL;
	int missing = 0;

	if (!table)
		return;
#define X(field, name, arguments)                                       \
	table->field = (driver_result(*) arguments)driver_symbol(name); \
	missing += !table->field;
	DRIVER_OWN_FUNCTIONS(X)
#undef X
#define X(field, name, arguments) table->field = (driver_result(*) arguments)driver_symbol(name);
	DRIVER_OPTIONAL_FUNCTIONS(X)
#undef X
	if (missing || !__atomic_compare_exchange_n(&complete, &none, table, false,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		free(table);
	__atomic_store_n(&looked_up, true, __ATOMIC_RELEASE);
}

const struct driver *driver_own(void) {
	if (!__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE) && driver_is_in_use())
		look_up();
	return __atomic_load_n(&complete, __ATOMIC_ACQUIRE);
}

uint64_t driver_context_id(driver_handle context) {
	const struct driver *driver = driver_own();
	unsigned long long id;

	if (!driver->context_get_id || driver->context_get_id(context, &id) != 0)
		return DRIVER_CONTEXT_ID_NONE;
	return id;
}
