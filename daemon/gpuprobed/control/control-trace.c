/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The methods Trace and ListHooks.
 *
 * Trace and ListHooks. A call of Trace is a session whose client takes chunks of records, through
 * memory or in base64, as fast as it reads; the session's timer wakes it. The client is not dropped
 * for not reading (it may be a pager that somebody looks at): its session loses records then, which
 * is bounded and counted.
 */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "client-memory.h"
#include "control.h"
#include "lib/function.h"
#include "lib/json.h"
#include "daemon/gpuprobed/trace/hook/hook.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/log-limit.h"
#include "daemon/gpuprobed/trace/session/session.h"

#define TRACE_PATTERNS_MAX 256
#define TRACE_PATTERN_SIZE 256
#define TRACE_PROBES_MAX 64
#define TRACE_PROBE_SIZE 1024
#define TRACE_PIDS_MAX 1024
#define TRACE_MEMORY                                                                 \
	((size_t)2 << 20) /* for the client: bytes of records that it can lag behind \
			   */
#define TRACE_THREAD_BUFFER_MIN 4096
#define TRACE_THREAD_BUFFER_MAX (64 << 20)
#define TRACE_THREAD_BUFFER_DEFAULT (1 << 20)

/* A call of Trace in work. */
struct control_trace {
	struct control_work work;
	const struct trace_table *table;
	struct trace_session *session;
	bool started; /* the first reply is out */
	char *text; /* for base64 */
	struct client_memory memory; /* where records go, if the client wants that */
	uint32_t *pids;
	const char **hooks, **probes;
};

/* Why a parameter makes no sense. */
struct control_fault {
	const char *parameter;
	const char *reason;
	char text[512]; /* for reason */
};

static bool fault(struct control_fault *f, const char *parameter, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static bool fault(struct control_fault *f, const char *parameter, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(f->text, sizeof(f->text), format, arguments);
	va_end(arguments);
	f->parameter = parameter;
	f->reason = f->text;
	return false;
}

/* ---- parameters ---- */

/* A number from min to max; absent: otherwise. */
static bool take_number(json_object *parameters, const char *key, const char *what, int64_t min,
			int64_t max, int64_t otherwise, uint64_t *value, struct control_fault *f) {
	json_object *member = json_member(parameters, key);
	int64_t number = member ? json_object_get_int64(member) : otherwise;

	if (member && (number < min || number > max))
		return fault(f, key, "%lld: %s are %lld to %lld", (long long)number, what,
			     (long long)min, (long long)max);
	*value = (uint64_t)number;
	return true;
}

/* A list of strings that stay in the parameters. */
static bool take_strings(json_object *parameters, const char *key, size_t max, size_t size_max,
			 const char ***stringsp, size_t *np, struct control_fault *f) {
	json_object *member = json_member(parameters, key);
	size_t n = member ? json_object_array_length(member) : 0;

	if (n > max)
		return fault(f, key, "%zu of them: at most %zu", n, max);
	*stringsp = calloc(n ?: 1, sizeof(**stringsp));
	if (!*stringsp)
		return fault(f, key, "no memory");
	for (size_t i = 0; i < n; i++) {
		json_object *string = json_object_array_get_idx(member, i);

		(*stringsp)[i] = json_object_get_string(string);
		if (!(*stringsp)[i][0] ||
		    strlen((*stringsp)[i]) != (size_t)json_object_get_string_len(string))
			return fault(f, key, "one of them is empty, or has a NUL in it");
		if (strlen((*stringsp)[i]) >= size_max)
			return fault(f, key, "%.40s...: longer than %zu bytes", (*stringsp)[i],
				     size_max - 1);
	}
	*np = n;
	return true;
}

static bool take_sources(json_object *parameters, struct trace_options *options,
			 struct control_fault *f) {
	json_object *member = json_member(parameters, "sources");

	options->shim = options->bpf = options->kernel = !member;
	for (size_t i = 0; member && i < json_object_array_length(member); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(member, i));
		bool *source = strcmp(name, "shim") == 0     ? &options->shim
			       : strcmp(name, "bpf") == 0    ? &options->bpf
			       : strcmp(name, "gpu") == 0    ? &options->gpu
			       : strcmp(name, "cupti") == 0  ? &options->cupti
			       : strcmp(name, "kernel") == 0 ? &options->kernel
							     : NULL;

		if (!source)
			return fault(f, "sources",
				     "%.32s: expected some of shim, bpf, gpu, cupti, kernel", name);
		*source = true;
		options->gpu = options->gpu || options->cupti;
	}
	if (member && !json_object_array_length(member) && !json_member(parameters, "probes"))
		return fault(f, "sources", "empty: expected some of shim, bpf, gpu, cupti, kernel");
	if (options->gpu && !options->shim)
		return fault(f, "sources",
			     "%s needs shim: it is the shim in the process that times kernels",
			     options->cupti ? "cupti" : "gpu");
	return true;
}

static bool take_functions(json_object *parameters, struct trace_options *options,
			   struct control_fault *f) {
	static const char *const usual[] = { "all", "!query" };
	const char **patterns;
	size_t n, bad;

	if (!json_member(parameters, "calls"))
		return function_select(usual, 2, options->functions) == 0 ||
		       fault(f, "calls", "the table of functions is broken");
	if (!take_strings(parameters, "calls", TRACE_PATTERNS_MAX, TRACE_PATTERN_SIZE, &patterns,
			  &n, f))
		return false;
	bad = function_select(patterns, n, options->functions);
	if (bad)
		fault(f, "calls", "%.200s: no function, and no class of functions, has that name",
		      patterns[bad - 1]);
	free(patterns);
	return !bad;
}

static bool take_pids(json_object *parameters, struct control_trace *trace,
		      struct trace_options *options, struct control_fault *f) {
	json_object *member = json_member(parameters, "pids");
	size_t n = member ? json_object_array_length(member) : 0;

	if (!member)
		return true;
	if (!n || n > TRACE_PIDS_MAX)
		return fault(f, "pids", "%zu of them: expected 1 to %d", n, TRACE_PIDS_MAX);
	if (json_member(parameters, "filter"))
		return fault(f, "pids", "together with filter: expected one of them");
	trace->pids = calloc(n, sizeof(*trace->pids));
	if (!trace->pids)
		return fault(f, "pids", "no memory");
	for (size_t i = 0; i < n; i++) {
		int64_t pid = json_object_get_int64(json_object_array_get_idx(member, i));

		if (pid < 1 || pid > INT_MAX)
			return fault(f, "pids", "%lld: not a process id", (long long)pid);
		trace->pids[i] = (uint32_t)pid;
	}
	options->pids = trace->pids;
	options->n_pids = n;
	return true;
}

static bool take_cgroup(json_object *parameters, struct trace_options *options,
			struct control_fault *f) {
	struct filter filter = {};

	options->cgroup = json_string_of(parameters, "cgroup");
	if (!options->cgroup || strcmp(options->cgroup, "/") == 0 ||
	    filter_set_cgroup(&filter, options->cgroup))
		return true;
	return fault(f, "cgroup",
		     "%.200s: not a path in the unified hierarchy, like /system.slice/x.service",
		     options->cgroup);
}

/* All options of a call. False: *f says what is wrong. */
static bool take_options(json_object *parameters, struct control_trace *trace,
			 struct trace_config *config, struct control_fault *f) {
	struct trace_options *options = &config->options;
	uint64_t buffer = 0, duration = 0;

	f->reason =
		control_filter(json_member(parameters, "filter"), &options->filter, &f->parameter);
	if (f->reason)
		return false;
	options->follow = json_bool_of(parameters, "follow");
	options->errors = json_bool_of(parameters, "errors");
	options->stacks = json_bool_of(parameters, "stacks");
	options->aggregate = json_bool_of(parameters, "aggregate");
	options->extras = !json_member(parameters, "extras") || json_bool_of(parameters, "extras");
	if (!take_pids(parameters, trace, options, f) || !take_cgroup(parameters, options, f) ||
	    !take_sources(parameters, options, f) || !take_functions(parameters, options, f) ||
	    !take_strings(parameters, "hooks", TRACE_PATTERNS_MAX, TRACE_PATTERN_SIZE,
			  &trace->hooks, &options->n_hooks, f) ||
	    !take_strings(parameters, "probes", TRACE_PROBES_MAX, TRACE_PROBE_SIZE, &trace->probes,
			  &options->n_probes, f) ||
	    !take_number(parameters, "min_duration", "nanoseconds", 0, INT64_C(3600) * 1000000000,
			 0, &options->min_duration, f) ||
	    !take_number(parameters, "sample", "samples (one of so many)", 1, 1 << 30, 1,
			 &options->sample, f) ||
	    !take_number(parameters, "rate", "records a second", 1, INT64_C(1) << 40, 0,
			 &options->rate, f) ||
	    !take_number(parameters, "buffer", "bytes for each thread", TRACE_THREAD_BUFFER_MIN,
			 TRACE_THREAD_BUFFER_MAX, TRACE_THREAD_BUFFER_DEFAULT, &buffer, f) ||
	    !take_number(parameters, "duration", "seconds", 1, 366 * 24 * 3600, 0, &duration, f))
		return false;
	options->hooks = trace->hooks;
	options->probes = trace->probes;
	options->buffer = buffer;
	config->duration = duration * 1000000000;
	return true;
}

/* ---- the stream ---- */

static void control_trace_free(void *userdata) {
	struct control_trace *trace = userdata;

	trace_session_free(trace->session);
	free(trace->pids);
	free(trace->hooks);
	free(trace->probes);
	free(trace->text);
	client_memory_deinit(&trace->memory);
	free(trace);
}

/* The parameters of a reply with what waits longest. */
static json_object *control_trace_reply(struct control_trace *trace) {
	json_object *json = json_object_new_object();
	const char *const *lines;
	const void *records = NULL;
	size_t n, n_lines = trace_session_trouble(trace->session, &lines);

	n = trace_session_take(trace->session, &records);
	if (n && client_memory_room(&trace->memory) >= n) {
		client_memory_put(&trace->memory, records, n);
		n = 0;
	}
	client_memory_tell(&trace->memory, json);
	base64_encode(trace->text, records, n);
	json_add(json, "records",
		 json_object_new_string_len(trace->text, (int)base64_encoded_size(n) - 1));
	if (!trace->started || n_lines) {
		json_object *missing = json_object_new_array();

		for (size_t i = 0; i < n_lines; i++)
			json_append(missing, json_string(lines[i]));
		json_add(json, "missing", missing);
		trace->started = true;
	}
	return json;
}

static int control_trace_turn(struct varlink_call *call, void *userdata) {
	struct control_trace *trace = userdata;
	json_object *json;
	int r;

	if (trace->started ? !trace_session_waiting(trace->session)
			   : !trace_session_ready(trace->session))
		return VARLINK_PRODUCE_IDLE;
	json = control_trace_reply(trace);
	if (trace_session_finished(trace->session) && !trace_session_waiting(trace->session)) {
		if (trace_table_stopping(trace->table))
			json_add_text(json, "notice", "the daemon is stopped or restarted");
		return control_work_end(&trace->work, varlink_call_reply(call, json));
	}
	r = client_memory_continue(&trace->memory, call, json);
	if (r)
		return control_work_end(&trace->work, r);
	/* replies that are not full wait for the session's timer */
	return trace_session_waiting(trace->session) ? VARLINK_PRODUCE_AGAIN : VARLINK_PRODUCE_IDLE;
}

static void control_trace_on_wake(struct trace_session *session, void *userdata) {
	struct control_trace *trace = userdata;

	varlink_call_wake(trace->work.call);
}

static int control_trace_refuse(struct varlink_call *call, const struct trace_table *table, int r,
				uint32_t pid) {
	switch (r) {
	case TRACE_E_SESSIONS:
		return control_error_limit(
			call,
			"traces of all users (the last are for users who have none, and for root)",
			TRACE_SESSIONS_MAX);
	case TRACE_E_USER:
		return control_error_limit(call, "traces of one user (quota-traces)",
					   trace_table_quota(table));
	case TRACE_E_WORK:
		return control_error_limit(
			call,
			"traces that one user begins, one after the other: ask again in a moment",
			1);
	case TRACE_E_GONE:
		return control_error_not_found(call, "process %u", pid);
	case TRACE_E_FOREIGN:
		return control_error_reason(
			call, "PermissionDenied",
			"process %u is not yours alone: members of the group gpuprobe may trace "
			"those of others",
			pid);
	case TRACE_E_EXCLUDED:
		return control_error_reason(call, "PermissionDenied",
					    "process %u is excluded by configuration (exclude)",
					    pid);
	case -ESHUTDOWN:
		return control_error_reason(call, "Unavailable", "the daemon stops");
	}
	return r;
}

int control_trace(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct trace_config config = { .wake = control_trace_on_wake };
	struct control_fault f = {};
	struct control_trace *trace;
	uint32_t bad_pid = 0;
	int r;

	trace = calloc(1, sizeof(*trace));
	if (!trace)
		return -ENOMEM;
	trace->memory = CLIENT_MEMORY_NONE;
	control_work_begin(&trace->work, call, control_trace_free);
	trace->table = context->client->traces;
	trace->text = malloc(base64_encoded_size(TRACE_CHUNK_SIZE));
	config.userdata = trace;
	config.options.caller = varlink_call_peer(call)->uid;
	config.options.all_users = control_may_attach(call);
	config.options.own_files = context->image->config->user_attach;
	r = !trace->text ? -ENOMEM : 0;
	if (r == 0 && !take_options(parameters, trace, &config, &f))
		r = control_error_argument(call, f.parameter, f.reason);
	else if (r == 0 && !config.options.all_users && config.options.filter.has_uid &&
		 config.options.filter.uid != config.options.caller)
		r = control_error_reason(
			call, "PermissionDenied",
			"processes of others: only members of the group gpuprobe may trace them");
	else if (r == 0) {
		r = trace_session_new(&trace->session, context->client->traces, &config, &bad_pid);
		if (r)
			r = control_trace_refuse(call, context->client->traces, r, bad_pid);
	}
	if (!trace->session)
		return control_work_end(&trace->work, r);
	/* who sees what others do is always named */
	if (config.options.all_users || log_limit_may(context->trace_lines, config.options.caller))
		log_info(TRACE_BEGAN " uid %u", (unsigned)config.options.caller);
	varlink_call_be_patient(call);
	if (json_bool_of(parameters, "descriptor"))
		client_memory_init(&trace->memory, call, TRACE_MEMORY); /* without, if it must be */
	control_work_run(&trace->work, varlink_call_stream, control_trace_turn);
	return 0;
}

int control_list_hooks(struct varlink_call *call, json_object *parameters, void *userdata) {
#if TRACE_HAS_HOOKS
	struct control_context *context = userdata;
	struct trace_hooks *attached[TRACE_SESSIONS_MAX];
	json_object *json, *hooks = NULL;
	size_t n = trace_table_hooks(context->client->traces,
				     control_is_admin(call) ? NULL : &varlink_call_peer(call)->uid,
				     attached);
	const char *pattern = json_string_of(parameters, "pattern");
	uint64_t began;
	int r;

	if (pattern && strlen(pattern) >= TRACE_PATTERN_SIZE)
		return control_error_argument(call, "pattern", "longer than 255 bytes");
	if (!control_may_read_hooks(context, call))
		return control_error_limit(call, "lists of hooks for users in a moment: ask again",
					   1);
	began = uv_hrtime();
	r = trace_hooks_list(pattern, attached, n, &hooks);
	control_have_read_hooks(context, call, began);
	if (r < 0)
		return control_error_reason(call, "Internal", "%s", strerror(-r));
	json = json_object_new_object();
	json_add(json, "hooks", hooks);
	return varlink_call_reply(call, json);
#else
	return control_error_reason(call, "Unavailable", "this gpuprobed was built without hooks");
#endif
}
