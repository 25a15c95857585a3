/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A trace while it runs: replies of the daemon become records, records become items, items become
 * output.
 *
 * It ends with the daemon's last reply (CMD or all processes have ended, or the duration is over),
 * or by a signal. After a signal it still waits for what happened until then, a fraction of a
 * second. Signals and the end of CMD come through a descriptor and are handled between two replies.
 * A traced program goes on running, whatever happens here.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "ctl/base/records.h"
#include "ctl/rm/driver.h"
#include "command.h"
#include "ctl/session/session.h"
#include "ctl/trace/read/stream.h"
#include "lib/json.h"
#include "watch.h"

#define WINDOW_LINES \
	UINT64_C(300000000) /* nanoseconds that records wait for older ones: somebody watches */
#define WINDOW_FILE \
	UINT64_C(800000000) /* and less than a second old is what SIGKILL takes from a file */
#define MEMORY ((size_t)128 << 20)
#define TICK_MS 100
#define CUPTI_LATE UINT64_C(200000000) /* so long after a kernel it is told at the latest */
#define STOP_MS 500 /* after a signal: for the records until then */
#define CHILD_MS 3000 /* after the end of CMD: for the end of the trace */
#define WATCH_START_MS 5000 /* a GPU that sleeps is woken: CMD waits for that */
#define WATCH_STOP_MS 1000
#define ENOUGH (-1)

struct live {
	struct trace_command *trace;
	struct child child;
	struct trace_target target;
	struct trace_sink *sink;
	struct trace_stream *stream;
	struct records records;
	struct trace_watch *watch; /* NULL: none */
	int signals; /* a descriptor */
	bool started; /* the first reply has come */
	bool complete; /* the trace came to its end */
	bool interrupted; /* by a signal, once */
	uint64_t began, stop_at, stop_by; /* nanoseconds; 0: not yet */
	uint64_t interval_at, told_at, replied_at;
	bool told; /* a line of progress is on the terminal */
	bool unwatched; /* the driver did not tell all that was asked for */
};

/* ---- progress ---- */

static void tell(struct live *live, const char *end) {
	struct trace_stream_state state;
	char unknown[64] = "";

	trace_stream_state(live->stream, &state);
	if (state.unknown_ends)
		snprintf(unknown, sizeof(unknown), ", %" PRIu64 " launch%s whose end is unknown",
			 state.unknown_ends, state.unknown_ends == 1 ? "" : "es");
	fprintf(stderr, "%s%" PRIu64 " events, %" PRIu64 " lost%s, %.1f s, %s%s",
		live->told ? "\r" : "", state.events, state.lost, unknown,
		(double)(monotonic_now() - live->began) / 1e9, live->target.path, end);
	live->told = true;
}

/* ---- what the driver tells by itself ---- */

static void tell_lines(char *lines) {
	char *line;

	while ((line = strsep(&lines, "\n")))
		if (*line)
			ctl_tell("not traced: %s", line);
}

/* Puts its records behind those of the daemon that are there in full. Returns the exit status. */
static int take_watch(struct live *live) {
	char *lines = NULL;
	void *bytes = NULL;
	size_t n = 0;
	int r;

	if (!live->watch || trace_stream_cut(live->stream))
		return CTL_OK;
	r = trace_watch_take(live->watch, &bytes, &n, &lines);
	live->unwatched = live->unwatched || lines;
	if (lines)
		tell_lines(lines);
	if (!r && n)
		r = trace_stream_feed(live->stream, bytes, n);
	if (!r && n && !live->trace->format) {
		fwrite(bytes, 1, n, live->target.file);
		trace_target_wrote(&live->target);
	}
	free(bytes);
	free(lines);
	return trace_stream_result(r);
}

static int stop_watch(struct live *live) {
	int r;

	if (!live->watch)
		return CTL_OK;
	trace_watch_stop(live->watch, WATCH_STOP_MS);
	r = take_watch(live);
	live->watch = trace_watch_free(live->watch);
	return r;
}

/* Nanoseconds that records wait for older ones. */
static uint64_t window(const struct live *live) {
	return live->target.lines ? WINDOW_LINES : WINDOW_FILE;
}

/* What is to be done from time to time. */
static int tick(struct live *live) {
	const uint64_t now = monotonic_now();
	int r;

	if (!live->started)
		return CTL_OK;
	r = take_watch(live);
	if (r)
		return r;
	if (now >= live->replied_at + window(live)) /* nothing comes: what waits goes */
		r = trace_stream_finish(live->stream);
	if (!r && live->trace->interval && now >= live->interval_at) {
		live->interval_at = now + live->trace->interval;
		r = trace_sink_interval(live->sink);
	}
	if (live->target.path && isatty(STDERR_FILENO) && now >= live->told_at) {
		live->told_at = now + 1000000000;
		tell(live, "");
	}
	if (!trace_target_flush(&live->target) && !r)
		return ENOUGH; /* trace_target_close() says why */
	return trace_stream_result(r);
}

/* ---- signals ---- */

static void stop_soon(struct live *live, uint64_t milliseconds) {
	live->stop_at = monotonic_now();
	live->stop_by = live->stop_at + milliseconds * 1000000;
	if (live->trace->cupti)
		live->stop_at += CUPTI_LATE;
}

/*
 * A Ctrl-C reaches CMD by the terminal; what was sent to us alone goes on to it. It decides what a
 * signal means; the second one ends the trace.
 */
static int take_signal(struct live *live, const struct signalfd_siginfo *signal) {
	if (signal->ssi_signo == SIGCHLD) {
		if (live->child.pid && child_ended(&live->child, false))
			stop_soon(live, CHILD_MS);
		return CTL_OK;
	}
	if (live->child.pid && live->started) {
		if (signal->ssi_code <= 0)
			kill(live->child.pid, (int)signal->ssi_signo);
		if (!live->interrupted) {
			live->interrupted = true;
			return CTL_OK;
		}
	}
	if (!live->started)
		return 128 + (int)signal->ssi_signo;
	if (!live->stop_by)
		stop_soon(live, STOP_MS);
	return CTL_OK;
}

static int take_signals(struct live *live) {
	struct signalfd_siginfo signal;
	int r = CTL_OK;

	while (!r && read(live->signals, &signal, sizeof(signal)) == sizeof(signal))
		r = take_signal(live, &signal);
	return r;
}

/* The trace is over, CMD is not: what is sent to us still goes on to it. */
static void wait_child(struct live *live) {
	struct pollfd signals = { .fd = live->signals, .events = POLLIN };

	while (!child_ended(&live->child, false)) {
		poll(&signals, 1, -1);
		take_signals(live);
	}
}

/* Of the hook that is tested. */
static uint64_t hits(const struct live *live, const struct trace_stream_state *state) {
	return live->trace->test_processes ? state->processes : state->events;
}

/* Waits for a reply. Returns CTL_OK: there is one; ENOUGH; or an exit status. */
static int wait_reply(struct live *live) {
	int r;

	for (;;) {
		struct trace_stream_state state;

		trace_stream_state(live->stream, &state);
		if (live->trace->test && hits(live, &state) && !live->trace->command)
			return ENOUGH;
		if (live->stop_by && monotonic_now() >= live->stop_by && live->trace->command &&
		    !live->child.pid)
			return ctl_fail(
				CTL_UNREACHABLE,
				"the daemon does not end the trace: what happened last is missing");
		if (live->stop_by && (monotonic_now() >= live->stop_by ||
				      (!live->trace->command && !live->trace->aggregate &&
				       state.newest > live->stop_at)))
			return ENOUGH;
		r = varlink_client_wait(live->trace->ctl->client, live->signals, TICK_MS);
		if (r == VARLINK_CLIENT_E_OTHER)
			r = take_signals(live);
		else if (r == VARLINK_CLIENT_E_AGAIN)
			r = tick(live);
		else
			return CTL_OK; /* what is wrong, ctl_next() says */
		if (r)
			return r;
	}
}

/* ---- replies ---- */

static void tell_missing(struct live *live, json_object *parameters) {
	if (live->told &&
	    trace_reply_misses(parameters)) { /* behind what is told of the progress */
		fputc('\n', stderr);
		live->told = false;
	}
	trace_reply_tell_missing(parameters);
}

/* The first reply has come: it is on. */
static void start(struct live *live) {
	if (live->watch && live->trace->ctxsw)
		trace_watch_wait(live->watch, WATCH_START_MS);
	trace_target_flush(&live->target); /* whoever waits for the file's beginning knows that
					      programs are traced now */
	live->started = true;
	if (live->child.pid)
		child_go(&live->child);
}

static int take_reply(struct live *live, json_object *parameters, bool last) {
	const unsigned char *data;
	size_t n_data;
	int r;

	r = records_take(&live->records, live->trace->ctl, parameters, "records", &data, &n_data);
	if (r)
		return r;
	live->replied_at = monotonic_now();
	/* behind its end there is nothing any more */
	r = live->started && (last || trace_stream_ends(data, n_data)) ? stop_watch(live) : CTL_OK;
	if (r)
		return r;
	r = trace_stream_feed(live->stream, data, n_data);
	if (!live->trace->format && live->target.begun) {
		fwrite(data, 1, n_data, live->target.file);
		trace_target_wrote(&live->target);
	}
	records_done(&live->records);
	tell_missing(live, parameters);
	if (!live->started)
		start(live);
	if (!r && !live->target.path)
		trace_target_flush(&live->target);
	if (live->target.error)
		return ENOUGH; /* trace_target_close() says why */
	return trace_stream_result(r);
}

/* A file in our own form ends as it should, though the daemon was not asked for the end. */
static void end_raw(struct live *live) {
	struct trace_stop stop = { .record = { .size = sizeof(stop), .type = TRACE_STOP },
				   .time = monotonic_now() };
	struct trace_stream_state state;

	trace_stream_state(live->stream, &state);
	if (state.stopped || !state.started || trace_stream_cut(live->stream))
		return;
	stop.records = state.records;
	stop.lost = state.lost;
	fwrite(&stop, 1, sizeof(stop), live->target.file);
}

static int read_replies(struct live *live) {
	struct varlink_reply reply;
	bool continues = true;
	uint64_t tick_at = 0;
	int r = CTL_OK;

	while (!r && continues) {
		r = wait_reply(live);
		if (!r)
			r = ctl_next(live->trace->ctl, "Trace", "", &reply);
		if (r)
			break;
		continues = reply.continues;
		r = take_reply(live, reply.parameters, !continues);
		if ((!r || r == ENOUGH) && !continues && json_member(reply.parameters, "notice"))
			r = ctl_fail(CTL_UNREACHABLE, "the trace ends here: %s",
				     ctl_string(reply.parameters, "notice"));
		varlink_reply_deinit(&reply);
		if (!r && monotonic_now() >= tick_at) {
			r = tick(live);
			tick_at = monotonic_now() + TICK_MS * UINT64_C(1000000);
		}
	}
	return r == ENOUGH ? CTL_OK : r;
}

/* With everything open. Returns the exit status. */
static int run(struct live *live) {
	struct trace_stream_state state;
	int r, written;

	if (live->trace->command) {
		json_object *pids = json_object_new_array();

		json_append_int(pids, live->child.pid);
		json_add(live->trace->parameters, "pids", pids);
	}
	json_add_bool(live->trace->parameters, "descriptor", true);
	live->began = monotonic_now();
	live->interval_at = live->began + live->trace->interval;
	live->told_at = live->began + 1000000000;
	r = ctl_call_more(live->trace->ctl, "Trace", json_object_get(live->trace->parameters));
	if (!r)
		r = read_replies(live);
	if (!live->started)
		return r;
	r = r ?: stop_watch(live);
	written = trace_stream_finish(live->stream);
	trace_stream_state(live->stream, &state);
	live->complete = !written && (state.stopped || !r);
	if (!live->trace->format && live->complete)
		end_raw(live);
	written = written ?: trace_sink_finish(live->sink, live->complete);
	return r ?: trace_stream_result(written);
}

/* Signals that end us come through a descriptor. Returns the exit status. */
static int watch_signals(struct live *live) {
	sigset_t ending;

	live->signals = session_signals(&ending, true);
	sigdelset(&ending,
		  SIGINT); /* which a pager at the same terminal gets, too, and reads on later */
	if (live->target.lines && !live->trace->command) /* which would not hear of it */
		ctl_end_if_stuck(&ending, NULL);
	return live->signals < 0 ? ctl_fail(CTL_ERROR, "%s", strerror(errno)) : CTL_OK;
}

static int open_nothing(struct live *live) {
	live->target.file = fopen("/dev/null", "we");
	return live->target.file ? CTL_OK : ctl_fail(CTL_ERROR, "/dev/null: %s", strerror(errno));
}

static int open_all(struct live *live) {
	struct trace_command *trace = live->trace;
	struct trace_order_options order = { .memory = MEMORY,
					     .min_duration = trace->min_duration,
					     .errors = trace->errors,
					     .gpu = trace->gpu,
					     .counts = true };
	bool for_people;
	int r;

	r = trace->test ? open_nothing(live) : trace_target_open(&live->target, trace);
	if (!r && !trace->test && !trace->format && live->target.lines &&
	    isatty(fileno(live->target.file)))
		r = ctl_usage("--format=raw is not for a terminal: -o FILE");
	if (r)
		return r;
	/* only sums are wanted: calls are counted where they happen, unless something depends on
	 * single ones */
	if (trace->format == &trace_format_table && !trace->gpu && !trace->discover &&
	    !trace->test && !json_member(trace->parameters, "rate")) {
		trace->aggregate = true;
		json_add_bool(trace->parameters, "aggregate", true);
	}
	for_people = trace->format == &trace_format_text || trace->format == &trace_format_table;
	r = trace_sink_new(&live->sink, trace, &live->target,
			   live->target.file == stdout && for_people ? stdout : stderr);
	if (!r) {
		order.window = window(live);
		order.take = trace_sink_needs_items(live->sink) ? trace_sink_item : NULL;
		order.userdata = live->sink;
		r = trace_stream_new(&live->stream, &order, trace_sink_begin);
	}
	return r ? ctl_fail(CTL_ERROR, "%s", strerror(-r)) : CTL_OK;
}

/* Whether calls of CMD or of certain processes were to be seen by the shim alone, and none was. */
static bool saw_no_call(const struct live *live, const struct trace_stream_state *state) {
	return (live->trace->command || json_member(live->trace->parameters, "pids")) &&
	       trace_has_source(live->trace, "shim", true) &&
	       !trace_has_source(live->trace, "bpf", true) && !state->calls && live->complete &&
	       !live->target.error;
}

/* What there is to say at the end: of a trace to a file, one line. */
static void tell_end(struct live *live) {
	struct trace_stream_state state;

	if (!live->stream || !live->started)
		return;
	trace_stream_state(live->stream, &state);
	live->trace->tested = true;
	live->trace->hits = hits(live, &state);
	if (live->trace->test)
		return;
	if (live->target.path)
		tell(live, "\n");
	else if (state.lost)
		ctl_tell("lost %" PRIu64 " events", state.lost);
	if (!live->target.path && state.unknown_ends)
		ctl_tell("%" PRIu64 " launch%s whose end is unknown", state.unknown_ends,
			 state.unknown_ends == 1 ? "" : "es");
	if (saw_no_call(live, &state) && !child_failed(&live->child))
		ctl_tell("no call was traced; if some were made, then by processes without the "
			 "shim, such as with a cleaned environment or another user: --backend=bpf "
			 "sees those");
	if (live->trace->ctxsw && !state.contexts && !live->unwatched)
		ctl_tell("there was no context switch: a process that has a GPU for itself makes "
			 "none");
	if (state.damaged)
		ctl_tell("passed over %" PRIu64 " records that make no sense", state.damaged);
}

/* Clocks of GPUs belong to their times. Who has no GPU hears of it only if context switches were
 * asked for. */
static bool wants_watch(const struct trace_command *trace) {
	return !trace->test &&
	       (trace->ctxsw || (trace->gpu && access("/dev/nvidiactl", F_OK) == 0));
}

int trace_live(struct trace_command *trace) {
	struct live live = { .trace = trace, .child = { .go = -1 }, .signals = -1 };
	const struct child_options child = { .ctl = trace->ctl,
					     .command = trace->command,
					     .shim = trace_has_source(trace, "shim", true),
					     .other = "gpuprobectl trace report" };
	bool hung_up = false;
	int r, closed;

	r = open_all(&live);
	if (!r && trace->command)
		r = child_start(&live.child, &child);
	if (!r)
		r = watch_signals(&live);
	if (!r && wants_watch(trace) &&
	    trace_watch_new(&live.watch, &rm_driver_kernel, trace->ctxsw))
		r = ctl_fail(CTL_ERROR, "out of memory");
	if (!r) {
		signal(SIGPIPE, SIG_IGN); /* CMD may be gone before it was let go */
		signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is said to be too large */
		r = run(&live);
	}
	if (!live.started)
		child_kill(&live.child);
	tell_end(&live);
	live.watch = trace_watch_free(live.watch);
	live.stream = trace_stream_free(live.stream);
	records_deinit(&live.records);
	live.sink = trace_sink_free(live.sink);
	closed = trace_target_close(&live.target, live.complete, &hung_up);
	signal(SIGPIPE, SIG_DFL);
	if (hung_up && !trace->command)
		raise(SIGPIPE); /* `| head` */
	if (live.started)
		wait_child(&live);
	if (live.child.go >= 0)
		close(live.child.go);
	if (live.signals >= 0)
		close(live.signals);
	return live.started && live.child.status ? live.child.status : r ?: closed;
}
