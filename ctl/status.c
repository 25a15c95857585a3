/* SPDX-License-Identifier: Apache-2.0 */

/* status. */

#include <stdio.h>

#include "ctl.h"

static const char help[] =
	"Usage: gpuprobectl status\n"
	"\n"
	"Shows the state of the daemon, what it has done, and what it cannot do here.\n";

static void print_counters(json_object *counters) {
	json_object_object_foreach(counters, key, value) {
		printf("  ");
		for (const char *p = key; *p; p++)
			putchar(*p == '_' ? ' ' : *p);
		printf(": %s\n", json_object_get_string(value));
	}
}

static void print(const struct ctl *ctl, json_object *status) {
	json_object *missing = ctl_get(status, "missing");

	printf("gpuprobed %s, process %lld, %s daemon at %s\n", ctl_string(status, "version"),
	       (long long)ctl_int(status, "pid"), ctl_string(status, "mode"), ctl->path);
	printf("started: ");
	ctl_print_time(ctl_int(status, "started"));
	printf("\nverifier: %s\ncompiler: %s\nattachments: %lld\nmaps: %lld\n",
	       ctl_string(status, "verify"), ctl_string(status, "compiler"),
	       (long long)ctl_int(status, "attachments"), (long long)ctl_int(status, "maps"));
	printf("since the start:\n");
	print_counters(ctl_get(status, "counters"));
	for (size_t i = 0; i < json_object_array_length(missing); i++) {
		printf("missing: ");
		ctl_print_text(json_object_get_string(json_object_array_get_idx(missing, i)));
		putchar('\n');
	}
}

int command_status(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "Status", &reply);
	if (r >= 0)
		return r;
	print(ctl, reply.parameters);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}
