/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command status: prints how the daemon is. Its counters come as a list of named numbers,
 * because a newer daemon may have others. Each group gets a line. If a group is about several
 * things (pools of workers, sockets), each thing that has more than one number gets a line.
 */

#include <stdio.h>
#include <string.h>

#include "ctl/base/ctl.h"
#include "lib/json.h"

static const char help[] =
	"Usage: gpuprobectl status\n"
	"\n"
	"Shows the state of the daemon, what it has done since it started, and what it cannot do "
	"here.\n"
	"gpuprobectl metrics shows the same numbers for programs that collect such.\n";

/* A number in its unit. */
static void print_value(const char *unit, int64_t value) {
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double scaled = (double)value;
	size_t i = 0;

	if (!strcmp(unit, "microseconds")) {
		printf(value < 1000000 ? "%.1f ms" : "%.1f s",
		       value < 1000000 ? scaled / 1e3 : scaled / 1e6);
		return;
	}
	if (strcmp(unit, "bytes")) {
		printf("%lld", (long long)value);
		return;
	}
	for (; scaled >= 1024 && i + 1 < sizeof(units) / sizeof(*units); i++)
		scaled /= 1024;
	printf(i ? "%.1f %s" : "%.0f %s", scaled, units[i]);
}

static bool same(json_object *a, json_object *b, const char *key) {
	return !strcmp(ctl_string(a, key), ctl_string(b, key));
}

/* Whether it shares its line with others of the same thing, of several that the group is about. */
static bool has_line(json_object *statistics, json_object *statistic) {
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(statistics); i++) {
		json_object *other = json_object_array_get_idx(statistics, i);

		n += same(other, statistic, "group") && same(other, statistic, "of");
	}
	return *ctl_string(statistic, "of") && n > 1;
}

/* Whether two are on one line. */
static bool together(json_object *statistics, json_object *a, json_object *b) {
	if (!same(a, b, "group"))
		return false;
	return has_line(statistics, a) ? same(a, b, "of") : !has_line(statistics, b);
}

/* The line that begins with number `first`, unless it was shown with an earlier one. */
static void print_line(json_object *statistics, size_t first) {
	json_object *begin = json_object_array_get_idx(statistics, first);
	const char *between = "";
	char title[64];

	for (size_t i = 0; i < first; i++)
		if (together(statistics, json_object_array_get_idx(statistics, i), begin))
			return;
	snprintf(title, sizeof(title), "%s%s%s:", ctl_string(begin, "group"),
		 has_line(statistics, begin) ? " " : "",
		 has_line(statistics, begin) ? ctl_string(begin, "of") : "");
	printf("  %-21s", title);
	for (size_t i = first; i < json_object_array_length(statistics); i++) {
		json_object *statistic = json_object_array_get_idx(statistics, i);

		if (!together(statistics, begin, statistic))
			continue;
		fputs(between, stdout);
		for (const char *p = ctl_string(statistic, "name"); *p; p++)
			putchar(*p == '_' ? ' ' : *p);
		putchar(' ');
		if (*ctl_string(statistic, "of") && !has_line(statistics, statistic)) {
			ctl_print_text(ctl_string(statistic, "of"));
			putchar(' ');
		}
		print_value(ctl_string(statistic, "unit"), json_int_of(statistic, "value"));
		between = ", ";
	}
	putchar('\n');
}

static void print(const struct ctl *ctl, json_object *status) {
	json_object *missing = json_member(status, "missing"),
		    *statistics = json_member(status, "statistics");

	printf("gpuprobed %s, process %lld, %s daemon at %s\n", ctl_string(status, "version"),
	       (long long)json_int_of(status, "pid"), ctl_string(status, "mode"), ctl->path);
	printf("started: ");
	ctl_print_time(json_int_of(status, "started"));
	printf("\nverifier: %s\ncompiler: %s\nattachments: %lld\nmaps: %lld\n",
	       ctl_string(status, "verify"), ctl_string(status, "compiler"),
	       (long long)json_int_of(status, "attachments"),
	       (long long)json_int_of(status, "maps"));
	printf("now, and since the start:\n");
	for (size_t i = 0; i < json_object_array_length(statistics); i++)
		print_line(statistics, i);
	for (size_t i = 0; i < json_object_array_length(missing); i++) {
		printf("missing: ");
		ctl_print_text(json_object_get_string(json_object_array_get_idx(missing, i)));
		putchar('\n');
	}
}

int command_status(struct ctl *ctl, int argc, char **argv) {
	struct varlink_reply reply;
	int r;

	r = ctl_query(ctl, argc, argv, help, "Status", &reply);
	if (r >= 0)
		return r;
	print(ctl, reply.parameters);
	varlink_reply_deinit(&reply);
	return CTL_OK;
}
