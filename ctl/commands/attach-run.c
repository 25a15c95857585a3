/* SPDX-License-Identifier: Apache-2.0 */

/*
 * attach FILE -- CMD: a child waits until the object is attached, and becomes CMD, under the shim.
 * At its end the maps are printed and the object is detached, whatever happened in between. If the
 * system's daemon is not there, or lets this user not attach, a private one is started.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "attach-run.h"
#include "ctl/base/object-file.h"
#include "ctl/session/session.h"
#include "lib/json.h"
#include "results.h"

#define ENDING_MS 5000 /* how long the end of a daemon lasts that hung up */

struct attach_run {
	struct ctl *ctl;
	struct session session;
	struct child child;
	pid_t pid; /* of CMD, also when it has ended */
	json_object *attached; /* the reply of Attach */
	int64_t seen; /* attached_seen() before */
	int signals;
	bool started; /* CMD was let go */
	int interrupts; /* how often a signal was to end us */
};

/* A Ctrl-C at the terminal reaches CMD, too, which may decide what it means; what was sent to us
 * alone goes on to it. */
static void take_signals(struct attach_run *run) {
	struct signalfd_siginfo taken;

	while (read(run->signals, &taken, sizeof(taken)) == sizeof(taken)) {
		if (taken.ssi_signo == SIGCHLD)
			continue;
		run->interrupts++;
		if (run->child.pid && taken.ssi_code <= 0)
			kill(run->child.pid, (int)taken.ssi_signo);
	}
}

/* Waits for the end of CMD, or for the signal after which the user waits no longer. */
static void wait_child(struct attach_run *run, bool to_the_end) {
	struct pollfd signals = { .fd = run->signals, .events = POLLIN };

	while (!child_ended(&run->child, false) && (to_the_end || run->interrupts < 2)) {
		poll(&signals, 1, -1);
		take_signals(run);
	}
}

/* A signal while results are printed: the user wants no more of them. */
static bool wants_no_more(void *userdata) {
	struct attach_run *run = userdata;
	const int before = run->interrupts;

	take_signals(run);
	return run->interrupts > before;
}

static int print(struct attach_run *run, bool nonzero) {
	const struct results results = {
		.nonzero = nonzero, .rings = true, .stop = wants_no_more, .userdata = run
	};
	int r;

	if (run->ctl->json)
		printf("{");
	r = results_print(run->ctl, run->attached, &results);
	if (run->ctl->json)
		puts("}");
	if (r == CTL_RESULTS_CUT)
		r = ctl_fail(CTL_ERROR, "interrupted: not all of the log and the maps is printed");
	if (!r && !child_was_not_run(&run->child))
		attached_tell_unprobed(run->ctl, run->session.pid ? 0 : run->pid, run->seen);
	return r;
}

/* One that is not armed would find nothing. Returns the exit status. */
static int check_armed(json_object *attached) {
	json_object *attachments = json_member(attached, "attachments");

	for (size_t i = 0; i < json_length_of(attachments); i++) {
		json_object *attachment = json_object_array_get_idx(attachments, i);

		if (strcmp(ctl_string(attachment, "state"), "armed") != 0)
			return ctl_fail(CTL_ERROR, "program %s is %s; the command is not run",
					ctl_string(attachment, "program"),
					ctl_string(attachment, "state"));
	}
	return CTL_OK;
}

/* With everything attached. Returns the exit status, of ours. */
static int run_attached(struct attach_run *run, bool nonzero) {
	int r = check_armed(run->attached);

	if (r)
		return r;
	child_go(&run->child);
	run->started = true;
	wait_child(run, false);
	if (!run->child.pid && child_failed(&run->child))
		return CTL_OK; /* it has said why, and its status is ours */
	if (session_ended(&run->session, 0))
		return CTL_UNREACHABLE;
	run->ctl->quiet = run->session.pid > 0; /* that a private one hung up is said here */
	r = print(run, nonzero);
	if (r == CTL_UNREACHABLE && run->ctl->quiet && !session_ended(&run->session, ENDING_MS))
		ctl_tell("the private daemon does not answer: what was counted is lost");
	run->ctl->quiet = false;
	return r;
}

/* A private daemon has processes of CMD alone, and the system's may have others. */
static void add_filter(const struct attach_run *run, json_object *parameters) {
	if (!run->session.pid && !json_member(parameters, "filter"))
		ctl_put(parameters, "filter.pid", json_object_new_int64(run->pid));
}

/* Attaches and detaches, with a child that waits. */
static int run_child(struct attach_run *run, json_object *parameters, const char *path,
		     bool nonzero) {
	struct pollfd output = { .fd = STDOUT_FILENO };
	sigset_t ending;
	int r, detached;

	run->signals = session_signals(&ending, true);
	if (run->signals < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	ctl_end_if_stuck(&ending, attached_end);
	signal(SIGPIPE, SIG_IGN);
	run->pid = run->child.pid;
	add_filter(run, parameters);
	run->seen = attached_seen(run->ctl);
	r = attached_new(run->ctl, json_object_get(parameters), path, &run->attached);
	if (!r)
		r = run_attached(run, nonzero);
	detached = attached_free(r == CTL_UNREACHABLE ? NULL : run->ctl, run->attached);
	ctl_flush();
	signal(SIGPIPE, SIG_DFL);
	if (poll(&output, 1, 0) > 0 && output.revents & POLLERR)
		raise(SIGPIPE); /* `| head` */
	return r ?: detached;
}

int attach_run(struct ctl *ctl, json_object *parameters, const char *path, char **command,
	       bool nonzero) {
	struct attach_run run = {
		.ctl = ctl, .session = { .log = -1 }, .child = { .go = -1 }, .signals = -1
	};
	const struct child_options child = { .ctl = ctl, .command = command, .shim = true };
	int r;

	r = object_file_put(path, parameters);
	if (!r)
		r = session_open(&run.session, ctl, true, false);
	if (!r) {
		session_tell_unverified(&run.session);
		r = child_start(&run.child, &child);
	}
	if (!r)
		r = run_child(&run, parameters, path, nonzero);
	if (run.started)
		wait_child(&run, true);
	else
		child_kill(&run.child);
	if (run.child.go >= 0)
		close(run.child.go);
	session_close(&run.session);
	if (run.signals >= 0)
		close(run.signals);
	return run.started && run.child.status ? run.child.status : r;
}
