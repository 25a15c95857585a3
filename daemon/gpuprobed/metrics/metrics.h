/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Metrics: what the daemon counts about itself (statistics.h), and the maps that users export
 * (map-export.h), as text. Large maps are read in steps, between other work.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/gpuprobed/attach/attach.h"
#include "daemon/gpuprobed/export/openmetrics.h"

#define METRICS_TEXT_MAX \
	((size_t)12 << 20) /* what does not fit is left out, export by export, and counted */
#define METRICS_REPLY_MAX                                                                      \
	((size_t)15 << 20) /* the same of a reply, with what JSON escapes, so that the message \
			      stays below 16 MiB */
#define METRICS_RUNS_MAX 8
#define METRICS_USER_RUNS_MAX 4 /* of these, of users who do not see all: scrapers find room */
#define METRICS_PERIOD_DEFAULT 10000
#define METRICS_SERIES_DEFAULT 10000
#define METRICS_SERIES_MAX 100000
#define METRICS_MODE_DEFAULT 0640

struct config;
struct loop_meter;
struct metrics;
struct metrics_run;
struct shim_server;
struct varlink_server;

struct metrics_counters {
	uint64_t log_lines; /* that were handed out */
	uint64_t written, failures; /* files of metrics */
};

/* What the files of this room share, and need of others: one of them, which daemon.c fills in. */
struct metrics_context {
	struct image_context *image;
	struct client_context *client;
	struct attach_context *attach;
	struct loop_meter *meter;
	struct shim_server *shims;
	struct varlink_server *control;
	int64_t started_boot; /* of CLOCK_BOOTTIME: nobody sets that */
	struct metrics *outputs;
	unsigned int runs, user_runs; /* all, and of these those of users who do not see all */
	struct metrics_counters counters;
};

/* Sees to what --metrics says. What cannot be served is logged, and no reason not to start. 0 or
 * -ENOMEM. */
int metrics_new(struct metrics **metricsp, struct metrics_context *context);
struct metrics *metrics_free(
	struct metrics *metrics); /* its memory goes once the loop has closed it */

/* What one reader gets. */
struct metrics_view {
	bool all; /* the exports and kernels of all users; else of this one */
	uid_t uid;
	bool json; /* the text goes into JSON: what that escapes counts */
	bool prometheus;
};

/* text: NULL without memory. A callee that takes it over sets it to {}. */
typedef void (*metrics_fn)(struct metrics_text *text, void *userdata);

/* Makes the text; done is called once, from the loop. 0, -EBUSY if METRICS_RUNS_MAX are at work, or
 * METRICS_USER_RUNS_MAX of users, -errno. */
int metrics_run_new(struct metrics_run **runp, struct metrics_context *context,
		    const struct metrics_view *view, metrics_fn done, void *userdata);
void metrics_run_cancel(struct metrics_run *run); /* done will not be called; NULL is fine */

/* Lines on what is wrong with an output, for Status. */
void metrics_each_trouble(const struct metrics *metrics,
			  void (*take)(const char *line, void *userdata), void *userdata);
