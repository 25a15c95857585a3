/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Keeps a list of the streams that are being captured (capture.h). The sanitizer engine puts
 * patching off while there are any.
 */

#include "capture.h"

#include <pthread.h>
#include <stdlib.h>

#include "arm.h"

struct capture {
	struct capture *next;
	driver_handle stream, context;
	uint64_t id, born; /* of the context: driver_context_id(); arm_born() */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for no call */
static struct capture *captures;
static unsigned count; /* of them, and those that there was no memory for: these stay */

void capture_begin(driver_handle stream) {
	const struct driver *driver = driver_own();
	struct capture *capture = malloc(sizeof(*capture));
	driver_handle context = NULL;
	uint64_t id;

	if (driver &&
	    (!driver->stream_get_context || driver->stream_get_context(stream, &context) != 0))
		driver->ctx_get_current(&context);
	id = context ? driver_context_id(context) : DRIVER_CONTEXT_ID_NONE;
	pthread_mutex_lock(&lock);
	if (capture) {
		*capture = (struct capture){ captures, stream, context, id, arm_born() };
		captures = capture;
	}
	__atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static void take_off(struct capture **link) {
	struct capture *capture = *link;

	*link = capture->next;
	free(capture);
	__atomic_sub_fetch(&count, 1, __ATOMIC_SEQ_CST);
}

/* Removes those of a stream (NULL is one, too); one or all. */
static void end(driver_handle stream, bool all) {
	pthread_mutex_lock(&lock);
	for (struct capture **link = &captures; *link;) {
		struct capture *capture = *link;

		if (capture->stream != stream) {
			link = &capture->next;
			continue;
		}
		take_off(link);
		if (!all)
			break;
	}
	pthread_mutex_unlock(&lock);
}

void capture_end(driver_handle stream) {
	end(stream, false);
}

void capture_abandon(driver_handle stream) {
	end(stream, true);
}

void capture_forget(driver_handle context, uint64_t now, uint64_t until) {
	pthread_mutex_lock(&lock);
	for (struct capture **link = &captures; *link;) {
		struct capture *capture = *link;

		if (capture->context != context ||
		    arm_outlives(capture->id, capture->born, now, until))
			link = &capture->next;
		else
			take_off(link);
	}
	pthread_mutex_unlock(&lock);
}

bool capture_is_going_on(void) {
	return __atomic_load_n(&count, __ATOMIC_SEQ_CST);
}
