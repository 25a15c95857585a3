/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The options of a trace, from the command line and from profiles. Some become members of the call
 * Trace; others are for the reader of the trace here. The end of this file chooses sources and
 * hooks if the user names none.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "ctl/session/session.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl trace [OPTION]... [-p PID]...\n"
	"       gpuprobectl trace [OPTION]... -- CMD [ARGUMENT]...\n"
	"       gpuprobectl trace report [OPTION]... [FILE]...\n"
	"\n"
	"Shows what CUDA programs do: calls of the driver, its ioctls and what it does in the "
	"kernel, and kernels on the GPU. Without PID and CMD: of all\n"
	"programs. Lines go to standard output, those of a CMD to standard error. Ctrl-C ends the "
	"trace.\n"
	"\n"
	"  -p, --pid=PID        this process; may be given several times\n"
	"  -f, --follow         children of the processes, too; those of a CMD always are\n"
	"  -e, --events=LIST    with commas: functions, globs, classes (launch, memory, transfer, "
	"sync, module, graph, stream, event, context, device, ipc,\n"
	"                       query, other, all), hooks and their sets (ioctl, driver, uvm, "
	"...); ! before one takes it away. Else all but query\n"
	"  -o, --output=FILE    into a file; a folder gets trace_TIME and the link trace_latest; "
	"-: standard output\n"
	"      --save           into the folder traces/\n"
	"      --format=FORMAT  text, jsonl, jsonl-seed, chrome, perfetto, folded, csv, table, "
	"raw; else by the name of the file\n"
	"  -c, --count          a table of calls, errors and times only\n"
	"      --hist           histograms of durations, at the end\n"
	"  -s, --summary        a summary, at the end\n"
	"      --interval=TIME  the table that often, too\n"
	"      --discover       counts which functions of the kernel's driver a program gets to\n"
	"      --min-dur=TIME   leaves out what is shorter, such as 10us or 1.5ms\n"
	"      --errors         only what failed\n"
	"      --sample=1/N     one call of N\n"
	"      --rate=N         at most so many events a second, of each process\n"
	"      --cgroup=PATH    processes in this cgroup\n"
	"      --uid=USER       processes of this user\n"
	"      --comm=NAME      processes of this name\n"
	"  -k, --stacks         stacks of calls\n"
	"      --kernel[=SETS]  hooks of the kernel's driver: driver, memory, uvm, interrupt, gsp, "
	"lock, work, power, p2p, process, ...; else driver, uvm, xid\n"
	"      --gpu[=SOURCE]   when kernels ran on the GPU: by events (the default), or by cupti, "
	"NVIDIA's profiling library, which is exact\n"
	"      --ctxsw          which process was on the GPU, from one context switch to the next\n"
	"      --backend=NAME   how calls are seen: shim (in the process), bpf (from the kernel; "
	"also with a cleaned environment), auto; cupti: shim and --gpu=cupti\n"
	"      --probe=SPEC     a hook of your own: k:nvidia:nv_dma_map_alloc(pages=arg1:u64), "
	"u:PATH:SYMBOL(...), t:GROUP:NAME(...)\n"
	"      --profile=NAME   options that have a name: bench, dev, driver, latency, launches, "
	"memory, prod, or files in /etc/gpuprobe/profiles\n"
	"      --no-extras      not what arguments point to\n"
	"      --buffer=SIZE    bytes for each thread that is traced, with K, M or G; else 1M\n"
	"  -d, --duration=SEC   for so many seconds\n";

/*
 * A duration such as 10us or 1.5ms, in nanoseconds; plain: what a number without a unit counts, 0:
 * it needs one. Returns -1 to go on, or the exit status.
 */
static int read_duration(const char *what, const char *text, double plain, uint64_t *nanosecondsp) {
	const struct {
		const char *name;
		double unit;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "", plain } };
	double number = -1;
	char *end = NULL;

	if (*text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X')
		number = strtod(text, &end);
	for (size_t i = 0; end && i < sizeof(units) / sizeof(*units); i++)
		if (!strcmp(end, units[i].name) && number * units[i].unit >= 1 &&
		    number * units[i].unit < 1e18) {
			*nanosecondsp = (uint64_t)(number * units[i].unit);
			return -1;
		}
	return ctl_usage("%s: %s is not a duration, such as 10us or 1.5ms", what, text);
}

/* The array of that name among the parameters. */
static json_object *list(struct trace_command *trace, const char *key) {
	json_object *array = json_member(trace->parameters, key);

	if (!array) {
		array = json_object_new_array();
		json_add(trace->parameters, key, array);
	}
	return array;
}

bool trace_has_source(const struct trace_command *trace, const char *name, bool unnamed) {
	json_object *sources = json_member(trace->parameters, "sources");

	for (size_t i = 0; i < json_length_of(sources); i++)
		if (!strcmp(json_string_at(sources, i), name))
			return true;
	return unnamed && !sources;
}

static void add_source(struct trace_command *trace, const char *name) {
	if (!trace_has_source(trace, name, false))
		json_append_string(list(trace, "sources"), name);
}

/*
 * Whether a pattern is for calls: a class of them, or the name of a function, or a glob that may be
 * one. `memory` and others are sets of hooks, too: --kernel.
 */
static bool is_call(const char *pattern) {
	static const char *const classes[] = { "launch", "memory", "transfer", "sync",    "module",
					       "graph",  "stream", "event",    "context", "device",
					       "ipc",    "query",  "other",    "all" };

	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (!strcmp(pattern, classes[i]))
			return true;
	return !strchr(pattern, ':') && (!strncmp(pattern, "cu", 2) || strchr("*?[", *pattern));
}

/* Whether the daemon knows hooks of that pattern. Returns -1, or the exit status. */
static int check_hook(struct trace_command *trace, const char *pattern) {
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	int r;

	json_add_string(parameters, "pattern", pattern);
	r = ctl_call(trace->ctl, "ListHooks", parameters, pattern, CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	r = json_object_array_length(json_member(reply.parameters, "hooks"))
		    ? -1
		    : ctl_usage("there is no function, class of functions, hook or set of hooks %s",
				pattern);
	varlink_reply_deinit(&reply);
	return r;
}

/* Words of a list with commas: those for hooks are told apart, or all are. */
static int put_patterns(struct trace_command *trace, const char *what, const char *text,
			bool all_hooks) {
	char *copy = strdup(text), *rest = copy, *word;
	int r = -1;

	if (!copy)
		return ctl_fail(CTL_ERROR, "out of memory");
	while (r < 0 && (word = strsep(&rest, ",")))
		if (!word[*word == '!'])
			r = ctl_usage("%s: a name is missing in %s", what, *text ? text : "\"\"");
		else
			json_append_string(list(trace, all_hooks || !is_call(word + (*word == '!'))
							       ? "hooks"
							       : "calls"),
					   word);
	free(copy);
	return r;
}

/* ---- which processes ---- */

static int put_pid(void *userdata, const char *text) {
	struct trace_command *trace = userdata;
	int64_t pid;
	int r;

	r = ctl_number("-p", text, 1, &pid);
	if (r < 0 && (pid > INT32_MAX || (kill((pid_t)pid, 0) < 0 && errno == ESRCH)))
		r = ctl_fail(CTL_NOT_FOUND, "there is no process %s", text);
	r = r < 0 ? ctl_check_pid("-p", pid) : r;
	if (r < 0)
		json_append_int(list(trace, "pids"), pid);
	return r;
}

static int put_cgroup(void *userdata, const char *path) {
	struct trace_command *trace = userdata;
	static const char mount[] = "/sys/fs/cgroup";

	if (!strncmp(path, mount, sizeof(mount) - 1) &&
	    (path[sizeof(mount) - 1] == '/' || !path[sizeof(mount) - 1]))
		path += sizeof(mount) - 1;
	if (*path != '/')
		return ctl_usage(
			"--cgroup: %s is not the path of a cgroup, such as /system.slice/a.service",
			path);
	json_add_string(trace->parameters, "cgroup", path);
	return -1;
}

static int put_comm(void *userdata, const char *name) {
	struct trace_command *trace = userdata;

	if (strlen(name) > 15)
		return ctl_usage("--comm: %s: names of processes have at most 15 bytes", name);
	ctl_put(trace->parameters, "filter.comm", json_object_new_string(name));
	return -1;
}

/* ---- what of it ---- */

static int put_sample(void *userdata, const char *text) {
	struct trace_command *trace = userdata;
	int64_t number;
	int r = ctl_number("--sample", strncmp(text, "1/", 2) ? text : text + 2, 1, &number);

	if (r < 0)
		json_add_int(trace->parameters, "sample", number);
	return r;
}

static int put_gpu(void *userdata, const char *source) {
	struct trace_command *trace = userdata;

	if (source && strcmp(source, "events") && strcmp(source, "cupti"))
		return ctl_usage("--gpu: %s is none of events, cupti", *source ? source : "\"\"");
	trace->gpu = true;
	trace->cupti = source && !strcmp(source, "cupti");
	return -1;
}

static int put_backend(void *userdata, const char *name) {
	struct trace_command *trace = userdata;

	if (!strcmp(name, "auto"))
		return -1;
	if (!strcmp(name, "cupti")) {
		add_source(trace, "shim");
		return put_gpu(trace, name);
	}
	if (strcmp(name, "shim") && strcmp(name, "bpf"))
		return ctl_usage("--backend: %s is none of auto, shim, bpf, cupti", name);
	add_source(trace, name);
	return -1;
}

static int put_format(void *userdata, const char *name) {
	struct trace_command *trace = userdata;

	trace->format_name = name;
	trace->format = trace_format_find(name);
	if (!trace->format && strcmp(name, "raw"))
		return ctl_usage("--format: %s is none of text, jsonl, jsonl-seed, chrome, "
				 "perfetto, folded, csv, table, raw",
				 name);
	return -1;
}

static int put_events(void *trace, const char *patterns) {
	return put_patterns(trace, "-e", patterns, false);
}

static int put_kernel(void *trace, const char *hooks) {
	add_source(trace, "kernel");
	return hooks ? put_patterns(trace, "--kernel", hooks, true) : -1;
}

static int put_min_duration(void *userdata, const char *text) {
	struct trace_command *trace = userdata;
	int r = read_duration("--min-dur", text, 0, &trace->min_duration);

	if (r < 0)
		json_add_int(trace->parameters, "min_duration", (int64_t)trace->min_duration);
	return r;
}

static int put_interval(void *trace, const char *text) {
	return read_duration("--interval", text, 1e9, &((struct trace_command *)trace)->interval);
}

static int put_probe(void *trace, const char *spec) {
	if (!*spec || !strchr("kut", *spec) || spec[1] != ':')
		return ctl_usage("--probe: %s does not begin with k:, u: or t:", spec);
	json_object_array_add(list(trace, "probes"), json_object_new_string(spec));
	return -1;
}

static int put_no_extras(void *userdata, const char *value) {
	json_add_bool(((struct trace_command *)userdata)->parameters, "extras", false);
	return -1;
}

static int put_output(void *trace, const char *path) {
	((struct trace_command *)trace)->output = path;
	return *path ? -1 : ctl_usage("-o: which file?");
}

/* An option of a profile: of those that say what a trace is to show, not of whom it is. */
static int take_profile_option(struct trace_command *trace, const char *name, const char *value) {
	const struct ctl_option *option = trace->line->options;

	while (option->name && strcmp(option->name, name) != 0)
		option++;
	if (!option->name || !strcmp(name, "pid") || !strcmp(name, "profile") ||
	    (value ? option->value == CTL_FLAG : option->value > CTL_TEXT_OPTIONAL))
		return TRACE_PROFILE_E_OPTION;
	return ctl_take_option(trace->line, option, value);
}

static int put_profile(void *trace, const char *name) {
	return trace_profile(trace, name, take_profile_option);
}

/* Reads the command line. Returns -1 to go on, or the exit status. */
static int parse(struct trace_command *trace, int argc, char **argv) {
	const struct ctl_option options[] = {
		{ "pid", 'p', .value = CTL_TEXT, .take = put_pid, .repeats = true },
		{ "follow", 'f', .key = "follow" },
		{ "events", 'e', .value = CTL_TEXT, .take = put_events, .repeats = true },
		{ "output", 'o', .value = CTL_TEXT, .take = put_output },
		{ "save", .flag = &trace->save },
		{ "format", .value = CTL_TEXT, .take = put_format },
		{ "count", 'c', .flag = &trace->table },
		{ "hist", .flag = &trace->histograms },
		{ "summary", 's', .flag = &trace->summary },
		{ "interval", .value = CTL_TEXT, .take = put_interval },
		{ "discover", .flag = &trace->discover },
		{ "min-dur", .value = CTL_TEXT, .take = put_min_duration },
		{ "errors", .flag = &trace->errors, .key = "errors" },
		{ "sample", .value = CTL_TEXT, .take = put_sample },
		{ "rate", .value = CTL_NUMBER, .min = 1, .key = "rate" },
		{ "cgroup", .value = CTL_TEXT, .take = put_cgroup },
		{ "uid", .value = CTL_USER, .key = "filter.uid" },
		{ "comm", .value = CTL_TEXT, .take = put_comm },
		{ "stacks", 'k', .key = "stacks" },
		{ "kernel", .value = CTL_TEXT_OPTIONAL, .take = put_kernel, .repeats = true },
		{ "gpu", .value = CTL_TEXT_OPTIONAL, .take = put_gpu },
		{ "ctxsw", .flag = &trace->ctxsw },
		{ "backend", .value = CTL_TEXT, .take = put_backend, .repeats = true },
		{ "probe", .value = CTL_TEXT, .take = put_probe, .repeats = true },
		{ "profile", .value = CTL_TEXT, .take = put_profile, .repeats = true },
		{ "no-extras", .take = put_no_extras },
		{ "buffer", .value = CTL_SIZE, .key = "buffer" },
		{ "duration", 'd', .value = CTL_NUMBER, .min = 1, .key = "duration" },
		{},
	};
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = trace->parameters,
					 .userdata = trace,
					 .arguments = CTL_ANY,
					 .stops = true };
	int r;

	trace->line = &line;
	r = ctl_parse(trace->ctl, argc, argv, &line);
	trace->line = NULL;
	if (r >= 0)
		return r;
	if (optind < argc)
		trace->command = argv + optind;
	else if (optind > 0 && argv[optind - 1] != line.last && !strcmp(argv[optind - 1], "--"))
		return ctl_usage("a CMD is missing behind --"); /* a script's empty list, which does
								   not mean all programs */
	return -1;
}

/* ---- together ---- */

/* Whether the shim sees all calls that are meant, as far as one knows: those of a CMD that gets it,
 * or of processes that have it, not of their children. */
static bool has_shim(struct trace_command *trace) {
	json_object *pids = json_member(trace->parameters, "pids");
	bool all = pids && !json_member(trace->parameters, "follow");

	for (size_t i = 0; all && i < json_object_array_length(pids); i++) {
		struct ctl_process_libraries libraries;

		all = ctl_process_libraries(
			      json_object_get_int64(json_object_array_get_idx(pids, i)),
			      &libraries) &&
		      libraries.shim;
	}
	return all || (trace->command && child_has_shim());
}

/* Processes of which nothing is to be expected for now. */
static void tell_idle(struct trace_command *trace) {
	json_object *pids = json_member(trace->parameters, "pids");

	for (size_t i = 0; pids && i < json_object_array_length(pids); i++) {
		const int64_t pid = json_object_get_int64(json_object_array_get_idx(pids, i));
		struct ctl_process_libraries libraries;

		if (ctl_process_libraries(pid, &libraries) && !libraries.cuda)
			ctl_tell("process %lld has loaded no CUDA library so far", (long long)pid);
	}
}

/* Which sources what was asked for needs; what the daemon does without being told is left to it. */
static void choose_sources(struct trace_command *trace) {
	json_object *calls = json_member(trace->parameters, "calls"),
		    *hooks = json_member(trace->parameters, "hooks");
	const bool only_hooks = (hooks && !calls && !trace_has_source(trace, "kernel", false)) ||
				trace->discover,
		   only_calls = calls && !hooks;
	const bool backend = trace_has_source(trace, "shim", false) ||
			     trace_has_source(trace, "bpf", false),
		   probes = json_member(trace->parameters, "probes");
	const bool preloaded = has_shim(trace);

	if (!json_member(trace->parameters, "sources") && !trace->gpu && !only_hooks &&
	    !only_calls && !preloaded)
		return;
	if (!only_hooks && !backend) {
		add_source(trace, "shim");
		if (!preloaded)
			add_source(trace, "bpf");
	}
	if (hooks || probes || (!only_calls && !backend))
		add_source(trace, "kernel");
	if (trace->gpu)
		add_source(trace, trace->cupti ? "cupti" : "gpu");
}

/* Hooks of which functions are counted only, and not looked at. */
static void discover(struct trace_command *trace) {
	json_object *patterns = json_member(trace->parameters, "hooks"),
		    *hooks = json_object_new_array();

	for (size_t i = 0; i < (patterns ? json_object_array_length(patterns) : 1); i++)
		json_append(hooks,
			    ctl_format("discover:%s",
				       patterns ? json_object_get_string(
							  json_object_array_get_idx(patterns, i))
						: "*"));
	json_add(trace->parameters, "hooks", hooks);
	trace->table = true;
}

/* What -e took for hooks is some. */
static int check_hooks(struct trace_command *trace) {
	json_object *hooks = json_member(trace->parameters, "hooks");
	int r = -1;

	for (size_t i = 0; r < 0 && hooks && i < json_object_array_length(hooks); i++) {
		const char *hook = json_object_get_string(json_object_array_get_idx(hooks, i));

		r = check_hook(trace, hook + (*hook == '!'));
	}
	return r;
}

/* --kernel alone: of hooks that are named the daemon says which are missing, of those that are
 * there by default it does not. */
static void name_hooks(struct trace_command *trace) {
	static const char *const usual[] = { "driver", "uvm", "xid" };
	const bool named = !json_member(trace->parameters, "hooks");

	for (size_t i = 0; named && i < sizeof(usual) / sizeof(*usual); i++)
		json_append_string(list(trace, "hooks"), usual[i]);
}

/* Options that do not go together. */
static int check(struct trace_command *trace) {
	json_object *pids = json_member(trace->parameters, "pids");

	if (pids && trace->command)
		return ctl_usage("trace takes -p or a CMD, not both");
	if ((pids || trace->command) && json_member(trace->parameters, "filter"))
		return ctl_usage("--uid and --comm are for all processes: not with -p or a CMD");
	if (trace->save && trace->output)
		return ctl_usage("trace takes -o or --save, not both");
	if (trace->table && trace->format_name)
		return ctl_usage("trace takes -c or --format, not both");
	if (trace->gpu && trace_has_source(trace, "bpf", false))
		return ctl_usage("--gpu needs the shim: not with --backend=bpf");
	if (trace->discover && (json_member(trace->parameters, "calls") || trace->gpu))
		return ctl_usage(
			"--discover counts functions of the kernel: it goes with hooks only");
	return -1;
}

int trace_options(struct trace_command *trace, int argc, char **argv) {
	int r = parse(trace, argc, argv);
	bool kernel;

	if (r >= 0)
		return r;
	r = check(trace);
	if (r >= 0)
		return r;
	if (trace->save)
		trace->output = "traces/";
	if (trace->discover)
		discover(trace);
	if (trace->command)
		json_add_bool(trace->parameters, "follow", true);
	kernel = trace_has_source(trace, "kernel", false);
	choose_sources(trace);
	if (trace->ctl->json && (trace->format_name || trace->table))
		return ctl_usage("trace takes --json or another format, not both");
	if (trace->ctl->json)
		put_format(trace, "jsonl");
	r = trace->discover ? -1 : check_hooks(trace);
	if (r < 0 && kernel)
		name_hooks(trace);
	if (r < 0)
		tell_idle(trace);
	return r;
}
