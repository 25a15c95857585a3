/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command trace report: analyses a trace in a file, or converts it to another format. Needs no
 * daemon.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/base/out.h"
#include "ctl/trace/read/read-file.h"
#include "lib/json.h"
#include "report-filter.h"
#include "report-seen.h"
#include "report.h"

static const char help[] =
	"Usage: gpuprobectl trace report [OPTION]... [FILE]...\n"
	"\n"
	"Says what a trace shows. FILE is one that gpuprobectl trace wrote as raw, jsonl or "
	"jsonl-seed; - or none: standard input.\n"
	"Without options: --summary.\n"
	"\n"
	"      --summary         counts and sums, by type and by name\n"
	"      --top[=N]         the N slowest calls, ioctls and hooks (10)\n"
	"      --timeline        when threads were in calls, and GPUs busy\n"
	"      --gaps            time between launches per thread, and idle time per GPU\n"
	"      --layers          time in calls, ioctls, and waits for the GSP and locks\n"
	"      --leaks           what was allocated and not freed\n"
	"      --latency         from a launch to the start on the GPU\n"
	"      --kernels         times of kernels on the GPU, by name\n"
	"      --ctxsw           times of processes on the GPU, and what switching between them "
	"took\n"
	"      --errors          what failed, and times that are not possible\n"
	"      --histogram=NAME  how long what matches a glob took\n"
	"      --all             all of these but --histogram\n"
	"\n"
	"  -p, --pid=PID         only this process; may be repeated\n"
	"  -e, --events=LIST     only these: names, kernels as attach has them, globs, classes, "
	"types; with ! in front: not these\n"
	"      --from=TIME       from so long after the beginning on: 1.5s, 20ms, 3us; seconds "
	"without a unit\n"
	"      --to=TIME         until then\n"
	"\n"
	"      --format=FORMAT   write the trace as text, csv, jsonl, jsonl-seed, chrome, "
	"perfetto, folded or table\n"
	"  -o, --output=FILE     to this file, not to standard output\n";

static const struct report_part *const all_parts[] = {
	&report_summary, &report_timeline,     &report_top,     &report_gaps,
	&report_layers,  &report_leaks,        &report_latency, &report_kernels,
	&report_errors,  &report_histogram_of, &report_ctxsw,
};
#define PARTS (sizeof(all_parts) / sizeof(*all_parts))

struct report {
	struct ctl *ctl;
	int argc;
	char **argv;
	struct report_options options;
	struct report_filter filter;
	struct report_kernel_matches matches;
	struct report_seen seen; /* if something is asked for by name */
	bool wanted[PARTS];
	const struct trace_format *format; /* NULL: a report */
	const char *output;

	/* of the file that is read */
	struct report_places *places;
	void *parts[PARTS];
	FILE *out; /* NULL: nothing to convert so far */
	int status; /* why it could not be opened */
	struct trace_writer *writer;
};

static size_t place_of(const struct report_part *part) {
	size_t i = 0;

	while (all_parts[i] != part)
		i++;
	return i;
}

static bool writes_stdout(const struct report *report) {
	return !report->output || !strcmp(report->output, "-");
}

/* There is a trace. What was in the output's file goes; before, it stayed as it was, or was not
 * there. */
static int take_about(void *userdata, const struct trace_about *about) {
	struct report *report = userdata;
	int r;

	if (!report->format)
		return 0;
	report->out = writes_stdout(report) ? stdout : fopen(report->output, "ae");
	if (!report->out) {
		report->status = ctl_fail_open(report->output, errno, true);
		return -ECANCELED;
	}
	r = report->out == stdout ? 0 : out_empty_file(report->out);
	return r ?: report->format->open(&report->writer, report->out, about);
}

static bool asks_by_name(const struct report *report) {
	return report->filter.n_patterns || report->filter.n_pids || report->options.histogram;
}

/* What was asked for by a name or number and is not there, and what is there instead. */
static void tell_unmet(const struct report *report, const char *file) {
	const struct report_filter *filter = &report->filter;
	char *there;

	for (size_t i = 0; i < filter->n_patterns; i++) {
		const char *pattern = filter->patterns[i];

		if (filter->patterns_met[i] || *pattern == '!')
			continue;
		there = report_seen_names(&report->seen, pattern);
		ctl_tell("%s: nothing is called %s; %s", file, pattern, there ?: "");
		free(there);
	}
	for (size_t i = 0; i < filter->n_pids; i++) {
		if (filter->pids_met[i])
			continue;
		there = report_seen_pids(&report->seen);
		ctl_tell("%s: nothing is of a process %" PRIu32 "; %s", file, filter->pids[i],
			 there ?: "");
		free(there);
	}
	if (report->options.histogram && !*report->options.met) {
		there = report_seen_names(&report->seen, report->options.histogram);
		ctl_tell("%s: nothing that takes time is called %s; %s", file,
			 report->options.histogram, there ?: "");
		free(there);
	}
}

static int take_item(void *userdata, const struct trace_item *item) {
	struct report *report = userdata;
	struct report_place place;
	int r;

	if (asks_by_name(report))
		report_seen_item(&report->seen, item);
	/* a file of the raw format may have counts, which are for tables alone */
	if (item->kind == EVENT_COUNTS && report->format != &trace_format_table)
		return 0;
	if (report->format) {
		if (!report_filter_takes(&report->filter, item))
			return 0;
		r = report->format->item(report->writer, item);
		return r ? r : ferror(report->out) ? -(errno ?: EIO) : 0;
	}
	r = report_places_item(report->places, item, &place);
	if (r || !report_filter_takes(&report->filter, item))
		return r;
	for (size_t i = 0; i < PARTS && !r; i++)
		if (report->parts[i])
			r = all_parts[i]->item(report->parts[i], item, &place);
	return r;
}

/* What is wrong with a file of which something could be read; in JSON it is in the output. */
static void print_notes(const struct read_result *result, const char *name) {
	const bool ends = result->format == READ_FORMAT_RAW || result->format == READ_FORMAT_JSONL;

	if (result->malformed)
		ctl_fail(CTL_OK, "%s: %" PRIu64 " %s not readable and left out", name,
			 result->malformed,
			 result->format == READ_FORMAT_RAW ? "records are" : "lines are");
	if (result->cut)
		ctl_fail(CTL_OK, "%s: cut off, the last %" PRIu64 " bytes are not whole", name,
			 result->cut);
	else if (ends && !result->stopped)
		ctl_fail(CTL_OK, "%s: cut off, the end of the trace is missing", name);
	if (result->unmatched)
		ctl_fail(CTL_OK, "%s: %" PRIu64 " calls end that did not begin", name,
			 result->unmatched);
	if (result->unnamed)
		ctl_fail(CTL_OK, "%s: %" PRIu64 " names are shown as (other): there are too many",
			 name, result->unnamed);
	if (result->lost)
		ctl_fail(CTL_OK, "%s: %" PRIu64 " events were lost while it was recorded", name,
			 result->lost);
}

static json_object *file_json(const struct read_result *result, const char *name) {
	json_object *file = json_object_new_object();

	report_add_text(file, "name", name);
	report_add_text(file, "format", read_format_name(result->format));
	json_add_uint(file, "bytes", result->bytes);
	json_add_uint(file, "items", result->items);
	json_add_uint(file, "malformed", result->malformed);
	json_add_uint(file, "cut_bytes", result->cut);
	json_add_uint(file, "unmatched", result->unmatched);
	json_add_uint(file, "unnamed", result->unnamed);
	json_add_uint(file, "lost", result->lost);
	json_add_bool(file, "complete", result->stopped && !result->malformed && !result->cut);
	return file;
}

/* Prints what the parts found. */
static int print_parts(struct report *report, const struct read_result *result, const char *name) {
	json_object *all = json_object_new_object(), *data;
	bool first = true;

	json_add(all, "file", file_json(result, name));
	for (size_t i = 0; i < PARTS; i++) {
		if (!report->parts[i])
			continue;
		data = all_parts[i]->json(report->parts[i]);
		json_add(all, all_parts[i]->name, data);
		if (report->ctl->json)
			continue;
		if (!first)
			putchar('\n');
		first = false;
		all_parts[i]->print(data, &report->options);
	}
	if (report->ctl->json)
		ctl_print_json(report->ctl, all);
	json_object_put(all);
	return CTL_OK;
}

/* Whether something could be read; else says why not. */
static int check_result(const struct read_result *result, int r, const char *name) {
	if (r == -ENOMEM)
		return ctl_fail(CTL_ERROR, "out of memory");
	if (r == -EPROTONOSUPPORT)
		return ctl_fail(CTL_ERROR, "%s: a trace of another version of gpuprobe", name);
	if (r)
		return ctl_fail(CTL_ERROR, "%s: %s", name, strerror(-r));
	if (!result->bytes)
		return ctl_fail(CTL_ERROR, "%s is empty", name);
	if (result->format == READ_FORMAT_NONE)
		return ctl_fail(CTL_ERROR,
				"%s is no trace: neither raw nor lines of JSON, as gpuprobectl "
				"trace writes them",
				name);
	return CTL_OK;
}

/* Refuses to write what a terminal cannot show, and to overwrite what is read. */
static int check_output(const struct report *report, int fd, const char *name) {
	struct stat status, before;

	if (writes_stdout(report)) {
		if (!strcmp(report->format->name, "perfetto") && isatty(STDOUT_FILENO))
			return ctl_usage("trace report: perfetto is not for a terminal; -o FILE");
		return CTL_OK;
	}
	if (fstat(fd, &status) == 0 && stat(report->output, &before) == 0 &&
	    S_ISREG(before.st_mode) && status.st_dev == before.st_dev &&
	    status.st_ino == before.st_ino)
		return ctl_fail(CTL_ERROR,
				"%s is what is read: another file is needed for the output", name);
	return CTL_OK;
}

/* @r: why writing has failed already, or 0. Returns @status, or that of an error that is said here.
 */
static int close_output(struct report *report, const struct read_result *result, int r,
			int status) {
	/* the seeds' lines have no last one */
	const bool complete =
		result->stopped || (result->format == READ_FORMAT_SEED && !result->cut);
	int closed;

	errno = 0;
	closed = report->writer ? report->format->close(report->writer, complete) : 0;
	report->writer = NULL;
	if (fflush(report->out) != 0 || ferror(report->out))
		closed = -(errno ?: EIO);
	if (report->out != stdout && fclose(report->out) != 0 && !closed)
		closed = -(errno ?: EIO);
	r = r ?: closed;
	if (r && status == CTL_OK)
		return r == -ENOMEM
			       ? ctl_fail(CTL_ERROR, "out of memory")
			       : ctl_fail(CTL_ERROR, "cannot write %s: %s",
					  report->out == stdout ? "the output" : report->output,
					  strerror(-r));
	return status;
}

static int convert(struct report *report, int fd, const char *name) {
	const struct read_taker taker = { .about = take_about,
					  .item = take_item,
					  .userdata = report };
	struct read_result result;
	int r, status;

	report->out = NULL;
	report->status = CTL_OK;
	status = check_output(report, fd, name);
	if (status != CTL_OK)
		return status;
	r = read_file(fd, &taker, &result);
	if (report->status != CTL_OK)
		return report->status;
	if (r && report->out && ferror(report->out)) /* the file is read no further: what is behind
							is not missing there */
		return close_output(report, &result, r, CTL_OK);
	status = check_result(&result, r, name);
	if (status == CTL_OK)
		print_notes(&result, name);
	return report->out ? close_output(report, &result, 0, status) : status;
}

static int new_part(const struct report_part *part, void **partp,
		    const struct report_options *options) {
	*partp = calloc(1, part->size);
	if (!*partp)
		return -ENOMEM;
	return part->init ? part->init(*partp, options) : 0;
}

static int analyse(struct report *report, int fd, const char *name) {
	const struct read_taker taker = { .about = take_about,
					  .item = take_item,
					  .userdata = report };
	struct read_result result = {};
	int r, status;

	r = report_places_new(&report->places);
	for (size_t i = 0; i < PARTS && !r; i++)
		if (report->wanted[i])
			r = new_part(all_parts[i], &report->parts[i], &report->options);
	if (!r)
		r = read_file(fd, &taker, &result);
	status = check_result(&result, r, name);
	if (status == CTL_OK) {
		if (!report->ctl->json)
			print_notes(&result, name);
		status = print_parts(report, &result, name);
	}
	for (size_t i = 0; i < PARTS; i++) {
		if (report->parts[i] && all_parts[i]->deinit)
			all_parts[i]->deinit(report->parts[i]);
		free(report->parts[i]);
		report->parts[i] = NULL;
	}
	report->places = report_places_free(report->places);
	return status;
}

/* One file, or standard input. Returns the exit status. */
static int run_file(struct report *report, const char *path) {
	const bool input = !strcmp(path, "-");
	int fd = STDIN_FILENO, status;
	bool met = false;

	if (!input)
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return ctl_fail_open(path, errno, false);
	path = input ? "standard input" : path;
	report->options.met = &met;
	report->options.matches = report->filter.matches = &report->matches;
	report_seen_init(&report->seen);
	memset(report->filter.patterns_met, 0, sizeof(report->filter.patterns_met));
	memset(report->filter.pids_met, 0, sizeof(report->filter.pids_met));
	status = report->format ? convert(report, fd, path) : analyse(report, fd, path);
	if (status == CTL_OK)
		tell_unmet(report, path);
	report_seen_deinit(&report->seen);
	report_kernel_matches_deinit(
		&report->matches); /* names of another file may have the same addresses */
	if (!input)
		close(fd);
	return status;
}

static unsigned int terminal_width(void) {
	const char *columns = getenv("COLUMNS");
	const long width = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize size;

	if (width > 0 && width < 1000)
		return (unsigned int)width;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return 100;
}

/* The number behind --top, which may stand alone: `--top 5 FILE`. Returns -1 to go on, or the exit
 * status. */
static int take_top(void *userdata, const char *text) {
	struct report *report = userdata;
	char **argv = report->argv;

	report->wanted[place_of(&report_top)] = true;
	if (!text && optind < report->argc && *argv[optind] &&
	    !argv[optind][strspn(argv[optind], "0123456789")] && access(argv[optind], F_OK) != 0)
		text = argv[optind++];
	if (!text)
		return -1;
	if (ctl_number("--top", text, 1, &report->options.top) >= 0)
		return CTL_USAGE;
	if (report->options.top > 100000)
		return ctl_usage("--top: at most 100000");
	return -1;
}

static int take_pid(void *userdata, const char *text) {
	struct report *report = userdata;
	int64_t pid;

	if (ctl_number("--pid", text, 1, &pid) >= 0)
		return CTL_USAGE;
	if (report->filter.n_pids == REPORT_PIDS_MAX || pid > UINT32_MAX)
		return ctl_usage("--pid: %s is too much", text);
	report->filter.pids[report->filter.n_pids++] = (uint32_t)pid;
	return -1;
}

static int take_events(void *report, const char *list) {
	return report_filter_add(&((struct report *)report)->filter, (char *)list) /* of argv */
		       ? -1
		       : ctl_usage("--events: an empty name, or more than %d", REPORT_PATTERNS_MAX);
}

static int take_time(const char *what, const char *text, uint64_t *time) {
	return report_filter_time(text, time)
		       ? -1
		       : ctl_usage("%s: %s is no time, such as 1.5s or 20ms", what, text);
}

static int take_from(void *report, const char *text) {
	return take_time("--from", text, &((struct report *)report)->filter.from);
}

static int take_to(void *report, const char *text) {
	return take_time("--to", text, &((struct report *)report)->filter.to);
}

static int take_histogram(void *userdata, const char *pattern) {
	struct report *report = userdata;

	report->wanted[place_of(&report_histogram_of)] = true;
	report->options.histogram = pattern;
	return -1;
}

static int take_all(void *userdata, const char *value) {
	struct report *report = userdata;

	for (size_t i = 0; i < PARTS; i++)
		report->wanted[i] = report->wanted[i] || all_parts[i] != &report_histogram_of;
	return -1;
}

static int take_format(void *userdata, const char *name) {
	struct report *report = userdata;

	report->format = trace_format_find(name);
	return report->format ? -1 : ctl_usage("trace report: there is no format %s", name);
}

/* Returns -1 to go on, or the exit status. */
static int parse_options(struct report *report, int argc, char **argv) {
	bool *wanted = report->wanted;
	const struct ctl_option options[] = {
		{ "summary", .flag = wanted + place_of(&report_summary) },
		{ "timeline", .flag = wanted + place_of(&report_timeline) },
		{ "gaps", .flag = wanted + place_of(&report_gaps) },
		{ "layers", .flag = wanted + place_of(&report_layers) },
		{ "leaks", .flag = wanted + place_of(&report_leaks) },
		{ "latency", .flag = wanted + place_of(&report_latency) },
		{ "kernels", .flag = wanted + place_of(&report_kernels) },
		{ "errors", .flag = wanted + place_of(&report_errors) },
		{ "ctxsw", .flag = wanted + place_of(&report_ctxsw) },
		{ "top", .value = CTL_TEXT_OPTIONAL, .take = take_top },
		{ "histogram", .value = CTL_TEXT, .take = take_histogram },
		{ "all", .take = take_all },
		{ "pid", 'p', .value = CTL_TEXT, .take = take_pid, .repeats = true },
		{ "events", 'e', .value = CTL_TEXT, .take = take_events, .repeats = true },
		{ "from", .value = CTL_TEXT, .take = take_from },
		{ "to", .value = CTL_TEXT, .take = take_to },
		{ "format", .value = CTL_TEXT, .take = take_format },
		{ "output", 'o', .value = CTL_TEXT, .text = &report->output },
		{},
	};
	struct ctl_command_line line = {
		.help = help, .options = options, .userdata = report, .arguments = CTL_ANY
	};
	bool any = false;
	int r;

	r = ctl_parse(report->ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	for (size_t i = 0; i < PARTS; i++)
		any = any || report->wanted[i];
	if (any && report->format)
		return ctl_usage("trace report: either a report or --format");
	if (report->output && !report->format)
		return ctl_usage("trace report: -o needs --format");
	if (optind == argc && isatty(STDIN_FILENO)) /* nobody types a trace */
		return ctl_usage("trace report: which file? gpuprobectl trace --save makes "
				 "traces/trace_latest.jsonl");
	if (report->format && argc - optind > 1)
		return ctl_usage("trace report: --format is for one file");
	if (!any)
		report->wanted[place_of(&report_summary)] = true;
	return -1;
}

int command_trace_report(struct ctl *ctl, int argc, char **argv) {
	struct report report = { .ctl = ctl,
				 .argc = argc,
				 .argv = argv,
				 .options = { .top = 10 },
				 .filter = { .to = UINT64_MAX } };
	int r, status = CTL_OK;

	r = parse_options(&report, argc, argv);
	if (r >= 0)
		return r;
	setlocale(LC_CTYPE, "");
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is said to be too large */
	report.options.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	report.options.width = terminal_width();
	if (optind == argc)
		return run_file(&report, "-");
	for (int i = optind; i < argc; i++) {
		if (argc - optind > 1 && !ctl->json) {
			printf("%s==> ", i > optind ? "\n" : "");
			ctl_print_text(argv[i]);
			puts(" <==\n");
		}
		r = run_file(&report, argv[i]);
		status = r == CTL_OK ? status : r;
	}
	return status;
}
