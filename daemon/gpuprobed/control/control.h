/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The varlink interface io.gpuprobe.control. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/varlink/varlink-server.h"

struct attachment;
struct daemon;
struct filter;
struct map;
struct object;

extern const struct varlink_method control_methods[]; /* userdata: the daemon */

/*
 * Who may do what: root and the daemon's own user everything; members of the group gpuprobe attach,
 * and see and detach what is theirs; others see what is theirs, and attach to it if the
 * configuration allows (user-attach). What counts are the uid and the groups that the peer had when
 * it connected, as the kernel has kept them: no pid, which may be another's by now. gpuprobed(8)
 * has the table.
 */
bool control_is_admin(const struct varlink_call *call);
bool control_may_attach(const struct varlink_call *call);

/*
 * Whether the caller may have hooks listed now: that takes the loop tens to hundreds of
 * milliseconds, so users who may not attach get it only now and then, all of them together: a pause
 * follows on each list, by what it took from `began` (uv_hrtime()).
 */
bool control_may_read_hooks(const struct daemon *daemon, const struct varlink_call *call);
void control_have_read_hooks(struct daemon *daemon, const struct varlink_call *call,
			     uint64_t began);
bool control_may_see(const struct varlink_call *call, uid_t owner);

/* Errors of the interface. They consume nothing and return what varlink_call_error() does. */
int control_error_not_found(struct varlink_call *call, const char *what);
int control_error_reason(struct varlink_call *call, const char *error, const char *reason);
int control_error_argument(struct varlink_call *call, const char *parameter, const char *reason);
int control_error_limit(struct varlink_call *call, const char *what, uint64_t limit);

/* Whether that may name kernels, or a point: printable, neither empty nor longer than 2047 bytes.
 */
bool control_name_valid(const char *name);
#define CONTROL_KERNEL_REASON "not a name or a glob of at most 2047 printable bytes"

/* The filter of a call. A line about the member in *parameterp if it makes no sense. */
const char *control_filter(json_object *json, struct filter *filter, const char **parameterp);

/* The types Map and Attachment of the interface; daemon_count_modules() is called before. */
json_object *control_attachment_json(const struct attachment *attachment);
json_object *control_map_json(const struct map *map, const struct object *object);

/* The map of that name or number that the caller may see. NULL: answered, with the result in *rp.
 */
struct map *control_find_map(const struct daemon *daemon, struct varlink_call *call,
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
