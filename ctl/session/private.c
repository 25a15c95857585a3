/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds or starts the daemon (session.h). A private one is a session daemon of this user with a
 * name of its own. It is told to end when we end, and by the kernel if we are killed.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/json.h"
#include "proto/paths.h"
#include "session.h"

#define START_MS 15000 /* a loaded machine is slow */
#define STEP_MS 10
#define CAP_BIT(n) (UINT64_C(1) << (n))
#define DEADLINE "--deadline-ms=20000" /* who asked for probes waits for them */
#define DEADLINE_OTHERS "--deadline-others-ms=20000"

/* Whether this process may have Linux verify programs: CAP_BPF and CAP_PERFMON, or all. */
static bool can_verify(void) {
	unsigned long long caps = 0;
	FILE *status = fopen("/proc/self/status", "re");
	char line[128];

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "CapEff:", 7))
			caps = strtoull(line + 7, NULL, 16);
	if (status)
		fclose(status);
	return (caps & CAP_BIT(21)) ||
	       (caps & (CAP_BIT(38) | CAP_BIT(39))) == (CAP_BIT(38) | CAP_BIT(39));
}

/* In the child. */
static void become_daemon(const struct session *session, const char *path, pid_t parent,
			  const sigset_t *mask) {
	char option[64];

	setpgid(0, 0); /* a Ctrl-C at the terminal is not for it */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(CTL_ERROR);
	snprintf(option, sizeof(option), "--session=%s", session->name);
	dup2(session->log, STDOUT_FILENO);
	dup2(session->log, STDERR_FILENO);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execl(path, "gpuprobed", option, session->verifies ? "--verify=on" : "--verify=off",
	      DEADLINE, DEADLINE_OTHERS, (char *)NULL);
	dprintf(session->log, "%s: %s\n", path, strerror(errno));
	_exit(CTL_ERROR);
}

/* What the daemon has said last, to be shown. */
static void tell_log(const struct session *session) {
	char text[2048];
	ssize_t n = pread(session->log, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	ctl_tell_log(text);
}

static int wait_started(struct session *session, struct ctl *ctl) {
	const uint64_t end = monotonic_now() + START_MS * UINT64_C(1000000);
	int r;

	do {
		r = ctl_seek(ctl);
		if (r != CTL_UNREACHABLE)
			return r;
		if (waitpid(session->pid, NULL, WNOHANG) == session->pid) {
			session->pid = 0;
			r = ctl_fail(CTL_ERROR, "the private daemon did not start:");
			tell_log(session);
			return r;
		}
		poll(NULL, 0, STEP_MS);
	} while (monotonic_now() < end);
	return ctl_fail(CTL_ERROR, "the private daemon does not answer within %d s",
			START_MS / 1000);
}

/* Whether the daemon that answers lets this user attach. One that does not say so does. */
static bool may_attach(struct ctl *ctl) {
	struct varlink_reply reply;
	json_object *may;
	bool refused;

	if (!ctl_ask(ctl->client, "Status", NULL, &reply))
		return true;
	may = json_member(reply.parameters, "may_attach");
	refused = may && !json_object_get_boolean(may);
	varlink_reply_deinit(&reply);
	return !refused;
}

/* Returns the exit status; CTL_UNREACHABLE without a message: it is to be a private daemon. */
static int seek(struct ctl *ctl, bool may_start) {
	int r = ctl_seek(ctl);

	may_start = may_start && !ctl->socket && !ctl->session;
	if (r == CTL_UNREACHABLE && !may_start)
		return ctl_fail(CTL_ERROR,
				"no daemon answers%s; processes that run already can be probed by "
				"one that was there when they started: gpuprobed --session",
				ctl->session ? " in this session" : "");
	if (r || !may_start || may_attach(ctl))
		return r;
	ctl->client = varlink_client_free(ctl->client);
	return CTL_UNREACHABLE;
}

static int start(struct session *session, struct ctl *ctl) {
	const pid_t self = getpid();
	char path[4096];

	if (!ctl_find_file(path, GPUPROBED_PATH, "../daemon/gpuprobed/gpuprobed"))
		return ctl_fail(CTL_ERROR, "%s: %s; is it installed?", path, strerror(errno));
	snprintf(session->name, sizeof(session->name), "%s_%d", ctl_program, (int)self);
	session->log = memfd_create("gpuprobed-log", MFD_CLOEXEC);
	if (session->log < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	ctl_flush();
	session->pid = fork();
	if (session->pid == 0)
		become_daemon(session, path, self, &ctl->mask);
	if (session->pid < 0) {
		session->pid = 0;
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	}
	ctl->session = true;
	ctl->session_name = session->name;
	return wait_started(session, ctl);
}

int session_open(struct session *session, struct ctl *ctl, bool may_start, bool require_verify) {
	const int r = seek(ctl, may_start);

	session->verifies = true;
	if (r != CTL_UNREACHABLE || ctl->socket || ctl->session)
		return r;
	session->verifies = can_verify();
	if (!session->verifies && require_verify)
		return ctl_fail(
			CTL_PERMISSION,
			"--require-verify: Linux verifies programs for root, or with CAP_BPF "
			"and CAP_PERFMON, alone; you have neither");
	return start(session, ctl);
}

void session_tell_unverified(const struct session *session) {
	if (!session->verifies)
		ctl_tell("without CAP_BPF nothing is verified by Linux: programs run unverified, "
			 "in processes of yours alone");
}

bool session_ended(struct session *session, int wait_ms) {
	const uint64_t end = monotonic_now() + (uint64_t)wait_ms * UINT64_C(1000000);

	while (session->pid > 0 && waitpid(session->pid, NULL, WNOHANG) != session->pid) {
		if (monotonic_now() >= end)
			return false;
		poll(NULL, 0, STEP_MS);
	}
	if (session->pid <= 0)
		return false;
	session->pid = 0;
	ctl_tell("the private daemon ended before the program did: what was counted is lost");
	tell_log(session);
	return true;
}

void session_close(struct session *session) {
	if (session->pid > 0) {
		kill(session->pid, SIGTERM);
		while (waitpid(session->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (session->log > 0)
		close(session->log);
	session->pid = 0;
	session->log = -1;
}
