/* SPDX-License-Identifier: Apache-2.0 */

/* Takes replies of the daemon to Trace apart, and says what is wrong with them (command.h). */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "ctl/trace/read/stream.h"
#include "lib/json.h"

#define MISSING_LINES 3 /* on a terminal */

int trace_stream_result(int r) {
	switch (r) {
	case 0:
		return CTL_OK;
	case TRACE_STREAM_E_FOREIGN:
	case TRACE_STREAM_E_BROKEN:
		return ctl_fail(CTL_ERROR, "the daemon sent records that make no sense");
	case TRACE_STREAM_E_VERSION:
		return ctl_fail(CTL_ERROR, "the daemon's traces are of another version than ours");
	default:
		return ctl_fail(CTL_ERROR, "%s", r == -ENOMEM ? "out of memory" : strerror(-r));
	}
}

bool trace_reply_misses(json_object *reply) {
	return json_length_of(json_member(reply, "missing")) > 0;
}

void trace_reply_tell_missing(json_object *reply) {
	json_object *missing = json_member(reply, "missing");
	const size_t n = json_length_of(missing),
		     shown = isatty(STDERR_FILENO) && n > MISSING_LINES ? MISSING_LINES : n;

	for (size_t i = 0; i < shown; i++)
		ctl_tell("not traced: %s",
			 json_object_get_string(json_object_array_get_idx(missing, i)));
	if (shown < n)
		ctl_tell("not traced: %zu more; gpuprobectl hook status says why", n - shown);
}
