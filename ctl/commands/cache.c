/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The commands cache, cache list and cache clear: they show and clear what the daemon keeps on the
 * disk. They call the daemon and touch no files themselves.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl cache [status | list | clear]\n"
	"\n"
	"What the daemon has compiled it keeps on the disk, so that the same is there at once, "
	"also after a restart. status (without a word, too) shows how\n"
	"much that is, and what it was good for since the daemon started; list shows the entries, "
	"those used last first; clear removes all of them: what is\n"
	"loaded stays as it is, and the next load is compiled.\n";

/* A number of bytes for a person. */
static void print_bytes(int64_t bytes) {
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	printf("%.*f %s", unit && value < 100, value, units[unit]);
}

static void print_status(json_object *status) {
	const int64_t skipped = json_int_of(status, "skipped"),
		      failures = json_int_of(status, "failures");

	if (!json_object_get_boolean(json_member(status, "enabled"))) {
		puts("no cache: this daemon keeps nothing on the disk (gpuprobed --cache-dir=DIR "
		     "--cache-size=BYTES)");
		return;
	}
	fputs("folder: ", stdout);
	ctl_print_text(ctl_string(status, "folder"));
	printf("\nentries: %" PRId64 ", ", json_int_of(status, "entries"));
	print_bytes(json_int_of(status, "bytes"));
	fputs(" of ", stdout);
	print_bytes(json_int_of(status, "limit"));
	printf("\nsince the start:\n  hits: %" PRId64 "\n  misses: %" PRId64 "\n  written: %" PRId64
	       "\n  gone to make room: %" PRId64 "\n",
	       json_int_of(status, "hits"), json_int_of(status, "misses"),
	       json_int_of(status, "stores"), json_int_of(status, "evicted"));
	if (skipped)
		printf("  not written, too much at once: %" PRId64 "\n", skipped);
	if (json_int_of(status, "invalid"))
		printf("  damaged, and removed: %" PRId64 "\n", json_int_of(status, "invalid"));
	if (failures)
		printf("  failures of the disk: %" PRId64 " (the daemon's log says which)\n",
		       failures);
}

static int status(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "CacheStatus", &reply);
	if (r >= 0)
		return r;
	print_status(reply.parameters);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

static json_object *key_text(json_object *entry, const char *key) {
	return ctl_format("%.16s", ctl_string(entry, key));
}

static json_object *time_text(json_object *entry, const char *key) {
	const time_t used = (time_t)(json_int_of(entry, key) / 1000000);
	char when[32] = "-";
	struct tm tm;

	if (used && localtime_r(&used, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	return json_object_new_string(when);
}

static void print_entries(json_object *parameters) {
	static const struct ctl_column columns[] = {
		{ "KEY", "key", key_text },
		{ "JOB", "job" },
		{ "UID", "uid" },
		{ "BYTES", "bytes" },
		{ "USED", "used", time_text },
		{ "NAME", "name" },
		{},
	};
	json_object *entries = json_member(parameters, "entries");
	const int64_t shown = (int64_t)json_object_array_length(entries),
		      total = json_int_of(parameters, "total");

	ctl_print_columns(columns, entries, INT64_MAX);
	if (shown < total)
		printf("%" PRId64 " more\n", total - shown);
}

static int list(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "ListCache", &reply);
	if (r >= 0)
		return r;
	print_entries(reply.parameters);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

static int clear(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "ClearCache", &reply);
	if (r >= 0)
		return r;
	printf("%" PRId64 " entries removed, ", json_int_of(reply.parameters, "removed"));
	print_bytes(json_int_of(reply.parameters, "bytes"));
	putchar('\n');
	varlink_reply_deinit(&reply);
	return CTL_OK;
}

int command_cache(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "status", status, .is_default = true },
		{ "list", list },
		{ "clear", clear },
		{},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
