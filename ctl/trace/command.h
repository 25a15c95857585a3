/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of `gpuprobectl trace` share. */

#include <json-c/json.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "ctl/base/ctl.h"
#include "ctl/trace/base/item.h"

#define TRACE_PROFILES_MAX 8

struct trace_command {
	struct ctl *ctl;
	json_object *parameters; /* of Trace */
	const struct ctl_command_line *line; /* while it is read; a profile is more of it */
	char **command; /* CMD and its arguments, or NULL */
	const char *output; /* -o, or NULL */
	bool save; /* --save */
	const char *format_name; /* --format, or NULL */
	const struct trace_format *format; /* NULL: raw */
	bool table; /* -c */
	bool histograms, summary, discover, gpu, cupti, ctxsw;
	uint64_t interval, min_duration; /* nanoseconds; 0: none */
	bool errors;
	bool aggregate; /* set by trace_live(): the daemon counts */
	size_t n_profiles;
	char *profiles[TRACE_PROFILES_MAX]; /* their texts, which options point into */
	bool test; /* of a hook: nothing is written, and without a CMD the first event is the end */
	bool test_processes; /* what is counted is beginnings and ends of processes */
	bool tested; /* set by trace_live(): it came to that, and there were so many */
	uint64_t hits;
};

/* Whether a source was asked for; none is named: `unnamed`. */
bool trace_has_source(const struct trace_command *trace, const char *name, bool unnamed);

/* options.c: reads the command line. Returns -1 to go on, or the exit status. */
int trace_options(struct trace_command *trace, int argc, char **argv);

/* profile.c: takes the options of a profile; each by take, which returns -1 to go on, the exit
 * status, or TRACE_PROFILE_E_OPTION. */
#define TRACE_PROFILE_E_OPTION (-2)
typedef int (*trace_profile_option_fn)(struct trace_command *trace, const char *name,
				       const char *value);
int trace_profile(struct trace_command *trace, const char *name, trace_profile_option_fn take);

/* target.c: where the trace goes. */
struct trace_target {
	FILE *file;
	const char *path; /* NULL: no file of ours */
	bool lines; /* for people, as it comes */
	bool regular; /* a file on a disk, that can be written again */
	const char *end; /* what the format has behind the last event, or NULL */
	bool ended; /* the writer has put it there */
	off_t written; /* bytes of whole events in a regular file */
	int error; /* errno of the first write that failed; 0: none did */
	bool begun; /* there is a trace */
	bool created; /* the file was not there before */
	char *buffer; /* of file; NULL: its own */
	char *memory; /* of path */
	char *link, *link_to; /* trace_latest, made when all of a complete trace is written; NULL:
				 none */
};
int trace_target_open(struct trace_target *target, struct trace_command *trace);
/* The trace begins: what was in the file goes. 0 or negative errno. */
int trace_target_begin(struct trace_target *target);
/* An event was written: a file gets whole ones only. */
void trace_target_wrote(struct trace_target *target);
/* Writes what there is, so that what kills us leaves a file that can be read. False: it could not
 * be written, now or before. */
bool trace_target_flush(struct trace_target *target);
/* Says what could not be written, but not that a reader of ours has gone away (*hung_upp). Returns
 * the exit status. */
int trace_target_close(struct trace_target *target, bool complete, bool *hung_upp);

/*
 * reply.c: what the daemon's replies to Trace bring, for trace_live() and for gputrace.
 * Each returns the exit status.
 */
/* What the stream of records said. */
int trace_stream_result(int r);
/* What was asked for and is not there, from the beginning on or since now. Returns whether there
 * was something. */
bool trace_reply_misses(json_object *reply);
void trace_reply_tell_missing(json_object *reply);

/* sink.c: items to a writer and to statistics. */
struct trace_sink;
int trace_sink_new(struct trace_sink **sinkp, const struct trace_command *trace,
		   struct trace_target *target, FILE *told);
struct trace_sink *trace_sink_free(struct trace_sink *sink);
int trace_sink_begin(const struct trace_about *about, void *sink);
int trace_sink_item(const struct trace_item *item, void *sink);
bool trace_sink_needs_items(const struct trace_sink *sink);
/* What --interval prints. */
int trace_sink_interval(struct trace_sink *sink);
/* Finishes the output, of a trace that came to its end or was cut off, and prints the statistics
 * that were asked for. */
int trace_sink_finish(struct trace_sink *sink, bool complete);

/* live.c: asks the daemon, and goes on until the end. Returns the exit status. */
int trace_live(struct trace_command *trace);
