/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a script: attaches what is for the GPU, traces what is for the host, starts CMD when both
 * are in place, and goes on until CMD or the user ends it. Then it reads all maps, detaches, and
 * prints. Whatever happens, nothing stays attached, and CMD runs to its end.
 *
 * Two connections: one follows the trace, the other one reads maps meanwhile.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ctl/base/records.h"
#include "ctl/session/session.h"
#include "ctl/trace/command.h"
#include "ctl/trace/read/stream.h"
#include "evaluate.h"
#include "follow.h"
#include "gpu.h"
#include "lib/base/clock.h"
#include "lib/json.h"
#include "lib/varlink/varlink-idl.h"

#define WINDOW UINT64_C(200000000) /* nanoseconds that records wait for older ones */
#define MEMORY ((size_t)128 << 20)
#define TICK_MS 50
#define LAST_MS 3000 /* after the end of CMD: for the end of the trace */
#define STOP_MS 500 /* after a signal: for what happened until then */
#define SECOND UINT64_C(1000000000)

struct timer {
	const struct clause *clause;
	const struct probe *probe;
	uint64_t at;
};

struct follow {
	const struct options *options;
	const struct script *script;
	struct ctl *ctl; /* for all but the trace */
	struct ctl tracer;
	struct session session;
	struct gpu gpu;
	struct evaluator evaluator;
	struct child child;
	pid_t pid; /* of CMD, also when it has ended; 0: there is none */
	struct trace_stream *stream; /* NULL: nothing is traced */
	struct records records;
	bool started, over; /* the trace */
	uint64_t monotonic; /* its beginning */
	int signals;
	bool interrupted;
	bool lost; /* events were */
	uint64_t stop_by; /* 0: not yet */
	uint64_t replied_at;
	size_t n_timers;
	struct timer timers[SCRIPT_PROBES_MAX];
};

/* ---- the trace ---- */

static int take_item(const struct trace_item *item, void *userdata) {
	struct follow *follow = userdata;

	if (item->kind == EVENT_NOTE)
		ctl_tell("process %u (%.15s): %s", item->pid, item->process->comm, item->name);
	evaluate_item(&follow->evaluator, item, follow->monotonic + item->start);
	return follow->evaluator.failed ? -ENOMEM : 0;
}

/* Which functions the probes need, as Trace takes them. */
static json_object *traced_calls(const struct script *script) {
	json_object *calls = json_object_new_array();

	for (const struct clause *clause = script->clauses; clause; clause = clause->next)
		for (const struct probe *probe = clause->probes; probe; probe = probe->next) {
			if (clause->on_gpu || probe->kind < PROBE_LAUNCH)
				continue;
			if (probe->kind == PROBE_LAUNCH || probe->kind == PROBE_IDLE) {
				json_append_string(calls, "launch");
				json_append_string(calls, "cuGraphLaunch"); /* to be counted */
			} else if (probe->name && probe->kind != PROBE_PROCESS)
				json_append_string(calls, probe->name);
			else if (probe->kind == PROBE_COPY || probe->kind == PROBE_SYNC)
				json_append_string(calls,
						   probe->kind == PROBE_COPY ? "transfer" : "sync");
			else if (probe->kind == PROBE_MODULE)
				json_append_string(calls, "module");
			else if (probe->kind != PROBE_PROCESS)
				json_append_string(calls, "memory");
		}
	return calls;
}

static int trace_begin(struct follow *follow) {
	const struct trace_order_options order = {
		.window = WINDOW, .memory = MEMORY, .take = take_item, .userdata = follow
	};
	json_object *parameters = json_object_new_object(), *list;
	const bool command = follow->child.pid > 0;
	int r;

	json_add(parameters, "calls", traced_calls(follow->script));
	list = json_add_array(parameters, "sources");
	json_append_string(list, "shim");
	if (follow->script->needs_times)
		json_append_string(list, "gpu");
	else if (!command)
		json_append_string(list, "bpf");
	if (command || follow->options->pid) {
		list = json_add_array(parameters, "pids");
		json_append_int(list, command ? follow->child.pid : follow->options->pid);
		json_add_bool(parameters, "follow", true);
	}
	json_add_bool(parameters, "descriptor", true);
	json_add_bool(parameters, "stacks", follow->script->needs_stacks);
	if (trace_stream_new(&follow->stream, &order, NULL)) {
		json_object_put(parameters);
		return ctl_fail(CTL_ERROR, "out of memory");
	}
	follow->tracer = *follow->ctl;
	follow->tracer.client = NULL;
	follow->tracer.interface = NULL;
	follow->tracer.unanswered = NULL;
	r = ctl_call_more(&follow->tracer, "Trace", parameters);
	return r;
}

/* Of the first record: when the trace began. */
static void note_beginning(struct follow *follow, const void *bytes, size_t n) {
	struct trace_start start;

	if (follow->monotonic || n < sizeof(start))
		return;
	memcpy(&start, bytes, sizeof(start));
	if (start.record.type == TRACE_START)
		follow->monotonic = start.monotonic;
}

static int trace_reply(struct follow *follow) {
	struct varlink_reply reply;
	const unsigned char *bytes;
	size_t n;
	int r;

	r = ctl_next(&follow->tracer, "Trace", "", &reply);
	if (r)
		return r;
	r = records_take(&follow->records, &follow->tracer, reply.parameters, "records", &bytes,
			 &n);
	if (!r) {
		note_beginning(follow, bytes, n);
		r = trace_stream_result(trace_stream_feed(follow->stream, bytes, n));
		records_done(&follow->records);
		fflush(follow->evaluator.show.out); /* somebody may watch */
		trace_reply_tell_missing(reply.parameters);
	}
	follow->started = true;
	follow->replied_at = monotonic_now();
	follow->over = !reply.continues;
	if (!r && follow->over && json_member(reply.parameters, "notice"))
		r = ctl_fail(CTL_ERROR, "the trace ends here: %s",
			     ctl_string(reply.parameters, "notice"));
	varlink_reply_deinit(&reply);
	return r;
}

/* ---- signals and time ---- */

static void stop_soon(struct follow *follow, uint64_t milliseconds) {
	const uint64_t by = monotonic_now() + milliseconds * 1000000;

	if (!follow->stop_by || by < follow->stop_by)
		follow->stop_by = by;
}

/* A Ctrl-C at the terminal reaches CMD, too, which may decide what it means; the second one ends
 * us.
 */
static void take_signals(struct follow *follow) {
	const uint64_t last = follow->stream ? LAST_MS : 0;
	struct signalfd_siginfo taken;

	while (read(follow->signals, &taken, sizeof(taken)) == sizeof(taken)) {
		if (taken.ssi_signo == SIGCHLD) {
			if (follow->child.pid && child_ended(&follow->child, false))
				stop_soon(follow, last);
			continue;
		}
		if (follow->child.pid && taken.ssi_code <= 0)
			kill(follow->child.pid, (int)taken.ssi_signo);
		if (!follow->child.pid || follow->interrupted)
			stop_soon(follow, follow->stream && !follow->child.pid ? STOP_MS : 0);
		follow->interrupted = true;
	}
}

static int watch_signals(struct follow *follow) {
	sigset_t ending;

	follow->signals = session_signals(&ending, true);
	ctl_end_if_stuck(&ending, attached_end); /* a reader may not read */
	signal(SIGPIPE, SIG_IGN);
	return follow->signals < 0 ? ctl_fail(CTL_ERROR, "%s", strerror(errno)) : CTL_OK;
}

static void start_timers(struct follow *follow) {
	const uint64_t now = monotonic_now();

	for (const struct clause *clause = follow->script->clauses; clause; clause = clause->next)
		for (const struct probe *probe = clause->probes; probe; probe = probe->next)
			if (probe->kind == PROBE_INTERVAL)
				follow->timers[follow->n_timers++] =
					(struct timer){ clause, probe, now + probe->number };
}

/* Runs the intervals that are due. What was missed while the machine was busy is not made up for.
 */
static int run_timers(struct follow *follow) {
	const uint64_t now = monotonic_now();
	int r = CTL_OK;

	for (size_t i = 0; i < follow->n_timers && !follow->evaluator.exited; i++) {
		struct timer *timer = &follow->timers[i];
		const struct event event = { .probe = timer->probe, .nsecs = now };

		if (now < timer->at)
			continue;
		if (follow->stream && now > follow->replied_at + WINDOW)
			r = trace_stream_result(trace_stream_finish(follow->stream));
		evaluate_probe(&follow->evaluator, timer->clause, &event);
		fflush(follow->evaluator.show.out);
		timer->at += timer->probe->number;
		if (timer->at < now)
			timer->at = now + timer->probe->number;
	}
	return r;
}

/* Milliseconds until something is due, at most those of a tick. */
static int next_tick(const struct follow *follow) {
	const uint64_t now = monotonic_now();
	uint64_t next = now + TICK_MS * UINT64_C(1000000);

	for (size_t i = 0; i < follow->n_timers; i++)
		next = follow->timers[i].at < next ? follow->timers[i].at : next;
	if (follow->stop_by && follow->stop_by < next)
		next = follow->stop_by;
	return next <= now ? 0 : (int)((next - now) / 1000000) + 1;
}

/* ---- the course ---- */

/* Waits for what comes next. Returns the exit status. */
static int step(struct follow *follow) {
	struct pollfd signals = { .fd = follow->signals, .events = POLLIN };
	const int timeout = next_tick(follow);
	int r;

	if (follow->stream && !follow->over) {
		r = varlink_client_wait(follow->tracer.client, follow->signals, timeout);
		if (r == VARLINK_CLIENT_E_OTHER)
			take_signals(follow);
		else if (r != VARLINK_CLIENT_E_AGAIN)
			return trace_reply(follow);
	} else if (poll(&signals, 1, timeout) > 0) {
		take_signals(follow);
	}
	gpu_print(&follow->gpu, follow->options->rate, false);
	if (follow->stream && monotonic_now() > follow->replied_at + WINDOW)
		return trace_stream_result(trace_stream_finish(follow->stream));
	return CTL_OK;
}

static bool is_over(const struct follow *follow) {
	return follow->evaluator.exited || follow->evaluator.endless ||
	       ferror(follow->evaluator.show.out) || (follow->stream && follow->over) ||
	       (follow->stop_by && monotonic_now() >= follow->stop_by);
}

/* Everything is in place: CMD begins, and time. */
static int run(struct follow *follow) {
	int r = CTL_OK;

	while (!r && follow->stream && !follow->started && !is_over(follow))
		r = step(follow);
	if (r)
		return r;
	if (follow->child.pid)
		child_go(&follow->child);
	else if (follow->options->command)
		stop_soon(follow, 0); /* a signal was its end before it began */
	start_timers(follow);
	if (follow->options->seconds)
		stop_soon(follow, (uint64_t)follow->options->seconds * 1000);
	while (!r && !is_over(follow)) {
		r = step(follow);
		if (!r)
			r = run_timers(follow);
	}
	if (!r && follow->stream)
		r = trace_stream_result(trace_stream_finish(follow->stream));
	return r;
}

/* What could not be counted, in the same output. Returns whether there was something. */
static bool tell_lost_lines(const struct follow *follow) {
	uint64_t over, lost;

	gpu_print_lost(&follow->gpu, &over, &lost);
	if (over)
		ctl_tell("%" PRIu64 " lines of printf() were left out: more than %" PRId64
			 " in a second (--rate)",
			 over, follow->options->rate);
	if (lost)
		ctl_tell("%" PRIu64 " lines of printf() were lost: there was no room for them",
			 lost);
	return over || lost;
}

static bool tell_lost(struct follow *follow) {
	struct trace_stream_state state = {};
	bool lost = tell_lost_lines(follow);

	if (follow->stream)
		trace_stream_state(follow->stream, &state);
	if (state.lost)
		ctl_tell("%" PRIu64 " events of the host were lost: there was no room for them",
			 state.lost);
	for (size_t i = 0; i < follow->script->n_maps; i++) {
		const uint64_t n = evaluate_lost(&follow->evaluator, i);

		lost |= n > 0;
		if (n)
			ctl_tell("%s: %" PRIu64 " events were lost: the map is full",
				 follow->script->maps[i].name, n);
	}
	if (follow->evaluator.graphs)
		ctl_tell("CUDA graphs were launched: launch: does not see their kernels, thread: "
			 "does");
	if (follow->evaluator.unnamed)
		ctl_tell("%" PRIu64 " launches of kernels whose names are not known were left out",
			 follow->evaluator.unnamed);
	if (follow->gpu.unknown_starts)
		ctl_tell("%" PRIu64
			 " durations are not known: the beginning was not seen, or found "
			 "no room",
			 follow->gpu.unknown_starts);
	if (follow->gpu.failed)
		ctl_tell("not all of what is on the GPU could be read: the maps are not complete");
	return lost || state.lost || follow->evaluator.graphs || follow->evaluator.unnamed ||
	       follow->gpu.unknown_starts || follow->gpu.failed;
}

/* END, and all maps. */
static int finish(struct follow *follow) {
	struct evaluator *evaluator = &follow->evaluator;
	const bool exited = evaluator->exited;

	if (follow->gpu.attached) {
		gpu_print(&follow->gpu, follow->options->rate, true);
		gpu_refresh(&follow->gpu);
	}
	evaluator->share = NULL;
	evaluator->refresh = NULL; /* what END prints is what was there then */
	evaluator->exited = false;
	evaluate_kind(evaluator, PROBE_END, monotonic_now());
	evaluator->exited |= exited;
	evaluate_print_all(evaluator);
	fflush(evaluator->show.out);
	if (follow->gpu.attached && !child_was_not_run(&follow->child))
		attached_tell_unprobed(follow->ctl, follow->session.pid ? 0 : follow->pid,
				       follow->gpu.seen);
	follow->lost = tell_lost(follow);
	if (evaluator->endless)
		return ctl_fail(CTL_ERROR, "%s:%d:%d: this while did not end after %d rounds",
				follow->script->name, evaluator->endless->place.line,
				evaluator->endless->place.column, SCRIPT_WHILE_MAX);
	return evaluator->failed ? ctl_fail(CTL_ERROR, "out of memory: the maps are not complete")
				 : CTL_OK;
}

/* Starts what is needed: the daemon, CMD that waits, probes, the trace. Returns the exit status. */
static int prepare(struct follow *follow) {
	const struct options *options = follow->options;
	const struct child_options child = { .ctl = follow->ctl,
					     .command = options->command,
					     .shim = true };
	const bool needs_daemon = follow->script->needs_gpu || follow->script->needs_trace;
	int r = CTL_OK;

	if (needs_daemon)
		r = session_open(&follow->session, follow->ctl, options->command,
				 options->require_verify);
	if (!r && follow->script->needs_gpu)
		session_tell_unverified(&follow->session);
	if (!r && options->command)
		r = child_start(&follow->child, &child);
	if (!r)
		r = watch_signals(follow);
	if (r)
		return r;
	evaluate_kind(&follow->evaluator, PROBE_BEGIN, monotonic_now());
	fflush(follow->evaluator.show.out);
	if (follow->script->needs_gpu && !follow->evaluator.exited)
		r = gpu_attach(&follow->gpu, follow->session.pid ? 0
					     : follow->child.pid ? follow->child.pid
								 : (pid_t)options->pid);
	if (follow->gpu.attached) {
		follow->evaluator.refresh = gpu_refresh;
		follow->evaluator.share = gpu_share;
		evaluate_share(&follow->evaluator); /* what BEGIN has set */
	}
	if (!r && follow->script->needs_trace && !follow->evaluator.exited)
		r = trace_begin(follow);
	return r;
}

/* CMD goes on after all is printed: what is sent to us goes on to it. */
static void wait_child(struct follow *follow) {
	struct pollfd signals = { .fd = follow->signals, .events = POLLIN };

	while (!child_ended(&follow->child, false)) {
		poll(&signals, 1, -1);
		take_signals(follow);
	}
}

static void close_all(struct follow *follow) {
	gpu_detach(&follow->gpu);
	varlink_client_free(follow->tracer.client);
	varlink_interface_free(follow->tracer.interface);
	json_object_put(follow->tracer.unanswered);
	follow->stream = trace_stream_free(follow->stream);
	records_deinit(&follow->records);
	evaluator_deinit(&follow->evaluator);
}

int follow(struct ctl *ctl, const struct options *options, const struct script *script, FILE *out) {
	struct follow *follow = calloc(1, sizeof(*follow));
	bool exited;
	int r, status;

	if (!follow)
		return ctl_fail(CTL_ERROR, "out of memory");
	*follow = (struct follow){ .options = options,
				   .script = script,
				   .ctl = ctl,
				   .session = { .log = -1, .verifies = true },
				   .child = { .go = -1 },
				   .signals = -1 };
	evaluator_init(&follow->evaluator, script);
	follow->evaluator.show = (struct show){ .out = out, .json = options->json };
	follow->evaluator.userdata = &follow->gpu;
	follow->gpu = (struct gpu){ .ctl = ctl, .script = script, .evaluator = &follow->evaluator };
	r = prepare(follow);
	follow->pid = follow->child.pid;
	if (!r)
		r = run(follow);
	else
		child_kill(&follow->child);
	if (!r || follow->started || follow->gpu.attached)
		r = finish(follow) ?: r;
	exited = follow->evaluator.exited;
	status = follow->evaluator.status;
	close_all(follow);
	if (follow->child.go >= 0)
		close(follow->child.go);
	if (follow->child.pid)
		wait_child(follow);
	session_close(&follow->session);
	if (follow->signals >= 0)
		close(follow->signals);
	signal(SIGPIPE, SIG_DFL);
	if (r)
		r = r == CTL_USAGE ? CTL_USAGE : CTL_ERROR;
	else if (options->strict && follow->lost)
		r = EXIT_LOST;
	else
		r = exited ? status : follow->child.status;
	free(follow);
	return r;
}
