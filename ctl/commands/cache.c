/* SPDX-License-Identifier: Apache-2.0 */

/* cache, cache list, cache clear: what the daemon keeps on the disk. */

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

static void print_entries(json_object *parameters) {
	static const char *const header[] = { "KEY", "JOB", "UID", "BYTES", "USED", "NAME", NULL };
	json_object *entries = json_member(parameters, "entries"), *rows = json_object_new_array();
	const int64_t shown = (int64_t)json_object_array_length(entries),
		      total = json_int_of(parameters, "total");

	for (size_t i = 0; i < json_object_array_length(entries); i++) {
		json_object *entry = json_object_array_get_idx(entries, i),
			    *row = json_object_new_array();
		const time_t used = (time_t)(json_int_of(entry, "used") / 1000000);
		char when[32] = "-";
		struct tm tm;

		if (used && localtime_r(&used, &tm))
			strftime(when, sizeof(when), "%F %T", &tm);
		json_append(row, ctl_format("%.16s", ctl_string(entry, "key")));
		json_append_string(row, ctl_string(entry, "job"));
		json_append(row, ctl_format("%lld", (long long)json_int_of(entry, "uid")));
		json_append(row, ctl_format("%lld", (long long)json_int_of(entry, "bytes")));
		json_append_string(row, when);
		json_append_string(row, ctl_string(entry, "name"));
		json_append(rows, row);
	}
	ctl_print_table(header, rows);
	json_object_put(rows);
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
		{ "status", status, CTL_TITLE "cache status" },
		{ "list", list, CTL_TITLE "cache list" },
		{ "clear", clear, CTL_TITLE "cache clear" },
	};

	if (ctl_first_argument(argc, argv) < argc)
		return ctl_verb(ctl, argc, argv, help, "cache", verbs,
				sizeof(verbs) / sizeof(*verbs));
	return status(ctl, argc, argv);
}
