/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command log: prints what programs write with bpf_printk and ebpf_puts, as the daemon sends
 * it.
 */

#include <stdio.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"

static const char help[] = "Usage: gpuprobectl log [OPTION]...\n"
			   "\n"
			   "Prints, and takes away, the lines that programs have written with "
			   "bpf_printk or ebpf_puts: the process, the program, the text.\n"
			   "\n"
			   "  -f, --follow     go on until Ctrl-C\n"
			   "      --object=N   of this object only; list shows them\n";

/* vec_add-1234 [cuda__probe] text */
static void print_line(json_object *line) {
	ctl_print_text(ctl_string(line, "comm"));
	printf("-%lld [", (long long)json_int_of(line, "pid"));
	ctl_print_text(ctl_string(line, "program"));
	printf("] ");
	ctl_print_text(ctl_string(line, "text"));
	putchar('\n');
}

static int take_lines(json_object *parameters, void *userdata) {
	json_object *lines = json_member(parameters, "lines");
	const struct ctl *ctl = userdata;

	for (size_t i = 0; i < json_object_array_length(lines); i++) {
		json_object *line = json_object_array_get_idx(lines, i);

		if (ctl->json)
			ctl_print_json(ctl, line);
		else
			print_line(line);
	}
	return CTL_OK;
}

/* Lines as elements of an array. */
struct elements {
	struct ctl *ctl;
	size_t n;
};

static int take_elements(json_object *parameters, void *userdata) {
	json_object *lines = json_member(parameters, "lines");
	struct elements *elements = userdata;

	for (size_t i = 0; i < json_object_array_length(lines); i++) {
		fputs(elements->n++ ? "," : "", stdout);
		ctl_put_json(elements->ctl, json_object_array_get_idx(lines, i));
	}
	return CTL_OK;
}

int ctl_log_object(struct ctl *ctl, int64_t object, bool in_array) {
	json_object *parameters = json_object_new_object();
	struct elements elements = { .ctl = ctl };

	json_add_int(parameters, "object", object);
	return in_array ? ctl_stream(ctl, "ReadLog", parameters, "", take_elements, &elements)
			: ctl_stream(ctl, "ReadLog", parameters, "", take_lines, ctl);
}

int command_log(struct ctl *ctl, int argc, char **argv) {
	const char *object = "";
	const struct ctl_option options[] = {
		{ "follow", 'f', .key = "follow" },
		{ "object", .value = CTL_NUMBER, .min = 1, .text = &object, .key = "object" },
		{},
	};
	json_object *parameters = json_object_new_object();
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = parameters };
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	return ctl_stream(ctl, "ReadLog", parameters, object, take_lines, ctl);
}
