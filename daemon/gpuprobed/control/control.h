/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The varlink interface io.gpuprobe.control. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "control-call.h"
#include "daemon/gpuprobed/image/kernels-list.h"
#include "daemon/gpuprobed/metrics/metrics.h"

struct attachment;
struct log_limit;
struct ring_reader;

LIST_HEAD(ring_reader_list, ring_reader);

/* What the files of this room share, and need of others: one of them, which daemon.c fills in. */
struct control_context {
	struct image_context *image;
	struct client_context *client;
	struct attach_context *attach;
	struct metrics_context *metrics;
	int64_t started; /* microseconds since the epoch */
	int verify_available; /* of verify_available() */
	char no_cache[512]; /* why, where there should be one */
	const char *pass_folders[2];
	size_t n_pass_folders;
	struct ring_reader_list ring_readers;
	struct log_limit *trace_lines; /* of the log */
	uint64_t hooks_next; /* uv_hrtime() from which on hooks are read for a user who may not
				attach */
};

struct filter;
struct map;
struct object;

extern const struct varlink_method control_methods[]; /* userdata: a struct control_context */

/*
 * The rights of callers. Root and the daemon's own user may do everything. Members of the group
 * gpuprobe may attach, and see and detach what is theirs. Other users see what is theirs, and
 * attach to it if the configuration allows (user-attach). What counts are the uid and the groups
 * that the peer had when it connected, as the kernel has kept them; a pid may be another process's
 * by now. gpuprobed(8) has the table.
 */
bool control_is_admin(const struct varlink_call *call);
bool control_may_attach(const struct varlink_call *call);

/*
 * Whether the caller may have hooks listed now: that takes the loop tens to hundreds of
 * milliseconds, so users who may not attach get it only now and then, all of them together: a pause
 * follows on each list, by what it took from `began` (uv_hrtime()).
 */
bool control_may_read_hooks(const struct control_context *context, const struct varlink_call *call);
void control_have_read_hooks(struct control_context *context, const struct varlink_call *call,
			     uint64_t began);
bool control_may_see(const struct varlink_call *call, uid_t owner);
struct kernels_reader control_reader(const struct varlink_call *call);

/* Whether that may name kernels, or a point: printable, neither empty nor longer than 2047 bytes.
 */
bool control_name_valid(const char *name);
#define CONTROL_KERNEL_REASON "not a name or a glob of at most 2047 printable bytes"

/* The filter of a call. A line about the member in *parameterp if it makes no sense. */
const char *control_filter(json_object *json, struct filter *filter, const char **parameterp);

/* The types Map and Attachment of the interface; process_table_count() is called before. */
json_object *control_attachment_json(const struct attachment *attachment);
json_object *control_map_json(const struct map *map, const struct object *object);

/* Bytes in base64; without memory they are left out. */
void control_add_base64(json_object *json, const char *key, const void *data, size_t n);

/* The map of that name or number that the caller may see. NULL: answered, with the result in *rp.
 */
struct map *control_find_map(const struct control_context *context, struct varlink_call *call,
			     const char *name, int *rp);

/* In files of their own: DumpMap; ReadRing and ReadLog; ListPasses; ShowProgram; Why; Examine;
 * Trace and ListHooks (control-trace.c); CacheStatus, ListCache and ClearCache
 * (control-cache.c). */
int control_dump_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_update_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_delete_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_show_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_read_ring(struct varlink_call *call, json_object *parameters, void *userdata);
int control_why(struct varlink_call *call, json_object *parameters, void *userdata);
int control_show_program(struct varlink_call *call, json_object *parameters, void *userdata);
int control_examine(struct varlink_call *call, json_object *parameters, void *userdata);
int control_list_passes(struct varlink_call *call, json_object *parameters, void *userdata);
int control_trace(struct varlink_call *call, json_object *parameters, void *userdata);
int control_cache_status(struct varlink_call *call, json_object *parameters, void *userdata);
int control_list_cache(struct varlink_call *call, json_object *parameters, void *userdata);
int control_clear_cache(struct varlink_call *call, json_object *parameters, void *userdata);
int control_list_hooks(struct varlink_call *call, json_object *parameters, void *userdata);
int control_export_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_unexport_map(struct varlink_call *call, json_object *parameters, void *userdata);
int control_list_exports(struct varlink_call *call, json_object *parameters, void *userdata);
int control_metrics(struct varlink_call *call, json_object *parameters, void *userdata);
int control_read_log(struct varlink_call *call, json_object *parameters, void *userdata);
