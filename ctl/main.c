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

#include "ctl/base/commands.h"
#include "ctl/base/ctl.h"
#include "lib/varlink/varlink-idl.h"
#include "proto/paths.h"

#define HELP_OF(name, text) "  " text "\n"
#define ROW_OF(name, text) { #name, command_##name },

static const char help[] =
	"Usage: gpuprobectl [OPTION]... COMMAND [ARGUMENT]...\n"
	"\n" CTL_COMMANDS(HELP_OF) "\n"
				   "      --json            print JSON\n"
				   "      --pretty          print JSON for people\n"
				   "      --session[=NAME]  ask a session daemon of yours "
				   "(also: " PATHS_SESSION_VARIABLE "=NAME)\n"
				   "      --socket=PATH     ask the daemon at this socket\n"
				   "  -h, --help            this text, or that of a command\n"
				   "  -V, --version         print the version\n"
				   "\n"
				   "Without --session and --socket: your session daemon if one "
				   "runs, else the system's.\n"
				   "Exit status: 0 fine, 1 error, 2 usage, 3 no daemon, 4 refused "
				   "by the verifier, 5 not "
				   "found, 6 not permitted.\n";

static const struct ctl_command commands[] = { CTL_COMMANDS(ROW_OF){} };

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
	r = ctl_verb(&ctl, argc, argv, help, commands);
	json_object_put(ctl.unanswered);
	varlink_client_free(ctl.client);
	varlink_interface_free(ctl.interface);
	error = ctl_flush();
	if (error && r == CTL_OK)
		r = ctl_fail(CTL_ERROR, "cannot write the output: %s", strerror(error));
	return r;
}
