/* SPDX-License-Identifier: Apache-2.0 */

/* trace: what CUDA programs do on the host. */

#include <stdlib.h>
#include <string.h>

#include "command.h"

int command_trace(struct ctl *ctl, int argc, char **argv) {
	struct trace_command trace = { .ctl = ctl };
	int r;

	if (argc > 1 && !strcmp(argv[1], "report")) {
		argv[1] = (char *)CTL_TITLE "trace report";
		return command_trace_report(ctl, argc - 1, argv + 1);
	}
	trace.parameters = json_object_new_object();
	r = trace_options(&trace, argc, argv);
	if (r < 0)
		r = trace_live(&trace);
	json_object_put(trace.parameters);
	while (trace.n_profiles)
		free(trace.profiles[--trace.n_profiles]);
	return r;
}
