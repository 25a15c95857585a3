/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands map list and map dump; the other map commands have files of their own. A dump is
 * printed reply by reply, so a large map needs no memory here and `| head` stops it early. The
 * first reply brings the types.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "export.h"
#include "map-update.h"
#include "names.h"
#include "ctl/base/value.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl map list [--wide]\n"
	"       gpuprobectl map dump [OPTION]... MAP\n"
	"       gpuprobectl map update MAP KEY VALUE [any|noexist|exist]\n"
	"       gpuprobectl map delete MAP KEY\n"
	"       gpuprobectl map export [OPTION]... MAP\n"
	"       gpuprobectl map unexport MAP...\n"
	"       gpuprobectl map exports\n"
	"\n"
	"Lists maps, or shows the contents of one, which is given by its name or id. Values are "
	"shown\n"
	"by their types; several values of one key are those of the SMs that hold one; those of a\n"
	"per-thread array are shown with the thread's number in the grid.\n"
	"\n"
	"      --per-process  each process for itself; else the values of all are merged\n"
	"      --merge=HOW    sum, the default: integers of several processes add up;\n"
	"                     latest: the value of the one that was copied last\n"
	"      --nonzero      leave out elements that are all zeros\n"
	"      --raw          bytes in hexadecimal\n"
	"      --wide         of list: all columns, also where values lie and how they are merged\n"
	"\n"
	"What update and delete do, gpuprobectl map update --help says; export and its like, "
	"gpuprobectl map export --help.\n";

/* Those of --wide are not in the table of every day. */
static const struct {
	const char *title, *member;
	bool wide;
} columns[] = {
	{ "ID", "id" },
	{ "OBJECT", "object" },
	{ "NAME", "name" },
	{ "TYPE", "type" },
	{ "KIND", "kind", true },
	{ "PLACE", "place", true },
	{ "KEY", "key_size" },
	{ "VALUE", "value_size" },
	{ "ENTRIES", "max_entries" },
	{ "THREADS", "threads", true },
	{ "SHARDS", "shards", true },
	{ "MERGE", "merge", true },
	{ "WRITTEN", "written" },
	{ "LOST", "lost" },
	{ "INSTANCES", "instances", true },
	{ "BYTES", "bytes", true },
};

static void print_maps(json_object *maps, bool wide) {
	const size_t n_columns = sizeof(columns) / sizeof(*columns);
	const char *header[sizeof(columns) / sizeof(*columns) + 1] = {};
	json_object *rows = json_object_new_array();
	size_t n_header = 0;

	for (size_t j = 0; j < n_columns; j++)
		if (wide || !columns[j].wide)
			header[n_header++] = columns[j].title;
	for (size_t i = 0; i < json_object_array_length(maps); i++) {
		json_object *map = json_object_array_get_idx(maps, i),
			    *row = json_object_new_array();

		for (size_t j = 0; j < n_columns; j++) {
			const char *text = ctl_string(map, columns[j].member);

			if (wide || !columns[j].wide)
				json_append(row, ctl_format("%s", *text ? text : "-"));
		}
		json_append(rows, row);
	}
	ctl_print_table(header, rows);
	json_object_put(rows);
}

static int map_list(struct ctl *ctl, int argc, char **argv) {
	bool wide = false;
	const struct ctl_option options[] = { { "wide", .flag = &wide }, {} };
	struct ctl_command_line line = { .help = help, .options = options };
	struct varlink_reply reply;
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	r = ctl_call(ctl, "ListMaps", NULL, "", CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	if (ctl->json)
		ctl_print_json(ctl, reply.parameters);
	else
		print_maps(json_member(reply.parameters, "maps"), wide);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

struct dump {
	struct ctl *ctl;
	struct value_types *types;
	struct names names;
	uint32_t key_type, value_type;
	bool raw, percpu, per_process;
	bool section; /* its one key, 0, has no type */
	bool not_carried; /* no process has had it so far */
	size_t n_entries;
	int64_t pid; /* of the entry before */
};

/* Makes JSON of a value in base64. False if it is not base64, or without memory. */
static bool read_value(struct dump *dump, uint32_t type, json_object *text, json_object **valuep) {
	unsigned char *data;
	size_t n_data;

	data = ctl_decode(text, &n_data);
	if (!data)
		return false;
	*valuep = value_json(dump->types, type, data, n_data);
	free(data);
	return *valuep;
}

/* As read_value(), of a key. */
static bool read_key(struct dump *dump, json_object *text, json_object **keyp) {
	if (!dump->section)
		return read_value(dump, dump->key_type, text, keyp);
	*keyp = json_object_new_int(0);
	return *keyp;
}

/* Prints a value in base64 for people. False if it is not base64. */
static bool print_value(struct dump *dump, uint32_t type, json_object *text) {
	json_object *value = NULL;
	bool fine = read_value(dump, type, text, &value);

	if (fine)
		value_print(value, stdout);
	json_object_put(value);
	return fine;
}

/* Whose the entries are that follow. 0: of those that are gone, or that share one instance. */
static void print_process(struct dump *dump, int64_t pid) {
	if (dump->n_entries && pid == dump->pid)
		return;
	dump->pid = pid;
	if (pid)
		printf("process %lld:\n", (long long)pid);
	else
		puts("processes together:");
}

/* 0: 16777216, or [0] thread 5: 1 */
static bool print_entry(struct dump *dump, json_object *entry) {
	json_object *values = json_member(entry, "values"), *pid = json_member(entry, "pid"),
		    *thread = json_member(entry, "thread"), *key = NULL;
	bool fine;

	if (dump->per_process) {
		print_process(dump, pid ? json_object_get_int64(pid) : 0);
		printf("  ");
	}
	fputs(thread ? "[" : "", stdout);
	fine = read_key(dump, json_member(entry, "key"), &key);
	if (fine)
		value_print(key, stdout);
	json_object_put(key);
	if (!fine)
		return false;
	if (thread)
		printf("] thread %lld", (long long)json_object_get_int64(thread));
	putchar(':');
	for (size_t i = 0; i < json_object_array_length(values); i++) {
		fputs(i ? ", " : " ", stdout);
		if (!print_value(dump, dump->value_type, json_object_array_get_idx(values, i)))
			return false;
	}
	putchar('\n');
	return true;
}

/* {"key":0,"value":16777216}, with "values" for a percpu map, "thread" for a per-thread array. */
static bool print_entry_json(struct dump *dump, json_object *entry) {
	json_object *values = json_member(entry, "values"), *pid = json_member(entry, "pid"),
		    *thread = json_member(entry, "thread"), *output = json_object_new_object();
	json_object *value = NULL, *list = json_object_new_array();
	bool fine;

	if (pid)
		json_add(output, "pid", json_object_get(pid));
	if (thread)
		json_add(output, "thread", json_object_get(thread));
	fine = read_key(dump, json_member(entry, "key"), &value);
	json_add(output, "key", value);
	for (size_t i = 0; fine && i < json_object_array_length(values); i++) {
		value = NULL;
		fine = read_value(dump, dump->value_type, json_object_array_get_idx(values, i),
				  &value);
		json_append(list, value);
	}
	if (dump->percpu)
		json_add(output, "values", json_object_get(list));
	else
		json_add(output, "value", json_object_get(json_object_array_get_idx(list, 0)));
	json_object_put(list);
	if (fine) {
		fputs(dump->n_entries ? "," : "", stdout);
		fputs(dump->ctl->pretty ? "\n    " : "", stdout);
		fputs(json_object_to_json_string_ext(
			      output, JSON_C_TO_STRING_NOSLASHESCAPE |
					      (dump->ctl->pretty ? JSON_C_TO_STRING_SPACED
								 : JSON_C_TO_STRING_PLAIN)),
		      stdout);
	}
	json_object_put(output);
	return fine;
}

/* Takes types and sizes from the first reply, and begins the output. Returns the exit status. */
static int dump_begin(struct dump *dump, json_object *parameters) {
	json_object *map = json_member(parameters, "map");
	int r;

	dump->not_carried = json_member(map, "carried") &&
			    !json_object_get_boolean(json_member(map, "carried"));
	dump->percpu = !strcmp(ctl_string(map, "merge"), "percpu");
	if (!dump->raw) {
		dump->key_type = (uint32_t)json_int_of(parameters, "btf_key_type");
		dump->value_type = (uint32_t)json_int_of(parameters, "btf_value_type");
	}
	r = ctl_value_types(dump->raw ? NULL : json_member(parameters, "btf"), &dump->types);
	if (r)
		return r;
	if (!dump->ctl->json)
		value_types_set_namer(dump->types, names_of, &dump->names);
	dump->section = value_types_is_section(dump->types, dump->value_type);
	if (dump->ctl->json) {
		const char *text_map = json_object_to_json_string_ext(
			map, JSON_C_TO_STRING_NOSLASHESCAPE |
				     (dump->ctl->pretty ? JSON_C_TO_STRING_SPACED
							: JSON_C_TO_STRING_PLAIN));

		if (dump->ctl->pretty)
			printf("{\n  \"map\": %s,\n  \"entries\": [", text_map);
		else
			printf("{\"map\":%s,\"entries\":[", text_map);
	}
	return CTL_OK;
}

static int dump_entries(struct dump *dump, json_object *parameters) {
	json_object *entries = json_member(parameters, "entries");

	for (size_t i = 0; i < json_object_array_length(entries); i++) {
		json_object *entry = json_object_array_get_idx(entries, i);

		if (dump->ctl->json ? !print_entry_json(dump, entry) : !print_entry(dump, entry))
			return ctl_fail(CTL_ERROR, "the daemon sent an element that is not base64");
		dump->n_entries++;
	}
	return CTL_OK;
}

/* Reads the replies. Returns the exit status. */
static int dump_replies(struct dump *dump, const char *name) {
	struct varlink_reply reply;
	bool continues = true;
	int r = CTL_OK;

	while (!r && continues) {
		r = ctl_next(dump->ctl, "DumpMap", name, &reply);
		if (r)
			return r;
		if (!dump->types)
			r = dump_begin(dump, reply.parameters);
		if (!r)
			r = dump_entries(dump, reply.parameters);
		continues = reply.continues;
		varlink_reply_deinit(&reply);
	}
	if (!r && dump->ctl->json)
		fputs(!dump->ctl->pretty ? "]}" : dump->n_entries ? "\n  ]\n}" : "]\n}", stdout);
	return r;
}

int ctl_dump_map(struct ctl *ctl, const char *map, bool nonzero) {
	json_object *parameters = json_object_new_object();
	struct dump dump = { .ctl = ctl, .names.ctl = ctl };
	int r;

	json_add_string(parameters, "map", map);
	json_add_bool(parameters, "nonzero", nonzero);
	r = ctl_call_more(ctl, "DumpMap", parameters);
	if (!r)
		r = dump_replies(&dump, map);
	value_types_free(dump.types);
	names_deinit(&dump.names);
	return r;
}

static int put_merge(void *parameters, const char *how) {
	if (strcmp(how, "sum") != 0 && strcmp(how, "latest") != 0)
		return ctl_usage("--merge: %s is neither sum nor latest", how);
	json_add_string(parameters, "merge", how);
	return -1;
}

static int map_dump(struct ctl *ctl, int argc, char **argv) {
	struct dump dump = { .ctl = ctl, .names.ctl = ctl };
	const struct ctl_option options[] = {
		{ "per-process", .flag = &dump.per_process },
		{ "nonzero", .key = "nonzero" },
		{ "merge", .value = CTL_TEXT, .take = put_merge },
		{ "raw", .flag = &dump.raw },
		{},
	};
	json_object *parameters = json_object_new_object();
	struct ctl_command_line line = { .help = help,
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
	json_add_string(parameters, "map", argv[optind]);
	json_add_bool(parameters, "per_process", dump.per_process);
	r = ctl_call_more(ctl, "DumpMap", parameters);
	if (!r)
		r = dump_replies(&dump, argv[optind]);
	if (!r && ctl->json)
		putchar('\n');
	if (!r && dump.not_carried)
		ctl_tell("no process has carried the map %s so far; gpuprobectl why says what was "
			 "probed and what was not",
			 argv[optind]);
	value_types_free(dump.types);
	names_deinit(&dump.names);
	return r;
}

int command_map(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "list", map_list },           { "dump", map_dump },
		{ "update", ctl_map_update },   { "delete", ctl_map_delete },
		{ "export", ctl_map_export },   { "unexport", ctl_map_unexport },
		{ "exports", ctl_map_exports }, {},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
