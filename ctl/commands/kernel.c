/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands kernel list and kernel show: the names behind the ids in contexts and records. On
 * the sanitizer engine there are thousands of kernels. The daemon does not demangle foreign names,
 * so that is done here.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/decode/demangle.h"
#include "ctl/base/suggest.h"
#include "lib/json.h"

static const char kernel_help[] =
	"Usage: gpuprobectl kernel list [--pid=PID]\n"
	"       gpuprobectl kernel show KERNEL\n"
	"       gpuprobectl kernel show --instruction=ID\n"
	"\n"
	"list shows the kernels and device functions that are or were probed, or missed, newest "
	"first. show prints the instructions that\n"
	"have memory probes, of a kernel (a name, a glob, or an id in hexadecimal), or the one "
	"instruction that an instruction id stands for.\n"
	"\n"
	"      --pid=PID         only kernels of this process\n"
	"      --instruction=ID  a number in hexadecimal, as contexts hold it\n";

static json_object *type_text(json_object *kernel, const char *key) {
	return json_object_new_string(json_bool_of(kernel, key) ? "device" : "kernel");
}

static void print_kernels(json_object *kernels) {
	static const struct ctl_column columns[] = {
		{ "ID", "id" },
		{ "TYPE", "device_function", type_text },
		{ "PIDS", "pids", ctl_cell_list },
		{ "ATTACHMENTS", "attachments", ctl_cell_list },
		{ "KERNEL", "demangled" },
		{},
	};

	ctl_print_columns(columns, kernels, INT64_MAX);
}

static json_object *source_text(json_object *instruction, const char *key) {
	const char *file = json_string_of(instruction, key);

	return file ? ctl_format("%s:%s", file, ctl_string(instruction, "line"))
		    : json_object_new_string("-");
}

static void print_instructions(json_object *instructions) {
	static const struct ctl_column columns[] = {
		{ "ID", "id" },
		{ "SOURCE", "file", source_text },
		{ "INSTRUCTION", "text" },
		{ "KERNEL", "kernel" },
		{},
	};

	ctl_print_columns(columns, instructions, INT64_MAX);
}

void ctl_add_demangled(json_object *kernel, unsigned int *failures) {
	const char *name = ctl_string(kernel, "name");
	char *demangled;

	if (strcmp(name, ctl_string(kernel, "demangled")) != 0)
		return;
	demangled = demangle(name, failures);
	if (demangled)
		json_add_string(kernel, "demangled", demangled);
	free(demangled);
}

/* Reads all replies, and prints them as one. Returns the exit status. */
static int list(struct ctl *ctl, json_object *consume_parameters) {
	json_object *json = json_object_new_object(), *kernels = json_object_new_array();
	struct varlink_reply reply;
	unsigned int failures = 0;
	bool continues = true;
	int r;

	json_add(json, "kernels", kernels);
	r = ctl_call_more(ctl, "ListKernels", consume_parameters);
	while (!r && continues) {
		json_object *some;

		r = ctl_next(ctl, "ListKernels", "", &reply);
		if (r)
			break;
		some = json_member(reply.parameters, "kernels");
		for (size_t i = 0; i < json_object_array_length(some); i++) {
			ctl_add_demangled(json_object_array_get_idx(some, i), &failures);
			json_append(kernels, json_object_get(json_object_array_get_idx(some, i)));
		}
		continues = reply.continues;
		varlink_reply_deinit(&reply);
	}
	if (!r && ctl->json)
		ctl_print_json(ctl, json);
	else if (!r)
		print_kernels(kernels);
	json_object_put(json);
	return r;
}

/* Asks and prints. Returns the exit status. */
static int show(struct ctl *ctl, json_object *consume_parameters, const char *subject) {
	struct varlink_reply reply;
	int r;

	r = ctl_call(ctl, "ShowKernel", consume_parameters, subject, CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else if (json_object_array_length(json_member(reply.parameters, "instructions")))
		print_instructions(json_member(reply.parameters, "instructions"));
	else
		ctl_tell("%s: it has no instructions with memory probes", subject);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

/* For completion and suggestions: options may stand before the verb, so run() looks at it. */
static const struct ctl_command kernel_verbs[] = { { "list" }, { "show" }, {} };

/* Reads the options; *instructionp is in argv. Returns -1 to go on, or the exit status. */
static int parse(struct ctl *ctl, int argc, char **argv, json_object *parameters,
		 const char **instructionp) {
	const struct ctl_option options[] = {
		{ "pid", .value = CTL_PID, .key = "pid" },
		{ "instruction", .value = CTL_TEXT, .text = instructionp },
		{},
	};
	struct ctl_command_line line = { .help = kernel_help,
					 .options = options,
					 .verbs = kernel_verbs,
					 .parameters = parameters,
					 .arguments = CTL_ANY };

	return ctl_parse(ctl, argc, argv, &line);
}

/* What is asked for, after the options. Returns the exit status; consumes parameters. */
static int run(struct ctl *ctl, int argc, char **argv, json_object *parameters,
	       const char *instruction) {
	const char *verb = optind < argc ? argv[optind++] : "", *subject;
	struct suggestion suggestion = { .wanted = verb };
	int left = argc - optind;

	if (!strcmp(verb, "list") && !instruction && !left)
		return list(ctl, parameters);
	if (!strcmp(verb, "show") && !json_member(parameters, "pid") && left == !instruction) {
		subject = instruction ?: argv[optind];
		json_add_string(parameters, instruction ? "instruction" : "kernel", subject);
		return show(ctl, parameters, subject);
	}
	json_object_put(parameters);
	if (!strcmp(verb, "list"))
		return ctl_usage("kernel list takes no argument and no --instruction");
	if (!strcmp(verb, "show"))
		return ctl_usage("kernel show takes one kernel, or --instruction");
	for (const struct ctl_command *known = kernel_verbs; known->name; known++)
		suggest_add(&suggestion, known->name);
	return *verb ? ctl_usage("kernel has no command %s%s", verb, suggest_text(&suggestion))
		     : ctl_usage("kernel: list or show?");
}

int command_kernel(struct ctl *ctl, int argc, char **argv) {
	json_object *parameters = json_object_new_object();
	const char *instruction = NULL;
	int r;

	r = parse(ctl, argc, argv, parameters, &instruction);
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	return run(ctl, argc, argv, parameters, instruction);
}
