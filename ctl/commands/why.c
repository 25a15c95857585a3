/* SPDX-License-Identifier: Apache-2.0 */

/* The command why: prints which kernels and modules got probes, and why others did not. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/suggest.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl why [--pid=PID] [--kernel=NAME]\n"
	"\n"
	"Lists what was probed, and by which engine, and what was not, newest first, and the "
	"reason in one line each.\n"
	"\n"
	"      --pid=PID      only about this process\n"
	"      --kernel=NAME  only about this kernel: a glob, or a mangled or demangled name\n";

static int parse(struct ctl *ctl, int argc, char **argv, json_object *parameters) {
	static const struct ctl_option options[] = {
		{ "pid", .value = CTL_NUMBER, .min = 1, .key = "pid" },
		{ "kernel", .value = CTL_TEXT, .key = "kernel" },
		{},
	};
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = parameters };

	return ctl_parse(ctl, argc, argv, &line);
}

/*
 * 2026-11-21 10:00:00  1234 vec_add  probed (sanitizer)  vectorAdd(float*): no PTX for sm_90 in
 * this image
 */
static void print(json_object *outcome) {
	const char *kernel = ctl_string(outcome, "demangled"),
		   *reason = ctl_string(outcome, "reason"), *engine = ctl_string(outcome, "engine");

	if (!*kernel)
		kernel = ctl_string(outcome, "kernel");
	ctl_print_time(json_int_of(outcome, "time"));
	printf("  %lld ", (long long)json_int_of(outcome, "pid"));
	ctl_print_text(ctl_string(outcome, "comm"));
	printf("  ");
	ctl_print_text(ctl_string(outcome, "outcome"));
	if (*engine)
		printf(" (%s)", engine);
	if (*kernel) {
		printf("  ");
		ctl_print_text(kernel);
	}
	if (*reason) {
		printf("%s", *kernel ? ": " : "  ");
		ctl_print_text(reason);
	}
	putchar('\n');
}

/* Nothing is remembered about a kernel: says so, with the closest name that there is. */
static void tell_no_kernel(struct ctl *ctl, const char *kernel) {
	struct suggestion suggestion = { .wanted = kernel };
	struct varlink_reply reply;

	if (ctl_ask(ctl->client, "Why", NULL, &reply)) {
		suggest_add_members(&suggestion, json_member(reply.parameters, "outcomes"),
				    "kernel");
		suggest_add_members(&suggestion, json_member(reply.parameters, "outcomes"),
				    "demangled");
		varlink_reply_deinit(&reply);
	}
	ctl_tell("nothing is remembered about a kernel %s%s", kernel, suggest_text(&suggestion));
}

/* Why there may be nothing about the process, or for a person at a terminal how anything gets here.
 */
static void tell_nothing(const struct ctl *ctl, int64_t pid) {
	const char *lacks = pid ? ctl_process_lacks(pid) : NULL;

	if (pid && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
		lacks = "is not there any more, or never was";
	if (lacks && !ctl->json)
		ctl_tell("nothing is remembered; process %lld %s", (long long)pid, lacks);
	else if (isatty(STDOUT_FILENO))
		ctl_tell("nothing is remembered; a kernel shows up here when a process with the "
			 "shim loads its module "
			 "(gpuprobectl doctor --only='reach.*' lists CUDA processes without it)");
}

/* Returns the exit status. */
static int show(struct ctl *ctl, const struct varlink_reply *reply, const char *kernel,
		int64_t pid) {
	json_object *outcomes = json_member(reply->parameters, "outcomes");
	const size_t n = json_object_array_length(outcomes);
	int r = n || !pid ? -1 : ctl_check_pid("--pid", pid);

	if (r >= 0)
		return r;
	if (ctl->json)
		ctl_print_json(ctl, reply->parameters);
	else
		for (size_t i = 0; i < n; i++)
			print(json_object_array_get_idx(outcomes, i));
	if (!n && kernel && !pid)
		tell_no_kernel(ctl, kernel);
	else if (!n)
		tell_nothing(ctl, pid);
	return CTL_OK;
}

int command_why(struct ctl *ctl, int argc, char **argv) {
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	char *kernel;
	int64_t pid;
	int r;

	r = parse(ctl, argc, argv, parameters);
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	kernel =
		json_member(parameters, "kernel") ? strdup(ctl_string(parameters, "kernel")) : NULL;
	pid = json_member(parameters, "pid") ? json_int_of(parameters, "pid") : 0;
	r = ctl_call(ctl, "Why", parameters, "", CTL_TIMEOUT_MS, &reply);
	if (r) {
		free(kernel);
		return r;
	}
	r = show(ctl, &reply, kernel, pid);
	free(kernel);
	varlink_reply_deinit(&reply);
	return r;
}
