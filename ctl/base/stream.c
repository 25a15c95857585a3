/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints records as they come, until the user presses Ctrl-C, which is a normal end. Signals come
 * through a descriptor and are handled between two replies, so only whole lines are printed. If the
 * reader of our output has stopped, there is no such moment: see stuck.c.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "lib/base/clock.h"
#include "lib/json.h"

#define AWAIT_MS 200
#define TELL_MS 1000 /* how often it says that records were lost */

struct stream {
	struct ctl *ctl;
	bool follow;
	int signals; /* a descriptor */
	int64_t lost, told; /* records; those that the user knows of */
	int64_t told_at; /* milliseconds */
};

static void tell_lost(struct stream *stream) {
	if (stream->lost == stream->told)
		return;
	ctl_fail(CTL_OK, "lost %lld records: the ring was full (attach with --ring-size)",
		 (long long)stream->lost);
	stream->told = stream->lost;
	stream->told_at = clock_ms(CLOCK_MONOTONIC);
}

/* Waits for a reply. CTL_OK: there is one; CTL_STREAM_ENOUGH: the user wants no more. */
static int stream_wait(struct stream *stream) {
	int r;

	for (;;) {
		int64_t left = stream->told_at + TELL_MS - clock_ms(CLOCK_MONOTONIC);
		bool untold = stream->follow && stream->lost != stream->told;

		if (untold && left <= 0) {
			tell_lost(stream);
			untold = false;
		}
		r = varlink_client_wait(stream->ctl->client, stream->signals,
					untold           ? (int)left
					: stream->follow ? -1
							 : CTL_TIMEOUT_MS);
		if (r == VARLINK_CLIENT_E_OTHER)
			return CTL_STREAM_ENOUGH;
		if (r == VARLINK_CLIENT_E_AGAIN && !stream->follow)
			return ctl_fail(CTL_UNREACHABLE, "%s: the daemon does not answer",
					stream->ctl->path);
		if (r != VARLINK_CLIENT_E_AGAIN)
			return CTL_OK; /* what is wrong, ctl_next() says */
	}
}

/* Waits until somebody listens, up to half a minute. CTL_STREAM_ENOUGH: the user wants no more;
 * CTL_UNREACHABLE: nobody does. */
static int stream_await(struct stream *stream) {
	const int64_t until = clock_ms(CLOCK_MONOTONIC) + CTL_TIMEOUT_MS;
	struct pollfd polled = { .fd = stream->signals, .events = POLLIN };

	ctl_fail(CTL_OK, "the daemon went away; waiting for the next");
	do
		if (ctl_connect_again(stream->ctl))
			return CTL_OK;
	while (poll(&polled, 1, AWAIT_MS) <= 0 && clock_ms(CLOCK_MONOTONIC) < until);
	return polled.revents ? CTL_STREAM_ENOUGH
			      : ctl_fail(CTL_UNREACHABLE, "%s: no daemon came", stream->ctl->path);
}

/* Blocks the signals that end us, unless a caller has, who does something about them. Returns a
 * descriptor for them, or -1. */
static int catch_signals(void) {
	sigset_t signals, before;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (!sigismember(&before, SIGTERM))
		ctl_end_if_stuck(&signals, NULL);
	return signalfd(-1, &signals, SFD_CLOEXEC);
}

int ctl_stream(struct ctl *ctl, const char *method, json_object *consume_parameters,
	       const char *subject, int (*take)(json_object *parameters, void *userdata),
	       void *userdata) {
	struct stream stream = { .ctl = ctl, .told_at = clock_ms(CLOCK_MONOTONIC) };
	struct varlink_reply reply = {};
	json_object *parameters;
	bool continues = true;
	int r, error;

	stream.follow = json_object_get_boolean(json_member(consume_parameters, "follow"));
	parameters = json_object_get(consume_parameters);
	r = ctl_call_more(ctl, method, consume_parameters);
	if (r) {
		json_object_put(parameters);
		return r;
	}
	ctl->quiet = ctl->quiet || stream.follow;
	stream.signals = catch_signals();
	if (stream.signals < 0) {
		json_object_put(parameters);
		return ctl_fail(CTL_ERROR, "%s", strerror(errno));
	}
	while (!r && continues) {
		r = stream_wait(&stream);
		if (!r)
			r = ctl_next(ctl, method, subject, &reply);
		if (r == CTL_UNREACHABLE && stream.follow) {
			r = stream_await(&stream);
			ctl->quiet = false; /* who hangs up at once is no next daemon */
			if (!r)
				r = ctl_call_more(ctl, method, json_object_get(parameters));
			ctl->quiet = true;
			if (!r)
				continue;
		}
		if (r)
			break;
		stream.lost = json_int_of(reply.parameters, "lost");
		if (stream.lost < stream.told) /* it is the sum of the rings that are there, and one
						  went, or of a new daemon's */
			stream.told = stream.lost;
		continues = reply.continues;
		r = take(reply.parameters, userdata);
		varlink_reply_deinit(&reply);
		/* what cannot be shown is not to be taken away; a reader who has gone away ends us,
		 * or is the caller's matter */
		error = ctl_flush();
		if (error && error != EPIPE && (r == CTL_OK || r == CTL_STREAM_ENOUGH))
			r = ctl_fail(CTL_ERROR, "cannot write the output: %s", strerror(error));
	}
	tell_lost(&stream);
	if (continues) /* nothing else can be called before the last reply */
		ctl->client = varlink_client_free(ctl->client);
	close(stream.signals);
	json_object_put(parameters);
	return r == CTL_STREAM_ENOUGH ? CTL_OK : r;
}
