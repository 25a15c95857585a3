/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on the daemon: prints what the daemon says about itself, or that
 * it does not run.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "lib/json.h"

#define EXAMINE_MS 60000 /* a worker may have to be started */

static json_object *check(const char *state, const char *todo, json_object *consume_found) {
	json_object *object = json_object_new_object();

	json_add_string(object, "id", "daemon.reachable");
	json_add_string(object, "title", "daemon");
	json_add_string(object, "state", state);
	json_add(object, "found", consume_found);
	json_add_string(object, "todo", todo);
	return object;
}

/* That it answers; and whether it is the daemon that was installed with us, or still the one
 * before, or another one's. */
static json_object *check_version(const struct doctor *doctor) {
	struct varlink_reply reply;
	json_object *object;
	const char *version;

	if (ctl_call(doctor->ctl, "Status", NULL, "", CTL_TIMEOUT_MS, &reply))
		return check("ok", "", ctl_format("answers at %s", doctor->ctl->path));
	version = ctl_string(reply.parameters, "version");
	if (strcmp(version, PROJECT_VERSION))
		object = check(
			"warning",
			!strcmp(ctl_string(reply.parameters, "mode"), "session")
				? "start it again, or use the gpuprobectl of its version"
				: "after an upgrade: systemctl restart gpuprobed, which keeps what "
				  "is attached; else use the gpuprobectl of its version",
			ctl_format("version %s answers at %s, but gpuprobectl is of "
				   "version " PROJECT_VERSION,
				   version, doctor->ctl->path));
	else
		object = check("ok", "",
			       ctl_format("version %s answers at %s", version, doctor->ctl->path));
	varlink_reply_deinit(&reply);
	return object;
}

json_object *doctor_daemon(const struct doctor *doctor) {
	json_object *checks = json_object_new_array(), *theirs;
	struct varlink_reply reply;
	const char *socket;
	int r;

	if (!doctor->live) {
		json_append(checks, check("skipped", "", ctl_format("that system does not run")));
		return checks;
	}
	r = ctl_call(doctor->ctl, "Examine", NULL, "", EXAMINE_MS, &reply);
	socket = *doctor->ctl->path ? doctor->ctl->path : "the socket";
	if (r) {
		json_append(checks,
			    check("failed",
				  r == CTL_PERMISSION ? "run it as root, or join the group gpuprobe"
				  : doctor->ctl->session ? "gpuprobed --session; if it runs, its "
							   "standard error says more"
				  : doctor->ctl->socket
					  ? "start gpuprobed; if it runs, its log says more"
					  : "systemctl start gpuprobed, or for a try: gpuprobed "
					    "--session; if it runs: journalctl -u gpuprobed",
				  ctl_format("%s: no answer; what only the daemon can see was not "
					     "looked at",
					     socket)));
		return checks;
	}
	json_append(checks, check_version(doctor));
	theirs = json_member(reply.parameters, "checks");
	for (size_t i = 0; i < json_object_array_length(theirs); i++)
		json_append(checks, json_object_get(json_object_array_get_idx(theirs, i)));
	varlink_reply_deinit(&reply);
	return checks;
}
