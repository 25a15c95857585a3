/* SPDX-License-Identifier: Apache-2.0 */

/* trace: what CUDA programs do on the host. */

#include "command.h"

int command_trace(struct ctl *ctl, int argc, char **argv) {
	struct trace_command trace = { .ctl = ctl };
	int r;

	trace.parameters = json_object_new_object();
	r = trace_options(&trace, argc, argv);
	if (r < 0)
		r = trace_live(&trace);
	json_object_put(trace.parameters);
	return r;
}
