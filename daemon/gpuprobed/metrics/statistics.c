/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The list of all that the daemon counts about itself (statistics.h). It reads the state of every
 * room and changes nothing.
 */

#include "metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "daemon/gpuprobed/base/loop-meter.h"
#include "daemon/gpuprobed/base/sigbus.h"
#include "statistics.h"
#include "daemon/gpuprobed/trace/session/session.h"
#include "lib/base/clock.h"
#include "lib/varlink/varlink-server.h"

struct list {
	void (*take)(const struct statistic *statistic, void *userdata);
	void *userdata;
};

const char *statistic_unit_name(enum statistic_unit unit) {
	return unit == STATISTIC_BYTES          ? "bytes"
	       : unit == STATISTIC_MICROSECONDS ? "microseconds"
						: "number";
}

#define TELL(GROUP, NAME, COUNTS, VALUE, HELP, ...)       \
	list->take(&(struct statistic){ .group = GROUP,   \
					.name = NAME,     \
					.counts = COUNTS, \
					.value = VALUE,   \
					.help = HELP,     \
					__VA_ARGS__ },    \
		   list->userdata)
#define COUNTER(group, name, value, help, ...) TELL(group, name, true, value, help, __VA_ARGS__)
#define GAUGE(group, name, value, help, ...) TELL(group, name, false, value, help, __VA_ARGS__)

/* Resident memory, bytes. */
static uint64_t own_memory(void) {
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;

	if (file && fscanf(file, "%*u %llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t own_descriptors(void) {
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint64_t n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n ? n - 1 : 0; /* without this one */
}

static void tell_daemon(const struct metrics_context *context, struct list *list) {
	struct rlimit limit = {};
	struct rusage usage = {};

	getrlimit(RLIMIT_NOFILE, &limit);
	getrusage(RUSAGE_SELF, &usage);
	GAUGE("daemon", "uptime", (uint64_t)(clock_us(CLOCK_BOOTTIME) - context->started_boot),
	      "Time since the daemon started.", .unit = STATISTIC_MICROSECONDS);
	COUNTER("daemon", "cpu",
		(uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			(uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
		"Processor time of the daemon, without its workers.",
		.unit = STATISTIC_MICROSECONDS);
	GAUGE("daemon", "memory", own_memory(),
	      "Resident memory of the daemon (RSS), without its workers.", .unit = STATISTIC_BYTES);
	COUNTER("daemon", "bus_errors", sigbus_pages(),
		"Pages of memory of processes that were not there when they were read.");
	GAUGE("daemon", "descriptors", own_descriptors(),
	      "File descriptors that the daemon has open.");
	GAUGE("daemon", "descriptors_limit", limit.rlim_cur,
	      "File descriptors that it can have open.");
	GAUGE("loop", "longest_turn", loop_meter_longest(context->meter),
	      "Longest turn of the loop in the last minute: so long others waited.",
	      .unit = STATISTIC_MICROSECONDS);
	COUNTER("loop", "turns", loop_meter_turns(context->meter), "Turns of the loop.");
}

static void tell_images(const struct metrics_context *context, struct list *list) {
	const struct image_counters *counters = &context->image->counters;

	COUNTER("images", "received", counters->images, "Module images that processes sent.");
	COUNTER("images", "made", counters->images_made,
		"Images that were answered with a twin or a plan.");
	COUNTER("images", "own", counters->images_own,
		"Images whose process was told to launch its own kernels.");
	COUNTER("images", "from_memory", counters->images_cached,
		"Images that were answered from the daemon's memory.");
}

static void tell_cache(const struct metrics_context *context, struct list *list) {
	struct cache_counters counters;

	cache_counters(context->image->cache, &counters);
	COUNTER("cache", "hits", counters.hits,
		"Jobs that no worker had to do: what comes of them was on the disk.");
	COUNTER("cache", "misses", counters.misses, "Jobs that were not on the disk.");
	COUNTER("cache", "invalid", counters.invalid, "Files of the cache that were no good.");
	COUNTER("cache", "stores", counters.stores, "Entries that were written.");
	COUNTER("cache", "skipped", counters.skipped,
		"Entries that were not written, because too much waited to be.");
	COUNTER("cache", "failures", counters.failures, "Errors of the disk, reading or writing.");
	COUNTER("cache", "evicted", counters.evicted, "Entries that went to make room.");
	GAUGE("cache", "entries", counters.entries,
	      "Entries on the disk, when that was looked at last.");
	GAUGE("cache", "size", counters.bytes, "What they take.", .unit = STATISTIC_BYTES);
	GAUGE("cache", "limit", counters.limit, "What they may take.", .unit = STATISTIC_BYTES);
}

static void tell_workers(const struct metrics_context *context, struct list *list) {
	const struct {
		const char *name;
		const struct worker_pool *pool;
	} pools[] = { { "image", context->image->image_pool },
		      { "program", context->attach->program_pool },
		      { "pass", context->image->pass_pool } };
	static const struct {
		const char *name, *help;
		size_t counter;
	} counters[] = {
		{ "jobs", "Jobs that were given to workers.",
		  offsetof(struct worker_pool_counters, jobs) },
		{ "started", "Worker processes that were started.",
		  offsetof(struct worker_pool_counters, spawned) },
		{ "crashes", "Workers that ended by themselves.",
		  offsetof(struct worker_pool_counters, crashes) },
		{ "timeouts", "Workers that were ended because they were late.",
		  offsetof(struct worker_pool_counters, timeouts) },
		{ "busy", "Jobs for which no worker was free in time.",
		  offsetof(struct worker_pool_counters, busy) },
	};
	static const char *const now_help[] = { "Workers alive.", "Workers that work.",
						"Jobs that wait for a worker." };
	static const char *const now_names[] = { "alive", "working", "waiting" };
	const size_t n = sizeof(pools) / sizeof(pools[0]);

	for (size_t j = 0; j < sizeof(counters) / sizeof(counters[0]); j++)
		for (size_t i = 0; i < n; i++)
			if (pools[i].pool)
				COUNTER("workers", counters[j].name,
					*(const uint64_t *)((const char *)worker_pool_counters(
								    pools[i].pool) +
							    counters[j].counter),
					counters[j].help, .label = "pool", .of = pools[i].name);
	for (size_t j = 0; j < sizeof(now_names) / sizeof(now_names[0]); j++)
		for (size_t i = 0; i < n; i++)
			if (pools[i].pool) {
				struct worker_pool_load load = worker_pool_load(pools[i].pool);

				GAUGE("workers", now_names[j],
				      j == 0   ? load.alive
				      : j == 1 ? load.working
					       : load.queued,
				      now_help[j], .label = "pool", .of = pools[i].name);
			}
}

static void tell_error(const char *name, uint64_t n, void *userdata) {
	struct list *list = userdata;

	COUNTER("requests", "refused", n,
		"Calls of the control interface that were answered with an error.",
		.label = "error", .of = name);
}

static void tell_connections(const struct metrics_context *context, struct list *list) {
	const struct varlink_server_counters *control = varlink_server_counters(context->control);
	const struct shim_server_counters *shim = shim_server_counters(context->shims);

	GAUGE("connections", "open", varlink_server_connections(context->control),
	      "Connections now.", .label = "socket", .of = "control");
	GAUGE("connections", "open", shim_server_connections(context->shims), "Connections now.",
	      .label = "socket", .of = "shim");
	COUNTER("connections", "accepted", control->connections, "Connections that were served.",
		.label = "socket", .of = "control");
	COUNTER("connections", "accepted", shim->connections, "Connections that were served.",
		.label = "socket", .of = "shim");
	COUNTER("connections", "refused", control->refused, "Connections over a limit.",
		.label = "socket", .of = "control");
	COUNTER("connections", "refused", shim->refused, "Connections over a limit.",
		.label = "socket", .of = "shim");
	COUNTER("connections", "other_versions", shim->other_versions,
		"Greetings of shims of another version of the protocol.");
	COUNTER("connections", "exhausted", control->exhausted,
		"Connections for which there was no descriptor.", .label = "socket",
		.of = "control");
	COUNTER("connections", "exhausted", shim->exhausted,
		"Connections for which there was no descriptor.", .label = "socket", .of = "shim");
	COUNTER("connections", "breaches", shim->breaches,
		"Peers of the shim socket that were thrown out for what they sent.");
	COUNTER("requests", "control", control->calls, "Calls of the control interface.");
	COUNTER("requests", "shim", shim->messages, "Messages of processes.");
	varlink_server_each_error(context->control, tell_error, list);
	COUNTER("quotas", "hit", context->attach->accounts->refused_connections,
		"What a user was refused by a limit for him.", .label = "of", .of = "connections");
	COUNTER("quotas", "hit", context->attach->accounts->refused_images,
		"What a user was refused by a limit for him.", .label = "of", .of = "images");
	COUNTER("quotas", "hit", map_accounts_refused(context->client->map_accounts),
		"What a user was refused by a limit for him.", .label = "of", .of = "map_bytes");
}

static void tell_maps(const struct metrics_context *context, struct list *list) {
	uint64_t maps = 0, bytes = 0, written = context->image->registry->ring_written,
		 lost = context->image->registry->ring_lost, n_objects = 0;
	struct registry_place place = {};
	const struct object *object;
	const struct map *map;

	TAILQ_FOREACH(object, &context->image->registry->objects, link)
		n_objects++;
	for (; (map = registry_next_map(context->image->registry, &place)); maps++) {
		bytes += map_bytes(map);
		written += map_written(map);
		lost += map_lost(map);
	}
	GAUGE("attachments", "active", context->image->registry->n_attachments, "Attachments.");
	GAUGE("attachments", "objects", n_objects, "Objects that they are of.");
	GAUGE("maps", "active", maps, "Maps of attached objects.");
	GAUGE("maps", "memory", bytes, "Host memory of their instances.", .unit = STATISTIC_BYTES);
	GAUGE("maps", "exported", context->attach->exports->n,
	      "Maps that are exported as metrics.");
	COUNTER("metrics", "written", context->counters.written,
		"Times that a file of metrics was written.");
	COUNTER("metrics", "failures", context->counters.failures,
		"Times that it could not be written.");
	/* processes count these: if they lie for long enough, they begin anew, and do not stay at
	 * the end of what a number can be */
	COUNTER("rings", "written", written & INT64_MAX,
		"Records that programs wrote to rings, logs included.");
	COUNTER("rings", "lost", lost & INT64_MAX, "Records that found no room there.");
	COUNTER("logs", "lines", context->counters.log_lines,
		"Lines of programs that were handed to readers.");
}

void statistics_each(const struct metrics_context *context,
		     void (*take)(const struct statistic *statistic, void *userdata),
		     void *userdata) {
	struct list own = { take, userdata }, *list = &own;
	struct trace_counters traces = trace_table_counters(context->client->traces);

	tell_daemon(context, list);
	GAUGE("processes", "active", context->image->processes->n,
	      "CUDA processes that are connected.");
	COUNTER("processes", "seen", context->image->processes->total,
		"CUDA processes that were connected so far.");
	tell_images(context, list);
	tell_cache(context, list);
	tell_workers(context, list);
	tell_maps(context, list);
	GAUGE("traces", "sessions", traces.sessions, "Traces that run.");
	GAUGE("traces", "processes", traces.processes,
	      "Processes that write to a ring of a trace.");
	COUNTER("traces", "records", traces.records, "Records of traces.");
	COUNTER("traces", "lost", traces.lost, "Records of traces that found no room.");
	tell_connections(context, list);
}
