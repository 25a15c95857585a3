/* SPDX-License-Identifier: Apache-2.0 */

/* The command metrics: prints the daemon's metrics in the OpenMetrics format. */

#include <stdio.h>

#include "ctl/base/ctl.h"
#include "lib/varlink/varlink-json.h"

enum {
	OPTION_PROMETHEUS = CTL_OPTION_OWN,
};

static const char help[] =
	"Usage: gpuprobectl metrics [--prometheus]\n"
	"\n"
	"Prints the numbers of the daemon and of the maps that are exported (gpuprobectl map "
	"export) and yours, in the OpenMetrics format.\n"
	"gpuprobed --metrics writes the same to a file or a socket, of the maps of all users.\n"
	"\n"
	"      --prometheus  in Prometheus' older format\n";

int command_metrics(struct ctl *ctl, int argc, char **argv) {
	static const struct option options[] = {
		CTL_OPTIONS, { "prometheus", no_argument, NULL, OPTION_PROMETHEUS }, {}
	};
	struct varlink_reply reply;
	bool prometheus = false;
	int option, r = -1;

	while (r < 0 && (option = ctl_getopt(argc, argv, "hV", options, NULL)) >= 0) {
		if (option == OPTION_PROMETHEUS)
			prometheus = true;
		else
			r = ctl_option(ctl, option, help);
	}
	if (r < 0 && optind < argc)
		r = ctl_usage("metrics takes no arguments, but got %s", argv[optind]);
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
