/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the parts of the daemon in the order in which they need each other, and ends them in the
 * opposite order.
 */

#include "daemon-private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/gpuprobed/registry/artifact.h"
#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/base/closer.h"
#include "daemon/gpuprobed/control/control.h"
#include "daemon/gpuprobed/settings/exclude.h"
#include "daemon/gpuprobed/registry/gpu.h"
#include "daemon/gpuprobed/keep/keep.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/log-limit.h"
#include "daemon/gpuprobed/base/loop-meter.h"
#include "daemon/gpuprobed/base/message-id.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/metrics/metrics.h"
#include "daemon/gpuprobed/clients/other-shims.h"
#include "daemon/gpuprobed/image/pass.h"
#include "daemon/gpuprobed/trace/session/session.h"
#include "lib/base/clock.h"
#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/varlink/varlink-server.h"
#include "daemon/gpuprobed/verify/verify.h"

#define EXHAUSTED_PERIOD_MS 60000

void daemon_connect_rooms(struct daemon *daemon) {
	daemon->image.loop = daemon->loop;
	daemon->image.config = daemon->config;
	daemon->image.registry = &daemon->registry;
	daemon->image.processes = &daemon->processes;
	daemon->image.outcomes = &daemon->outcomes;
	daemon->client.image = &daemon->image;
	daemon->client.keep = daemon->keep;
	daemon->client.map_accounts = daemon->map_accounts;
	daemon->attach.image = &daemon->image;
	daemon->attach.client = &daemon->client;
	daemon->attach.accounts = &daemon->accounts;
	daemon->attach.exports = &daemon->exports;
	daemon->metrics.image = &daemon->image;
	daemon->metrics.client = &daemon->client;
	daemon->metrics.attach = &daemon->attach;
	daemon->metrics.shims = daemon->shims;
	daemon->metrics.control = daemon->control_server;
	daemon->control.image = &daemon->image;
	daemon->control.client = &daemon->client;
	daemon->control.attach = &daemon->attach;
	daemon->control.metrics = &daemon->metrics;
}

static void daemon_on_breach(const struct shim_connection *connection, const char *why,
			     void *userdata) {
	struct client_context *context = userdata;

	/* remembered, not logged: anybody can cause it, as often as he likes */
	outcome_log_add(context->image->outcomes, connection->uid, connection->pid, "",
			OUTCOME_FAILED, &(struct outcome_subject){}, why);
	if (connection->refused)
		trace_table_refused(context->traces, connection->pid, why);
}

static void daemon_on_other(const struct shim_connection *connection,
			    const struct shim_greeting *greeting, void *userdata) {
	struct client_context *context = userdata;

	other_shims_greeted(context->other_shims, connection, greeting);
}

/* Programs have as many connections as there may be. */
static void daemon_log_full(const struct daemon *daemon) {
	const struct account *account, *most = daemon->accounts.first;
	char uid[16];
	const char *const fields[] = { "GPUPROBE_UID", uid, NULL };

	for (account = most; account; account = account->next)
		if (account->connections > most->connections)
			most = account;
	snprintf(uid, sizeof(uid), "%u", (unsigned)most->uid);
	log_event(LOG_LEVEL_WARNING, MESSAGE_FULL, fields,
		  "programs have as many connections as there may be (%d, of which the last are "
		  "for users who have few, and for root): some are not served; uid %s has most, %u",
		  SHIM_CONNECTIONS_MAX, uid, most->connections);
}

/* Somebody is not served for want of descriptors, or of room: one line in a minute, as it may be
 * the same for all of them. */
static void daemon_on_exhausted(int error, void *userdata) {
	static const char *const no_fields[] = { NULL };
	struct daemon *daemon = userdata;
	struct rlimit limit = {};

	if (daemon->exhausted && uv_now(daemon->loop) - daemon->exhausted < EXHAUSTED_PERIOD_MS)
		return;
	daemon->exhausted = uv_now(daemon->loop) ?: 1;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (error == -EUSERS)
		daemon_log_full(daemon);
	else if (error == -EMFILE)
		log_event(LOG_LEVEL_WARNING, MESSAGE_EXHAUSTED, no_fields,
			  "no descriptor is left for connections: the daemon may have %llu open; "
			  "give it more (LimitNOFILE= of the unit, ulimit -n), or lower "
			  "quota-connections",
			  (unsigned long long)limit.rlim_cur);
	else
		log_event(LOG_LEVEL_WARNING, MESSAGE_EXHAUSTED, no_fields,
			  "connections cannot be accepted: %s%s", strerror(-error),
			  error == -ENFILE ? " (fs.file-max)" : "");
}

static void daemon_close_socket(int consumed_fd, void *userdata) {
	const struct daemon *daemon = userdata;

	closer_socket(daemon->image.closer, consumed_fd);
}

static bool daemon_is_behind(void *userdata) {
	const struct daemon *daemon = userdata;

	return closer_is_behind(daemon->image.closer);
}

static int daemon_start_control(struct daemon *daemon, const struct daemon_options *options) {
	struct varlink_server_options server_options = {
		.size = sizeof(server_options),
		.vendor = "gpuprobe",
		.product = "gpuprobed",
		.version = PROJECT_VERSION,
		.url = "https://github.com/gpuprobe/gpuprobed",
		.connections_per_uid_max = daemon->config->quota_clients,
		.limit_error = "io.gpuprobe.control.LimitExceeded",
		.close_socket = daemon_close_socket,
		.is_behind = daemon_is_behind,
		.exhausted = daemon_on_exhausted,
		.userdata = daemon,
	};
	struct varlink_fault fault = {};
	int r;

	r = varlink_server_new(&daemon->control_server, daemon->loop, &server_options);
	if (r == 0)
		r = varlink_server_add_interface(daemon->control_server,
						 varlink_io_gpuprobe_control, control_methods,
						 &daemon->control, &fault);
	if (r) {
		log_error("control interface: %s", r < 0 ? strerror(-r) : fault.reason);
		fd_close(options->control_fd);
		return r < 0 ? r : -EINVAL;
	}
	if (options->control_fd >= 0)
		r = varlink_server_listen_consume(daemon->control_server, options->control_fd);
	else
		r = varlink_server_listen(daemon->control_server, options->control_path,
					  options->socket_mode);
	if (r < 0)
		log_error("%s: %s",
			  options->control_fd >= 0 ? "control socket" : options->control_path,
			  strerror(-r));
	return r;
}

static int daemon_start_shims(struct daemon *daemon, const struct daemon_options *options) {
	const struct shim_server_options server = {
		.accounts = &daemon->accounts,
		.handlers = &client_handlers,
		.userdata = &daemon->client,
		.closer = daemon->image.closer,
		.breach = daemon_on_breach,
		.other = daemon_on_other,
		.exhausted = daemon_on_exhausted,
		.exhausted_userdata = daemon,
	};
	int fd = options->shim_fd, r;

	if (fd < 0)
		fd = shim_server_listen(options->shim_path, options->socket_mode);
	r = fd < 0 ? fd : shim_server_new(&daemon->shims, daemon->loop, fd, &server);
	if (r < 0) {
		log_error("%s: %s", options->shim_path ? options->shim_path : "shim socket",
			  strerror(-r));
		return r;
	}
	return other_shims_new(&daemon->client.other_shims, &daemon->client);
}

static void daemon_on_worker_crash(const char *path, pid_t pid, const char *message) {
	char number[16];
	const char *const fields[] = { "GPUPROBE_WORKER", path, "GPUPROBE_PID", number, NULL };

	snprintf(number, sizeof(number), "%d", (int)pid);
	log_event(LOG_LEVEL_WARNING, MESSAGE_WORKER_CRASHED, fields, "%s, process %s: %s", path,
		  number, message);
}

/* The cache on the disk: without it the daemon does the same, and takes longer. 0 or -errno. */
static int daemon_start_cache(struct daemon *daemon) {
	const struct config *config = daemon->config;
	const char *folder = config->cache_dir;
	int r;

	r = cache_hash_setup();
	if (r < 0) {
		log_error("libgcrypt: %s", strerror(-r));
		return r;
	}
	if (!folder && !config->session)
		folder = getenv("CACHE_DIRECTORY") ?: JOB_CACHE_FOLDER;
	if (!folder || !config->cache_size)
		return 0;
	r = job_cache_new(&daemon->image.cache, daemon->loop, folder, config->cache_size);
	if (r) {
		snprintf(daemon->control.no_cache, sizeof(daemon->control.no_cache),
			 "no cache: %.400s: %s (--cache-dir)", folder, job_cache_reason(r));
		log_warning("%s", daemon->control.no_cache);
	}
	return 0;
}

static void daemon_on_worker_time(uint64_t owner, uint64_t ms, void *userdata) {
	struct daemon *daemon = userdata;
	struct account *account;

	if (account_get(&daemon->accounts, (uid_t)owner, &account) < 0)
		return;
	account_charge_time(account, ms, uv_now(daemon->loop));
	account_unref(account);
}

static int daemon_start_pools(struct daemon *daemon, const struct daemon_options *options) {
	struct worker_pool_options image = options->image_pool, program = options->program_pool,
				   pass = options->pass_pool;
	int r;

	image.size = program.size = sizeof(image);
	image.on_crash = program.on_crash = pass.on_crash = daemon_on_worker_crash;
	image.on_time = program.on_time = pass.on_time = daemon_on_worker_time;
	image.userdata = program.userdata = pass.userdata = daemon;
	image.workers = options->config->workers;
	image.extra_max = image.workers;
	program.workers = program.extra_max = 2;
	program.owner_max =
		1; /* what one has attached may take half a minute: others do not wait for it */
	program.single_use =
		true; /* each job sees one operator's object, in a process of its own */
	r = worker_pool_new(&daemon->image.image_pool, daemon->loop, &image);
	if (r == 0)
		r = worker_pool_new(&daemon->attach.program_pool, daemon->loop, &program);
	if (r == 0 && pass_set_runs_programs(&daemon->image.passes)) {
		pass.size = sizeof(pass);
		pass.workers = pass.extra_max = 2;
		pass.single_use = true; /* as above: one pass, one process */
		r = worker_pool_new(&daemon->image.pass_pool, daemon->loop, &pass);
	}
	if (r < 0)
		log_error("workers: %s", strerror(-r));
	return r;
}

static void daemon_on_bad_pass(const char *line, void *userdata) {
	log_warning("pass left out: %s", line);
}

/* Reads the definitions of passes. 0 or -ENOMEM. */
static int daemon_load_passes(struct daemon *daemon, const struct daemon_options *options) {
	int r;

	daemon->control.n_pass_folders = pass_folders(options->config->pass_dir, PASS_DATA_FOLDER,
						      daemon->control.pass_folders);
	r = pass_set_load(&daemon->image.passes, daemon->control.pass_folders,
			  daemon->control.n_pass_folders, daemon_on_bad_pass, NULL);
	if (r < 0)
		return r;
	log_notice("Discovered %zu pass definitions from %s%s%s", daemon->image.passes.n_found,
		   daemon->control.pass_folders[0],
		   daemon->control.n_pass_folders > 1 ? " and " : "",
		   daemon->control.n_pass_folders > 1 ? daemon->control.pass_folders[1] : "");
	if (!options->pass_pool.path && pass_set_runs_programs(&daemon->image.passes)) {
		log_error("gpuprobe-pass-worker is not found: passes of the user cannot run; "
			  "reinstall");
		return -ENOENT;
	}
	return 0;
}

/* What each user may use, of the configuration. */
static void daemon_set_quotas(struct daemon *daemon) {
	const struct config *config = daemon->config;

	daemon->account_limits = (struct account_limits){
		.connections = config->quota_connections,
		.images = config->quota_images,
		.image_bytes = config->quota_image_bytes,
		.compile_seconds = config->quota_compile_seconds,
	};
	daemon->accounts.limits = &daemon->account_limits;
	if (daemon->map_accounts)
		map_accounts_set_limit(daemon->map_accounts, config->quota_map_bytes);
	if (daemon->control_server)
		varlink_server_set_connections_per_uid_max(daemon->control_server,
							   config->quota_clients);
}

struct daemon_page_rules {
	struct interest_rule sass[INTEREST_SASS_RULES_MAX], exclude[INTEREST_EXCLUDE_RULES_MAX];
};

/* What the page says of the configuration. */
static struct interest_options daemon_interest_options(const struct config *config,
						       struct daemon_page_rules *rules) {
	return (struct interest_options){
		.deadline_ms = config->deadline_ms,
		.sass_rules = rules->sass,
		.n_sass_rules = engine_rules_to_page(&config->engines, rules->sass),
		.exclude_rules = rules->exclude,
		.n_exclude_rules = exclude_to_page(config, rules->exclude),
		.sanitizer = config->sanitizer,
	};
}

/* The interest page. 0 or -errno, logged. */
static int daemon_start_interest(struct daemon *daemon, const struct daemon_options *options) {
	struct interest_rule rules[REGISTRY_ATTACHMENTS_MAX];
	struct daemon_page_rules page_rules;
	struct interest_options page = daemon_interest_options(daemon->config, &page_rules);
	int r;

	page.rules = rules;
	page.n_rules = registry_rules(&daemon->registry, rules);
	r = interest_writer_new(&daemon->attach.interest, options->interest_path, &page);
	if (r < 0)
		log_error("%s: %s", options->interest_path, strerror(-r));
	return r;
}

/* Warns of a program that is named by a link to it: what counts is /proc/PID/exe, which names none.
 */
static void daemon_warn_link(const char *option, const struct filter *filter) {
	char *target =
		filter->has_exe && filter_is_exact(filter) ? realpath(filter->exe, NULL) : NULL;

	if (target && strcmp(target, filter->exe) != 0)
		log_warning("--%s: exe=%s means no process of this host: it is a link, or one "
			    "leads to it; say exe=%s",
			    option, filter->exe, target);
	free(target);
}

static void daemon_warn_links(const struct config *config) {
	for (size_t i = 0; i < config->engines.n; i++)
		daemon_warn_link("engine", &config->engines.rules[i].filter);
	for (size_t i = 0; i < config->excludes.n; i++)
		daemon_warn_link("exclude", &config->exclude_filters[i]);
}

void daemon_configure(struct daemon *daemon, const struct config *config) {
	struct daemon_page_rules rules;
	const bool mirrors = daemon->config->mirror_period_ms != config->mirror_period_ms;
	struct interest_options page;

	daemon->config = config;
	daemon_connect_rooms(daemon);
	daemon_set_quotas(daemon);
	page = daemon_interest_options(config, &rules);
	interest_writer_configure(daemon->attach.interest, &page);
	if (mirrors)
		client_welcome_mirrors(&daemon->client);
	if (daemon->client.traces) /* `exclude` may mean others now */
		trace_table_look_again(daemon->client.traces);
	plan_prepare_again(&daemon->image);
	daemon_warn_links(config);
}

/* What an earlier daemon had. 0 or -errno. */
static int daemon_restore(struct daemon *daemon, const struct daemon_options *options) {
	const struct keep_context context = {
		.image = &daemon->image,
		.exports = &daemon->exports,
		.map_accounts = daemon->map_accounts,
	};
	unsigned int n = 0;
	int r;

	daemon_connect_rooms(daemon);
	r = keep_new(&daemon->keep, &context, options->store, options->state_path);
	daemon->client.keep = daemon->keep;
	if (r == 0)
		r = keep_restore(daemon->keep, &n);
	if (r < 0)
		return r;
	daemon->image.names = keep_names(daemon->keep);
	client_fold_gone(&daemon->client);
	if (n)
		log_notice("goes on with %u attachment%s of the daemon before", n,
			   n == 1 ? "" : "s");
	return 0;
}

/* Warns of a path that lies in a /tmp or /var/tmp that systemd has made for the unit (PrivateTmp=).
 */
static void daemon_warn_private(const char *option, const char *path) {
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char root[4096], folder[4096];
	bool found = false;

	while (file && !found &&
	       fscanf(file, "%*s %*s %*s %4095s %4095s %*[^\n]", root, folder) == 2)
		found = strstr(root, "/systemd-private-") &&
			!strncmp(path, folder, strlen(folder)) && path[strlen(folder)] == '/';
	if (file)
		fclose(file);
	if (found)
		log_warning("--%s=%s: nobody else sees it: the unit has a %s of its own "
			    "(PrivateTmp=); say another folder, such as /run/gpuprobe",
			    option, path, folder);
}

static void daemon_warn_all_private(const struct config *config) {
	for (size_t i = 0; i < config->metrics.n; i++)
		daemon_warn_private("metrics", config->metrics.items[i] +
						       strcspn(config->metrics.items[i], "/"));
	if (config->keep_artifacts)
		daemon_warn_private("keep-artifacts", config->keep_artifacts);
}

/* What cannot fail. */
static void daemon_init(struct daemon *daemon, uv_loop_t *loop, const struct config *config) {
	daemon->control.started = clock_us(CLOCK_REALTIME);
	daemon->metrics.started_boot = clock_us(CLOCK_BOOTTIME);
	daemon->loop = loop;
	daemon->config = config;
	registry_init(&daemon->registry);
	plan_images_init(&daemon->image.plans);
	daemon->image.n_capabilities = (unsigned int)gpu_capabilities(
		GPU_PCI_FOLDER, daemon->image.capabilities, PLAN_CAPABILITIES_MAX);
	daemon_set_quotas(daemon);
	process_table_init(&daemon->processes, loop, client_process_gone, &daemon->client);
	outcome_log_init(&daemon->outcomes);
	map_exports_init(&daemon->exports);
	LIST_INIT(&daemon->client.syncs);
	TAILQ_INIT(&daemon->attach.verifying);
	LIST_INIT(&daemon->control.ring_readers);
}

/* The folder of --keep-artifacts, if there is to be one. 0 or -errno. */
static int daemon_start_artifacts(struct daemon *daemon) {
	const char *folder = daemon->config->keep_artifacts;
	int r;

	if (!folder)
		return 0;
	r = artifact_store_new(&daemon->image.artifacts, daemon->loop, folder);
	if (r < 0)
		log_error("--keep-artifacts=%s: %s", folder, strerror(-r));
	return r;
}

static void daemon_look_whether_verify(struct daemon *daemon) {
	if (!daemon->config->verify)
		return;
	daemon->control.verify_available = verify_available();
	if (daemon->control.verify_available)
		log_warning("programs cannot be verified, and so not attached: CAP_BPF and "
			    "CAP_PERFMON are missing (see --verify)");
}

int daemon_new(struct daemon **daemonp, uv_loop_t *loop, const struct daemon_options *options) {
	struct daemon *daemon;
	int r;

	daemon = calloc(1, sizeof(*daemon));
	if (!daemon)
		return -ENOMEM;
	*daemonp = daemon;
	daemon_init(daemon, loop, options->config);
	r = image_cache_init(&daemon->image.images);
	if (r == 0)
		r = loop_meter_new(&daemon->metrics.meter, loop);
	if (r == 0)
		r = closer_new(&daemon->image.closer, loop);
	if (r == 0)
		r = map_accounts_new(&daemon->map_accounts, daemon->config->quota_map_bytes);
	if (r == 0)
		r = daemon_restore(daemon, options);
	if (r == 0)
		r = daemon_start_interest(daemon, options);
	if (r == 0)
		r = trace_table_new(&daemon->client.traces, loop, daemon->attach.interest,
				    &daemon->config);
	if (r == 0)
		r = log_limit_new(&daemon->control.trace_lines, loop, LOG_LIMIT_MS, TRACE_BEGAN);
	if (r == 0)
		r = daemon_start_artifacts(daemon);
	if (r == 0)
		daemon_look_whether_verify(daemon);
	if (r == 0)
		r = daemon_load_passes(daemon, options);
	if (r == 0)
		r = daemon_start_cache(daemon);
	if (r == 0)
		r = daemon_start_pools(daemon, options);
	if (r == 0)
		r = daemon_start_shims(daemon, options);
	if (r == 0)
		r = daemon_start_control(daemon, options);
	daemon_connect_rooms(daemon);
	if (r == 0)
		r = metrics_new(&daemon->metrics.outputs, &daemon->metrics);
	if (r == 0) {
		daemon_warn_all_private(daemon->config);
		daemon_warn_links(daemon->config);
	}
	return r;
}

bool daemon_stop(struct daemon *daemon, bool hand_over) {
	if (daemon->image.stopping)
		return daemon->handing_over;
	daemon->image.stopping = true;
	daemon->handing_over = hand_over && keep_keeps(daemon->keep);
	keep_end(daemon->keep, daemon->handing_over);
	daemon->metrics.outputs = metrics_free(daemon->metrics.outputs);
	client_stop_folding(&daemon->client);
	trace_table_stop(daemon->client.traces);
	daemon->control.trace_lines = log_limit_free(daemon->control.trace_lines);
	if (daemon->handing_over)
		daemon->attach.interest = interest_writer_leave(daemon->attach.interest);
	else
		daemon->attach.interest = interest_writer_free(
			daemon->attach.interest); /* no new loads from here on; who is connected
					      ends his probes (shim/module/mirror.c) */
	daemon->control_server = varlink_server_free(daemon->control_server);
	process_table_unwatch(&daemon->processes);
	daemon->shims = shim_server_free(daemon->shims);
	daemon->client.other_shims = other_shims_free(daemon->client.other_shims);
	daemon->image.closer = closer_free(daemon->image.closer);
	job_cache_stop(daemon->image.cache);
	daemon->image.image_pool = worker_pool_free(daemon->image.image_pool);
	daemon->attach.program_pool = worker_pool_free(daemon->attach.program_pool);
	daemon->image.pass_pool = worker_pool_free(daemon->image.pass_pool);
	daemon->metrics.meter = loop_meter_free(daemon->metrics.meter);
	return daemon->handing_over;
}

struct daemon *daemon_free(struct daemon *daemon) {
	if (!daemon)
		return NULL;
	map_exports_deinit(&daemon->exports);
	image_cache_deinit(&daemon->image.images);
	plan_images_deinit(&daemon->image.plans);
	registry_deinit(&daemon->registry);
	pass_set_deinit(&daemon->image.passes);
	outcome_log_deinit(&daemon->outcomes);
	map_accounts_free(daemon->map_accounts);
	keep_free(daemon->keep);
	trace_table_free(daemon->client.traces);
	artifact_store_free(daemon->image.artifacts);
	job_cache_free(daemon->image.cache);
	account_table_deinit(&daemon->accounts);
	free(daemon);
	return NULL;
}

struct worker_pool *daemon_image_pool(const struct daemon *daemon) {
	return daemon->image.image_pool;
}
