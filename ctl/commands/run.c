/* SPDX-License-Identifier: Apache-2.0 */

/*
 * run: a program becomes a kernel of its own. A child process waits until the program is attached
 * to it alone, then becomes gpuprobe-launch, which launches an empty kernel under the shim.
 * Afterwards the log and the maps are printed and everything is detached, whatever happened in
 * between: signals are looked at between two steps only, and nobody who reads our output ends us.
 * Where a reader has stopped to read there is no next step, and who ends us (stuck.c) detaches
 * before.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/launch.h"
#include "ctl/base/object-file.h"
#include "ctl/session/session.h"
#include "lib/json.h"
#include "results.h"
#include "proto/paths.h"
#include "lib/varlink/varlink-json.h"

static const char help[] =
	"Usage: gpuprobectl run [OPTION]... FILE\n"
	"\n"
	"Runs the program of an eBPF object whose section is kprobe/__directly_run as a kernel of "
	"its own, prints its log and maps, and leaves\n"
	"nothing behind.\n"
	"\n"
	"      --grid=X[,Y[,Z]]   blocks; else 1\n"
	"      --block=X[,Y[,Z]]  threads of a block, at most 1024; else 1\n"
	"      --count=N          launches; else 1\n"
	"      --device=N         the device, as CUDA numbers them; else 0\n"
	"      --program=NAME     this program, whatever its section\n"
	"      --threads=N        values that a per-thread array has for each index; else 65536\n"
	"      --ring-size=N      bytes of a ring, with K, M or G; else 8M\n";

struct run {
	struct ctl *ctl;
	const char *path;
	int64_t size[6]; /* grid, block */
	int64_t count, device;
	json_object *parameters; /* of Attach */
	char launcher[4096], shim[4096];
	pid_t child;
	int go; /* the child waits for a byte here */
	int output; /* what it prints */
	int signals; /* SIGINT, SIGTERM, SIGQUIT and SIGHUP */
	bool interrupted; /* by one of them */
};

/* What every device can do. */
static const int64_t grid_max[3] = { INT32_MAX, 65535, 65535 }, block_max[3] = { 1024, 1024, 64 };
#define BLOCK_THREADS_MAX 1024

/* "8,4" into three numbers. Returns -1 to go on, or the exit status. */
static int read_size(const char *what, const char *text, const int64_t max[static 3],
		     int64_t size[static 3]) {
	char *copy = strdup(text), *rest = copy, *word;
	int n = 0, r = -1;

	size[0] = size[1] = size[2] = 1;
	if (!copy)
		return ctl_fail(CTL_ERROR, "out of memory");
	while (r < 0 && (word = strsep(&rest, ",")))
		r = n < 3 ? ctl_number(what, word, 1, &size[n++])
			  : ctl_usage("%s takes up to three numbers, not %s", what, text);
	for (int i = 0; r < 0 && i < 3; i++)
		if (size[i] > max[i])
			r = ctl_usage("%s: %lld is too many in %c, at most %lld", what,
				      (long long)size[i], "xyz"[i], (long long)max[i]);
	if (r < 0 && max == block_max && size[0] * size[1] * size[2] > BLOCK_THREADS_MAX)
		r = ctl_usage("%s: %s are more than %d threads", what, text, BLOCK_THREADS_MAX);
	free(copy);
	return r;
}

static int put_grid(void *run, const char *text) {
	return read_size("--grid", text, grid_max, ((struct run *)run)->size);
}

static int put_block(void *run, const char *text) {
	return read_size("--block", text, block_max, ((struct run *)run)->size + 3);
}

static int put_device(void *userdata, const char *text) {
	struct run *run = userdata;
	int r = ctl_number("--device", text, 0, &run->device);

	return r < 0 && run->device > INT32_MAX ? ctl_usage("--device: there is no device %s", text)
						: r;
}

static int put_program(void *userdata, const char *name) {
	struct run *run = userdata;

	json_add_string(run->parameters, "program", name);
	json_add_string(run->parameters, "point", "kprobe/__directly_run");
	return -1;
}

/* Returns -1 to go on, or the exit status. */
static int run_options(struct run *run, int argc, char **argv) {
	const struct ctl_option options[] = {
		{ "grid", .value = CTL_TEXT, .take = put_grid },
		{ "block", .value = CTL_TEXT, .take = put_block },
		{ "count", .value = CTL_NUMBER, .min = 1, .number = &run->count },
		{ "device", .value = CTL_TEXT, .take = put_device },
		{ "program", .value = CTL_TEXT, .take = put_program },
		{ "threads", .value = CTL_NUMBER, .min = 1, .key = "threads" },
		{ "ring-size", .value = CTL_SIZE, .key = "ring_size" },
		{},
	};
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = run->parameters,
					 .userdata = run,
					 .arguments = CTL_ONE,
					 .argument = "object" };
	int r = ctl_parse(run->ctl, argc, argv, &line);

	run->path = argv[optind];
	return r;
}

/* Returns the exit status. */
static int find_file(char path[static 4096], const char *installed, const char *beside) {
	return ctl_find_file(path, installed, beside)
		       ? CTL_OK
		       : ctl_fail(CTL_ERROR, "%s: %s; is it installed?", path, strerror(errno));
}

/* In the child: waits, then becomes the launcher. */
static void become_launcher(const struct run *run, int go, int output) {
	const char *preload = getenv("LD_PRELOAD");
	char numbers[8][24], *arguments[10] = { (char *)"gpuprobe-launch" }, *value, byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, &byte, 1) != 1)
		_exit(CTL_ERROR);
	for (int i = 0; i < 8; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%lld",
			 (long long)(i < 6    ? run->size[i]
				     : i == 6 ? run->count
					      : run->device));
		arguments[i + 1] = numbers[i];
	}
	if (asprintf(&value, "%s%s%s", run->shim, preload ? ":" : "", preload ?: "") < 0)
		_exit(CTL_ERROR);
	setenv("LD_PRELOAD", value, 1);
	setenv("GPUPROBE", "ptx", 1); /* the kernel is ours, in PTX: it needs no other engine */
	if (run->ctl->session)
		setenv(PATHS_SESSION_VARIABLE, run->ctl->session_name ?: "", 1);
	dup2(output, STDOUT_FILENO);
	execv(run->launcher, arguments);
	ctl_fail(CTL_ERROR, "%s: %s", run->launcher, strerror(errno));
	_exit(CTL_ERROR);
}

static int start_child(struct run *run) {
	int go[2], output[2];

	if (pipe2(go, O_CLOEXEC) < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	if (pipe2(output, O_CLOEXEC) < 0) {
		close(go[0]);
		close(go[1]);
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	}
	ctl_flush();
	run->child = fork();
	if (run->child == 0) {
		close(go[1]);
		become_launcher(run, go[0], output[1]);
	}
	close(go[0]);
	close(output[1]);
	run->go = go[1];
	run->output = output[0];
	return run->child < 0 ? ctl_fail(CTL_ERROR, "%s", strerror(errno)) : CTL_OK;
}

/* Whether one of the attachments is at the launcher's kernel. */
static bool is_runnable(json_object *attachments) {
	for (size_t i = 0; i < json_object_array_length(attachments); i++)
		if (!strcmp(ctl_string(json_object_array_get_idx(attachments, i), "kernel"),
			    LAUNCH_KERNEL))
			return true;
	return false;
}

/* Whether the user wants no more; waits until then, or for what the child prints. -1: for as long
 * as it takes. */
static bool is_interrupted(struct run *run, int timeout_ms) {
	struct pollfd fds[] = { { .fd = run->signals, .events = POLLIN },
				{ .fd = run->output, .events = POLLIN } };
	struct signalfd_siginfo taken;

	if (run->interrupted)
		return true;
	while (poll(fds, timeout_ms ? 2 : 1, timeout_ms) < 0 && errno == EINTR)
		;
	run->interrupted = read(run->signals, &taken, sizeof(taken)) > 0;
	return run->interrupted;
}

/* Lets the child go and waits for it. Returns the exit status; *microsecondsp: of all launches. */
static int launch(struct run *run, int64_t *microsecondsp) {
	bool interrupted = is_interrupted(run, 0), gone;
	char text[32] = "";
	size_t n = 0;
	ssize_t got = 1;
	int status;

	gone = write(run->go, "", 1) != 1; /* the same Ctrl-C as ours may have been its end */
	while (!interrupted && got > 0 && n < sizeof(text) - 1) {
		interrupted = is_interrupted(run, -1);
		if (!interrupted)
			got = read(run->output, text + n, sizeof(text) - 1 - n);
		n += got > 0 && !interrupted ? (size_t)got : 0;
	}
	if (interrupted || gone)
		kill(run->child, SIGKILL);
	while (waitpid(run->child, &status, 0) < 0 && errno == EINTR)
		;
	run->child = 0;
	*microsecondsp = strtoll(text, NULL, 10);
	if (interrupted || is_interrupted(run, 0))
		return ctl_fail(CTL_ERROR, "interrupted: the kernel may not have run to its end");
	if (WIFSIGNALED(status))
		return ctl_fail(CTL_ERROR, "the kernel may not have run: gpuprobe-launch: %s",
				strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status) ? CTL_ERROR : CTL_OK; /* it has said why */
}

/*
 * Whether the program was in the kernel that the process launched: fail open is not for us. A
 * daemon that came meanwhile does not know. Returns the exit status.
 */
static int check_probed(struct run *run, pid_t pid) {
	const char *reason = "the launcher did not reach this daemon: if it is that of a session, "
			     "say which with --session";
	struct varlink_reply reply;
	json_object *outcomes;
	bool probed = false;
	int r;

	r = ctl_call(run->ctl, "Why", varlink_json_pack("pid", json_object_new_int64(pid), NULL),
		     "", CTL_TIMEOUT_MS, &reply);
	if (r)
		return r;
	outcomes = json_member(reply.parameters, "outcomes");
	for (size_t i = 0; i < json_object_array_length(outcomes); i++) {
		json_object *outcome = json_object_array_get_idx(outcomes, i);

		probed |= !strcmp(ctl_string(outcome, "outcome"), "probed") &&
			  !strcmp(ctl_string(outcome, "kernel"), LAUNCH_KERNEL);
		reason = *ctl_string(outcome, "reason") ? ctl_string(outcome, "reason") : reason;
	}
	if (!probed && run->ctl->n_reconnects && !json_object_array_length(outcomes))
		ctl_fail(CTL_OK, "the daemon was restarted meanwhile: whether the program was in "
				 "the kernel is to be seen in its maps only");
	else if (!probed)
		r = ctl_fail(CTL_ERROR, "%s: the program was not run: %s", run->path, reason);
	varlink_reply_deinit(&reply);
	return r;
}

static bool wants_no_more(void *userdata) {
	return is_interrupted(userdata, 0);
}

/* Prints log and maps of the object. Returns the exit status: what Ctrl-C has cut short is no
 * success. */
static int print_results(struct run *run, json_object *attached, int64_t microseconds) {
	const struct results results = { .nonzero = true, .stop = wants_no_more, .userdata = run };
	int r;

	if (run->ctl->json)
		printf("{\"microseconds\":%lld,", (long long)microseconds);
	r = results_print(run->ctl, attached, &results);
	if (run->ctl->json)
		puts("}");
	return r == CTL_RESULTS_CUT
		       ? ctl_fail(CTL_ERROR,
				  "interrupted: not all of the log and the maps is printed")
		       : r;
}

/* Between attach and detach. Returns the exit status. */
static int run_attached(struct run *run, json_object *reply) {
	json_object *attachments = json_member(reply, "attachments");
	const pid_t pid = run->child;
	int64_t microseconds = 0;
	int r;

	if (!is_runnable(attachments))
		return ctl_fail(CTL_ERROR,
				"%s: no program has the section kprobe/__directly_run: say which "
				"one with --program",
				run->path);
	r = launch(run, &microseconds) ?: check_probed(run, pid);
	return r ?: print_results(run, reply, microseconds);
}

static int run_object(struct run *run) {
	json_object *attached;
	int r, detached;

	json_add(run->parameters, "filter",
		 varlink_json_pack("pid", json_object_new_int64(run->child), NULL));
	r = attached_new(run->ctl, json_object_get(run->parameters), run->path, &attached);
	if (r)
		return r;
	r = run_attached(run, attached);
	/* a daemon that was restarted while the kernel ran has hung up; that there is none is said
	 * once */
	if (!ctl_connect_again(run->ctl) && r == CTL_UNREACHABLE)
		detached = attached_free(NULL, attached);
	else
		detached = attached_free(run->ctl, attached);
	return r ?: detached;
}

/* With a child that waits: signals are ours to look at, and a reader that hangs up only shows
 * afterwards. */
static int run_child(struct run *run) {
	struct pollfd output = { .fd = STDOUT_FILENO };
	sigset_t signals;
	int r;

	run->signals = session_signals(&signals, false);
	if (run->signals < 0)
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	ctl_end_if_stuck(&signals,
			 attached_end); /* the daemon may not answer, or a reader not read */
	signal(SIGPIPE, SIG_IGN);
	r = run_object(run);
	ctl_flush();
	signal(SIGPIPE, SIG_DFL);
	if (poll(&output, 1, 0) > 0 && output.revents & POLLERR)
		raise(SIGPIPE);
	return r;
}

int command_run(struct ctl *ctl, int argc, char **argv) {
	struct run run = { .ctl = ctl,
			   .size = { 1, 1, 1, 1, 1, 1 },
			   .count = 1,
			   .go = -1,
			   .output = -1,
			   .signals = -1 };
	int r;

	run.parameters = json_object_new_object();
	r = run_options(&run, argc, argv);
	if (r < 0)
		r = object_file_put(run.path, run.parameters);
	else
		goto out;
	if (!r)
		r = find_file(run.launcher, LAUNCH_PATH, "gpuprobe-launch");
	if (!r)
		r = find_file(run.shim, LAUNCH_SHIM, "../shim/libgpuprobe-shim.so");
	if (!r)
		r = start_child(&run);
	if (!r)
		r = run_child(&run);
	if (run.child > 0) {
		kill(run.child, SIGKILL);
		waitpid(run.child, NULL, 0);
	}
	if (run.go >= 0)
		close(run.go);
	if (run.output >= 0)
		close(run.output);
	if (run.signals >= 0)
		close(run.signals);
out:
	json_object_put(run.parameters);
	return r;
}
