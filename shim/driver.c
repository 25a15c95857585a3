/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <pthread.h>

static struct driver table;
static const struct driver *complete; /* the table, once it is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void)
{
	int missing = 0;

#define X(field, name, arguments)                                      \
	table.field = (driver_result(*) arguments)driver_symbol(name); \
	missing += !table.field;
	DRIVER_OWN_FUNCTIONS(X)
#undef X
#define X(field, name, arguments) table.field = (driver_result(*) arguments)driver_symbol(name);
	DRIVER_OPTIONAL_FUNCTIONS(X)
#undef X
	if (!missing)
		complete = &table;
}

const struct driver *driver_own(void)
{
	if (driver_is_in_use())
		pthread_once(&once, look_up);
	return complete;
}

uint64_t driver_context_id(driver_handle context)
{
	const struct driver *driver = driver_own();
	unsigned long long id;

	if (!driver->context_get_id || driver->context_get_id(context, &id) != 0)
		return DRIVER_CONTEXT_ID_NONE;
	return id;
}
