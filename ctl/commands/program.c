/* SPDX-License-Identifier: Apache-2.0 */

/* The command program show: what the daemon made of a program, and which engine can run it. */

#include <stdio.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"
#include "proto/point.h"

static const char program_help[] =
	"Usage: gpuprobectl program show PROGRAM\n"
	"\n"
	"Shows what became of a program on the GPU, given by its name or by the id of its "
	"attachment: its size as PTX, local memory,\n"
	"maps, registers of a thread, which engine can run it and why another cannot, and "
	"registers, spills and stack of "
	"its patches, once a process needed them.\n";

static void print_list(json_object *list) {
	size_t n = json_object_array_length(list);

	for (size_t i = 0; i < n; i++) {
		printf("%s", i ? ", " : "");
		ctl_print_text(json_object_get_string(json_object_array_get_idx(list, i)));
	}
	puts(n ? "" : "none");
}

/* "sanitizer engine: no: it reads params of its context". Whom the attachment does not ask for is
 * not asked. */
static void print_engine(const char *name, const char *asked, const char *reason) {
	bool wanted = !strcmp(asked, name) || !strcmp(asked, "auto");

	printf("%s engine: %s", name, *reason ? "no: " : wanted ? "yes" : "yes, but ");
	if (*reason)
		ctl_print_text(reason);
	else if (!wanted)
		printf("attached with --engine=%s", asked);
	putchar('\n');
}

static json_object *device_text(json_object *patch, const char *key) {
	return ctl_format("sm_%s", ctl_string(patch, key));
}

/* What the compiler said of the functions that hold the program on the sanitizer engine. */
static void print_patches(json_object *patches) {
	static const struct ctl_column columns[] = {
		{ "PATCH", "instruction" },
		{ "DEVICE", "capability", device_text },
		{ "REGISTERS", "registers" },
		{ "SPILL-STORES", "spill_stores" },
		{ "SPILL-LOADS", "spill_loads" },
		{ "STACK", "stack" },
		{},
	};

	ctl_print_columns(columns, patches, INT64_MAX);
}

static void print_program(json_object *program) {
	json_object *attachment = json_member(program, "attachment");
	const char *engine = ctl_string(attachment, "engine"),
		   *point = ctl_string(attachment, "point");
	const struct point *row = point_find(point);
	long long isa = json_int_of(program, "isa");

	ctl_print_text(ctl_string(attachment, "program"));
	printf(", attachment %lld: %s of ", (long long)json_int_of(attachment, "id"), point);
	ctl_print_text(ctl_string(attachment, "kernel"));
	printf("\nPTX: %lld bytes, ISA %lld.%lld, sm_%lld\nlocal memory of a thread: %lld "
	       "bytes\nmaps: ",
	       (long long)json_int_of(program, "ptx_size"), isa / 10, isa % 10,
	       (long long)json_int_of(program, "target"),
	       (long long)json_int_of(program, "local_bytes"));
	print_list(json_member(program, "maps"));
	if (json_object_array_length(json_member(program, "thread"))) {
		fputs("registers of a thread: ", stdout);
		print_list(json_member(program, "thread"));
	}
	print_engine("ptx", engine,
		     row && !(row->engines & POINT_ON_PTX) ? "it has no such point" : "");
	print_engine("sanitizer", engine, ctl_string(program, "sanitizer"));
	print_patches(json_member(program, "patches"));
}

static int show(struct ctl *ctl, int argc, char **argv) {
	struct ctl_command_line line = { .help = program_help,
					 .arguments = CTL_ONE,
					 .argument = "program" };
	json_object *parameters, *programs;
	struct varlink_reply reply;
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	parameters = json_object_new_object();
	json_add_string(parameters, "program", argv[optind]);
	r = ctl_call(ctl, "ShowProgram", parameters, argv[optind], CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	programs = json_member(reply.parameters, "programs");
	if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else
		for (size_t i = 0; i < json_object_array_length(programs); i++) {
			if (i)
				putchar('\n');
			print_program(json_object_array_get_idx(programs, i));
		}
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

int command_program(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = { { "show", show }, {} };

	return ctl_verb(ctl, argc, argv, program_help, verbs);
}
