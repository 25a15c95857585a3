/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The hooks of a trace (hook.h).
 *
 * Hooks of a trace, from the selection to the end. Every trace has programs and maps of its own:
 * who sees what is decided in them, and nothing is shared between callers. Attaching takes some
 * tens of milliseconds, on the daemon's loop; what costs seconds (hundreds of kprobes one by one)
 * is bounded, and what depends on files of users is done elsewhere (hook-user.h).
 */

#include "hook.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fnmatch.h>
#include <json-c/json.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hook-private.h"
#include "hook-programs.h"
#include "daemon/gpuprobed/trace/source/pid-namespace.h"
#include "lib/json.h"

#define TEST_DEVICES \
	"GPUPROBE_TEST_DEVICES" /* hook_places::extra_devices, for tests of the whole daemon */

/* ---- whom ---- */

/* Id and depth of a cgroup of the unified hierarchy: callers say which, and nothing beside that is
 * looked at. */
static bool find_cgroup(const char *path, struct hook_config *config) {
	static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	char full[1200];

	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots) && !strstr(path, "/.."); i++) {
		struct statfs filesystem;
		struct stat status;

		snprintf(full, sizeof(full), "%s%s", roots[i], path);
		if (statfs(full, &filesystem) < 0 || filesystem.f_type != CGROUP2_SUPER_MAGIC ||
		    stat(full, &status) < 0)
			continue;
		config->cgroup = status.st_ino;
		config->cgroup_level = 0;
		for (const char *at = path; *at; at++)
			config->cgroup_level += *at == '/' && at[1] && at[1] != '/';
		return true;
	}
	return false;
}

/* What can be decided in the kernel; the session decides the rest. */
static void fill_config(struct hook_config *config, const struct trace_options *options,
			const struct hook_kernel *kernel) {
	const char *cgroup = options->cgroup              ? options->cgroup
			     : options->filter.has_cgroup ? options->filter.cgroup
							  : NULL;

	*config = (struct hook_config){ .self = (uint32_t)getpid(),
					.min_duration = options->min_duration };
	if (options->n_pids || options->filter.has_pid)
		config->flags |= HOOK_CONFIG_KNOWN;
	if (options->follow)
		config->flags |= HOOK_CONFIG_FOLLOW;
	if (!options->all_users || options->filter.has_uid) {
		config->flags |= HOOK_CONFIG_UID;
		config->uid = options->all_users ? options->filter.uid : options->caller;
	}
	if (cgroup && find_cgroup(cgroup, config))
		config->flags |= HOOK_CONFIG_CGROUP;
	if (hook_kernel_offsets(kernel, config))
		config->flags |= HOOK_CONFIG_OFFSETS;
	config->n_devices = (uint32_t)kernel->n_devices;
	memcpy(config->devices, kernel->devices, sizeof(config->devices));
}

static void fill_processes(struct trace_hooks *hooks, const struct trace_options *options) {
	int map = hook_programs_map(hooks->programs, HOOK_MAP_PROCESSES);
	uint32_t yes = HOOK_VERDICT_YES, pid = (uint32_t)options->filter.pid;

	for (size_t i = 0; i < options->n_pids; i++)
		bpf_map_update_elem(map, &options->pids[i], &yes, BPF_ANY);
	if (!options->n_pids && options->filter.has_pid)
		bpf_map_update_elem(map, &pid, &yes, BPF_ANY);
}

/* ---- which ---- */

static void complain(const char *line, void *userdata) {
	trace_session_missing(userdata, "hooks: %s", line);
}

static int add_probes(struct trace_hooks *hooks, const struct trace_options *options) {
	char error[HOOK_ERROR_SIZE];
	struct hook *hook;
	int r;

	hooks->probes = calloc(options->n_probes + 1, sizeof(*hooks->probes));
	if (!hooks->probes)
		return -ENOMEM;
	for (size_t i = 0; i < options->n_probes; i++) {
		r = hook_spec_parse(&hook, options->probes[i], error);
		if (r < 0)
			return r;
		if (r > 0) {
			trace_session_missing(hooks->session, "probe %s", error);
			continue;
		}
		/* of files their owners are asked for: hook-user.h */
		if (!options->all_users &&
		    (!options->own_files || hook->alternatives->kind != HOOK_USER)) {
			trace_session_missing(
				hooks->session,
				"probe %s: callers who may not attach can probe functions of their "
				"own files only%s",
				options->probes[i],
				options->own_files
					? ""
					: ", and that if the daemon has user-attach = yes");
			hook_free(hook);
			continue;
		}
		hooks->probes[hooks->n_probes++] = hook;
	}
	return 0;
}

/* Patterns that select nothing are slips. */
static void check_patterns(struct trace_hooks *hooks, const struct trace_options *options) {
	for (size_t i = 0; i < options->n_hooks; i++) {
		const char *pattern = options->hooks[i] + (*options->hooks[i] == '!');
		bool found = !strncmp(pattern, HOOK_DISCOVER, strlen(HOOK_DISCOVER));

		for (size_t k = 0; !found && k < hooks->catalogue.n; k++)
			found = hook_selected(hooks->catalogue.hooks[k], &pattern, 1);
		if (!found)
			trace_session_missing(hooks->session,
					      "hooks: %s is no name, set or glob of a hook",
					      pattern);
	}
}

/* The rows: hooks of the catalogue that are selected, then probes. */
static int select_hooks(struct trace_hooks *hooks, const struct trace_options *options) {
	size_t n = hooks->catalogue.n + hooks->n_probes;

	hooks->attachments = calloc(n + 1, sizeof(*hooks->attachments));
	if (!hooks->attachments)
		return -ENOMEM;
	for (size_t i = 0; options->kernel && i < hooks->catalogue.n; i++) {
		const struct hook *hook = hooks->catalogue.hooks[i];

		/* what is of no process is not shown to one user */
		if ((options->all_users || hook->process == HOOK_PROCESS_MEANT) &&
		    hook_selected(hook, options->hooks, options->n_hooks) &&
		    hooks->n_attachments < HOOK_ROWS_MAX)
			hooks->attachments[hooks->n_attachments++].hook = hook;
	}
	for (size_t i = 0; i < hooks->n_probes && hooks->n_attachments < HOOK_ROWS_MAX; i++)
		hooks->attachments[hooks->n_attachments++].hook = hooks->probes[i];
	return 0;
}

/* Which programs they may come to need. */
static unsigned find_needs(const struct trace_hooks *hooks, const struct trace_options *options) {
	unsigned needs = 0;

	for (size_t i = 0; i < hooks->n_attachments; i++) {
		const struct hook *hook = hooks->attachments[i].hook;

		for (size_t k = 0; k < hook->n_alternatives; k++) {
			const struct hook_alternative *alternative = &hook->alternatives[k];

			if (!hook_alternative_fits(alternative, hooks->kernel.version))
				continue;
			if (alternative->kind == HOOK_FUNCTION &&
			    hook_kernel_has_module(&hooks->kernel, alternative->place))
				needs |= HOOK_NEED_FUNCTIONS;
			else if (alternative->kind == HOOK_TRACEPOINT)
				needs |= HOOK_NEED_TRACEPOINTS;
			else if (alternative->kind == HOOK_SYSCALL && hooks->kernel.n_devices)
				needs |= HOOK_NEED_SYSCALLS;
			else if (alternative->kind == HOOK_USER)
				needs |= HOOK_NEED_USER;
		}
	}
	for (size_t i = 0; i < options->n_hooks && options->all_users; i++)
		if (!strncmp(options->hooks[i], HOOK_DISCOVER, strlen(HOOK_DISCOVER)) &&
		    hooks->kernel.n_symbols)
			needs |= HOOK_NEED_COUNTS;
	return needs;
}

static void tell_probe(struct trace_hooks *hooks, const struct hook_attachment *attachment) {
	trace_session_missing(hooks->session, "probe %s: %s", attachment->hook->name,
			      attachment->reason);
}

/* Whether a pattern is the name of a hook, not a set of them. */
static bool is_named(const struct hook *hook, const struct trace_options *options) {
	for (size_t i = 0; i < options->n_hooks; i++)
		if (!strcmp(options->hooks[i], hook->name))
			return true;
	return false;
}

/* Hooks that were named get a line each; those of sets and globs one together; those that are there
 * by default none: nobody asked for them. */
static void tell_missing(struct trace_hooks *hooks, const struct trace_options *options) {
	char names[400] = "";
	size_t n = 0, n_missing = 0, n_hooks = 0;

	for (size_t i = 0; i < hooks->n_attachments; i++) {
		const struct hook_attachment *attachment = &hooks->attachments[i];
		bool probe = !strcmp(attachment->hook->set, "user"),
		     named = is_named(attachment->hook, options);

		n_hooks += !probe && !named;
		if (attachment->method != HOOK_METHOD_NONE || attachment->waiting)
			continue;
		if (probe)
			tell_probe(hooks, attachment);
		else if (named)
			trace_session_missing(hooks->session, "hook %s: %s", attachment->hook->name,
					      attachment->reason);
		if (probe || named || !options->n_hooks)
			continue;
		n_missing++;
		if (n < sizeof(names))
			n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
					      attachment->hook->name);
	}
	if (n_missing && n_missing == n_hooks)
		trace_session_missing(hooks->session,
				      "none of %zu hooks of the driver can be attached "
				      "(`gpuprobectl hook list` says why)",
				      n_hooks);
	else if (n_missing)
		trace_session_missing(
			hooks->session,
			"%zu of %zu hooks of the driver (`gpuprobectl hook list` says why): %s%s",
			n_missing, n_hooks, names, n >= sizeof(names) ? "..." : "");
}

/* ---- probes of functions of files ---- */

/* All that wait have that answer (or each its own). */
static void settle(struct trace_hooks *hooks, int r) {
	for (size_t i = 0; i < hooks->n_attachments; i++) {
		struct hook_attachment *attachment = &hooks->attachments[i];
		int error = 0, answer = r;

		if (!attachment->waiting)
			continue;
		if (!r)
			answer = hook_user_result(hooks->user, (uint32_t)i, &error);
		hook_attach_settle(attachment, answer, error);
		if (attachment->method == HOOK_METHOD_NONE)
			tell_probe(hooks, attachment);
	}
}

/* The one process that is meant, and no child of its; 0: there may be others. */
static pid_t only_process(const struct trace_options *options) {
	if (options->follow || options->n_pids > 1)
		return 0;
	return options->n_pids           ? (pid_t)options->pids[0]
	       : options->filter.has_pid ? options->filter.pid
					 : 0;
}

/* Those that wait. */
static int start_user(struct trace_hooks *hooks, const struct trace_options *options) {
	const struct hook_user_programs programs = hook_programs_user(hooks->programs);
	size_t n = 0;
	int r;

	for (size_t i = 0; i < hooks->n_attachments; i++)
		n += hooks->attachments[i].waiting;
	if (!n)
		return 0;
	r = hook_user_new(&hooks->user, options->caller, options->all_users, only_process(options));
	for (size_t i = 0; i < hooks->n_attachments && !r; i++) {
		const struct hook_alternative *alternative = hooks->attachments[i].alternative;

		if (hooks->attachments[i].waiting)
			r = hook_user_add(hooks->user, alternative->place, alternative->name,
					  (uint32_t)i, alternative->span);
	}
	if (!r)
		r = hook_user_start(hooks->user, &programs);
	if (r) {
		settle(hooks, r);
		hooks->user = hook_user_free(hooks->user);
	}
	return 0;
}

/* Takes what has become of them, if that is known. */
static void take_user(struct trace_hooks *hooks) {
	int error = 0;

	if (!hooks->user || trace_hooks_ready(hooks) || !hook_user_over(hooks->user))
		return;
	settle(hooks, 0);
	if (hook_user_result(hooks->user, 0, &error) == HOOK_USER_E_SILENT)
		hooks->user = hook_user_free(hooks->user);
}

bool trace_hooks_ready(const struct trace_hooks *hooks) {
	for (size_t i = 0; i < hooks->n_attachments; i++)
		if (hooks->attachments[i].waiting)
			return false;
	return true;
}

/* No record of theirs comes any more, though their programs run until they are gone. */
static void stop_user(struct trace_hooks *hooks) {
	for (uint32_t i = 0; i < hooks->n_attachments && hooks->user; i++) {
		const struct hook_alternative *alternative = hooks->attachments[i].alternative;
		int map = hook_programs_map(hooks->programs, HOOK_MAP_ROWS);
		struct hook_row row;

		if (!alternative || alternative->kind != HOOK_USER ||
		    bpf_map_lookup_elem(map, &i, &row))
			continue;
		row.flags |= HOOK_ROW_OFF;
		bpf_map_update_elem(map, &i, &row, BPF_ANY);
	}
	hooks->user = hook_user_free(hooks->user);
}

/* ---- beginning and end ---- */

static int start(struct trace_hooks *hooks, const struct trace_options *options,
		 const struct hook_places *places) {
	const bool asked =
		options->n_hooks || options->n_probes; /* else they are there where they can be */
	struct hook_config config;
	struct stat namespace;
	int r;

	if (pid_namespace_is_own(&namespace)) {
		if (asked)
			trace_session_missing(
				hooks->session,
				"hooks: this daemon is in a PID namespace of its own, where "
				"numbers of processes are not the kernel's; "
				"start it on the host");
		return -EOPNOTSUPP;
	}
	r = hook_kernel_init(&hooks->kernel, places);
	if (r < 0)
		return r;
	r = hook_catalogue_read(&hooks->catalogue, hooks->kernel.places.folder, complain,
				hooks->session);
	if (!r)
		r = add_probes(hooks, options);
	if (!r)
		r = select_hooks(hooks, options);
	if (r < 0)
		return r;
	if (options->kernel)
		check_patterns(hooks, options);
	fill_config(&config, options, &hooks->kernel);
	r = hook_programs_new(&hooks->programs, &config, find_needs(hooks, options));
	if (r < 0) {
		if (asked)
			trace_session_missing(
				hooks->session, "hooks: %s",
				r == -EPERM || r == -EACCES
					? "the kernel does not let this daemon load eBPF programs"
				: r == -ENOSYS ? "this kernel has no eBPF"
					       : "the kernel refuses their programs; it is older "
						 "than 5.15");
		return r;
	}
	fill_processes(hooks, options);
	hooks->ring = ring_buffer__new(hook_programs_map(hooks->programs, HOOK_MAP_RING),
				       hook_event_take, hooks, NULL);
	if (!hooks->ring)
		return -errno;
	r = hook_programs_processes(hooks->programs);
	if (r < 0)
		trace_session_missing(hooks->session, "beginnings and ends of processes: %s",
				      strerror(-r));
	r = hook_attach(hooks->attachments, hooks->n_attachments, hooks->programs, &hooks->kernel);
	if (r < 0)
		return r;
	tell_missing(hooks, options);
	r = start_user(hooks, options);
	if (r < 0)
		return r;
	return options->kernel ? hook_discover_new(hooks, options->hooks, options->n_hooks) : 0;
}

int trace_hooks_new_at(struct trace_hooks **hooksp, struct trace_session *session,
		       const struct trace_options *options, const struct hook_places *places) {
	struct trace_hooks *hooks = calloc(1, sizeof(*hooks));
	int r, n_cpus = libbpf_num_possible_cpus();

	if (!hooks)
		return -ENOMEM;
	hooks->session = session;
	hooks->all_users = options->all_users;
	hooks->errors = options->errors;
	hooks->kernel.tracefs = -1;
	hooks->n_cpus = n_cpus > 0 ? (size_t)n_cpus : 1;
	hooks->values = calloc(hooks->n_cpus, sizeof(*hooks->values));
	r = hooks->values ? start(hooks, options, places) : -ENOMEM;
	if (r < 0) {
		trace_hooks_free(hooks);
		return r;
	}
	*hooksp = hooks;
	return 0;
}

int trace_hooks_new(struct trace_hooks **hooksp, struct trace_session *session,
		    const struct trace_options *options) {
	const struct hook_places places = { .extra_devices = secure_getenv(TEST_DEVICES) };

	return trace_hooks_new_at(hooksp, session, options, &places);
}

static void tell_lost(struct trace_hooks *hooks) {
	uint64_t lost = hook_sum(hooks, HOOK_MAP_LOST, 0);

	if (lost > hooks->lost)
		trace_session_lost(hooks->session, TRACE_SOURCE_BPF, 0, 0, lost - hooks->lost);
	hooks->lost = lost;
}

bool trace_hooks_drain(struct trace_hooks *hooks) {
	bool all;

	hooks->n_taken = hooks->n_looked = 0;
	all = ring_buffer__consume(hooks->ring) != -EAGAIN;
	tell_lost(hooks);
	hook_discover_drain(hooks, false);
	take_user(hooks);
	return all;
}

/* Nothing runs any more; what was under way is told as it is. */
static void stop(struct trace_hooks *hooks) {
	stop_user(hooks);
	hook_programs_detach(hooks->programs);
	while (ring_buffer__consume(hooks->ring) == -EAGAIN)
		;
	trace_hooks_drain(hooks);
	hook_event_flush(hooks);
	hook_discover_drain(hooks, true);
}

struct trace_hooks *trace_hooks_free(struct trace_hooks *hooks) {
	if (!hooks)
		return NULL;
	if (hooks->ring)
		stop(hooks);
	hook_discover_free(hooks);
	ring_buffer__free(hooks->ring);
	hook_programs_free(hooks->programs);
	for (size_t i = 0; i < hooks->n_probes; i++)
		hook_free(hooks->probes[i]);
	free(hooks->probes);
	free(hooks->attachments);
	hook_catalogue_deinit(&hooks->catalogue);
	hook_kernel_deinit(&hooks->kernel);
	free(hooks->values);
	free(hooks);
	return NULL;
}

/* ---- the list ---- */

static void add_arguments(json_object *object, const struct hook_attachment *attachment,
			  const struct hook_alternative *alternative) {
	json_object *array = json_object_new_array();
	char text[64];

	for (size_t i = 0; i < alternative->n_arguments; i++) {
		const struct hook_argument *argument = &alternative->arguments[i];
		const struct hook_type *type =
			attachment->types[i] ? attachment->types[i] : argument->type;

		snprintf(text, sizeof(text), "%s:%s", argument->name, type ? type->name : "u64");
		json_append_string(array, text);
	}
	json_add(object, "arguments", array);
}

static void add_hook(json_object *array, const struct hook_attachment *attachment, bool attached,
		     uint64_t hits) {
	const struct hook *hook = attachment->hook;
	const struct hook_alternative *alternative =
		attachment->alternative ? attachment->alternative : hook->alternatives;
	json_object *object = json_object_new_object();
	char target[HOOK_SPEC_MAX];

	hook_target(target, sizeof(target), alternative);
	json_add_string(object, "name", hook->name);
	json_add_string(object, "set", hook->set);
	json_add_string(object, "purpose", hook->purpose);
	add_arguments(object, attachment, alternative);
	json_add_string(object, "state",
			attached                                 ? "attached"
			: attachment->method == HOOK_METHOD_NONE ? "unavailable"
								 : "available");
	json_add_string(object, "method", hook_method_name(attachment->method));
	json_add_string(object, "target", target);
	json_add_string(object, "reason", attachment->reason);
	json_add_int(object, "hits", (int64_t)hits);
	json_append(array, object); /* as the last: the array hears of what lacks */
}

/* The attachment of that hook in one of the traces, and its hits in all. */
static const struct hook_attachment *find_attached(struct trace_hooks *const *attached, size_t n,
						   const char *name, uint64_t *hitsp) {
	const struct hook_attachment *found = NULL;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < attached[i]->n_attachments; k++) {
			const struct hook_attachment *attachment = &attached[i]->attachments[k];

			if (attachment->method == HOOK_METHOD_NONE ||
			    strcmp(attachment->hook->name, name))
				continue;
			found = attachment;
			*hitsp += hook_sum(attached[i], HOOK_MAP_HITS, (uint32_t)k);
		}
	return found;
}

/* Probes of users, which are in no catalogue. */
static void list_probes(json_object *array, const char *const *pattern,
			struct trace_hooks *const *attached, size_t n) {
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < attached[i]->n_attachments; k++) {
			const struct hook_attachment *attachment = &attached[i]->attachments[k];

			if (!strcmp(attachment->hook->set, "user") &&
			    (!*pattern || hook_selected(attachment->hook, pattern, 1)))
				add_hook(array, attachment, attachment->method != HOOK_METHOD_NONE,
					 hook_sum(attached[i], HOOK_MAP_HITS, (uint32_t)k));
		}
}

static void list_catalogue(json_object *array, const char *const *pattern,
			   struct trace_hooks *const *attached, size_t n,
			   const struct hook_catalogue *catalogue,
			   const struct hook_kernel *kernel) {
	for (size_t i = 0; i < catalogue->n; i++) {
		struct hook_attachment guess = { .hook = catalogue->hooks[i] };
		const struct hook_attachment *found;
		uint64_t hits = 0;

		if (*pattern && !hook_selected(guess.hook, pattern, 1))
			continue;
		found = find_attached(attached, n, guess.hook->name, &hits);
		if (!found)
			hook_attach_guess(&guess, kernel);
		add_hook(array, found ? found : &guess, found, hits);
	}
}

int trace_hooks_list(const char *pattern, struct trace_hooks *const *attached, size_t n_attached,
		     json_object **hooksp) {
	const struct hook_places places = { .extra_devices = secure_getenv(TEST_DEVICES) };
	json_object *array = json_object_new_array();
	struct hook_catalogue catalogue = {};
	struct hook_kernel kernel;
	int r;

	r = hook_kernel_init(&kernel, &places);
	if (r < 0) {
		json_object_put(array);
		return r;
	}
	r = hook_catalogue_read(&catalogue, NULL, NULL, NULL);
	if (!r) {
		list_catalogue(array, &pattern, attached, n_attached, &catalogue, &kernel);
		list_probes(array, &pattern, attached, n_attached);
		r = json_incomplete(array) ? -ENOMEM : 0;
	}
	hook_catalogue_deinit(&catalogue);
	hook_kernel_deinit(&kernel);
	if (r < 0) {
		json_object_put(array);
		return r;
	}
	*hooksp = array;
	return 0;
}
