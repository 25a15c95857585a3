/* SPDX-License-Identifier: Apache-2.0 */

/* Asks the driver whether a context is idle (idle.h), by an event behind all that it has to do. */

#include "idle.h"

#include <time.h>

#include "shim/base/deadline.h"

#define PAUSE_NS 20000

enum idle wait_idle(driver_handle context, uint64_t until_ms) {
	const struct driver *driver = driver_own();
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	driver_handle event = NULL;
	driver_result result;

	if (!driver->context_record_event || !driver->event_create || !driver->event_query ||
	    !driver->event_destroy)
		return IDLE_UNKNOWN;
	if (driver->event_create(&event, DRIVER_EVENT_NO_TIMING) != 0)
		return IDLE_NO;
	result = driver->context_record_event(context, event);
	while (!result && (result = driver->event_query(event)) == DRIVER_ERROR_NOT_READY &&
	       deadline_now_ms() < until_ms) {
		nanosleep(&pause, NULL);
		result = 0;
	}
	driver->event_destroy(event);
	return result ? IDLE_NO : IDLE_YES;
}
