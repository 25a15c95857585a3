/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Serves the interface io.gpuprobe.control (control.h): checks callers' rights and calls the
 * methods.
 *
 * Methods answer at once, but Attach (attach.c) and DumpMap (control-dump.c). Parameters have been
 * checked against the interface file; here they get their meaning. No method shows a caller what is
 * another user's.
 */

#include "control.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/gpuprobed/attach/attach.h"
#include "lib/base/text.h"
#include "lib/base64.h"
#include "kernels.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/message-id.h"
#include "missing.h"
#include "daemon/gpuprobed/clients/other-shims.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/metrics/statistics.h"
#include "daemon/gpuprobed/registry/attachment-json.h"
#include "lib/json.h"
#include "daemon/gpuprobed/verify/verify.h"

#define CONTROL_GROUP "gpuprobe"
/* Between two lists of hooks for users: so often the time that one takes, and at least so many
 * nanoseconds. */
#define CONTROL_HOOKS_PAUSE 10
#define CONTROL_HOOKS_MIN UINT64_C(200000000)
/* Attaches of one user in work at a time, each with an object of megabytes: of one who may attach
 * to his own processes only, and of others. */
#define CONTROL_ATTACHES_OWN 4
#define CONTROL_ATTACHES_MAX 64

/* ---- who may ---- */

bool control_is_admin(const struct varlink_call *call) {
	uid_t uid = varlink_call_peer(call)->uid;

	return uid == 0 || uid == geteuid();
}

bool control_may_attach(const struct varlink_call *call) {
	struct group *group;

	if (control_is_admin(call))
		return true;
	group = getgrnam(CONTROL_GROUP);
	return group && varlink_call_peer_in_group(call, group->gr_gid);
}

bool control_may_read_hooks(const struct control_context *context,
			    const struct varlink_call *call) {
	return control_may_attach(call) || uv_hrtime() >= context->hooks_next;
}

void control_have_read_hooks(struct control_context *context, const struct varlink_call *call,
			     uint64_t began) {
	const uint64_t now = uv_hrtime(), pause = CONTROL_HOOKS_PAUSE * (now - began);

	if (!control_may_attach(call))
		context->hooks_next = now + (pause > CONTROL_HOOKS_MIN ? pause : CONTROL_HOOKS_MIN);
}

bool control_may_see(const struct varlink_call *call, uid_t owner) {
	return control_is_admin(call) || varlink_call_peer(call)->uid == owner;
}

struct kernels_reader control_reader(const struct varlink_call *call) {
	return (struct kernels_reader){ control_is_admin(call), varlink_call_peer(call)->uid };
}

/* ---- JSON ---- */

static const char *control_point_name(const struct attachment *attachment) {
	return attachment_host(attachment) ? "host" : section_point(&attachment->section)->name;
}

json_object *control_attachment_json(const struct attachment *attachment) {
	const struct gpu_program *program = attachment_gpu(attachment);
	json_object *json = json_object_new_object();

	json_add_int(json, "id", attachment->id);
	json_add_int(json, "object", attachment->object->id);
	json_add_text(json, "program", attachment->program);
	json_add_text(json, "point", control_point_name(attachment));
	json_add_text(json, "kernel", attachment->section.kernel);
	json_add_text(json, "section", attachment->section_text);
	json_add_text(json, "engine", engine_name(program ? program->engine : ENGINE_AUTO));
	json_add(json, "filter", filter_json(&attachment->filter, false));
	json_add_text(json, "state", "armed");
	json_add_int(json, "modules", attachment->n_modules);
	json_add_int(json, "recompiled", attachment->n_recompiled);
	json_add_int(json, "processes", attachment->n_processes);
	json_add_int(json, "owner", attachment->object->owner);
	return json;
}

/* ---- Attach ---- */

/* A call of Attach in work. */
struct control_attach {
	struct control_work work;
	struct control_context *context;
	struct attach *attach;
};

static void control_attach_free(void *userdata) {
	struct control_attach *attaching = userdata;

	if (attaching->attach)
		attach_cancel(attaching->attach);
	free(attaching);
}

static void control_log_attached(const struct attachment *attachment, uid_t uid) {
	char id[24], owner[16];
	const char *const fields[] = { "GPUPROBE_ATTACHMENT",
				       id,
				       "GPUPROBE_PROGRAM",
				       attachment->program,
				       "GPUPROBE_KERNEL",
				       attachment->section.kernel,
				       "GPUPROBE_UID",
				       owner,
				       NULL };

	snprintf(id, sizeof(id), "%llu", (unsigned long long)attachment->id);
	snprintf(owner, sizeof(owner), "%u", (unsigned)uid);
	log_event(LOG_LEVEL_INFO, MESSAGE_ATTACHED, fields,
		  "attachment %s: %s at %s of %s, by uid %s", id, attachment->program,
		  control_point_name(attachment), attachment->section.kernel, owner);
}

static void control_log_detached(uint64_t attachment, uid_t uid) {
	char id[24], by[16];
	const char *const fields[] = { "GPUPROBE_ATTACHMENT", id, "GPUPROBE_UID", by, NULL };

	snprintf(id, sizeof(id), "%llu", (unsigned long long)attachment);
	snprintf(by, sizeof(by), "%u", (unsigned)uid);
	log_event(LOG_LEVEL_INFO, MESSAGE_DETACHED, fields, "attachment %s: detached, by uid %s",
		  id, by);
}

static int control_attach_success(struct control_attach *attaching, const struct object *object) {
	json_object *json = json_object_new_object(),
		    *attachments = json_add_array(json, "attachments"),
		    *maps = json_add_array(json, "maps");
	const struct attachment *attachment;

	process_table_count(attaching->context->image->processes,
			    attaching->context->image->registry);
	TAILQ_FOREACH(attachment, &attaching->context->image->registry->attachments, link) {
		if (attachment->object != object)
			continue;
		control_log_attached(attachment, object->owner);
		json_append(attachments, control_attachment_json(attachment));
	}
	for (size_t i = 0; i < object->n_maps; i++)
		if (object->maps[i])
			json_append(maps, control_map_json(object->maps[i], object));
	return varlink_call_reply(attaching->work.call, json);
}

static int control_attach_failure(struct varlink_call *call, const struct attach_outcome *outcome) {
	json_object *json;
	const char *error = NULL;

	switch (outcome->error) {
	case ATTACH_E_NOT_FOUND:
		return control_error_not_found(call, "%s", outcome->program);
	case ATTACH_E_LIMIT:
		return control_error_limit(call, outcome->program, outcome->limit);
	case ATTACH_E_ARGUMENT:
		return control_error_argument(call, outcome->program, outcome->reason);
	case ATTACH_E_PERMISSION:
		return control_error_reason(call, "PermissionDenied", "%s", outcome->reason);
	case ATTACH_E_UNAVAILABLE:
		return control_error_reason(call, "Unavailable", "%s", outcome->reason);
	case ATTACH_E_INVALID_OBJECT:
		error = CONTROL_INTERFACE "InvalidObject";
		break;
	case ATTACH_E_VERIFICATION:
		error = CONTROL_INTERFACE "VerificationFailed";
		break;
	case ATTACH_E_COMPILE:
		error = CONTROL_INTERFACE "CompileFailed";
		break;
	case ATTACH_E_INTERNAL:
	case _ATTACH_SUCCESS:
		return control_error_reason(call, "Internal", "%s", outcome->reason);
	}
	json = json_object_new_object();
	if (outcome->error != ATTACH_E_INVALID_OBJECT)
		json_add_text(json, "program", outcome->program ?: "");
	json_add_text(json, "reason", outcome->reason);
	if (outcome->log)
		json_add_text(json, "log", outcome->log);
	return varlink_call_error(call, error, json);
}

static void control_attach_done(const struct attach_outcome *outcome, void *userdata) {
	struct control_attach *attaching = userdata;
	struct varlink_call *call = attaching->work.call;
	int r;

	attaching->attach = NULL;
	if (outcome->error)
		r = control_attach_failure(call, outcome);
	else
		r = control_attach_success(attaching, outcome->object);
	if (r)
		control_error_reason(call, "Internal", "the answer could not be sent");
	control_work_end(&attaching->work, 0);
}

const char *control_filter(json_object *json, struct filter *filter, const char **parameterp) {
	static const struct {
		const char *parameter, *reason;
	} faults[] = {
		{ "filter.pid", "not a process id" },
		{ "filter.uid", "not a user id" },
		{ "filter.comm", "a command name has 1 to 15 bytes, as in /proc/PID/comm" },
		{ "filter.exe", "not an absolute path or a glob of one" },
	};
	const char *wrong = filter_from_json(filter, json, false);

	for (size_t i = 0; wrong && i < sizeof(faults) / sizeof(*faults); i++)
		if (!strcmp(faults[i].parameter + strlen("filter."), wrong)) {
			*parameterp = faults[i].parameter;
			return faults[i].reason;
		}
	return NULL;
}

bool control_name_valid(const char *name) {
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (is_control(name[i]))
			return false;
	return n > 0 && n < SECTION_KERNEL_SIZE;
}

/* The state spaces of a call. A line, perhaps in buffer, if there are none of these names. */
static const char *control_spaces(json_object *json, uint32_t *spaces, char buffer[static 128]) {
	if (!json)
		return NULL;
	for (size_t i = 0; i < json_object_array_length(json); i++) {
		const char *name = json_string_at(json, i);
		uint32_t space = point_space(name);

		if (!space) {
			snprintf(buffer, 128,
				 "%.32s: expected some of global, shared, local, const, param, "
				 "generic",
				 name);
			return buffer;
		}
		*spaces |= space;
	}
	return *spaces ? NULL : "empty";
}

/*
 * What a call of Attach says but the object and the filter. A line about the member in *parameterp,
 * perhaps in buffer, if it makes no sense.
 */
static const char *control_attach_options(json_object *parameters, struct attach_options *options,
					  const char **parameterp, char buffer[static 128]) {
	int64_t threads = MAP_THREADS_DEFAULT, ring_size = MAP_RING_TOTAL_DEFAULT;
	const char *engine = json_string_of(parameters, "engine");
	const char *why;

	options->wish.program = json_string_of(parameters, "program");
	options->wish.kernel = json_string_of(parameters, "kernel");
	options->wish.point = json_string_of(parameters, "point");
	options->wish.host_targets = json_member(parameters, "host_targets");
	options->wish.folder = json_string_of(parameters, "folder");
	options->shared = json_bool_of(parameters, "shared");
	*parameterp = "host_targets";
	if (options->wish.host_targets) {
		json_object_object_foreach(options->wish.host_targets, name, target) {
			if (!control_name_valid(name) ||
			    !control_name_valid(json_object_get_string(target)))
				return "not a program and a target of at most 2047 printable bytes";
		}
	}
	*parameterp = "folder";
	if (options->wish.folder &&
	    (*options->wish.folder != '/' || strlen(options->wish.folder) >= PATH_MAX))
		return "not an absolute path";
	*parameterp = "engine";
	if (engine && !engine_from_name(engine, false, &options->wish.engine))
		return "expected auto, ptx or sanitizer";
	*parameterp = "kernel";
	if (options->wish.kernel && !control_name_valid(options->wish.kernel))
		return CONTROL_KERNEL_REASON;
	*parameterp = "point";
	if (options->wish.point && !control_name_valid(options->wish.point))
		return "not a section of at most 2047 printable bytes";
	*parameterp = "spaces";
	why = control_spaces(json_member(parameters, "spaces"), &options->wish.spaces, buffer);
	if (why)
		return why;
	*parameterp = "threads";
	if (json_member(parameters, "threads") &&
	    !json_get_int(parameters, "threads", 1, MAP_THREADS_MAX, &threads))
		return "a per-thread array has values for 1 to 268435456 threads";
	options->threads = (uint32_t)threads;
	*parameterp = "ring_size";
	if (json_member(parameters, "ring_size") &&
	    !json_get_int(parameters, "ring_size", (int64_t)MAP_RING_SIZE_MIN,
			  (int64_t)MAP_RING_TOTAL_MAX, &ring_size))
		return "a ring has 16384 (16 KiB) to 2147483648 (2 GiB) bytes";
	options->ring_bytes = (uint64_t)ring_size;
	return NULL;
}

/*
 * Whether the caller may attach to the processes that the filter means; if he may to his own only,
 * the filter means these alone from then on. 0 or answered.
 */
static int control_attach_refused(const struct control_context *context, struct varlink_call *call,
				  struct filter *filter, bool *refused) {
	const uid_t uid = varlink_call_peer(call)->uid;

	*refused = false;
	if (control_may_attach(call))
		return 0;
	*refused = true;
	if (!context->image->config->user_attach)
		return control_error_reason(call, "PermissionDenied",
					    "only root and members of the group " CONTROL_GROUP
					    " may attach (user-attach = yes would let users attach "
					    "to their own processes)");
	if (filter->has_uid && filter->uid != uid)
		return control_error_reason(
			call, "PermissionDenied",
			"processes of others: only root and members of the group " CONTROL_GROUP
			" may attach to them");
	*refused = false;
	filter->has_uid = filter->own = true;
	filter->uid = uid;
	return 0;
}

/* Whether a user has used up what workers may do for him. */
static bool control_worked_enough(struct control_context *context, uid_t uid) {
	struct account *account;
	bool enough;

	if (account_get(context->attach->accounts, uid, &account) < 0)
		return false;
	enough = account_check_time(account, uv_now(context->image->loop)) != 0;
	account_unref(account);
	return enough;
}

/* Which process has the pid now: a later one with the same number is not meant. False: there is
 * none. /proc may show us less than there is. */
static bool control_find_process(struct filter *filter) {
	if (kill(filter->pid, 0) < 0 && errno == ESRCH)
		return false;
	if (process_start_time(filter->pid, &filter->start_time))
		filter->start_time = 0;
	return true;
}

/* Starts what is asked for: options without a fault. */
static int control_attach_begin(struct control_context *context, struct varlink_call *call,
				const struct attach_options *options) {
	struct control_attach *attaching = calloc(1, sizeof(*attaching));
	int r;

	r = attaching ? attach_new(&attaching->attach, context->attach, options,
				   control_attach_done, attaching)
		      : -ENOMEM;
	if (r) {
		free(attaching);
		return r == ATTACH_E_LIMIT
			       ? control_error_limit(call, "attaches of one user in work",
						     options->max)
			       : r;
	}
	attaching->context = context;
	control_work_begin(&attaching->work, call, control_attach_free);
	return 0;
}

static int control_attach(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct attach_options options = {};
	json_object *object = json_member(parameters, "object");
	const char *why, *parameter = NULL;
	char buffer[128];
	unsigned char *bytes;
	struct filter filter;
	bool refused;
	int r;

	why = control_filter(json_member(parameters, "filter"), &filter, &parameter);
	if (!why && filter.has_pid && !control_find_process(&filter)) {
		return control_error_not_found(call, "process %d", (int)filter.pid);
	}
	if (!why) {
		r = control_attach_refused(context, call, &filter, &refused);
		if (refused)
			return r;
		if (control_worked_enough(context, varlink_call_peer(call)->uid))
			return control_error_limit(call,
						   "seconds of workers for one user in a minute "
						   "(quota-compile-seconds)",
						   context->image->config->quota_compile_seconds);
	}
	if (!why)
		why = control_attach_options(parameters, &options, &parameter, buffer);
	if (why)
		return control_error_argument(call, parameter, why);
	r = base64_decode(json_object_get_string(object),
			  (size_t)json_object_get_string_len(object), &bytes, &options.n_object);
	if (r == -EINVAL)
		return control_error_argument(call, "object", "not base64");
	if (r < 0)
		return r;
	if (options.n_object == 0 || options.n_object > ATTACH_OBJECT_MAX) {
		free(bytes);
		return options.n_object
			       ? control_error_limit(call, "bytes of an object", ATTACH_OBJECT_MAX)
			       : control_error_argument(call, "object", "empty");
	}
	json_object_object_del(parameters, "object"); /* megabytes that nobody needs any more */
	options.object = bytes;
	options.max = filter.own ? CONTROL_ATTACHES_OWN : CONTROL_ATTACHES_MAX;
	options.owner = varlink_call_peer(call)->uid;
	options.filter = &filter;
	r = control_attach_begin(context, call, &options);
	free(bytes);
	return r;
}

/* ---- the other methods ---- */

static int control_detach(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	int64_t id = json_int_of(parameters, "id");
	struct attachment *attachment =
		id > 0 ? registry_attachment(context->image->registry, (uint64_t)id) : NULL;

	if (!attachment || !control_may_see(call, attachment->object->owner))
		return control_error_not_found(call, "attachment %lld", (long long)id);
	control_log_detached((uint64_t)id, varlink_call_peer(call)->uid);
	attach_detach(context->attach, attachment);
	return varlink_call_reply(call, NULL);
}

static void control_add_notice(const char *line, void *notices) {
	json_append_string(notices, line);
}

static int control_list(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	json_object *json = json_object_new_object(),
		    *attachments = json_add_array(json, "attachments"),
		    *notices = json_object_new_array();
	const struct attachment *attachment;

	process_table_count(context->image->processes, context->image->registry);
	TAILQ_FOREACH(attachment, &context->image->registry->attachments, link)
		if (control_may_see(call, attachment->object->owner))
			json_append(attachments, control_attachment_json(attachment));
	other_shims_each(context->client->other_shims, control_add_notice, notices);
	if (json_object_array_length(notices))
		json_add(json, "notices", notices);
	else
		json_object_put(notices);
	return varlink_call_reply(call, json);
}

static int control_list_maps(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	json_object *json = json_object_new_object(), *maps = json_add_array(json, "maps");
	struct registry_place place = {};
	const struct map *map;

	while ((map = registry_next_map(context->image->registry, &place)))
		if (control_may_see(call, map->owner))
			json_append(maps, control_map_json(map, place.object));
	return varlink_call_reply(call, json);
}

/* ---- Status ---- */

static void control_add_counters(json_object *json, const struct control_context *context) {
	const struct worker_pool_counters *image = worker_pool_counters(context->image->image_pool);
	const struct worker_pool_counters *program =
		worker_pool_counters(context->attach->program_pool);

	json_add_int(json, "images", context->image->counters.images);
	json_add_int(json, "images_made", context->image->counters.images_made);
	json_add_int(json, "images_own", context->image->counters.images_own);
	json_add_int(json, "images_cached", context->image->counters.images_cached);
	json_add_int(json, "worker_crashes", image->crashes + program->crashes);
	json_add_int(json, "worker_timeouts", image->timeouts + program->timeouts);
	json_add_int(json, "processes", context->image->processes->total);
}

static void control_add_missing(const char *part, const char *line, void *userdata) {
	json_append_string(userdata, line);
}

static void control_add_statistic(const struct statistic *statistic, void *userdata) {
	json_object *json = json_append_object(userdata);

	json_add_text(json, "group", statistic->group);
	json_add_text(json, "name", statistic->name);
	if (statistic->of)
		json_add_text(json, "of", statistic->of);
	json_add_text(json, "kind", statistic->counts ? "counter" : "gauge");
	json_add_text(json, "unit", statistic_unit_name(statistic->unit));
	json_add_uint(json, "value", statistic->value);
}

static int control_status(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	json_object *json = json_object_new_object();
	struct registry_place place = {};
	int64_t maps = 0;

	while (registry_next_map(context->image->registry, &place))
		maps++;
	json_add_text(json, "version", PROJECT_VERSION);
	json_add_int(json, "pid", getpid());
	json_add_text(json, "mode", context->image->config->session ? "session" : "system");
	json_add_bool(json, "may_attach",
		      control_may_attach(call) || context->image->config->user_attach);
	json_add_int(json, "started", context->started);
	json_add_text(json, "verify", context->image->config->verify ? "on" : "off");
	json_add_text(json, "compiler",
		      worker_pool_features(context->image->image_pool)
			      ? missing_feature(context, "compiler") ?: "driver"
			      : "unknown yet");
	json_add_int(json, "attachments", context->image->registry->n_attachments);
	json_add_int(json, "maps", maps);
	control_add_counters(json_add_object(json, "counters"), context);
	statistics_each(context->metrics, control_add_statistic,
			json_add_array(json, "statistics"));
	missing_each(context, control_add_missing, json_add_array(json, "missing"));
	return varlink_call_reply(call, json);
}

const struct varlink_method control_methods[] = {
	{ "Attach", control_attach },
	{ "Detach", control_detach },
	{ "List", control_list },
	{ "Status", control_status },
	{ "Why", control_why },
	{ "ListMaps", control_list_maps },
	{ "DumpMap", control_dump_map },
	{ "UpdateMap", control_update_map },
	{ "DeleteMap", control_delete_map },
	{ "ShowMap", control_show_map },
	{ "ReadRing", control_read_ring },
	{ "ReadLog", control_read_log },
	{ "ListKernels", control_list_kernels },
	{ "ShowKernel", control_show_kernel },
	{ "ListPasses", control_list_passes },
	{ "ShowProgram", control_show_program },
	{ "Trace", control_trace, VARLINK_METHOD_MORE_ONLY },
	{ "ListHooks", control_list_hooks },
	{ "CacheStatus", control_cache_status },
	{ "ListCache", control_list_cache },
	{ "ClearCache", control_clear_cache },
	{ "Examine", control_examine },
	{ "ExportMap", control_export_map },
	{ "UnexportMap", control_unexport_map },
	{ "ListExports", control_list_exports },
	{ "Metrics", control_metrics },
	{},
};
