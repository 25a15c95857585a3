/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Starts CMD: a child that waits at a socket until what observes it is in place. If it cannot
 * become CMD, it says so on that socket. CMD gets our files. The child preloads the shim unless it
 * is preloaded already; the program runs without it if it is not installed.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/shim/preload.h"
#include "ctl/base/suggest.h"
#include "proto/paths.h"
#include "session.h"

/* Whether it is ours, and ld.so finds it. One that is named and missing, as after a removal, brings
 * nothing. */
static void take_library(const char *path, size_t n, bool ours, void *userdata) {
	char name[4096];

	if (!ours || n >= sizeof(name))
		return;
	memcpy(name, path, n);
	name[n] = '\0';
	*(bool *)userdata |= !strchr(name, '/') || access(name, R_OK) == 0;
}

/* Whether all programs get the shim anyway. */
static bool is_preloaded(void) {
	struct preload preload = { .text = getenv("LD_PRELOAD") };
	bool found = false;
	int root;

	preload.n = preload.text ? strlen(preload.text) : 0;
	preload_each(&preload, take_library, &found); /* is split as the file is */
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!found && root >= 0 && preload_read(&preload, root) == 0) {
		preload_each(&preload, take_library, &found);
		preload_deinit(&preload);
	}
	if (root >= 0)
		close(root);
	return found;
}

bool child_has_shim(void) {
	char shim[4096];

	return is_preloaded() || ctl_find_file(shim, LAUNCH_SHIM, "../shim/" PRELOAD_LIBRARY);
}

static void preload(const struct child_options *options) {
	const char *others = getenv("LD_PRELOAD");
	char shim[4096], *value;

	if (!options->shim || is_preloaded() ||
	    !ctl_find_file(shim, LAUNCH_SHIM, "../shim/" PRELOAD_LIBRARY))
		return;
	if (asprintf(&value, "%s%s%s", shim, others ? ":" : "", others ?: "") >= 0)
		setenv("LD_PRELOAD", value, 1);
}

/* Signals are to CMD what they were to us when we were started. */
static void restore_signals(const struct ctl *ctl) {
	if (ctl->pipe_ignored)
		signal(SIGPIPE, SIG_IGN);
	if (ctl->child_ignored)
		signal(SIGCHLD, SIG_IGN);
	sigprocmask(SIG_SETMASK, &ctl->mask, NULL);
}

/* In the child: says why it does not become CMD. Returns the exit status, as of a shell. */
static int tell_failed(const struct child_options *options, int error) {
	struct suggestion suggestion = { .wanted = options->command[0] };

	if (error == ENOENT && options->other)
		suggest_add(&suggestion, strrchr(options->other, ' ') + 1);
	ctl_tell("%s: %s%s%s%s", options->command[0], strerror(error),
		 suggestion.distance ? "; did you mean " : "",
		 suggestion.distance ? options->other : "", suggestion.distance ? "?" : "");
	return error == ENOENT ? 127 : 126;
}

/* In the child: waits, then becomes CMD. */
static void become_command(const struct child_options *options, int go) {
	char byte, own[16];
	int status;

	if (read(go, &byte, 1) != 1)
		_exit(CTL_ERROR);
	preload(options);
	if (options->ctl->session)
		setenv(PATHS_SESSION_VARIABLE, options->ctl->session_name ?: "", 1);
	snprintf(own, sizeof(own), "%d", (int)getpid());
	setenv(PATHS_TRACE_VARIABLE, own, 1);
	restore_signals(options->ctl);
	execvp(options->command[0], options->command);
	status = tell_failed(options, errno);
	send(go, "", 1, MSG_NOSIGNAL);
	_exit(status);
}

int child_start(struct child *child, const struct child_options *options) {
	int go[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	ctl_flush();
	child->pid = fork();
	if (child->pid == 0) {
		close(go[1]);
		become_command(options, go[0]);
	}
	close(go[0]);
	child->go = go[1];
	if (child->pid > 0)
		return CTL_OK;
	child->pid = 0;
	close(go[1]);
	return ctl_fail(CTL_ERROR, "%s", strerror(errno));
}

void child_go(struct child *child) {
	send(child->go, "", 1,
	     MSG_NOSIGNAL); /* a Ctrl-C may have been its end already: child_ended() tells */
}

bool child_failed(struct child *child) {
	char byte;

	return recv(child->go, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

bool child_ended(struct child *child, bool wait) {
	int status;
	pid_t pid;

	if (!child->pid)
		return true;
	do
		pid = waitpid(child->pid, &status, wait ? 0 : WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid != child->pid)
		return false;
	child->pid = 0;
	child->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return true;
}

void child_kill(struct child *child) {
	if (!child->pid)
		return;
	kill(child->pid, SIGKILL);
	child_ended(child, true);
}
