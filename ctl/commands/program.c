/* SPDX-License-Identifier: Apache-2.0 */

/* The command program show: what the daemon made of a program, and which engine can run it. */

#include <stdio.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"

static const char program_help[] =
	"Usage: gpuprobectl program show PROGRAM\n"
	"\n"
	"Shows what became of a program on the GPU, given by its name or by the id of its "
	"attachment: its size as PTX, local memory,\n"
	"maps, which engine can run it and why another cannot, and registers, spills and stack of "
	"its patches, once a process needed them.\n";

static void print_list(json_object *list) {
	size_t n = json_object_array_length(list);

	for (size_t i = 0; i < n; i++) {
		printf("%s", i ? ", " : "");
		ctl_print_text(json_object_get_string(json_object_array_get_idx(list, i)));
	}
	puts(n ? "" : "none");
}

/* Points of the SASS engine alone: proto/gpuprobe.bpf.h, struct gpuprobe_event_ctx. */
static bool is_event(const char *point) {
	static const char *const events[] = { "call", "ret",    "barrier", "syncwarp",
					      "shfl", "malloc", "free" };

	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		if (!strcmp(point, events[i]))
			return true;
	return false;
}

/* "sass engine: no: it reads params of its context". Whom the attachment does not ask for is not
 * asked. */
static void print_engine(const char *name, const char *asked, const char *reason) {
	bool wanted = !strcmp(asked, name) || !strcmp(asked, "auto");

	printf("%s engine: %s", name, *reason ? "no: " : wanted ? "yes" : "yes, but ");
	if (*reason)
		ctl_print_text(reason);
	else if (!wanted)
		printf("attached with --engine=%s", asked);
	putchar('\n');
}

/* What the compiler said of the functions that hold the program on the SASS engine. */
static void print_patches(json_object *patches) {
	static const char *const header[] = { "PATCH",       "DEVICE", "REGISTERS", "SPILL-STORES",
					      "SPILL-LOADS", "STACK",  NULL };
	json_object *rows = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(patches); i++) {
		static const char *const numbers[] = { "registers", "spill_stores", "spill_loads",
						       "stack" };
		json_object *patch = json_object_array_get_idx(patches, i),
			    *row = json_object_new_array();

		json_object_array_add(row,
				      json_object_new_string(ctl_string(patch, "instruction")));
		json_object_array_add(row, ctl_format("sm_%lld",
						      (long long)ctl_int(patch, "capability")));
		for (size_t j = 0; j < sizeof(numbers) / sizeof(*numbers); j++)
			json_object_array_add(
				row, ctl_format("%lld", (long long)ctl_int(patch, numbers[j])));
		json_object_array_add(rows, row);
	}
	ctl_print_table(header, rows);
	json_object_put(rows);
}

static void print_program(json_object *program) {
	json_object *attachment = ctl_get(program, "attachment");
	const char *engine = ctl_string(attachment, "engine"),
		   *point = ctl_string(attachment, "point");
	long long isa = ctl_int(program, "isa");

	ctl_print_text(ctl_string(attachment, "program"));
	printf(", attachment %lld: %s of ", (long long)ctl_int(attachment, "id"), point);
	ctl_print_text(ctl_string(attachment, "kernel"));
	printf("\nPTX: %lld bytes, ISA %lld.%lld, sm_%lld\nlocal memory of a thread: %lld "
	       "bytes\nmaps: ",
	       (long long)ctl_int(program, "ptx_size"), isa / 10, isa % 10,
	       (long long)ctl_int(program, "target"), (long long)ctl_int(program, "local_bytes"));
	print_list(ctl_get(program, "maps"));
	print_engine("ptx", engine, is_event(point) ? "it has no such point" : "");
	print_engine("sass", engine, ctl_string(program, "sass"));
	print_patches(ctl_get(program, "patches"));
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
	programs = ctl_get(reply.parameters, "programs");
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
	static const struct ctl_command verbs[] = { { "show", show, CTL_TITLE "program show" } };

	return ctl_verb(ctl, argc, argv, program_help, "program", verbs, 1);
}
