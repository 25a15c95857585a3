/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands map list and map dump; the other map commands have files of their own. A dump is
 * printed reply by reply, so a large map needs no memory here and `| head` stops it early; but for
 * --top and --hist (map-look.h), which need all elements. The first reply brings the types.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/histogram.h"
#include "ctl/base/value.h"
#include "ctl/session/session.h"
#include "export.h"
#include "map-look.h"
#include "map-update.h"
#include "names.h"
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
	"      --top=N        the N elements with the largest values, the largest last\n"
	"      --hist[=MEMBER]\n"
	"                     as a histogram: the key, or the last number of its members, or "
	"MEMBER, is "
	"the power of two\n"
	"      --watch[=SECONDS]\n"
	"                     again and again, each second, until Ctrl-C\n"
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
	bool hist; /* --hist */
	struct look look;
	json_object *map; /* what the daemon says of it; for --hist */
	int64_t top; /* --top; 0: all */
	json_object *kept; /* elements for --top */
	int64_t seconds; /* --watch; 0: once */
	json_object *parameters; /* of DumpMap */
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
	if (dump->hist)
		dump->map = json_object_get(map);
	else if (dump->ctl->json) {
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

static int dump_entry(struct dump *dump, json_object *entry) {
	if (dump->ctl->json ? !print_entry_json(dump, entry) : !print_entry(dump, entry))
		return ctl_fail(CTL_ERROR, "the daemon sent an element that is not base64");
	dump->n_entries++;
	return CTL_OK;
}

/* The values of an element, from its base64; NULL if it is none. */
static json_object *read_values(struct dump *dump, json_object *entry) {
	json_object *texts = json_member(entry, "values"), *values = json_object_new_array();

	for (size_t i = 0; i < json_length_of(texts); i++) {
		json_object *value = NULL;

		if (!read_value(dump, dump->value_type, json_object_array_get_idx(texts, i),
				&value)) {
			json_object_put(values);
			return NULL;
		}
		json_append(values, value);
	}
	return values;
}

/* Into a histogram. Returns the exit status. */
static int look_at(struct dump *dump, json_object *entry) {
	json_object *key = NULL, *values = read_values(dump, entry);
	char error[LOOK_ERROR_SIZE];
	int r = CTL_OK;

	if (!values || !read_key(dump, json_member(entry, "key"), &key))
		r = ctl_fail(CTL_ERROR, "the daemon sent an element that is not base64");
	else
		r = look_add(&dump->look, key, values, error);
	if (r == -EINVAL)
		r = ctl_fail(CTL_ERROR, "--hist: %s", error);
	else if (r < 0)
		r = ctl_fail(CTL_ERROR, "out of memory");
	json_object_put(values);
	json_object_put(key);
	return r;
}

static int dump_entries(struct dump *dump, json_object *parameters) {
	json_object *entries = json_member(parameters, "entries");
	int r = CTL_OK;

	for (size_t i = 0; !r && i < json_object_array_length(entries); i++) {
		json_object *entry = json_object_array_get_idx(entries, i);

		if (dump->hist)
			r = look_at(dump, entry);
		else if (dump->top)
			json_append(dump->kept, json_object_get(entry));
		else
			r = dump_entry(dump, entry);
	}
	return r;
}

/* Of equal elements: by the bytes of their keys. */
static int key_order(const void *one, const void *other) {
	return strcmp(ctl_string((json_object *)one, "key"),
		      ctl_string((json_object *)other, "key"));
}

/* --top: the largest of the elements that were kept. Returns the exit status. */
static int dump_top(struct dump *dump) {
	const size_t n = json_length_of(dump->kept);
	struct ranked *rows = calloc(n + 1, sizeof(*rows));
	int r = rows ? CTL_OK : ctl_fail(CTL_ERROR, "out of memory");

	for (size_t i = 0; !r && i < n; i++) {
		json_object *entry = json_object_array_get_idx(dump->kept, i),
			    *values = read_values(dump, entry);

		rows[i] = (struct ranked){ look_number(values), entry };
		json_object_put(values);
	}
	if (!r)
		rank(rows, n, false, key_order);
	for (size_t i = n > (size_t)dump->top ? n - (size_t)dump->top : 0; !r && i < n; i++)
		r = dump_entry(dump, (json_object *)rows[i].row);
	free(rows);
	return r;
}

static void dump_histograms(struct dump *dump) {
	json_object *output;

	if (!dump->ctl->json) {
		look_print(&dump->look);
		return;
	}
	output = json_object_new_object();
	json_add(output, "map", json_object_get(dump->map));
	json_add(output, "histograms", look_json(&dump->look));
	ctl_put_json(dump->ctl, output);
	json_object_put(output);
}

/* What can be shown when all elements are there, and the end of the JSON. Returns the exit status.
 */
static int dump_end(struct dump *dump) {
	int r = dump->top ? dump_top(dump) : CTL_OK;

	if (dump->hist)
		dump_histograms(dump);
	else if (!r && dump->ctl->json)
		fputs(!dump->ctl->pretty ? "]}" : dump->n_entries ? "\n  ]\n}" : "]\n}", stdout);
	return r;
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
	return r ?: dump_end(dump);
}

/* All of it, once. Returns the exit status. */
static int dump_once(struct dump *dump, const char *name) {
	int r;

	dump->n_entries = 0;
	dump->kept = json_object_new_array();
	r = ctl_call_more(dump->ctl, "DumpMap", json_object_get(dump->parameters));
	if (!r)
		r = dump_replies(dump, name);
	if (!r && dump->ctl->json)
		putchar('\n');
	dump->types = value_types_free(dump->types);
	look_deinit(&dump->look);
	json_object_put(dump->map);
	json_object_put(dump->kept);
	dump->map = dump->kept = NULL;
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

/* ---- --watch ---- */

/* On a terminal each one takes the place of the one before. */
static void begin_screen(const struct dump *dump, bool first) {
	if (dump->ctl->json)
		return;
	if (isatty(STDOUT_FILENO))
		fputs("\x1b[H\x1b[2J", stdout);
	else if (!first)
		putchar('\n');
}

/* Until Ctrl-C, which is its end, or the map is gone. Returns the exit status. */
static int dump_watch(struct dump *dump, const char *name) {
	struct pollfd polled = { .events = POLLIN };
	sigset_t ending;
	int r = CTL_OK;

	polled.fd = session_signals(&ending, false);
	if (polled.fd < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	ctl_end_if_stuck(&ending, NULL);
	for (bool first = true; !r; first = false) {
		begin_screen(dump, first);
		r = dump_once(dump, name);
		if (!r && ctl_flush())
			r = CTL_ERROR; /* main() says why */
		if (!r && poll(&polled, 1, (int)dump->seconds * 1000) > 0)
			break;
	}
	close(polled.fd);
	return r;
}

/* ---- the command line ---- */

static int put_merge(void *userdata, const char *how) {
	const struct dump *dump = userdata;

	if (strcmp(how, "sum") != 0 && strcmp(how, "latest") != 0)
		return ctl_usage("--merge: %s is neither sum nor latest", how);
	json_add_string(dump->parameters, "merge", how);
	return -1;
}

static int put_hist(void *userdata, const char *member) {
	struct dump *dump = userdata;

	dump->hist = true;
	dump->look.member = member;
	return -1;
}

static int put_watch(void *userdata, const char *seconds) {
	struct dump *dump = userdata;
	int r = -1;

	dump->seconds = 1;
	if (seconds)
		r = ctl_number("--watch", seconds, 1, &dump->seconds);
	return r < 0 && dump->seconds > 86400 ? ctl_usage("--watch: at most a day, 86400 seconds")
					      : r;
}

/* What does not go together. Returns -1 to go on, or the exit status. */
static int check_dump(const struct dump *dump) {
	const char *what = dump->hist ? "--hist" : "--top";

	if (dump->hist && dump->top)
		return ctl_usage("map dump takes --hist or --top, not both");
	if ((dump->hist || dump->top) && (dump->raw || dump->per_process))
		return ctl_usage("map dump takes %s or %s, not both", what,
				 dump->raw ? "--raw" : "--per-process");
	return -1;
}

static int map_dump(struct ctl *ctl, int argc, char **argv) {
	struct dump dump = { .ctl = ctl, .names.ctl = ctl, .parameters = json_object_new_object() };
	const struct ctl_option options[] = {
		{ "per-process", .flag = &dump.per_process },
		{ "nonzero", .key = "nonzero" },
		{ "merge", .value = CTL_TEXT, .take = put_merge },
		{ "raw", .flag = &dump.raw },
		{ "top", .value = CTL_NUMBER, .min = 1, .number = &dump.top },
		{ "hist", .value = CTL_TEXT_OPTIONAL, .take = put_hist },
		{ "watch", .value = CTL_TEXT_OPTIONAL, .take = put_watch },
		{},
	};
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = dump.parameters,
					 .userdata = &dump,
					 .arguments = CTL_ONE,
					 .argument = "map" };
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r < 0)
		r = check_dump(&dump);
	if (r < 0) {
		json_add_string(dump.parameters, "map", argv[optind]);
		json_add_bool(dump.parameters, "per_process", dump.per_process);
		r = dump.seconds ? dump_watch(&dump, argv[optind]) : dump_once(&dump, argv[optind]);
		if (!r && dump.not_carried)
			ctl_tell("no process has carried the map %s so far; gpuprobectl why says "
				 "what was probed and what was not",
				 argv[optind]);
	}
	names_deinit(&dump.names);
	json_object_put(dump.parameters);
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
