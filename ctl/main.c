/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpuprobectl, the operator's command: finds the subcommand, runs it, and reports whether its
 * output could be written.
 *
 * A command prints its result on standard output, and nothing else there. Errors go to standard
 * error, in one line, and into the exit status (enum ctl_exit). SIGPIPE keeps the kernel's default,
 * so `... | head` ends quietly.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/suggest.h"
#include "lib/varlink/varlink-idl.h"
#include "proto/paths.h"

static const char help[] =
	"Usage: gpuprobectl [OPTION]... COMMAND [ARGUMENT]...\n"
	"\n"
	"  attach FILE       attach the programs of an eBPF object; prints the ids\n"
	"  detach ID...      remove attachments\n"
	"  list              what is attached\n"
	"  status            state of the daemon\n"
	"  why               what was probed and what was not, and why\n"
	"  kernel list       kernels that are or were probed, or missed\n"
	"  kernel show NAME  instructions of a kernel that have memory probes\n"
	"  program show NAME registers, memory and engines of a program\n"
	"  map list          maps of attached objects\n"
	"  map dump MAP      contents of a map\n"
	"  map update MAP    set an element of a map; also: delete\n"
	"  map export MAP    show a map among the metrics; also: unexport, exports\n"
	"  metrics           numbers of the daemon and of exported maps\n"
	"  ring read MAP     records of a ring\n"
	"  run FILE          run a program as a kernel of its own\n"
	"  log               what programs print\n"
	"  trace             what programs do: calls of the driver, ioctls, kernels\n"
	"  trace report FILE what was in a trace\n"
	"  hook list         places in the kernel at which a trace can look\n"
	"  hook test NAME    whether one is hit\n"
	"  hook status       which are at work, and why others cannot be\n"
	"  shim enable       have the library in every program; also: disable, status, cdi\n"
	"  doctor            what is missing here, and what to do about it\n"
	"  cache             what is kept on the disk; also: list, clear\n"
	"  pass list         passes that the daemon runs\n"
	"  pass test FILE    run passes on a PTX file, here\n"
	"\n"
	"      --json            print JSON\n"
	"      --pretty          print JSON for people\n"
	"      --session[=NAME]  ask a session daemon of yours (also: " PATHS_SESSION_VARIABLE
	"=NAME)\n"
	"      --socket=PATH     ask the daemon at this socket\n"
	"  -h, --help            this text, or that of a command\n"
	"  -V, --version         print the version\n"
	"\n"
	"Without --session and --socket: your session daemon if one runs, else the system's.\n"
	"Exit status: 0 fine, 1 error, 2 usage, 3 no daemon, 4 refused by the verifier, 5 not "
	"found, 6 not permitted.\n";

static const struct ctl_command commands[] = {
	{ "attach", command_attach, CTL_TITLE "attach" },
	{ "detach", command_detach, CTL_TITLE "detach" },
	{ "list", command_list, CTL_TITLE "list" },
	{ "status", command_status, CTL_TITLE "status" },
	{ "why", command_why, CTL_TITLE "why" },
	{ "kernel", command_kernel, CTL_TITLE "kernel" },
	{ "program", command_program, CTL_TITLE "program" },
	{ "map", command_map, CTL_TITLE "map" },
	{ "metrics", command_metrics, CTL_TITLE "metrics" },
	{ "ring", command_ring, CTL_TITLE "ring" },
	{ "run", command_run, CTL_TITLE "run" },
	{ "log", command_log, CTL_TITLE "log" },
	{ "cache", command_cache, CTL_TITLE "cache" },
	{ "pass", command_pass, CTL_TITLE "pass" },
	{ "trace", command_trace, CTL_TITLE "trace" },
	{ "hook", command_hook, CTL_TITLE "hook" },
	{ "doctor", command_doctor, CTL_TITLE "doctor" },
	{ "shim", command_shim, CTL_TITLE "shim" },
};

static int run(struct ctl *ctl, int argc, char **argv) {
	struct ctl_command_line line = { .help = help, .arguments = CTL_ANY, .stops = true };
	struct suggestion suggestion = {};
	int r, first;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	if (optind == argc) {
		fputs(help, stderr);
		return CTL_USAGE;
	}
	first = optind;
	suggestion.wanted = argv[first];
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[first], commands[i].name)) {
			argv[first] = program_invocation_name = (char *)commands[i].title;
			optind = 0; /* getopt starts over */
			return commands[i].run(ctl, argc - first, argv + first);
		}
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		suggest_add(&suggestion, commands[i].name);
	return ctl_usage("there is no command %s%s", argv[first], suggest_text(&suggestion));
}

/*
 * Descriptors 0 to 2 that are closed stay so for who reads or writes them, but are taken: else they
 * would be the socket to the daemon, or the file of a trace, and what is meant for the user would
 * go there.
 */
static void take_standard(void) {
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return;
}

int main(int argc, char **argv) {
	struct ctl ctl = {};
	sigset_t ours;
	int r, error;

	take_standard();
	ctl.pipe_ignored = signal(SIGPIPE, SIG_DFL) == SIG_IGN;
	ctl.child_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN; /* for who waits for a child */
	sigemptyset(&ours);
	sigaddset(&ours, SIGPIPE);
	sigprocmask(SIG_UNBLOCK, &ours, &ctl.mask);
	if (argc > 0)
		argv[0] = (char *)"gpuprobectl";
	r = run(&ctl, argc, argv);
	json_object_put(ctl.unanswered);
	varlink_client_free(ctl.client);
	varlink_interface_free(ctl.interface);
	error = ctl_flush();
	if (error && r == CTL_OK)
		r = ctl_fail(CTL_ERROR, "cannot write the output: %s", strerror(error));
	return r;
}
