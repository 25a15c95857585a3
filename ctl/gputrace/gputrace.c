/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gputrace: reads the command line and the script, and runs it (follow.c). Results go to standard
 * output, all else to standard error in lines that begin with "gputrace:".
 *
 * Exit status: that of CMD, or of exit(N); 1: an error, 2: of the command line, 3: events were lost
 * (--strict).
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "code.h"
#include "ctl/base/ctl.h"
#include "follow.h"
#include "list.h"
#include "tool.h"
#include "lib/base/file.h"
#include "lib/varlink/varlink-idl.h"
#include "options.h"

#define RATE 1000

static const char help[] =
	"Usage: gputrace [OPTION]... -e PROGRAM [-- CMD [ARGUMENT]...]\n"
	"       gputrace [OPTION]... FILE [-- CMD [ARGUMENT]...]\n"
	"       gputrace TOOL [-k KERNEL] [-p PID] [-d SECONDS] [-- CMD [ARGUMENT]...]\n"
	"       gputrace -l [PROBE]\n"
	"\n"
	"Runs a script about what CUDA programs do: on the host, and in their kernels.\n"
	"\n"
	"    gputrace -e 'launch:* { @[kernel] = count(); }' -- ./app\n"
	"    gputrace -e 'thread:vectorAdd:end { @ns = hist(duration); }' -- ./app\n"
	"\n"
	"  -e PROGRAM            the script itself; else it is in FILE (- is standard input)\n"
	"  -c CMD                in place of -- CMD: a line for the shell\n"
	"  -p, --pid=PID         only this process, which runs already\n"
	"  -k, --kernel=KERNEL   these kernels, where a probe has * for its kernel\n"
	"  -d, --duration=N      end after N seconds\n"
	"  -o, --output=FILE     print there, not to standard output\n"
	"  -f, --format=FORMAT   text, or json: an object a line\n"
	"  -l, --list            list probes, words, functions and tools; with a probe what it "
	"stands for\n"
	"  -v, --verbose         show the programs for the GPU, and what an event costs, first\n"
	"      --rate=N          print at most N lines a second of printf() on the GPU (1000)\n"
	"      --dry-run         only check the script\n"
	"      --emit=FILE       write the eBPF object for the GPU there, and run nothing\n"
	"      --strict          exit with status 3 if events were lost\n"
	"      --require-verify  run nothing that Linux has not verified\n"
	"      --session[=NAME]  ask a session daemon of yours (also: GPUPROBE_SESSION=NAME)\n"
	"      --socket=PATH     ask the daemon at this socket\n"
	"  -h, --help            this text\n"
	"  -V, --version         print the version\n"
	"\n"
	"Without a daemon a private one is started for CMD. gputrace(1) has the language.\n"
	"Exit status: that of CMD, or of exit(N); 1 error, 2 usage, 3 events lost with --strict.\n";

enum {
	OPTION_DRY_RUN = 256,
	OPTION_RATE,
	OPTION_EMIT,
	OPTION_STRICT,
	OPTION_REQUIRE_VERIFY,
	OPTION_SESSION,
	OPTION_SOCKET,
};

static const struct option long_options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "kernel", required_argument, NULL, 'k' },
	{ "duration", required_argument, NULL, 'd' },
	{ "output", required_argument, NULL, 'o' },
	{ "format", required_argument, NULL, 'f' },
	{ "list", no_argument, NULL, 'l' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "rate", required_argument, NULL, OPTION_RATE },
	{ "dry-run", no_argument, NULL, OPTION_DRY_RUN },
	{ "emit", required_argument, NULL, OPTION_EMIT },
	{ "strict", no_argument, NULL, OPTION_STRICT },
	{ "require-verify", no_argument, NULL, OPTION_REQUIRE_VERIFY },
	{ "session", optional_argument, NULL, OPTION_SESSION },
	{ "socket", required_argument, NULL, OPTION_SOCKET },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{},
};

/* Of an option without a letter. Returns -1 to go on, or the exit status. */
static int take_long_option(struct ctl *ctl, struct options *options, int option) {
	switch (option) {
	case OPTION_RATE:
		return ctl_number("--rate", optarg, 1, &options->rate);
	case OPTION_DRY_RUN:
		options->dry_run = true;
		break;
	case OPTION_EMIT:
		options->object = optarg;
		break;
	case OPTION_STRICT:
		options->strict = true;
		break;
	case OPTION_REQUIRE_VERIFY:
		options->require_verify = true;
		break;
	case OPTION_SESSION:
		ctl->session = true;
		ctl->session_name = optarg;
		break;
	case OPTION_SOCKET:
		ctl->socket = optarg;
		break;
	default: /* getopt has said what is wrong */
		return CTL_USAGE;
	}
	return -1;
}

/* Of one option. Returns -1 to go on, or the exit status. */
static int take_option(struct ctl *ctl, struct options *options, int option) {
	int r = -1;

	switch (option) {
	case 'e':
		options->program = optarg;
		break;
	case 'c':
		options->shell[0] = (char *)"sh";
		options->shell[1] = (char *)"-c";
		options->shell[2] = optarg;
		options->command = options->shell;
		break;
	case 'p':
		r = ctl_number("-p", optarg, 1, &options->pid);
		break;
	case 'k':
		options->kernel = optarg;
		break;
	case 'd':
		r = ctl_number("-d", optarg, 1, &options->seconds);
		if (r < 0 && options->seconds > 1000000000)
			r = ctl_usage("-d: %s seconds are too many", optarg);
		break;
	case 'o':
		options->output = optarg;
		break;
	case 'f':
		options->json = !strcmp(optarg, "json");
		if (!options->json && strcmp(optarg, "text") != 0)
			r = ctl_usage("-f: %s is neither text nor json", optarg);
		break;
	case 'l':
		options->list = true;
		break;
	case 'v':
		options->verbose = true;
		break;
	case 'h':
		options->help = true;
		break;
	case 'V':
		puts("gputrace " PROJECT_VERSION);
		return CTL_OK;
	default:
		return take_long_option(ctl, options, option);
	}
	return r;
}

/* What stands behind the options: CMD behind a --. */
static int take_arguments(struct options *options, int argc, char **argv) {
	const bool ended = optind > 1 && !strcmp(argv[optind - 1], "--");

	if (!ended && optind < argc)
		return ctl_usage("%s: a command stands behind --, as in -- %s", argv[optind],
				 argv[optind]);
	if (optind < argc && options->command)
		return ctl_usage("-c and -- are two commands");
	if (optind < argc)
		options->command = argv + optind;
	else if (ended)
		return ctl_usage("a command is missing behind --");
	if (!options->program && !options->file && !options->list)
		return ctl_usage("a script is missing: -e PROGRAM, or FILE");
	if (options->command && options->pid)
		return ctl_usage("-p is for a process that runs, and -- for one to be started");
	return -1;
}

/* Options may stand before and behind FILE, or the PROBE of -l. */
static int take_options(struct ctl *ctl, struct options *options, int argc, char **argv) {
	int option, r;

again:
	while ((option = getopt_long(argc, argv, "+e:c:p:k:d:o:f:lvhV", long_options, NULL)) >= 0) {
		r = take_option(ctl, options, option);
		if (r >= 0)
			return r;
	}
	if (optind < argc && !options->file && !options->program &&
	    (optind < 2 || strcmp(argv[optind - 1], "--") != 0)) {
		options->file = argv[optind++];
		goto again;
	}
	if (options->help)
		return -1;
	r = take_arguments(options, argc, argv);
	return r < 0 && options->pid ? ctl_check_pid("-p", options->pid) : r;
}

/* ---- the script ---- */

/* The text of a file, from malloc(). Returns the exit status. */
static int read_file(const char *name, const char *path, char **textp, size_t *np) {
	const bool is_stdin = !strcmp(name, "-");
	const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return ctl_fail(CTL_ERROR, "%s: %s%s", name, strerror(errno),
				errno == ENOENT && !strpbrk(name, "/.") ? tool_suggestion(name)
									: "");
	r = file_load(fd, SCRIPT_SIZE_MAX, textp, np);
	if (!is_stdin)
		close(fd);
	if (r == -EFBIG)
		return ctl_fail(CTL_ERROR, "%s: a script has at most %d bytes", name,
				SCRIPT_SIZE_MAX);
	return r ? ctl_fail(CTL_ERROR, "%s: %s", name, strerror(-r)) : CTL_OK;
}

/* The text of the script, from malloc(); none (NULL): all is done. Returns the exit status. */
static int read_script(const struct options *options, char **textp, size_t *np) {
	char path[4096];
	int r;

	*textp = NULL;
	if (options->list) {
		r = list_probe(options, textp);
		*np = *textp ? strlen(*textp) : 0;
		return r;
	}
	if (options->program) {
		*textp = strdup(options->program);
		*np = strlen(options->program);
		return *textp ? CTL_OK : ctl_fail(CTL_ERROR, "out of memory");
	}
	return read_file(options->file, tool_find(path, options->file) ? path : options->file,
			 textp, np);
}

static int write_object(const struct script *script, const char *path) {
	struct code *code = calloc(1, sizeof(*code));
	void *object = NULL;
	int r = CTL_OK;
	size_t n = 0;
	FILE *file;

	if (!script->needs_gpu)
		r = ctl_fail(CTL_ERROR, "--emit: the script has no probe on the GPU");
	else if (!code)
		r = ctl_fail(CTL_ERROR, "out of memory");
	else if (!code_make(code, script))
		r = ctl_fail(CTL_ERROR, "%s", code->error);
	else if (!(object = object_make(code, &n)))
		r = ctl_fail(CTL_ERROR, "out of memory");
	file = r ? NULL : fopen(path, "we");
	if (!r && (!file || fwrite(object, 1, n, file) != n || fflush(file)))
		r = ctl_fail(CTL_ERROR, "%s: %s", path, strerror(errno));
	if (file)
		fclose(file);
	if (code)
		code_deinit(code);
	free(code);
	free(object);
	return r;
}

/* -v: what an event costs before one has cost it. */
static int print_code(const struct script *script) {
	struct code *code = calloc(1, sizeof(*code));
	int r = CTL_OK;

	if (!code)
		r = ctl_fail(CTL_ERROR, "out of memory");
	else if (!code_make(code, script))
		r = ctl_fail(CTL_ERROR, "%s", code->error);
	else
		code_print(code, stderr);
	if (code)
		code_deinit(code);
	free(code);
	return r;
}

static int run_script(struct ctl *ctl, const struct options *options, const struct script *script) {
	FILE *out = stdout;
	int r = CTL_OK;

	if (options->verbose && script->needs_gpu)
		r = print_code(script);
	if (r)
		return r;
	if (options->object)
		return write_object(script, options->object);
	if (options->dry_run)
		return CTL_OK;
	if (options->output)
		out = fopen(options->output, "we");
	if (!out)
		return ctl_fail(CTL_ERROR, "%s: %s", options->output, strerror(errno));
	r = follow(ctl, options, script, out);
	if (out != stdout && fclose(out))
		r = ctl_fail(CTL_ERROR, "%s: %s", options->output, strerror(errno));
	return r;
}

/* Those of gpuprobectl have more numbers than a script's user asks for. */
static int exit_status(int status) {
	return status == CTL_OK || status == CTL_USAGE ? status : CTL_ERROR;
}

static int run(struct ctl *ctl, const struct options *options) {
	struct script *script;
	char *text = NULL;
	size_t n = 0;
	int r;

	r = read_script(options, &text, &n);
	if (r || !text)
		return r;
	script = script_new(options->program ? "-e"
			    : options->list  ? "-l"
					     : options->file,
			    options->list ? NULL : options->kernel, text, n);
	if (!script)
		r = ctl_fail(CTL_ERROR, "out of memory");
	else if (script->failed)
		r = ctl_fail(CTL_ERROR, "%s", script->error);
	else
		r = run_script(ctl, options, script);
	script_free(script);
	free(text);
	return r;
}

/* What the command line asks for. Returns the exit status. */
static int act(struct ctl *ctl, const struct options *options) {
	char path[4096];

	if (options->help && options->file && tool_find(path, options->file))
		return tool_help(options->file, path);
	if (options->help)
		ctl_print_help(help);
	else if (options->list && !options->file)
		list_words();
	else
		return run(ctl, options);
	return CTL_OK;
}

/* Whether nobody reads any more. */
static bool has_hung_up(FILE *out) {
	struct pollfd polled = { .fd = fileno(out) };

	return poll(&polled, 1, 0) > 0 && polled.revents & POLLERR;
}

int main(int argc, char **argv) {
	struct options options = { .rate = RATE };
	struct ctl ctl = {};
	int r, error;

	ctl_program = program_invocation_name = (char *)"gputrace";
	ctl.pipe_ignored = signal(SIGPIPE, SIG_DFL) == SIG_IGN;
	ctl.child_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
	sigprocmask(SIG_SETMASK, NULL, &ctl.mask);
	if (argc > 0)
		argv[0] = program_invocation_name;
	r = take_options(&ctl, &options, argc, argv);
	r = r >= 0 ? exit_status(r) : act(&ctl, &options);
	json_object_put(ctl.unanswered);
	varlink_client_free(ctl.client);
	varlink_interface_free(ctl.interface);
	error = ctl_flush();
	if (error && has_hung_up(stdout))
		raise(SIGPIPE); /* `| head` */
	if (error && r == CTL_OK)
		r = ctl_fail(CTL_ERROR, "cannot write the output: %s", strerror(error));
	return r;
}
