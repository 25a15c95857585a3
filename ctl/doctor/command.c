/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command doctor: checks everything that probes need on this machine, and says what is missing
 * and what to do.
 */

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl doctor [--only=GLOB] [--root=DIR]\n"
	"\n"
	"Looks at all that probes need: the kernel, the service, sockets, the preload, the driver, "
	"the toolkit, what the preload does not reach, and what the\n"
	"daemon says of itself. Prints for each whether it is fine, what was found, and what to "
	"do. Some can be looked at by root alone.\n"
	"\n"
	"ok; warning: something can be done without; failed; skipped: not looked at; unknown.\n"
	"Exit status: 0 nothing failed, 1 something did, 2 usage.\n"
	"\n"
	"      --only=GLOB  only checks whose id matches: 'kernel.*', daemon.verifier\n"
	"      --root=DIR   the system in this folder, not the one that runs\n";

static const char *const names[_DOCTOR_STATES] = { "ok", "warning", "failed", "skipped",
						   "unknown" };

/* ---- looking ---- */

static bool is_wanted(const struct doctor *doctor, const char *id) {
	return !doctor->only || fnmatch(doctor->only, id, 0) == 0;
}

static void look(const struct doctor *doctor, const struct doctor_check *checks,
		 json_object *results) {
	for (const struct doctor_check *check = checks; check->id; check++) {
		struct finding finding = {};
		json_object *result;

		if (!is_wanted(doctor, check->id))
			continue;
		check->look(doctor, &finding);
		result = json_object_new_object();
		json_add_string(result, "id", check->id);
		json_add_string(result, "title", check->title);
		json_add_string(result, "state", names[finding.state]);
		json_add_string(result, "found", finding.found);
		json_add_string(result, "todo", finding.todo);
		json_append(results, result);
	}
}

/* Whether a check of the daemon can be meant: a glob that begins otherwise does not make us talk to
 * it. */
static bool is_about_daemon(const struct doctor *doctor) {
	size_t n = doctor->only ? strcspn(doctor->only, "*?[\\") : 0;

	return strncmp(doctor->only ?: "", "daemon.", n < 7 ? n : 7) == 0;
}

static void look_at_daemon(const struct doctor *doctor, json_object *results) {
	json_object *theirs = is_about_daemon(doctor) ? doctor_daemon(doctor) : NULL;

	for (size_t i = 0; theirs && i < json_object_array_length(theirs); i++) {
		json_object *check = json_object_array_get_idx(theirs, i);

		if (is_wanted(doctor, ctl_string(check, "id")))
			json_append(results, json_object_get(check));
	}
	json_object_put(theirs);
}

/* ---- printing ---- */

static enum doctor_state state_of(json_object *check) {
	const char *name = ctl_string(check, "state");

	for (int i = 0; i < _DOCTOR_STATES; i++)
		if (!strcmp(name, names[i]))
			return (enum doctor_state)i;
	return DOCTOR_UNKNOWN; /* of a later daemon */
}

static bool use_colours(void) {
	const char *off = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) && (!off || !*off) && terminal && strcmp(terminal, "dumb");
}

static void print(json_object *checks) {
	static const char *const colours[_DOCTOR_STATES] = { "\033[32m", "\033[33m", "\033[1;31m",
							     "\033[2m", "\033[35m" };
	bool colour = use_colours();
	int width = 0;

	for (size_t i = 0; i < json_object_array_length(checks); i++) {
		int n = (int)strlen(ctl_string(json_object_array_get_idx(checks, i), "id"));

		width = n > width ? n : width;
	}
	for (size_t i = 0; i < json_object_array_length(checks); i++) {
		json_object *check = json_object_array_get_idx(checks, i);
		enum doctor_state state = state_of(check);

		printf("%s%-8s%s %-*s  ", colour ? colours[state] : "", names[state],
		       colour ? "\033[0m" : "", width, ctl_string(check, "id"));
		ctl_print_text(ctl_string(check, "title"));
		fputs(": ", stdout);
		ctl_print_text(ctl_string(check, "found"));
		putchar('\n');
		if (*ctl_string(check, "todo")) {
			printf("%*s-> ", 9 + width + 2, "");
			ctl_print_text(ctl_string(check, "todo"));
			putchar('\n');
		}
	}
}

/* Prints everything. The exit status. */
static int report(const struct doctor *doctor, json_object *checks) {
	json_object *out = json_object_new_object();
	unsigned int counts[_DOCTOR_STATES] = {};

	for (size_t i = 0; i < json_object_array_length(checks); i++)
		counts[state_of(json_object_array_get_idx(checks, i))]++;
	if (doctor->ctl->json) {
		json_add(out, "checks", json_object_get(checks));
		for (int i = 0; i < _DOCTOR_STATES; i++)
			json_add_int(out, names[i], (int)counts[i]);
		ctl_print_json(doctor->ctl, out);
	} else {
		print(checks);
		printf("%u ok, %u warnings, %u failed, %u skipped, %u unknown\n", counts[DOCTOR_OK],
		       counts[DOCTOR_WARNING], counts[DOCTOR_FAILED], counts[DOCTOR_SKIPPED],
		       counts[DOCTOR_UNKNOWN]);
	}
	json_object_put(out);
	return counts[DOCTOR_FAILED] ? CTL_ERROR : CTL_OK;
}

/* Returns -1 to go on, or the exit status. */
static int parse(struct doctor *doctor, int argc, char **argv) {
	const char *root = "/";
	const struct ctl_option options[] = {
		{ "root", .value = CTL_TEXT, .text = &root },
		{ "only", .value = CTL_TEXT, .text = &doctor->only },
		{},
	};
	struct ctl_command_line line = { .help = help, .options = options };
	int r;

	r = ctl_parse(doctor->ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	doctor->live = !strcmp(root, "/");
	doctor->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (doctor->root < 0)
		return ctl_usage("--root=%s: %s", root, strerror(errno));
	return -1;
}

int command_doctor(struct ctl *ctl, int argc, char **argv) {
	struct doctor doctor = { .ctl = ctl, .root = -1 };
	json_object *results;
	int r;

	r = parse(&doctor, argc, argv);
	if (r >= 0)
		return r;
	results = json_object_new_array();
	look(&doctor, doctor_kernel_checks, results);
	look(&doctor, doctor_bpf_checks, results);
	look(&doctor, doctor_service_checks, results);
	look(&doctor, doctor_preload_checks, results);
	look(&doctor, doctor_reach_checks, results);
	look(&doctor, doctor_driver_checks, results);
	look(&doctor, doctor_toolkit_checks, results);
	look_at_daemon(&doctor, results);
	if (json_object_array_length(results))
		r = report(&doctor, results);
	else
		r = ctl_usage("--only=%s: no check has an id like that", doctor.only);
	json_object_put(results);
	close(doctor.root);
	return r;
}
