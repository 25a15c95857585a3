/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command trace: records what CUDA programs do on the host. Reads the command line and starts
 * the parts that do the work.
 */

#include <stdlib.h>
#include <string.h>

#include "command.h"

int command_trace(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = { { "report", command_trace_report }, {} };
	struct trace_command trace = { .ctl = ctl };
	int r;

	r = ctl_first_argument(argc, argv);
	if (r < argc && !strcmp(argv[r], verbs[0].name))
		return ctl_verb(ctl, argc, argv, "", verbs);
	trace.parameters = json_object_new_object();
	r = trace_options(&trace, argc, argv);
	if (r < 0)
		r = trace_live(&trace);
	json_object_put(trace.parameters);
	while (trace.n_profiles)
		free(trace.profiles[--trace.n_profiles]);
	return r;
}
