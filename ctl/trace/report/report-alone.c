/* SPDX-License-Identifier: Apache-2.0 */

/* `gpuprobectl trace report` as a program of its own, for tests. It needs no daemon. */

#include <errno.h>

#include "ctl/base/ctl.h"

int main(int argc, char **argv) {
	struct ctl ctl = {};
	int r;

	if (argc > 0)
		argv[0] = program_invocation_name = (char *)CTL_TITLE "trace report";
	r = command_trace_report(&ctl, argc, argv);
	return ctl_flush() && r == CTL_OK ? CTL_ERROR : r;
}
