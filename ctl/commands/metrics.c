/* SPDX-License-Identifier: Apache-2.0 */

/* The command metrics: prints the daemon's metrics in the OpenMetrics format. */

#include <stdio.h>

#include "ctl/base/ctl.h"
#include "lib/varlink/varlink-json.h"

static const char help[] =
	"Usage: gpuprobectl metrics [--prometheus]\n"
	"\n"
	"Prints the numbers of the daemon and of the maps that are exported (gpuprobectl map "
	"export) and yours, in the OpenMetrics format.\n"
	"gpuprobed --metrics writes the same to a file or a socket, of the maps of all users.\n"
	"\n"
	"      --prometheus  in Prometheus' older format\n";

int command_metrics(struct ctl *ctl, int argc, char **argv) {
	bool prometheus = false;
	const struct ctl_option options[] = { { "prometheus", .flag = &prometheus }, {} };
	struct ctl_command_line line = { .help = help, .options = options };
	struct varlink_reply reply;
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	r = ctl_call(ctl, "Metrics",
		     varlink_json_pack("prometheus", json_object_new_boolean(prometheus), NULL), "",
		     CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else
		fputs(ctl_string(reply.parameters, "text"), stdout);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}
