/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands attach, detach and list of gpuprobectl: they call the daemon and print its answers.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "attach-run.h"
#include "export.h"
#include "ctl/base/object-file.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"

#define EXPORTS_MAX 16

/* The command line of attach. */
struct attach {
	json_object *parameters;
	const char *exports[EXPORTS_MAX];
	size_t n_exports;
	char **command; /* behind a --; NULL: there is none */
	bool nonzero;
};

static const char attach_help[] =
	"Usage: gpuprobectl attach [OPTION]... FILE\n"
	"       gpuprobectl attach [OPTION]... FILE -- CMD [ARGUMENT]...\n"
	"\n"
	"Attaches the programs of an eBPF object (- is standard input) and prints the ids of the "
	"attachments, one a line, when\n"
	"they are armed. Kernels that a process has loaded already are probed from their next "
	"launch on where the process has the SASS\n"
	"engine, else when it loads their module again.\n"
	"\n"
	"With CMD: attaches to it alone, runs it, prints the log and all maps at its end, and "
	"detaches. Without a daemon that lets you\n"
	"attach, a private one is started for CMD and its children. The exit status is that of "
	"CMD.\n"
	"\n"
	"      --kernel=NAME   kernels to probe: a glob, or a mangled or demangled name; else what "
	"the program's section says\n"
	"      --program=NAME  only this program of the object, or those that a glob matches\n"
	"      --point=POINT   where, in place of the program's section: kprobe/f, kretprobe/f, "
	"memcapture/f, kprobe/f@x.cu:12,\n"
	"                      kprobe/f@block:3; dev:f for a device function; --kernel then stands "
	"for f\n"
	"      --spaces=LIST   memory points: which of global,shared,local,const,param,generic; "
	"else all but param\n"
	"      --pid=PID       only this process\n"
	"      --comm=NAME     only processes of this name\n"
	"      --exe=PATH      only processes of this executable, or of those that a glob matches\n"
	"      --uid=USER      only processes of this user\n"
	"      --engine=NAME   auto: by the engine that a process has (the default); ptx: only by "
	"twins, from PTX;\n"
	"                      sanitizer: only in machine code, by NVIDIA's patching library, in "
	"processes with a rule gpuprobed --engine=sanitizer\n"
	"      --threads=N     values that a per-thread array has for each index; else 65536\n"
	"      --ring-size=N   bytes of a ring of one process, with K, M or G; else 8M\n"
	"      --shared        one copy of each map for all processes of a user, in host memory\n"
	"      --host-target=PROGRAM=TARGET\n"
	"                      where a program on the host is attached, in place of what its "
	"section says: FILE:FUNCTION for a uprobe\n"
	"                      or uretprobe, FILE:PROVIDER:NAME for a usdt, FUNCTION for a kprobe, "
	"GROUP:NAME for a tracepoint;\n"
	"                      may be given several times\n"
	"      --nonzero       with CMD: leave out elements that are all zeros\n"
	"      --export=MAP    show this map among the metrics (gpuprobectl map export); may be "
	"given several times\n";

static const char detach_help[] =
	"Usage: gpuprobectl detach ID...\n"
	"       gpuprobectl detach --all\n"
	"\n"
	"Removes attachments. Maps go with the last attachment of their object.\n";

static const char list_help[] = "Usage: gpuprobectl list\n"
				"\n"
				"Lists the attachments that you may see. CODE is recompiled "
				"where kernels with the\n"
				"program are twins, which were compiled from their PTX.\n";

/*
 * The executable as /proc/PID/exe names it: absolute and without links, which is what python3 and
 * all of /bin are. One that is not here may be in a container, and stays as it is; so does a glob
 * of any folder. Returns -1 to go on, or the exit status.
 */
static int put_exe(void *userdata, const char *path) {
	const struct attach *attach = userdata;
	bool is_glob = strpbrk(path, "*?[");
	char *folder, *resolved;

	if (!*path)
		return ctl_usage("--exe: the path is empty");
	if (is_glob && strchr("/*?[", *path)) {
		resolved = strdup(path);
	} else if (is_glob) {
		folder = getcwd(NULL, 0);
		if (!folder || asprintf(&resolved, "%s/%s", folder, path) < 0)
			resolved = NULL;
		free(folder);
	} else {
		resolved = realpath(path, NULL);
		if (!resolved && *path == '/')
			resolved = strdup(path);
	}
	if (!resolved)
		return ctl_fail(CTL_USAGE, "--exe: %s: %s", path, strerror(errno));
	ctl_put(attach->parameters, "filter.exe", json_object_new_string(resolved));
	free(resolved);
	return -1;
}

/* Adds the names of a list with commas. Returns -1 to go on, or the exit status. */
static int put_spaces(void *userdata, const char *list) {
	const struct attach *attach = userdata;
	json_object *spaces = json_member(attach->parameters, "spaces");

	if (!spaces) {
		spaces = json_object_new_array();
		json_object_object_add(attach->parameters, "spaces", spaces);
	}
	for (size_t n; *list; list += n + (list[n] == ',')) {
		n = strcspn(list, ",");
		if (!n)
			return ctl_usage("--spaces: a name is missing before a comma");
		json_append(spaces, json_object_new_string_len(list, (int)n));
	}
	return json_object_array_length(spaces) ? -1 : ctl_usage("--spaces: the list is empty");
}

/* Returns -1 to go on, or the exit status. */
static int put_engine(void *userdata, const char *name) {
	const struct attach *attach = userdata;

	/* sass: what sanitizer was called; the daemon knows it, too */
	if (strcmp(name, "auto") && strcmp(name, "ptx") && strcmp(name, "sanitizer") &&
	    strcmp(name, "sass"))
		return ctl_usage("--engine: %s is none of auto, ptx and sanitizer", name);
	json_add_string(attach->parameters, "engine", name);
	return -1;
}

/* Returns -1 to go on, or the exit status. */
static int put_export(void *userdata, const char *map) {
	struct attach *attach = userdata;

	if (attach->n_exports == EXPORTS_MAX)
		return ctl_usage("--export: at most %d maps", EXPORTS_MAX);
	attach->exports[attach->n_exports++] = map;
	return -1;
}

/* PROGRAM=TARGET. Returns -1 to go on, or the exit status. */
static int put_host_target(void *userdata, const char *text) {
	const struct attach *attach = userdata;
	json_object *targets = json_member(attach->parameters, "host_targets");
	const char *equals = strchr(text, '=');
	char *program;

	if (!equals || equals == text || !equals[1])
		return ctl_usage(
			"--host-target: %s is not PROGRAM=TARGET, as in on_launch=./app:main",
			text);
	if (!targets) {
		targets = json_object_new_object();
		json_object_object_add(attach->parameters, "host_targets", targets);
	}
	program = strndup(text, (size_t)(equals - text));
	if (!program)
		return ctl_fail(CTL_ERROR, "no memory");
	if (json_member(targets, program)) {
		free(program);
		return ctl_usage("--host-target: program %.*s has two targets",
				 (int)(equals - text), text);
	}
	json_add_string(targets, program, equals + 1);
	free(program);
	return -1;
}

/* Reads the command line of attach. Returns -1 to go on, or the exit status. */
static int attach_options(struct ctl *ctl, int argc, char **argv, struct attach *attach) {
	const struct ctl_option options[] = {
		{ "kernel", .value = CTL_TEXT, .key = "kernel" },
		{ "program", .value = CTL_TEXT, .key = "program" },
		{ "pid", .value = CTL_PID, .key = "filter.pid" },
		{ "comm", .value = CTL_TEXT, .key = "filter.comm" },
		{ "exe", .value = CTL_TEXT, .take = put_exe },
		{ "uid", .value = CTL_USER, .key = "filter.uid" },
		{ "point", .value = CTL_TEXT, .key = "point" },
		{ "spaces", .value = CTL_TEXT, .take = put_spaces, .repeats = true },
		{ "engine", .value = CTL_TEXT, .take = put_engine },
		{ "threads", .value = CTL_NUMBER, .min = 1, .key = "threads" },
		{ "ring-size", .value = CTL_SIZE, .key = "ring_size" },
		{ "shared", .key = "shared" },
		{ "export", .value = CTL_TEXT, .take = put_export, .repeats = true },
		{ "host-target", .value = CTL_TEXT, .take = put_host_target, .repeats = true },
		{ "nonzero", .flag = &attach->nonzero },
		{},
	};
	struct ctl_command_line line = { .help = attach_help,
					 .options = options,
					 .parameters = attach->parameters,
					 .userdata = attach,
					 .arguments = CTL_ONE,
					 .argument = "object" };

	return ctl_parse(ctl, argc, argv, &line);
}

/* CMD stands behind the first "--". Returns how many arguments stand in front of it. */
static int take_command(int argc, char **argv, struct attach *attach) {
	int n = 1;

	while (n < argc && strcmp(argv[n], "--") != 0)
		n++;
	if (n < argc)
		attach->command = argv + n + 1;
	return n;
}

/* What goes with CMD, or without. Returns -1 to go on, or the exit status. */
static int check_command(const struct attach *attach) {
	json_object *filter = json_member(attach->parameters, "filter");

	if (!attach->command)
		return attach->nonzero ? ctl_usage("--nonzero is for attach FILE -- CMD") : -1;
	if (!attach->command[0])
		return ctl_usage("attach: a command is missing behind --");
	if (json_member(filter, "pid"))
		return ctl_usage("--pid is for a process that runs, and -- for one to be started");
	if (attach->n_exports)
		return ctl_usage("--export is for what stays attached, which it does not with --");
	return -1;
}

/* Prints the ids. An attachment that is not armed is an error, though the others stay. */
static int print_attached(const struct ctl *ctl, json_object *parameters) {
	json_object *attachments = json_member(parameters, "attachments");
	int r = CTL_OK;

	if (ctl->json)
		ctl_print_json(ctl, parameters);
	for (size_t i = 0; i < json_object_array_length(attachments); i++) {
		json_object *attachment = json_object_array_get_idx(attachments, i);

		if (!ctl->json)
			printf("%lld\n", (long long)json_int_of(attachment, "id"));
		if (strcmp(ctl_string(attachment, "state"), "armed"))
			r = ctl_fail(CTL_ERROR,
				     "attachment %lld (%s) is %s; gpuprobectl why tells more",
				     (long long)json_int_of(attachment, "id"),
				     ctl_string(attachment, "program"),
				     ctl_string(attachment, "state"));
	}
	return r;
}

/* What is known already to come of it: nothing, in a process that cannot be probed. */
static void tell_lacks(json_object *filter) {
	const char *lacks;

	if (!filter || !json_member(filter, "pid"))
		return;
	lacks = ctl_process_lacks(json_int_of(filter, "pid"));
	if (lacks)
		ctl_tell("process %lld %s", (long long)json_int_of(filter, "pid"), lacks);
}

/* The id of the attached object's map of that name; 0: it has none. */
static int64_t find_map(json_object *attached, const char *name) {
	json_object *maps = json_member(attached, "maps");

	for (size_t i = 0; i < json_object_array_length(maps); i++) {
		json_object *map = json_object_array_get_idx(maps, i);

		if (!strcmp(ctl_string(map, "name"), name))
			return json_int_of(map, "id");
	}
	return 0;
}

static int detach(struct ctl *ctl, json_object *ids, bool quiet);

/* Exports maps of what was attached. If one cannot be exported, nothing stays attached. Returns the
 * exit status. */
static int export_attached(struct ctl *ctl, const struct attach *attach, json_object *attached) {
	json_object *attachments = json_member(attached, "attachments"), *ids;
	struct varlink_reply reply;
	int r = CTL_OK;

	for (size_t i = 0; !r && i < attach->n_exports; i++) {
		int64_t id = find_map(attached, attach->exports[i]);

		if (!id)
			r = ctl_fail(CTL_NOT_FOUND, "--export: the object has no map %s",
				     attach->exports[i]);
		else
			r = ctl_call(ctl, "ExportMap",
				     varlink_json_pack("map", ctl_format("%lld", (long long)id),
						       NULL),
				     attach->exports[i], CTL_TIMEOUT_MS, &reply);
		if (!r)
			varlink_reply_deinit(&reply);
	}
	if (!r)
		return CTL_OK;
	ids = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(attachments); i++)
		json_append_int(ids, json_int_of(json_object_array_get_idx(attachments, i), "id"));
	detach(ctl, ids, true);
	json_object_put(ids);
	return r;
}

int command_attach(struct ctl *ctl, int argc, char **argv) {
	json_object *parameters = json_object_new_object();
	struct attach attach = { .parameters = parameters };
	struct varlink_reply reply;
	const char *path;
	int r;

	r = attach_options(ctl, take_command(argc, argv, &attach), argv, &attach);
	path = argv[optind];
	if (r < 0)
		r = check_command(&attach);
	if (r < 0 && attach.command)
		r = attach_run(ctl, parameters, path, attach.command, attach.nonzero);
	if (r < 0)
		r = object_file_put(path, parameters);
	else
		goto out;
	if (r)
		goto out;
	/* the daemon answers when all is verified and compiled, which may take its time */
	r = ctl_call(ctl, "Attach", json_object_get(parameters),
		     !strcmp(path, "-") ? "standard input" : path, -1, &reply);
	if (!r) {
		r = export_attached(ctl, &attach, reply.parameters);
		r = r ?: print_attached(ctl, reply.parameters);
		if (!r)
			tell_lacks(json_member(parameters, "filter"));
		varlink_reply_deinit(&reply);
	}
out:
	json_object_put(parameters);
	return r;
}

/* Adds the ids of all attachments to @ids. */
static int collect_ids(struct ctl *ctl, json_object *ids) {
	struct varlink_reply reply;
	json_object *attachments;
	int r;

	r = ctl_call(ctl, "List", NULL, "", CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	attachments = json_member(reply.parameters, "attachments");
	for (size_t i = 0; i < json_object_array_length(attachments); i++)
		json_append_int(ids, json_int_of(json_object_array_get_idx(attachments, i), "id"));
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

/*
 * Detaches all of @ids, those behind one that fails too. Returns the exit status of the first that
 * failed.
 */
static int detach(struct ctl *ctl, json_object *ids, bool quiet) {
	json_object *detached = json_object_new_array();
	struct varlink_reply reply;
	int result = CTL_OK, r;

	for (size_t i = 0; i < json_object_array_length(ids); i++) {
		json_object *id = json_object_array_get_idx(ids, i);

		r = ctl_call(ctl, "Detach", varlink_json_pack("id", json_object_get(id), NULL),
			     json_object_get_string(id), CTL_TIMEOUT_MS, &reply);
		result = result ?: r;
		if (r == CTL_UNREACHABLE)
			break;
		if (!r) {
			json_append(detached, json_object_get(id));
			varlink_reply_deinit(&reply);
		}
	}
	if (ctl->json && !quiet) {
		json_object *output =
			varlink_json_pack("detached", json_object_get(detached), NULL);

		ctl_print_json(ctl, output);
		json_object_put(output);
	}
	json_object_put(detached);
	return result;
}

int command_detach(struct ctl *ctl, int argc, char **argv) {
	bool all = false;
	const struct ctl_option options[] = { { "all", .flag = &all }, {} };
	struct ctl_command_line line = { .help = detach_help,
					 .options = options,
					 .arguments = CTL_ANY };
	json_object *ids = json_object_new_array();
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r < 0 && all == (optind < argc))
		r = all ? ctl_usage("detach takes ids or --all, not both")
			: ctl_usage("detach: which attachment?");
	for (int i = optind; r < 0 && i < argc; i++) {
		int64_t id;

		r = ctl_number("detach", argv[i], 1, &id);
		if (r < 0)
			json_append_int(ids, id);
	}
	if (r < 0)
		r = all ? collect_ids(ctl, ids) : CTL_OK;
	else
		goto out;
	if (!r)
		r = detach(ctl, ids, false);
out:
	json_object_put(ids);
	return r;
}

/* The filter in the words of the command line. A ctl_cell_fn. */
static json_object *filter_text(json_object *attachment, const char *key) {
	static const char *const names[] = { "pid", "uid", "comm", "exe" };
	json_object *filter = json_member(attachment, key), *value;
	char *text = NULL;
	size_t n_text;
	FILE *stream = open_memstream(&text, &n_text);

	for (size_t i = 0; stream && i < sizeof(names) / sizeof(*names); i++) {
		json_object *member = json_member(filter, names[i]);

		if (member)
			fprintf(stream, "%s%s=%s", ftell(stream) ? " " : "", names[i],
				json_object_get_string(member));
	}
	if (stream)
		fclose(stream);
	value = json_object_new_string(text && *text ? text : "-");
	free(text);
	return value;
}

/* What the program's kernels run, if it is not their own machine code. A ctl_cell_fn. */
static json_object *code_text(json_object *attachment, const char *key) {
	return json_object_new_string(json_int_of(attachment, key) ? "recompiled" : "-");
}

/* Not part of the table; most daemons have none. */
static void print_notices(json_object *notices) {
	for (size_t i = 0; notices && i < json_object_array_length(notices); i++)
		ctl_tell("%s", json_object_get_string(json_object_array_get_idx(notices, i)));
}

int command_list(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_column columns[] = {
		{ "ID", "id" },
		{ "OBJECT", "object" },
		{ "PROGRAM", "program" },
		{ "POINT", "point" },
		{ "ENGINE", "engine" },
		{ "STATE", "state" },
		{ "MODULES", "modules" },
		{ "CODE", "recompiled", code_text },
		{ "PROCESSES", "processes" },
		{ "OWNER", "owner" },
		{ "FILTER", "filter", filter_text },
		{ "SECTION", "section" },
		{ "KERNEL", "kernel" },
		{},
	};
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, list_help, "List", &reply);
	if (r >= 0)
		return r;
	ctl_print_columns(columns, json_member(reply.parameters, "attachments"), INT64_MAX);
	print_notices(json_member(reply.parameters, "notices"));
	varlink_reply_deinit(&reply);
	return CTL_OK;
}
