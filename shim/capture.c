/* SPDX-License-Identifier: Apache-2.0 */

#include "capture.h"

#include <pthread.h>
#include <stdlib.h>

struct capture {
	struct capture *next;
	driver_handle stream, context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for no call */
static struct capture *captures;
static unsigned count; /* of them, and those that there was no memory for: these stay */

void capture_begin(driver_handle stream)
{
	const struct driver *driver = driver_own();
	struct capture *capture = malloc(sizeof(*capture));
	driver_handle context = NULL;

	if (driver && (!driver->stream_get_context ||
		       driver->stream_get_context(stream, &context) != 0))
		driver->ctx_get_current(&context);
	pthread_mutex_lock(&lock);
	if (capture) {
		*capture = (struct capture){ captures, stream, context };
		captures = capture;
	}
	__atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&lock);
}

/* Removes those of a stream (NULL is one, too), or else of a context; one or all. */
static void end(driver_handle stream, driver_handle context, bool all)
{
	pthread_mutex_lock(&lock);
	for (struct capture **link = &captures; *link;) {
		struct capture *capture = *link;

		if (context ? capture->context != context : capture->stream != stream) {
			link = &capture->next;
			continue;
		}
		*link = capture->next;
		free(capture);
		__atomic_sub_fetch(&count, 1, __ATOMIC_SEQ_CST);
		if (!all)
			break;
	}
	pthread_mutex_unlock(&lock);
}

void capture_end(driver_handle stream)
{
	end(stream, NULL, false);
}

void capture_abandon(driver_handle stream)
{
	end(stream, NULL, true);
}

void capture_forget(driver_handle context)
{
	end(NULL, context, true);
}

bool capture_is_going_on(void)
{
	return __atomic_load_n(&count, __ATOMIC_SEQ_CST);
}
