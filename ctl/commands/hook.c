/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command hook: lists the places in the kernel at which a trace can look. It shows which ones
 * are in use and in which of their forms, and why others cannot be used.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/command.h"
#include "lib/varlink/varlink-json.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl hook list [PATTERN]\n"
	"       gpuprobectl hook test NAME [-- CMD [ARGUMENT]...]\n"
	"       gpuprobectl hook status\n"
	"\n"
	"Places in the kernel's driver, and others of the kernel, at which gpuprobectl trace can "
	"look.\n"
	"\n"
	"list prints those that a name, a glob or a set matches; status which are at work, by "
	"what, how often they were hit, and why others cannot be. test\n"
	"attaches one and waits until it is hit, by CMD if there is one, else by any program; "
	"Ctrl-C ends that. Exit status of test: 0 it was hit, 1 it was not.\n";

static int call_list(struct ctl *ctl, const char *pattern, struct varlink_reply *reply) {
	json_object *parameters = varlink_json_pack(
		"pattern", pattern ? json_object_new_string(pattern) : NULL, NULL);

	return ctl_call(ctl, "ListHooks", parameters, pattern ?: "", CTL_TIMEOUT_MS, reply);
}

static void print_list(json_object *hooks) {
	static const struct ctl_column columns[] = {
		{ "NAME", "name", ctl_cell_or_dash },
		{ "SET", "set", ctl_cell_or_dash },
		{ "STATE", "state", ctl_cell_or_dash },
		{ "METHOD", "method", ctl_cell_or_dash },
		{ "TARGET", "target", ctl_cell_or_dash },
		{ "PURPOSE", "purpose", ctl_cell_or_dash },
		{},
	};

	ctl_print_columns(columns, hooks, INT64_MAX);
}

static int no_such_hook(const char *pattern) {
	return ctl_fail(CTL_NOT_FOUND, "there is no hook %s; gpuprobectl hook list shows them",
			pattern);
}

static int hook_list(struct ctl *ctl, int argc, char **argv) {
	struct ctl_command_line line = { .help = help,
					 .arguments = CTL_MAYBE_ONE,
					 .argument = "pattern" };
	struct varlink_reply reply;
	const char *pattern;
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	pattern = argv[optind];
	r = call_list(ctl, pattern, &reply);
	if (r)
		return r;
	if (pattern && !json_object_array_length(json_member(reply.parameters, "hooks")))
		r = no_such_hook(pattern);
	else if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else
		print_list(json_member(reply.parameters, "hooks"));
	varlink_reply_deinit(&reply);
	return r;
}

/* The version of NVIDIA's kernel module, or "". */
static const char *driver_version(char version[static 64]) {
	FILE *file = fopen("/sys/module/nvidia/version", "re");

	version[0] = '\0';
	if (file) {
		if (fgets(version, 64, file))
			version[strcspn(version, "\n")] = '\0';
		fclose(file);
	}
	return version;
}

static json_object *hits_text(json_object *hook, const char *key) {
	return strcmp(ctl_string(hook, "state"), "attached") ? json_object_new_string("-")
							     : ctl_cell(hook, key);
}

static void print_status(json_object *hooks) {
	static const struct ctl_column columns[] = {
		{ "NAME", "name", ctl_cell_or_dash },
		{ "STATE", "state", ctl_cell_or_dash },
		{ "METHOD", "method", ctl_cell_or_dash },
		{ "TARGET", "target", ctl_cell_or_dash },
		{ "HITS", "hits", hits_text },
		{ "REASON", "reason", ctl_cell_or_dash },
		{},
	};
	size_t n = json_object_array_length(hooks), attached = 0, available = 0;
	char version[64];

	for (size_t i = 0; i < n; i++) {
		const char *state = ctl_string(json_object_array_get_idx(hooks, i), "state");

		attached += strcmp(state, "attached") == 0;
		available += strcmp(state, "available") == 0;
	}
	printf("driver: %s\nhooks: %zu attached, %zu available, %zu unavailable\n\n",
	       *driver_version(version) ? version : "none", attached, available,
	       n - attached - available);
	ctl_print_columns(columns, hooks, INT64_MAX);
}

static int hook_status(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_no_options(ctl, argc, argv, help);
	if (r >= 0)
		return r;
	r = call_list(ctl, NULL, &reply);
	if (r)
		return r;
	if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else
		print_status(json_member(reply.parameters, "hooks"));
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

/* Attaches the hook and waits. Returns the exit status. */
static int test(struct ctl *ctl, json_object *hook, char **command) {
	json_object *names = json_object_new_array(), *sources = json_object_new_array(), *result;
	struct trace_command trace = { .ctl = ctl, .command = command, .test = true };
	const char *name = ctl_string(hook, "name");
	int r;

	trace.test_processes = !strcmp(ctl_string(hook, "set"), "process");
	json_append_string(names, name);
	json_append_string(sources, "kernel");
	trace.parameters = varlink_json_pack("hooks", names, "sources", sources, "follow",
					     json_object_new_boolean(true), NULL);
	r = trace_live(&trace);
	json_object_put(trace.parameters);
	if (!trace.tested)
		return r ?: CTL_ERROR;
	if (ctl->json) {
		result = varlink_json_pack("name", json_object_new_string(name), "hits",
					   json_object_new_int64((int64_t)trace.hits), "method",
					   json_object_get(json_member(hook, "method")), "target",
					   json_object_get(json_member(hook, "target")), NULL);
		ctl_print_json(ctl, result);
		json_object_put(result);
	} else {
		ctl_print_text(name);
		printf(": %s, by %s at ", trace.hits ? "hit" : "not hit",
		       ctl_string(hook, "method"));
		ctl_print_text(ctl_string(hook, "target"));
		putchar('\n');
	}
	return trace.hits ? CTL_OK : CTL_ERROR;
}

static int hook_test(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	struct ctl_command_line line = { .help = help, .arguments = CTL_ANY };
	json_object *hooks, *hook;
	char **command = NULL;
	int r, n = 1;

	while (n < argc && strcmp(argv[n], "--"))
		n++;
	if (n < argc)
		command = argv + n + 1; /* whose options are not ours */
	r = ctl_parse(ctl, n, argv, &line);
	if (r >= 0)
		return r;
	if (optind == n)
		return ctl_usage("hook test: which hook?");
	if (optind + 1 < n)
		return ctl_usage("hook test takes one hook, but got %s too; a CMD comes behind --",
				 argv[optind + 1]);
	if (command && !*command)
		return ctl_usage("hook test: which CMD?");
	r = call_list(ctl, argv[optind], &reply);
	if (r)
		return r;
	hooks = json_member(reply.parameters, "hooks");
	hook = json_object_array_get_idx(hooks, 0);
	if (!json_object_array_length(hooks))
		r = no_such_hook(argv[optind]);
	else if (json_object_array_length(hooks) > 1)
		r = ctl_fail(CTL_ERROR, "%s are %zu hooks; gpuprobectl hook list %s shows them",
			     argv[optind], json_object_array_length(hooks), argv[optind]);
	else if (!strcmp(ctl_string(hook, "state"), "unavailable"))
		r = ctl_fail(CTL_ERROR, "%s: unavailable: %s", ctl_string(hook, "name"),
			     ctl_string(hook, "reason"));
	else
		r = test(ctl, hook, command);
	varlink_reply_deinit(&reply);
	return r;
}

int command_hook(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "list", hook_list },
		{ "test", hook_test },
		{ "status", hook_status },
		{},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
