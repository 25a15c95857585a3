/* SPDX-License-Identifier: Apache-2.0 */

/* log: what programs print with bpf_printk and ebpf_puts. */

#include <stdio.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"

enum {
	OPTION_OBJECT = CTL_OPTION_OWN,
};

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
	static const struct option options[] = {
		CTL_OPTIONS,
		{ "follow", no_argument, NULL, 'f' },
		{ "object", required_argument, NULL, OPTION_OBJECT },
		{},
	};
	json_object *parameters = json_object_new_object();
	const char *object = "";
	int option, r = -1;

	while (r < 0 && (option = ctl_getopt(argc, argv, "fhV", options, NULL)) >= 0) {
		if (option == 'f') {
			json_add_bool(parameters, "follow", true);
		} else if (option == OPTION_OBJECT) {
			object = optarg;
			r = ctl_put_number(parameters, "object", "--object", optarg, 1);
		} else {
			r = ctl_option(ctl, option, help);
		}
	}
	if (r < 0 && optind < argc)
		r = ctl_usage("log takes no argument, but got %s", argv[optind]);
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	return ctl_stream(ctl, "ReadLog", parameters, object, take_lines, ctl);
}
