/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How methods answer: with an error, or later. */

#include <stdint.h>

#include "lib/varlink/varlink-server.h"

#define CONTROL_INTERFACE "io.gpuprobe.control."

/* Errors of the interface. They consume nothing and return what varlink_call_error() does. */
int control_error_not_found(struct varlink_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int control_error_reason(struct varlink_call *call, const char *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int control_error_argument(struct varlink_call *call, const char *parameter, const char *reason);
int control_error_limit(struct varlink_call *call, const char *what, uint64_t limit);

/* The first member of what a method keeps until it has answered: the userdata of the call. */
struct control_work {
	struct varlink_call *call; /* a reference */
	void (*free)(void *work); /* frees the whole, but not the reference */
};

/* Begins: from now on the work is freed when the client goes. */
void control_work_begin(struct control_work *work, struct varlink_call *call,
			void (*free)(void *work));

/* Lets a producer answer; run: varlink_call_work(), _stream() or _gather(). It frees the work if
 * the call is over already. */
void control_work_run(struct control_work *work,
		      int (*run)(struct varlink_call *call, varlink_producer produce),
		      varlink_producer produce);

/* Frees the work after its last answer, which had the result r. Returns what a handler and a
 * producer return then. */
int control_work_end(struct control_work *work, int r);
