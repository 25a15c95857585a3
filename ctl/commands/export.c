/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands map export, map unexport and map exports: they tell the daemon which maps it shows
 * among its metrics.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "export.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"

static const char export_help[] =
	"Usage: gpuprobectl map export [OPTION]... MAP\n"
	"       gpuprobectl map unexport MAP...\n"
	"       gpuprobectl map exports\n"
	"\n"
	"Shows a map among the metrics of the daemon (gpuprobectl metrics, gpuprobed --metrics), "
	"takes it out, or lists what is shown.\n"
	"Members of the key become labels, and each number of the value a metric. See "
	"gpuprobe-metrics(5).\n"
	"\n"
	"      --as=NAME         of the metric; else gpuprobe_map_ and the name of the map\n"
	"      --help-text=TEXT  what it is\n"
	"      --type=TYPE       counter, gauge or histogram; else counter if programs only ever "
	"add to the map, gauge if not\n"
	"      --unit=UNIT       at the end of the name: bytes, nanoseconds\n"
	"      --label=NAME=TEXT a label for all its series; may be given several times\n"
	"      --bucket=MEMBER   histogram: the member of the key that is the number of the "
	"bucket, log2 of what is counted\n"
	"      --sm              a series for each SM; else their sum\n"
	"      --merge=HOW       sum, the default, or latest: how values of several processes "
	"become one\n"
	"      --nonzero         leave out zeros\n";

int ctl_export_map(struct ctl *ctl, json_object *consume_parameters, const char *subject) {
	struct varlink_reply reply;
	int r;

	r = ctl_call(ctl, "ExportMap", consume_parameters, subject, CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	if (ctl->json) {
		ctl_print_json(ctl, json_member(reply.parameters, "export"));
	} else {
		json_object *families =
			json_member(json_member(reply.parameters, "export"), "families");

		for (size_t i = 0; i < json_object_array_length(families); i++) {
			ctl_print_text(
				json_object_get_string(json_object_array_get_idx(families, i)));
			putchar('\n');
		}
	}
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

/* Adds a label, NAME=TEXT. Returns -1 to go on, or the exit status. */
static int put_label(void *userdata, const char *text) {
	json_object *parameters = userdata;
	json_object *labels = json_member(parameters, "labels");
	const char *value = strchr(text, '=');
	char *name;

	if (!value || value == text)
		return ctl_usage("--label: %s is not NAME=TEXT", text);
	if (!labels) {
		labels = json_object_new_object();
		json_add(parameters, "labels", labels);
	}
	name = strndup(text, (size_t)(value - text));
	json_add_text(labels, name, value + 1);
	free(name);
	return -1;
}

static int put_type(void *parameters, const char *type) {
	if (strcmp(type, "counter") && strcmp(type, "gauge") && strcmp(type, "histogram"))
		return ctl_usage("--type: %s is none of counter, gauge and histogram", type);
	json_add_string(parameters, "kind", type);
	return -1;
}

int ctl_map_export(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_option options[] = {
		{ "as", .value = CTL_TEXT, .key = "name" },
		{ "help-text", .value = CTL_TEXT, .key = "help" },
		{ "type", .value = CTL_TEXT, .take = put_type },
		{ "unit", .value = CTL_TEXT, .key = "unit" },
		{ "label", .value = CTL_TEXT, .take = put_label, .repeats = true },
		{ "bucket", .value = CTL_TEXT, .key = "bucket" },
		{ "sm", .key = "per_sm" },
		{ "merge", .value = CTL_TEXT, .key = "merge" },
		{ "nonzero", .key = "nonzero" },
		{},
	};
	json_object *parameters = json_object_new_object();
	struct ctl_command_line line = { .help = export_help,
					 .options = options,
					 .parameters = parameters,
					 .userdata = parameters,
					 .arguments = CTL_ONE,
					 .argument = "map" };
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	json_add_text(parameters, "map", argv[optind]);
	return ctl_export_map(ctl, parameters, argv[optind]);
}

int ctl_map_unexport(struct ctl *ctl, int argc, char **argv) {
	struct ctl_command_line line = { .help = export_help,
					 .arguments = CTL_SOME,
					 .argument = "map" };
	json_object *unexported, *output;
	struct varlink_reply reply;
	int r, result = CTL_OK;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	unexported = json_object_new_array();
	for (int i = optind; i < argc; i++) {
		r = ctl_call(ctl, "UnexportMap",
			     varlink_json_pack("map", json_string(argv[i]), NULL), argv[i],
			     CTL_TIMEOUT_MS, &reply);
		result = result ?: r;
		if (r == CTL_UNREACHABLE)
			break;
		if (!r) {
			json_append(unexported, json_string(argv[i]));
			varlink_reply_deinit(&reply);
		}
	}
	output = varlink_json_pack("unexported", unexported, NULL);
	if (ctl->json)
		ctl_print_json(ctl, output);
	json_object_put(output);
	return result;
}

static json_object *families_text(json_object *export, const char *key) {
	json_object *families = json_member(export, key);
	size_t n = json_object_array_length(families);

	return ctl_format(n > 1 ? "%s and %zu more" : "%s",
			  json_object_get_string(json_object_array_get_idx(families, 0)), n - 1);
}

int ctl_map_exports(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_column columns[] = {
		{ "MAP", "map" },
		{ "NAME", "map_name" },
		{ "TYPE", "kind" },
		{ "OWNER", "owner" },
		{ "METRICS", "families", families_text },
		{},
	};
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, export_help, "ListExports", &reply);
	if (r >= 0)
		return r;
	ctl_print_columns(columns, json_member(reply.parameters, "exports"), INT64_MAX);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}
