/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method Examine: what only the daemon can know about its state. It asks two workers for a sign
 * of life, which takes a moment. The answer goes out when both have replied or failed. Only callers
 * who may attach can make it ask workers, because each is started for that.
 */

#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "missing.h"
#include "daemon/gpuprobed/trace/hook/hook.h"
#include "lib/json.h"

#define EXAMINE_PING_MS 20000
#define EXAMINE_DESCRIPTORS_MIN 4096

struct examine;

struct examine_ping {
	struct examine *examine;
	struct worker_task *task; /* that is on its way, or NULL */
	uint64_t began; /* nanoseconds */
	const char *id, *title;
};

struct examine {
	struct control_work work;
	struct control_context *context;
	json_object *checks;
	struct examine_ping pings[2]; /* image worker, program worker */
};

/* One check; todo NULL: nothing. */
static void __attribute__((format(printf, 6, 7))) examine_add(json_object *checks, const char *id,
							      const char *title, const char *state,
							      const char *todo, const char *format,
							      ...) {
	json_object *check = json_object_new_object();
	va_list arguments;
	char found[1024];

	va_start(arguments, format);
	vsnprintf(found, sizeof(found), format, arguments);
	va_end(arguments);
	json_add_text(check, "id", id);
	json_add_text(check, "title", title);
	json_add_text(check, "state", state);
	json_add_text(check, "found", found);
	json_add_text(check, "todo", todo ?: "");
	json_append(checks, check);
}

/* ---- rights ---- */

/* A number in base 16 or 10 of a line "KEY:\tNUMBER" of /proc/self/status; 0 if it is not there. */
static unsigned long long examine_status(const char *key, int base) {
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long number = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
			number = strtoull(line + strlen(key) + 1, NULL, base);
	if (file)
		fclose(file);
	return number;
}

static void examine_capabilities(const struct control_context *context, json_object *checks) {
	static const struct {
		unsigned int bit;
		const char *name;
	} names[] = { { CAP_BPF, "CAP_BPF" },
		      { CAP_PERFMON, "CAP_PERFMON" },
		      { CAP_SYS_PTRACE, "CAP_SYS_PTRACE" },
		      { CAP_SYSLOG, "CAP_SYSLOG" },
		      { CAP_SYS_ADMIN, "CAP_SYS_ADMIN" },
		      { CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH" } };
	unsigned long long set = examine_status("CapEff", 16);
	char text[256] = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (set & 1ULL << names[i].bit)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
				 *text ? " " : "", names[i].name);
	if (set & 1ULL << CAP_BPF && set & 1ULL << CAP_PERFMON)
		examine_add(checks, "daemon.capabilities", "capabilities of the daemon", "ok", NULL,
			    "%s", text);
	else
		examine_add(
			checks, "daemon.capabilities", "capabilities of the daemon",
			context->image->config->session ? "warning" : "failed",
			context->image->config->session
				? "a session daemon of a user has none; for eBPF on the host and "
				  "verified programs use the system's: systemctl start gpuprobed"
				: "run it by systemd with the unit that came with it: systemctl "
				  "cat gpuprobed",
			"%s; CAP_BPF and CAP_PERFMON are needed", *text ? text : "none");
}

static void examine_restrictions(const struct control_context *context, json_object *checks) {
	bool seccomp = examine_status("Seccomp", 10) == 2,
	     privileges = examine_status("NoNewPrivs", 10) == 1;
	const char *id = "daemon.restrictions", *title = "restrictions of the daemon";

	if (context->image->config->session)
		examine_add(checks, id, title, "skipped", NULL,
			    "a session daemon has the rights of its user");
	else if (seccomp && privileges && geteuid() != 0)
		examine_add(checks, id, title, "ok", NULL,
			    "user %u, no new privileges, a filter of system calls",
			    (unsigned)geteuid());
	else
		examine_add(checks, id, title, "warning",
			    "run it by systemd with the unit that came with it: systemctl start "
			    "gpuprobed",
			    "user %u%s%s: who takes it over has more than he need have",
			    (unsigned)geteuid(),
			    privileges ? "" : ", new privileges by set-uid programs",
			    seccomp ? "" : ", all system calls");
}

/* ---- limits ---- */

static unsigned int examine_count_descriptors(void) {
	DIR *folder = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n > 3 ? n - 3 : 0; /* ".", ".." and its own */
}

static void examine_descriptors(json_object *checks) {
	const char *id = "daemon.descriptors", *title = "file descriptors of the daemon";
	unsigned int used = examine_count_descriptors();
	struct rlimit limit = {};

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < EXAMINE_DESCRIPTORS_MIN || used > limit.rlim_cur / 5 * 4)
		examine_add(checks, id, title, "warning",
			    "each CUDA process has a connection and maps: raise LimitNOFILE= of "
			    "the unit, or ulimit -n",
			    "%u of %llu are in use", used, (unsigned long long)limit.rlim_cur);
	else
		examine_add(checks, id, title, "ok", NULL, "%u of %llu are in use", used,
			    (unsigned long long)limit.rlim_cur);
}

/* ---- parts that Status tells of, too ---- */

struct examine_part {
	const char *part, *id, *title, *state; /* if it is missing */
	char line[512];
};

static void examine_take_missing(const char *part, const char *line, void *userdata) {
	for (struct examine_part *p = userdata; p->part; p++)
		if (!strcmp(p->part, part))
			snprintf(p->line, sizeof(p->line), "%s", line);
}

/* A part that is missing: what it is, and behind the semicolon what would help. */
static void examine_add_missing(json_object *checks, struct examine_part *part) {
	char *semicolon = strstr(part->line, "; ");

	if (semicolon)
		*semicolon = '\0';
	examine_add(checks, part->id, part->title, part->state, semicolon ? semicolon + 2 : "",
		    "%s", part->line);
}

static void examine_parts(const struct control_context *context, json_object *checks) {
	struct examine_part parts[] = {
		{ "verifier", "daemon.verifier", "verification of programs",
		  context->image->config->verify ? "failed" : "warning", "" },
		{ "processes", "daemon.processes", "executables of other users' processes",
		  "warning", "" },
		{ "compiler", "daemon.compiler", "CUDA compiler", "warning", "" },
		{ "patching", "daemon.patching", "patching of machine code", "warning", "" },
		{ "shims", "daemon.shims", "shims of another version", "warning", "" },
		{ "toolkit", "daemon.toolkit", "toolkit of the configuration", "warning", "" },
		{ "metrics", "daemon.metrics", "metrics", "warning", "" },
		{},
	};
	const char *found[] = {
		"by the kernel's verifier",
		"are read",
		missing_feature(context, "compiler") ?: "the driver's own",
		missing_feature(context, "patch") ?: "not built in: PTX engine only",
		"no program runs with one",
		context->image->config->toolkit ?: "none is named",
		context->image->config->metrics.n ? "written as configured" : "not asked for"
	};

	missing_each(context, examine_take_missing, parts);
	for (size_t i = 0; parts[i].part; i++)
		if (*parts[i].line)
			examine_add_missing(checks, &parts[i]);
		else
			examine_add(checks, parts[i].id, parts[i].title, "ok", NULL, "%s",
				    found[i]);
}

static void examine_hooks(struct control_context *context, const struct varlink_call *call,
			  json_object *checks) {
#if TRACE_HAS_HOOKS
	const char *id = "daemon.hooks", *title = "hooks in the kernel", *reason = "";
	json_object *hooks = NULL;
	size_t n, unavailable = 0;
	uint64_t began;
	int r;

	if (!control_may_read_hooks(context, call)) {
		examine_add(checks, id, title, "skipped", "ask again",
			    "another user has just had them looked at");
		return;
	}
	began = uv_hrtime();
	r = trace_hooks_list(NULL, NULL, 0, &hooks);
	control_have_read_hooks(context, call, began);
	if (r < 0) {
		examine_add(checks, id, title, "unknown", NULL, "%s", strerror(-r));
		return;
	}
	n = json_object_array_length(hooks);
	for (size_t i = 0; i < n; i++) {
		json_object *hook = json_object_array_get_idx(hooks, i);

		if (strcmp(json_string_of(hook, "state"), "unavailable"))
			continue;
		if (!unavailable++)
			reason = json_string_of(hook, "reason");
	}
	if (unavailable)
		examine_add(checks, id, title, "warning",
			    "gpuprobectl hook list says why for each; " PROJECT_DROP_INS
			    "/kernel-hooks.conf gives the daemon the rights for all",
			    "%zu of %zu are not there; the first one: %s", unavailable, n, reason);
	else
		examine_add(checks, id, title, "ok", NULL, "all %zu can be attached", n);
	json_object_put(hooks);
#else
	examine_add(checks, "daemon.hooks", "hooks in the kernel", "warning",
		    "build it with clang 19", "this gpuprobed was built without them");
#endif
}

/* Where to look: a session daemon has no journal. */
static const char *examine_log(const struct control_context *context, const char *service,
			       const char *session) {
	return context->image->config->session ? session : service;
}

static void examine_cache(const struct control_context *context, json_object *checks) {
	const char *id = "daemon.cache", *title = "cache on the disk";
	struct examine_part part[] = { { "cache", id, title, "warning", "" }, {} };
	struct cache_counters counters;

	missing_each(context, examine_take_missing, part);
	cache_counters(context->image->cache, &counters);
	if (*part->line)
		examine_add_missing(checks, part);
	else if (context->image->cache && counters.failures)
		examine_add(
			checks, id, title, "warning",
			examine_log(
				context,
				"look at the disk; the daemon's log has the error: journalctl -u "
				"gpuprobed",
				"look at the disk; the standard error of the daemon has the error"),
			"%s: %llu failures", job_cache_folder(context->image->cache),
			(unsigned long long)counters.failures);
	else if (context->image->cache)
		examine_add(checks, id, title, "ok", NULL, "%s: %llu entries, %llu of %llu MiB",
			    job_cache_folder(context->image->cache),
			    (unsigned long long)counters.entries,
			    (unsigned long long)counters.bytes >> 20,
			    (unsigned long long)counters.limit >> 20);
	else
		examine_add(checks, id, title, "skipped", NULL,
			    "none: it was not asked for (--cache-dir, --cache-size)");
}

static void examine_rest(const struct control_context *context, json_object *checks) {
	char devices[128] = "";

	for (unsigned int i = 0; i < context->image->n_capabilities; i++)
		snprintf(devices + strlen(devices), sizeof(devices) - strlen(devices), "%ssm_%u",
			 i ? " " : "", context->image->capabilities[i]);
	if (*devices)
		examine_add(checks, "daemon.devices", "GPUs that the daemon knows of", "ok", NULL,
			    "%s", devices);
	else
		examine_add(checks, "daemon.devices", "GPUs that the daemon knows of", "warning",
			    "nothing, if programs run: the first one tells which they are, and "
			    "waits for its patches to be compiled",
			    "none is known by its PCI id, and no process has told of one");
	examine_descriptors(checks);
	examine_cache(context, checks);
}

/* ---- the call ---- */

static uint64_t examine_now(void) {
	return uv_hrtime();
}

static void examine_finish(struct examine *examine) {
	struct varlink_call *call = examine->work.call;
	json_object *json = json_object_new_object();

	examine_parts(examine->context, examine->checks);
	examine_rest(examine->context, examine->checks);
	examine_hooks(examine->context, call, examine->checks);
	json_add(json, "checks", examine->checks);
	examine->checks = NULL;
	varlink_call_reply(call, json);
	control_work_end(&examine->work, 0);
}

static void examine_on_pong(struct worker_task *task, int result, json_object *reply,
			    const char *message, void *userdata) {
	struct examine_ping *ping = userdata;
	struct examine *examine = ping->examine;

	ping->task = NULL;
	if (result == _WORKER_POOL_SUCCESS)
		examine_add(examine->checks, ping->id, ping->title, "ok", NULL,
			    "answers in %.1f ms", (double)(examine_now() - ping->began) / 1e6);
	else
		examine_add(
			examine->checks, ping->id, ping->title, "failed",
			examine_log(examine->context,
				    "its last words are in the journal: journalctl -u gpuprobed",
				    "its last words are in the standard error of the daemon"),
			"%s", message);
	if (!examine->pings[0].task && !examine->pings[1].task)
		examine_finish(examine);
}

static void examine_free(void *userdata) {
	struct examine *examine = userdata;

	for (size_t i = 0; i < 2; i++)
		if (examine->pings[i].task)
			worker_task_forget(examine->pings[i].task);
	json_object_put(examine->checks);
	free(examine);
}

static int examine_ping(struct examine *examine, size_t index, struct worker_pool *pool,
			const char *id, const char *title) {
	struct examine_ping *ping = &examine->pings[index];
	json_object *request = json_object_new_object();

	*ping = (struct examine_ping){
		.examine = examine, .began = examine_now(), .id = id, .title = title
	};
	json_add_text(request, "job", "ping");
	ping->task = worker_task_new(request, examine_on_pong, ping);
	if (!ping->task)
		return -ENOMEM;
	worker_pool_submit(pool, ping->task, EXAMINE_PING_MS);
	return 0;
}

int control_examine(struct varlink_call *call, json_object *parameters, void *userdata) {
	static const char *const ids[] = { "daemon.image-worker", "daemon.program-worker" },
				 *const titles[] = { "image worker", "program worker" };
	struct control_context *context = userdata;
	struct worker_pool *pools[] = { context->image->image_pool, context->attach->program_pool };
	struct examine *examine = calloc(1, sizeof(*examine));

	if (!examine)
		return -ENOMEM;
	examine->context = context;
	examine->checks = json_object_new_array();
	control_work_begin(&examine->work, call, examine_free);
	examine_capabilities(context, examine->checks);
	examine_restrictions(context, examine->checks);
	for (size_t i = 0; i < 2; i++)
		if (!control_may_attach(call))
			examine_add(examine->checks, ids[i], titles[i], "skipped",
				    "only root and members of the group gpuprobe may have it asked",
				    "not asked");
		else if (examine_ping(examine, i, pools[i], ids[i], titles[i]))
			examine_add(examine->checks, ids[i], titles[i], "unknown", NULL,
				    "out of memory");
	if (!examine->pings[0].task && !examine->pings[1].task)
		examine_finish(examine);
	return 0;
}
