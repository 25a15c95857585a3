/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The daemon of fuzz-daemon.c: real parts in one process, without workers.
 *
 * The linker puts functions of the worker pool that start workers or ask them into other hands
 * (--wrap, see meson.build); those of tasks are the real ones.
 */

#include "daemon-world.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/gpuprobed/attach/attach.h"
#include "daemon/gpuprobed/control/control.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/image/pass.h"
#include "daemon/gpuprobed/image/plan-prepare.h"
#include "daemon/gpuprobed/keep/store.h"
#include "lib/varlink/varlink-server.h"

#define TURNS 6
#define OUTPUT_MAX ((size_t)64 << 10)
#define TASKS_MAX 256

struct world world;

static struct {
	size_t n;
	struct worker_task *list[TASKS_MAX];
	bool cancelled[TASKS_MAX];
} tasks;

/* ---- workers ---- */

int __wrap_worker_pool_new(struct worker_pool **poolp, uv_loop_t *loop,
			   const struct worker_pool_options *options);
struct worker_pool *__wrap_worker_pool_free(struct worker_pool *pool);
const struct worker_pool_counters *__wrap_worker_pool_counters(const struct worker_pool *pool);
struct worker_pool_load __wrap_worker_pool_load(const struct worker_pool *pool);
json_object *__wrap_worker_pool_features(const struct worker_pool *pool);
const char *__wrap_worker_pool_trouble(const struct worker_pool *pool);
void __wrap_worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			       unsigned int deadline_ms);
void __wrap_worker_task_cancel(struct worker_task *task);

int __wrap_worker_pool_new(struct worker_pool **poolp, uv_loop_t *loop,
			   const struct worker_pool_options *options) {
	*poolp = (void *)&tasks; /* nobody looks into it */
	return 0;
}

struct worker_pool *__wrap_worker_pool_free(struct worker_pool *pool) {
	return NULL;
}

const struct worker_pool_counters *__wrap_worker_pool_counters(const struct worker_pool *pool) {
	static const struct worker_pool_counters none;

	return &none;
}

struct worker_pool_load __wrap_worker_pool_load(const struct worker_pool *pool) {
	return (struct worker_pool_load){ .queued = (unsigned int)tasks.n };
}

json_object *__wrap_worker_pool_features(const struct worker_pool *pool) {
	static json_object *features;

	if (!features)
		features = json_tokener_parse(
			"{\"compiler\":\"nvJitLink 13.0\",\"patch\":\"nvPTXCompiler "
			"13.0\",\"build\":\"1\"}");
	return features;
}

const char *__wrap_worker_pool_trouble(const struct worker_pool *pool) {
	return NULL;
}

void __wrap_worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			       unsigned int deadline_ms) {
	if (tasks.n == TASKS_MAX)
		abort();
	tasks.cancelled[tasks.n] = false;
	tasks.list[tasks.n++] = task;
}

void __wrap_worker_task_cancel(struct worker_task *task) {
	for (size_t i = 0; i < tasks.n; i++)
		if (tasks.list[i] == task)
			tasks.cancelled[i] = true;
}

static struct worker_task *take_task(size_t i) {
	struct worker_task *task = tasks.list[i];

	tasks.n--;
	memmove(&tasks.list[i], &tasks.list[i + 1], (tasks.n - i) * sizeof(tasks.list[0]));
	memmove(&tasks.cancelled[i], &tasks.cancelled[i + 1],
		(tasks.n - i) * sizeof(tasks.cancelled[0]));
	return task;
}

/* As the pool takes a datagram of a worker. */
static json_object *parse_reply(const uint8_t *data, size_t size) {
	struct json_tokener *tokener = json_tokener_new();
	json_object *reply, *status = NULL;

	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	reply = json_tokener_parse_ex(tokener, (const char *)data, (int)size);
	if (json_tokener_get_error(tokener) != json_tokener_success ||
	    json_tokener_get_parse_end(tokener) != size ||
	    !json_object_is_type(reply, json_type_object) ||
	    !json_object_object_get_ex(reply, "status", &status) ||
	    !json_object_is_type(status, json_type_string)) {
		json_object_put(reply);
		reply = NULL;
	}
	json_tokener_free(tokener);
	return reply;
}

/* All outputs of the task get the bytes. */
static void fill_outputs(struct worker_task *task, const uint8_t *data, size_t size) {
	for (unsigned int i = 0; i < worker_task_fds(task); i++) {
		uint64_t max;

		if (worker_task_fd(task, i, &max) >= 0 && max)
			worker_task_replace_output(task, i, memfd_new_sealed("fuzz", data, size),
						   size);
	}
}

/* Sizes become those of the outputs, symbols those that were asked for. */
static void set_honest(json_object *json, size_t size, const char *prefix) {
	static const char *const names[] = { "size", "instructions_size", "patch_size" };
	json_object *member, *programs = NULL, *index = NULL;
	char symbol[REGISTRY_SYMBOL_SIZE];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (json_object_object_get_ex(json, names[i], &member) &&
		    json_object_get_int64(member) > 0)
			json_object_object_add(json, names[i],
					       json_object_new_int64((int64_t)size));
	if (prefix && json_object_object_get_ex(json, "symbol", &member) &&
	    json_object_object_get_ex(json, "index", &index)) {
		snprintf(symbol, sizeof(symbol), "%s_p%lld", prefix,
			 (long long)json_object_get_int64(index));
		json_object_object_add(json, "symbol", json_object_new_string(symbol));
	}
	if (json_object_object_get_ex(json, "programs", &programs) &&
	    json_object_is_type(programs, json_type_array))
		for (size_t i = 0; i < json_object_array_length(programs); i++) {
			member = json_object_array_get_idx(programs, i);
			if (json_object_is_type(member, json_type_object))
				set_honest(member, size, prefix);
		}
}

bool world_reply(unsigned int which, unsigned int flags, const uint8_t *data, size_t size) {
	const uint8_t *nul = memchr(data, 0, size);
	const size_t n_text = nul ? (size_t)(nul - data) : size,
		     n_output = nul ? size - n_text - 1 : 0;
	json_object *reply, *member = NULL;
	struct worker_task *task;
	const char *message = "";
	int result = 0;

	if (which >= tasks.n || n_output > OUTPUT_MAX)
		return false;
	reply = parse_reply(data, n_text);
	if (!reply && !(flags & WORLD_REPLY_CRASHED))
		return false;
	task = take_task(which);
	if (flags & WORLD_REPLY_CRASHED) {
		worker_task_complete(task, WORKER_POOL_E_CRASHED, NULL,
				     "worker crashed (signal 11)");
		json_object_put(reply);
		return true;
	}
	fill_outputs(task, nul ? nul + 1 : data, n_output);
	if (flags & WORLD_REPLY_HONEST)
		set_honest(reply, n_output,
			   json_object_object_get_ex(worker_task_request(task), "prefix", &member)
				   ? json_object_get_string(member)
				   : NULL);
	json_object_object_get_ex(reply, "status", &member);
	if (!strcmp(json_object_get_string(member), "error")) {
		result = WORKER_POOL_E_REFUSED;
		message = json_object_object_get_ex(reply, "message", &member) &&
					  json_object_is_type(member, json_type_string)
				  ? json_object_get_string(member)
				  : "worker gave no reason";
	}
	worker_task_complete(task, result, reply, message);
	json_object_put(reply);
	return true;
}

/* Nobody answers: those that were cancelled, or all. */
static void drop_tasks(bool all) {
	for (size_t i = 0; i < tasks.n;)
		if (all || tasks.cancelled[i]) {
			worker_task_complete(take_task(i), WORKER_POOL_E_UNAVAILABLE, NULL,
					     WORKER_POOL_UNWANTED);
			i = 0; /* that may have asked for more */
		} else {
			i++;
		}
}

/* ---- what the daemon says to its journal ---- */

void __wrap_log_message(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void __wrap_log_event(enum log_level level, const char *message_id, const char *const *fields,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));

static void format_line(const char *format, va_list arguments) {
	char line[4096];

	vsnprintf(line, sizeof(line), format, arguments);
}

void __wrap_log_message(enum log_level level, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	format_line(format, arguments);
	va_end(arguments);
}

void __wrap_log_event(enum log_level level, const char *message_id, const char *const *fields,
		      const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	format_line(format, arguments);
	va_end(arguments);
}

/* ---- the daemon ---- */

static void remove_folder(void) {
	char path[64];

	for (const char *const *name =
		     (const char *const[]){ "control", "shim", "metrics", "interest", "before.json",
					    "behind.json", NULL };
	     *name; name++) {
		snprintf(path, sizeof(path), "%s/%s", world.folder, *name);
		unlink(path);
	}
	rmdir(world.folder);
}

static void drop_capabilities(void) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};

	if (syscall(SYS_capset, &header, none) < 0)
		abort();
}

/* The definition of a pass that is a program, beside those that are built in. */
static void add_definition(const char *name, int order) {
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.json", world.folder, name);
	file = fopen(path, "w");
	if (!file ||
	    fprintf(file,
		    "{\"name\":\"%s\",\"executable\":\"/usr/bin/"
		    "true\",\"order\":%d,\"attach_points\":{\"include\":[\"kprobe/*\",\"kretprobe/"
		    "*\"]}}",
		    name, order) < 0 ||
	    fclose(file))
		abort();
}

static void load_programs(void) {
	const char *const folders[] = { PASSES, world.folder };

	add_definition("before", -1000);
	add_definition("behind", 100000);
	if (pass_set_load(&world.programs, folders, 2, NULL, NULL) ||
	    !pass_set_runs_programs(&world.programs))
		abort();
	world.plain = world.daemon->image.passes;
	world.daemon->image.pass_pool = world.daemon->image.image_pool;
}

void world_use_programs(void) {
	world.daemon->image.passes = world.programs;
}

static struct config *settings; /* of the daemon */

void world_use_engine(enum engine engine) {
	settings->engines.fallback = engine;
}

void world_start(void) {
	static char metrics[96], passes[] = "--pass-dir=" PASSES;
	const char *arguments[] = { "gpuprobed",
				    "--session=fuzz",
				    "--verify=no",
				    "--engine=sanitizer",
				    "--deadline-ms=60000",
				    "--quota-clients=1000",
				    metrics,
				    passes,
				    NULL };
	struct daemon_options options = { .socket_mode = 0600, .control_fd = -1, .shim_fd = -1 };
	static char interest[64];
	char error[CONFIG_ERROR_SIZE];

	drop_capabilities();
	unsetenv("NOTIFY_SOCKET");
	strcpy(world.folder, "/tmp/fuzz-daemon.XXXXXX");
	if (!mkdtemp(world.folder))
		abort();
	atexit(remove_folder);
	snprintf(world.control, sizeof(world.control), "%s/control", world.folder);
	snprintf(world.shims, sizeof(world.shims), "%s/shim", world.folder);
	snprintf(world.metrics, sizeof(world.metrics), "%s/metrics", world.folder);
	snprintf(interest, sizeof(interest), "%s/interest", world.folder);
	snprintf(metrics, sizeof(metrics), "--metrics=unix:%s", world.metrics);
	if (config_new(&settings, sizeof(arguments) / sizeof(arguments[0]) - 1, (char **)arguments,
		       "/nonexistent", "/nonexistent", error)) {
		fprintf(stderr, "%s\n", error);
		abort();
	}
	options.config = settings;
	options.control_path = world.control;
	options.shim_path = world.shims;
	options.interest_path = interest;
	if (store_new(&options.store, false, NULL) || uv_loop_init(&world.loop) ||
	    daemon_new(&world.daemon, &world.loop, &options))
		abort();
	load_programs();
}

static void add_map(size_t i, uint32_t type, uint32_t place, uint32_t merge, uint32_t value_size) {
	struct map_shape shape = { .type = type,
				   .key_size = value_size ? 4 : 0,
				   .value_size = value_size,
				   .max_entries = type == 1527 ? 16384 : 64,
				   .place = place,
				   .merge = merge,
				   .threads = 64,
				   .ring_bytes = 64 << 10 };
	struct map_spec spec = { .name = "map",
				 .type = type,
				 .key_size = shape.key_size,
				 .value_size = value_size,
				 .max_entries = shape.max_entries,
				 .kernel_fd = -1 };

	if (map_layout_init(&spec.layout, &shape) ||
	    map_new(&world.object->maps[i], ++world.daemon->registry.last_map, 1, 0, &spec,
		    world.daemon->map_accounts))
		abort();
	snprintf(world.object->slots[i], sizeof(world.object->slots[i]), "__gpuprobe_m%zu", i);
}

void world_begin(void) {
	struct registry *registry = &world.daemon->registry;
	struct attachment *attachments[2];

	registry->last_object = registry->last_attachment = registry->last_map =
		registry->last_instance = 0;
	world.daemon->processes.last_module = 0;
	world.daemon->image.images.last_image = 0;
	world.daemon->client.last_sequence = 0;
	if (object_new(&world.object, ++registry->last_object, 0))
		abort();
	world.object->n_maps = WORLD_MAPS;
	world.object->resident = 1;
	add_map(0, 2, MAP_PLACE_DEVICE, MAP_MERGE_SUM64, 8);
	add_map(1, 1527, MAP_PLACE_DEVICE, MAP_MERGE_NONE, 8);
	add_map(2, 1513, MAP_PLACE_HOST, MAP_MERGE_NONE, 8);
	for (size_t i = 0; i < 2; i++) {
		static const char ptx[] = ".visible .func (.param .b64 r) p0() { ret; }\n";

		if (attachment_new(&attachments[i], world.object, ATTACHMENT_GPU))
			abort();
		strcpy(attachments[i]->program, "cuda__probe");
		strcpy(attachments[i]->section.kernel, i ? "other" : "vectorAdd");
		strcpy(attachments[i]->section_text, i ? "kretprobe/other" : "kprobe/vectorAdd");
		attachments[i]->section.known = true;
		attachments[i]->section.point = i ? POINT_RETURN : POINT_ENTRY;
		snprintf(attachments[i]->of.gpu.symbol, sizeof(attachments[i]->of.gpu.symbol),
			 "p%zu", i);
		attachments[i]->of.gpu.maps = i ? 7 : 1;
		attachments[i]->of.gpu.process = i;
		attachments[i]->of.gpu.isa = 60;
		attachments[i]->of.gpu.target = 50;
		attachments[i]->of.gpu.size = sizeof(ptx) - 1;
		attachments[i]->of.gpu.fd = memfd_new_sealed("fuzz", ptx, sizeof(ptx) - 1);
		attachments[i]->of.gpu.patch_fd =
			i ? -1 : memfd_new_sealed("fuzz", ptx, sizeof(ptx) - 1);
		attachments[i]->of.gpu.patch_maps[0] = 0;
		attachments[i]->of.gpu.n_patch_maps = !i;
	}
	registry_link(registry, world.object, attachments, 2);
}

void world_turn(void) {
	for (unsigned int i = 0; i < TURNS; i++) {
		drop_tasks(false);
		uv_run(&world.loop, UV_RUN_NOWAIT);
	}
}

int world_connect(const char *path, int type) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		abort();
	return fd;
}

void world_end(void) {
	struct daemon *daemon = world.daemon;

	for (unsigned int i = 0;
	     shim_server_connections(daemon->shims) ||
	     varlink_server_connections(daemon->control_server) || daemon->attach.n_verifying ||
	     tasks.n || daemon->metrics.runs || daemon->client.folding ||
	     !TAILQ_EMPTY(&daemon->registry.attachments);
	     i++) {
		while (!TAILQ_EMPTY(&daemon->registry.attachments))
			attach_detach(&daemon->attach, TAILQ_FIRST(&daemon->registry.attachments));
		drop_tasks(true);
		uv_run(&world.loop, daemon->attach.n_verifying ? UV_RUN_ONCE : UV_RUN_NOWAIT);
		if (i == 10000)
			abort(); /* something stays for ever */
	}
	if (daemon->processes.n || daemon->exports.n || !TAILQ_EMPTY(&daemon->registry.objects))
		abort();
	daemon->image.passes = world.plain;
	image_cache_deinit(&daemon->image.images);
	outcome_log_deinit(&daemon->outcomes);
	outcome_log_init(&daemon->outcomes);
}
