/* SPDX-License-Identifier: Apache-2.0 */

/* Prints the log and the maps of an object (results.h). */

#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "proto/log-record.h"
#include "results.h"

static int print_ring(struct ctl *ctl, json_object *map, const char *id) {
	json_object *about;
	int r;

	if (!ctl->json)
		return ctl_read_ring(ctl, id, false);
	about = json_object_get(map);
	fputs("{\"map\":", stdout);
	ctl_put_json(ctl, about);
	fputs(",\"records\":[", stdout);
	r = ctl_read_ring(ctl, id, true);
	fputs("]}", stdout);
	json_object_put(about);
	return r;
}

static bool is_ring(json_object *map) {
	return !strcmp(ctl_string(map, "kind"), "ring");
}

/* Whether it is to be shown; the lines of the log are printed already. */
static bool is_shown(json_object *map, const struct results *results) {
	const char *name = ctl_string(map, "name");

	return strncmp(name, ".rodata", strlen(".rodata")) && strcmp(name, LOG_MAP_NAME) &&
	       (results->rings || !is_ring(map));
}

static int print_map(struct ctl *ctl, json_object *map, bool nonzero) {
	char id[24];

	snprintf(id, sizeof(id), "%lld", (long long)json_int_of(map, "id"));
	if (!ctl->json) {
		ctl_print_text(ctl_string(map, "name"));
		puts(":");
	}
	return is_ring(map) ? print_ring(ctl, map, id) : ctl_dump_map(ctl, id, nonzero);
}

int results_print(struct ctl *ctl, json_object *attached, const struct results *results) {
	json_object *attachments = json_member(attached, "attachments"),
		    *maps = json_member(attached, "maps");
	bool stopped;
	int r, n = 0;

	if (ctl->json)
		printf("\"log\":[");
	r = ctl_log_object(ctl, json_int_of(json_object_array_get_idx(attachments, 0), "object"),
			   ctl->json);
	if (ctl->json)
		printf("],\"maps\":[");
	stopped = results->stop(results->userdata);
	for (size_t i = 0; !r && !stopped && i < json_length_of(maps); i++) {
		json_object *map = json_object_array_get_idx(maps, i);

		if (!is_shown(map, results))
			continue;
		stopped = results->stop(results->userdata);
		if (stopped)
			break;
		if (ctl->json)
			fputs(n++ ? "," : "", stdout);
		r = print_map(ctl, map, results->nonzero);
	}
	if (ctl->json)
		printf("]");
	return !r && stopped ? CTL_RESULTS_CUT : r;
}
