/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of the way from a list of names to a plan. This file plays the pool of workers and the
 * connection: which jobs are sent and with what, what comes of replies, and what is made in
 * advance.
 */

#include "plan-work.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/gpuprobed/attach/attach.h"
#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/daemon-private.h"
#include "image-cache.h"
#include "image-answer.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "proto/patch.h"
#include "plan-prepare.h"

/* ---- the pool ---- */

#define JOBS_MAX 64

static struct job {
	json_object *request; /* NULL: done */
	worker_task_fn fn;
	void *userdata;
	struct worker_task *task;
} jobs[JOBS_MAX];
static size_t n_jobs;

static int output = -1; /* of the job that is being answered */
static uint64_t output_size;

struct worker_task *__real_worker_task_new(json_object *request, worker_task_fn fn, void *userdata);
struct worker_task *__wrap_worker_task_new(json_object *request, worker_task_fn fn, void *userdata);
void __wrap_worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			       unsigned int deadline_ms);
uint64_t __wrap_worker_task_output_size(const struct worker_task *task, unsigned int index);
int __wrap_worker_task_steal_fd(struct worker_task *task, unsigned int index);
int __wrap_shim_connection_send(struct shim_connection *connection, union wire_message *message,
				int fd);
void __wrap_interest_writer_set(struct interest_writer *writer, const struct interest_rule *rules,
				size_t n_rules);

static struct job made; /* the last that was made, perhaps not submitted */

struct worker_task *__wrap_worker_task_new(json_object *request, worker_task_fn fn,
					   void *userdata) {
	json_object_put(made.request);
	made = (struct job){ json_object_get(request), fn, userdata, NULL };
	made.task = __real_worker_task_new(request, fn, userdata);
	return made.task;
}

void __wrap_worker_pool_submit(struct worker_pool *pool, struct worker_task *task,
			       unsigned int deadline_ms) {
	assert_ptr_equal(task, made.task);
	assert_true(n_jobs < JOBS_MAX);
	jobs[n_jobs++] = made;
	made.request = NULL;
}

uint64_t __wrap_worker_task_output_size(const struct worker_task *task, unsigned int index) {
	assert_int_equal(index, PLAN_OUTPUT);
	return output_size;
}

int __wrap_worker_task_steal_fd(struct worker_task *task, unsigned int index) {
	int fd = output;

	output = -1;
	return fd;
}

/* The job n answers. */
static void answer(size_t n, int result, const char *reply, const char *message) {
	struct job job = jobs[n];
	json_object *json = reply ? json_tokener_parse(reply) : NULL;

	assert_non_null(job.request);
	jobs[n].request = NULL;
	job.fn(job.task, result, json, message, job.userdata);
	worker_task_free(job.task);
	json_object_put(job.request);
	json_object_put(json);
	output = fd_close(output);
}

/* ... with a plan of one point and these kernels' attachments, after a change of its bytes. */
static void answer_plan(size_t n, const char *more, uint32_t data_size, const uint64_t *kernels,
			size_t n_kernels) {
	struct {
		struct patch_plan plan;
		struct patch_point point;
		char image[16];
		struct patch_kernel kernels[4];
	} bytes = { .plan = { .magic = PATCH_MAGIC,
			      .version = PATCH_VERSION,
			      .image_size = 16,
			      .image_id = 1,
			      .point_count = 1 },
		    .point = { PATCH_BLOCK_ENTER, 0, "f" },
		    .image = "image" };
	char reply[1024];

	output_size = offsetof(typeof(bytes), kernels) + n_kernels * sizeof(bytes.kernels[0]);
	bytes.plan.size = output_size;
	bytes.plan.image = offsetof(typeof(bytes), image);
	bytes.plan.points = offsetof(typeof(bytes), point);
	bytes.plan.kernels = offsetof(typeof(bytes), kernels);
	bytes.plan.kernel_count = (uint32_t)n_kernels;
	bytes.plan.data_size = data_size;
	for (size_t i = 0; i < n_kernels; i++)
		bytes.kernels[i] =
			(struct patch_kernel){ .kernel_id = i, .attachments = kernels[i] };
	output = memfd_new_sealed("plan", &bytes, output_size);
	snprintf(reply, sizeof(reply), "{\"status\":\"planned\",\"size\":%llu%s}",
		 (unsigned long long)output_size, more);
	answer(n, _WORKER_POOL_SUCCESS, reply, "");
}

#define KERNEL ",\"kernels\":[{\"name\":\"_Z1kv\",\"demangled\":\"k()\",\"attachments\":[2]}]"
#define FUNCTIONS                                                                                 \
	",\"functions\":[{\"instruction\":1,\"registers\":24,\"spill_stores\":4,\"spill_loads\":" \
	"8,\"stack\":16}]"

/* ---- the world ---- */

#define SENT_MAX 16

static union wire_message sent[SENT_MAX];
static size_t n_sent;
static bool connection_full;

int __wrap_shim_connection_send(struct shim_connection *connection, union wire_message *message,
				int fd) {
	if (connection_full)
		return -ENOBUFS;
	assert_true(n_sent < SENT_MAX);
	assert_int_equal(fd >= 0,
			 message->header.type == WIRE_IMAGE_REPLY && message->image_reply.verdict);
	sent[n_sent++] = *message;
	return 0;
}

void __wrap_interest_writer_set(struct interest_writer *writer, const struct interest_rule *rules,
				size_t n_rules) {
}

struct world {
	uv_loop_t loop;
	struct config config;
	struct daemon daemon;
	struct account *account;
	struct process *process;
	struct shim_connection connection;
	struct client client;
};

/* An object with maps 11 (small sums) and 12; attachment 1 uses 11, 2 (engine sanitizer) 12 and 11,
 * 3 has no patch form. */
static int setup(void **state) {
	static const uint8_t orders[3][2] = { { 0 }, { 1, 0 }, {} };
	static const size_t n_orders[] = { 1, 2, 0 };
	struct map_shape shape = { .type = 2,
				   .key_size = 4,
				   .value_size = 8,
				   .max_entries = 1,
				   .merge = MAP_MERGE_SUM64 };
	struct map_spec spec = { .name = "m",
				 .type = 2,
				 .key_size = 4,
				 .value_size = 8,
				 .max_entries = 1,
				 .kernel_fd = -1 };
	struct world *world = calloc(1, sizeof(*world));
	struct daemon *daemon = &world->daemon;
	struct attachment *attachments[3];
	struct object *object;

	assert_int_equal(uv_loop_init(&world->loop), 0);
	daemon->loop = &world->loop;
	daemon->config = &world->config;
	config_set_defaults(&world->config);
	world->config.engines.fallback = ENGINE_SANITIZER;
	registry_init(&daemon->registry);
	process_table_init(&daemon->processes, NULL, NULL, NULL);
	outcome_log_init(&daemon->outcomes);
	plan_images_init(&daemon->image.plans);
	assert_int_equal(image_cache_init(&daemon->image.images), 0);
	assert_int_equal(map_accounts_new(&daemon->map_accounts, UINT64_C(1) << 30), 0);
	daemon_connect_rooms(daemon);
	assert_null(map_layout_init(&spec.layout, &shape));
	assert_int_equal(object_new(&object, 1, 0), 0);
	object->n_maps = 2;
	object->resident = 1;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(
			map_new(&object->maps[i], 11 + i, 1, 0, &spec, daemon->map_accounts), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(attachment_new(&attachments[i], object, ATTACHMENT_GPU), 0);
		strcpy(attachments[i]->section.kernel, "k*");
		snprintf(attachments[i]->of.gpu.symbol, sizeof(attachments[i]->of.gpu.symbol),
			 "p%zu", i);
		attachments[i]->of.gpu.maps = i == 0 ? 1 : i == 1 ? 3 : 0;
		attachments[i]->of.gpu.engine = i == 1 ? ENGINE_SANITIZER : ENGINE_AUTO;
		attachments[i]->of.gpu.n_patch_maps = n_orders[i];
		memcpy(attachments[i]->of.gpu.patch_maps, orders[i], 2);
		if (i < 2)
			attachments[i]->of.gpu.patch_fd = memfd_new_sealed("p", "p", 1);
		strcpy(attachments[i]->of.gpu.patch_reason, i < 2 ? "" : "it has a barrier");
	}
	registry_link(&daemon->registry, object, attachments, 3);
	world->process = calloc(1, sizeof(*world->process));
	world->process->facts.pid = 300;
	LIST_INIT(&world->process->modules);
	LIST_INSERT_HEAD(&daemon->processes.list, world->process, link);
	daemon->processes.n = 1;
	assert_int_equal(account_get(&daemon->accounts, 0, &world->account), 0);
	world->process->account = account_ref(world->account);
	world->connection =
		(struct shim_connection){ .state = SHIM_LOADER_BUSY, .account = world->account };
	world->client =
		(struct client){ .connection = &world->connection, .process = world->process };
	n_jobs = n_sent = 0;
	*state = world;
	return 0;
}

static int teardown(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;

	for (size_t i = 0; i < n_jobs; i++)
		if (jobs[i].request)
			answer(i, WORKER_POOL_E_UNAVAILABLE, NULL, "the pool ends");
	json_object_put(made.request);
	made.request = NULL;
	process_free(&daemon->processes, world->process);
	image_cache_deinit(&daemon->image.images);
	plan_images_deinit(&daemon->image.plans);
	registry_deinit(&daemon->registry);
	outcome_log_deinit(&daemon->outcomes);
	map_accounts_free(daemon->map_accounts);
	uv_run(&world->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&world->loop), 0);
	account_unref(world->account);
	free(world);
	return 0;
}

/* The process sends a list of names (or an image). */
static void ask(struct world *world, uint32_t kind, const char *names) {
	const struct wire_image message = { .image_size = strlen(names),
					    .kind = kind,
					    .capability_major = 9 };

	n_sent = 0;
	assert_int_equal(image_submit(&world->daemon.image, &world->client, &message,
				      memfd_new_sealed("names", names, strlen(names))),
			 0);
}

/* The reply was the own image. */
static void check_own(const char *reason) {
	assert_int_equal(n_sent, 1);
	assert_int_equal(sent[0].image_reply.verdict, WIRE_VERDICT_OWN);
	assert_string_equal(sent[0].image_reply.reason, reason);
}

static json_object *member(json_object *object, const char *key) {
	return json_object_object_get(object, key);
}

/* What is in a job. */
static void check_job(size_t n, bool names, bool patch) {
	json_object *request = jobs[n].request, *programs = member(request, "programs"),
		    *attachments = member(request, "attachments"),
		    *first = json_object_array_get_idx(attachments, 0);
	static const int slots[] = { 2, 3 };

	assert_string_equal(json_object_get_string(member(request, "job")), "patch");
	assert_int_equal(json_object_get_int(member(request, "capability")), 90);
	assert_int_equal(member(request, "names") != NULL, names);
	assert_int_equal(member(request, "patch") != NULL, patch);
	assert_int_equal(json_object_array_length(programs), 2); /* the third one has none */
	assert_int_equal(json_object_array_length(attachments), 2);
	for (size_t i = 0; i < 2; i++) {
		json_object *program = json_object_array_get_idx(programs, i);

		assert_int_equal(json_object_get_int(member(program, "maps")), slots[i]);
		assert_int_equal(json_object_get_int(member(program, "target")), 70);
	}
	assert_string_equal(json_object_get_string(member(first, "point")), "entry");
}

/* header, {process, map 11}, {process, map 12, map 11}: 32 + 5 * 8, a multiple of 16 */
#define DATA_SIZE 80

static void check_slot(size_t n, uint64_t map, uint32_t kind, uint32_t offset) {
	assert_int_equal(sent[n].header.type, WIRE_SLOT);
	assert_int_equal(sent[n].slot.map_id, map);
	assert_int_equal(sent[n].slot.kind, kind);
	assert_int_equal(sent[n].slot.offset, offset);
	assert_string_equal(sent[n].slot.symbol, "");
	assert_int_equal(sent[n].slot.module_id, sent[0].image_reply.module_id);
}

/* The process says that the patches of the last plan are in place. */
static void arm(struct world *world) {
	const union wire_message message = { .armed = { .header = { .type = WIRE_ARMED },
							.module_id =
								sent[0].image_reply.module_id } };

	world->connection.userdata = &world->client;
	assert_int_equal(client_handlers.message(&world->connection, &message, -1,
						 &world->daemon.client),
			 0);
}

#define NO_TWINS                                                                                 \
	": this process has the sanitizer engine alone; gpuprobed --engine=ptx:exe=PATH is for " \
	"programs "                                                                              \
	"that need twins"

/* The first time the image is made, then the names are matched; the second time there is nothing to
 * do. */
static void test_plan(void **state) {
	static const uint64_t second[] = { 2, 2 }, both[] = { 1, 2 };
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct outcome *outcome;

	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(n_jobs, 1);
	check_job(0, false, false);
	answer_plan(0, FUNCTIONS, DATA_SIZE, NULL, 0);
	assert_int_equal(n_jobs, 2);
	check_job(1, true, true);
	assert_int_equal(n_sent, 0);
	answer_plan(1, KERNEL, DATA_SIZE, second, 2);
	assert_int_equal(n_sent, 5); /* of attachment 2 alone: nobody else means a kernel */
	assert_int_equal(sent[0].image_reply.attachment_count, 1);
	assert_int_equal(sent[4].header.type, WIRE_IDS);
	assert_int_equal(sent[4].ids.ids[0], 2);
	assert_int_equal(sent[0].image_reply.verdict, WIRE_VERDICT_MADE);
	assert_int_equal(sent[0].image_reply.slot_count, 3);
	check_slot(1, 0, WIRE_SLOT_PROCESS, 48);
	check_slot(2, 12, WIRE_SLOT_POINTER, 56);
	check_slot(3, 11, WIRE_SLOT_REGION, 64);
	assert_true(process_may_use(world->process, 12));
	assert_true(process_may_use(world->process, 11));
	assert_int_equal(daemon->outcomes.n, 1); /* of attachment 3 */
	arm(world);
	process_table_count(&daemon->processes, &daemon->registry);
	assert_int_equal(registry_attachment(&daemon->registry, 2)->n_modules, 1);
	assert_int_equal(registry_attachment(&daemon->registry, 1)->n_modules, 0);

	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(n_jobs, 2);
	assert_int_equal(n_sent, 5);
	ask(world, WIRE_IMAGE_NAMES, "other");
	assert_int_equal(n_jobs, 3);
	check_job(2, true, true);
	answer_plan(2, KERNEL, DATA_SIZE, both, 2);
	assert_int_equal(n_sent, 7);
	check_slot(1, 0, WIRE_SLOT_PROCESS, 32);
	check_slot(2, 11, WIRE_SLOT_REGION, 40);
	arm(world);
	ask(world, WIRE_IMAGE_NAMES, "names");
	arm(world);

	/* told once each: why attachment 3 is not there, and the kernel */
	assert_int_equal(daemon->outcomes.n, 2);
	outcome = TAILQ_FIRST(&daemon->outcomes.list);
	assert_int_equal(outcome->kind, OUTCOME_PROBED);
	assert_string_equal(outcome_engine_name(outcome->engine), "sanitizer");
	assert_string_equal(outcome->demangled, "k()");
	outcome = TAILQ_NEXT(outcome, link);
	assert_string_equal(outcome->reason, "it has a barrier" NO_TWINS);
	assert_int_equal(outcome->attachments[0], 3);
}

/* What is no plan for what was asked for is not sent. */
static void test_lies(void **state) {
	static const uint64_t good[] = { 2 }, bad[] = { 4 };
	struct world *world = *state;

	ask(world, WIRE_IMAGE_NAMES, "a");
	answer_plan(0, "", DATA_SIZE, NULL, 0);
	answer_plan(1, KERNEL, DATA_SIZE + 16, good, 1);
	check_own("worker sent a malformed plan");
	ask(world, WIRE_IMAGE_NAMES, "b");
	answer_plan(2, KERNEL, DATA_SIZE, bad, 1);
	check_own("worker sent a malformed plan");
	ask(world, WIRE_IMAGE_NAMES, "c");
	answer_plan(3, ",\"kernels\":[{\"name\":\"k\",\"attachments\":[3]}]", DATA_SIZE, good,
		    1); /* not offered */
	check_own("worker sent a malformed plan");
	ask(world, WIRE_IMAGE_NAMES, "d");
	output_size = 10;
	answer(4, _WORKER_POOL_SUCCESS, "{\"status\":\"planned\",\"size\":11}", "");
	check_own("worker sent a malformed plan");
	ask(world, WIRE_IMAGE_NAMES, "e");
	answer_plan(5, "", DATA_SIZE, NULL, 0);
	check_own("no kernel that is loaded matches");
	ask(world, WIRE_IMAGE_NAMES, "f");
	answer(6, WORKER_POOL_E_REFUSED, "{\"error\":\"image\",\"message\":\"no list\"}",
	       "no list");
	check_own("no list");
	assert_int_equal(world->process->n_modules, 0);
}

/* An image that nobody can make, and one whose attachment goes away while it is made. */
static void test_no_image(void **state) {
	static const uint64_t kernel[] = { 1 };
	struct world *world = *state;

	ask(world, WIRE_IMAGE_NAMES, "a");
	answer_plan(0, "", DATA_SIZE, kernel, 1); /* kernels, of no names */
	check_own("worker sent a malformed plan");
	assert_int_equal(sent[0].image_reply.later, WIRE_LATER_KEEP);
	ask(world, WIRE_IMAGE_NAMES, "b"); /* it is not tried again for each request */
	assert_int_equal(n_jobs, 1);
	check_own("worker sent a malformed plan");
	attach_detach(&world->daemon.attach, registry_attachment(&world->daemon.registry, 1));
	ask(world, WIRE_IMAGE_NAMES, "b");
	assert_int_equal(n_jobs, 2);
	assert_int_equal(n_sent, 0);
	attach_detach(&world->daemon.attach, registry_attachment(&world->daemon.registry, 2));
	answer_plan(1, "", 64, NULL, 0);
	check_own("an attachment went away meanwhile");
	assert_true(TAILQ_EMPTY(&world->daemon.image.plans.list));
}

/* What is not for the process at all. */
static void test_engines(void **state) {
	static const struct {
		enum engine engine;
		uint32_t kind;
		const char *reason;
	} cases[] = {
		{ ENGINE_OFF, WIRE_IMAGE_NAMES,
		  "engine off: the daemon's configuration leaves this process alone (--engine)" },
		{ ENGINE_OFF, WIRE_IMAGE_PTX,
		  "engine off: the daemon's configuration leaves this process alone (--engine)" },
		{ ENGINE_PTX, WIRE_IMAGE_NAMES,
		  "engine ptx: machine code of this process is not patched (--engine)" },
		{ ENGINE_AUTO, WIRE_IMAGE_NAMES,
		  "engine ptx: machine code of this process is not patched (--engine)" },
		{ ENGINE_SANITIZER, WIRE_IMAGE_PTX,
		  "engine sanitizer: no twins are made for this process (--engine)" },
	};
	struct world *world = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		world->config.engines.fallback = cases[i].engine;
		ask(world, cases[i].kind, "x");
		check_own(cases[i].reason);
	}
	assert_int_equal(n_jobs, 0);
}

/* An outcome that was told last: of one attachment, and why the process cannot have it. */
static void check_left_out(const struct world *world, unsigned int n, uint64_t attachment,
			   const char *reason) {
	const struct outcome *outcome = TAILQ_FIRST(&world->daemon.outcomes.list);

	assert_int_equal(world->daemon.outcomes.n, n);
	assert_int_equal(outcome->kind, OUTCOME_NOT_PROBED);
	assert_int_equal(outcome->n_attachments, 1);
	assert_int_equal(outcome->attachments[0], attachment);
	assert_string_equal(outcome->reason, reason);
}

/* A process has one engine: what needs the other one is said, once, with what helps. */
static void test_one_engine(void **state) {
	static const char *const no_sass = ": this process has twins alone; gpuprobed "
					   "--engine=sanitizer:exe=PATH gives programs "
					   "the sanitizer engine when they start";
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	char reason[256];

	world->config.engines.fallback = ENGINE_AUTO;
	attach_detach(&daemon->attach, registry_attachment(&daemon->registry, 1));
	attach_detach(&daemon->attach, registry_attachment(&daemon->registry, 3));
	snprintf(reason, sizeof(reason), "engine sanitizer%s", no_sass);
	for (int i = 0; i < 2; i++) {
		ask(world, WIRE_IMAGE_PTX, "x");
		check_own(
			"what is attached needs the sanitizer engine, which this process has not");
		check_left_out(world, 1, 2, reason);
	}
	registry_attachment(&daemon->registry, 2)->of.gpu.engine = ENGINE_AUTO;
	registry_attachment(&daemon->registry, 2)->section.point = POINT_CLASS;
	snprintf(reason, sizeof(reason), "only the sanitizer engine has this point%s", no_sass);
	ask(world, WIRE_IMAGE_PTX, "x");
	check_left_out(world, 2, 2, reason);

	world->config.engines.fallback = ENGINE_SANITIZER;
	registry_attachment(&daemon->registry, 2)->of.gpu.engine = ENGINE_PTX;
	strcpy(registry_attachment(&daemon->registry, 2)->of.gpu.patch_reason, "engine ptx");
	for (int i = 0; i < 2; i++) {
		ask(world, WIRE_IMAGE_NAMES, "x");
		check_own("what is attached needs twins, and this process has none");
		check_left_out(world, 3, 2, "engine ptx" NO_TWINS);
	}
	assert_int_equal(n_jobs, 0);
}

/* The launcher of `gpuprobectl run` has twins whatever the rules say, and hears nothing of what
 * else is attached. */
static void test_directly_run(void **state) {
	static const struct account_limits none = {};
	struct world *world = *state;
	struct attachment *attachment = registry_attachment(&world->daemon.registry, 1);

	strcpy(attachment->section.kernel, SECTION_DIRECTLY_RUN);
	attachment->filter.has_pid = true;
	attachment->filter.pid = world->process->facts.pid;
	ask(world, WIRE_IMAGE_NAMES, "x");
	check_own("engine ptx: machine code of this process is not patched (--engine)");
	world->daemon.accounts.limits = &none;
	ask(world, WIRE_IMAGE_PTX, "x");
	assert_int_equal(n_sent, 0); /* it waits for room */
	assert_int_equal(world->daemon.outcomes.n, 1); /* of the plan */
	image_abandon(world->client.request);
}

static void on_prepared(void *userdata) {
	*(int *)userdata += 1;
}

/* At attach: the object alone, once a capability is known; a request then needs its names matched
 * only. */
static void test_prepare(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct object *object = TAILQ_FIRST(&daemon->registry.objects);
	const struct filter filter = {};
	int done = 0;

	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 1); /* for what device? */
	plan_note_capability(&daemon->image, 90);
	world->config.engines.fallback = ENGINE_PTX;
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 1); /* nobody gets it */
	world->config.engines.fallback = ENGINE_SANITIZER;
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 0);
	assert_int_equal(n_jobs, 1);
	check_job(0, false, false);
	assert_null(plan_trouble(&daemon->image, object));
	answer_plan(0, FUNCTIONS, DATA_SIZE, NULL, 0);
	assert_int_equal(done, 0); /* from the loop */
	uv_run(&world->loop, UV_RUN_ONCE);
	assert_int_equal(done, 1);
	assert_null(plan_trouble(&daemon->image, object));
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 1); /* it is there */
	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(n_jobs, 2);
	check_job(1, true, true);
}

/* Programs that are no patches are told from a machine that makes none, and from a worker that does
 * not answer. */
static void test_prepare_fails(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct object *object = TAILQ_FIRST(&daemon->registry.objects);
	const struct filter filter = {};
	int done = 0;

	plan_note_capability(&daemon->image, 90);
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 0);
	answer(0, WORKER_POOL_E_REFUSED,
	       "{\"error\":\"unsupported\",\"message\":\"no nvPTXCompiler\"}", "no nvPTXCompiler");
	assert_string_equal(plan_trouble(&daemon->image, object), "no nvPTXCompiler");
	assert_null(plan_programs_trouble(&daemon->image, object));
	uv_run(&world->loop, UV_RUN_ONCE);
	assert_int_equal(done, 1);
	plan_images_forget(&daemon->image.plans, 1);
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 0);
	answer(1, WORKER_POOL_E_REFUSED,
	       "{\"error\":\"compile\",\"message\":\"too many registers\"}", "too many registers");
	assert_string_equal(plan_programs_trouble(&daemon->image, object), "too many registers");
	uv_run(&world->loop, UV_RUN_ONCE);
	assert_int_equal(done, 2);
	plan_images_forget(&daemon->image.plans, 1);
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 1, on_prepared, &done), 0);
	while (done < 3)
		uv_run(&world->loop, UV_RUN_ONCE); /* the time is up */
	assert_null(plan_trouble(&daemon->image, object));
}

/* A process says that it has a device which nothing can be compiled for: that is its own trouble.
 */
static void test_prepare_lied(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct object *object = TAILQ_FIRST(&daemon->registry.objects);
	const struct filter filter = {};
	int done = 0;

	plan_note_capability(&daemon->image, 30);
	plan_note_capability(&daemon->image, 90);
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 0);
	assert_int_equal(n_jobs, 2);
	answer(0, WORKER_POOL_E_REFUSED, "{\"error\":\"compile\",\"message\":\"sm_30\"}", "sm_30");
	assert_null(plan_trouble(&daemon->image, object)); /* not known yet */
	answer_plan(1, FUNCTIONS, DATA_SIZE, NULL, 0);
	assert_null(plan_trouble(&daemon->image, object));
	assert_null(plan_programs_trouble(&daemon->image, object));
	uv_run(&world->loop, UV_RUN_ONCE);
	assert_int_equal(done, 1);
}

/* What another user's process says of its devices is made for that process, at his cost, and
 * decides about nobody's attachments. */
static void test_prepare_strangers(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct object *object = TAILQ_FIRST(&daemon->registry.objects);
	const struct filter filter = {};
	int done = 0;

	world->process->uid = 65533;
	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(daemon->image.n_capabilities, 0);
	assert_int_equal(n_jobs, 1);
	assert_int_equal(TAILQ_FIRST(&daemon->image.plans.list)->payer, 65533);
	answer(0, WORKER_POOL_E_REFUSED, "{\"error\":\"compile\",\"message\":\"sm_90\"}", "sm_90");
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 1);
	assert_null(plan_trouble(&daemon->image, object));
	plan_images_forget(&daemon->image.plans, 1);
	assert_int_equal(plan_prepare(&daemon->image, object, &filter, 10000, on_prepared, &done),
			 1); /* nobody waits for it */
	assert_int_equal(n_jobs, 2);
	world->process->uid = object->owner; /* his own he believes */
	answer(1, WORKER_POOL_E_REFUSED, "{\"error\":\"compile\",\"message\":\"sm_90\"}", "sm_90");
	assert_string_equal(plan_trouble(&daemon->image, object), "sm_90");
}

/* What several users wait for is done at the turn of any of them, not only of who asked first. */
static void test_shared_image(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	const struct plan_image *image;

	world->process->uid = 65533;
	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(n_jobs, 1);
	assert_int_equal(worker_task_owners(jobs[0].task), 1);
	world->process->uid = 1000;
	ask(world, WIRE_IMAGE_NAMES, "names");
	assert_int_equal(n_jobs, 1);
	assert_int_equal(worker_task_owners(jobs[0].task), 2);
	assert_true(worker_task_is_of(jobs[0].task, 65533));
	assert_true(worker_task_is_of(jobs[0].task, 1000));
	image = TAILQ_FIRST(&daemon->image.plans.list);
	assert_int_equal(image->payer, 65533);
	answer_plan(0, "", DATA_SIZE, NULL, 0);
	assert_int_equal(n_jobs, 3); /* a plan for each */
	assert_null(image->task);
	world->process->uid = 1001;
	ask(world, WIRE_IMAGE_NAMES, "names"); /* it is done: nothing to wait for */
	assert_int_equal(n_jobs, 4);
}

/* Who asks for many loses his own. */
static void test_many_images(void **state) {
	static const uint64_t ids[] = { 1, 2 };
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	struct plan_image *image;

	for (uint32_t i = 0; i < PLAN_IMAGES_MAX + 50; i++) {
		assert_int_equal(plan_image_get(&image, &daemon->image, i < 3 ? 0 : 65533, 100 + i,
						ids, 2),
				 0);
		answer(0, WORKER_POOL_E_REFUSED, "{\"error\":\"compile\",\"message\":\"no\"}",
		       "no");
		n_jobs = 0;
	}
	assert_int_equal(daemon->image.plans.n, PLAN_IMAGES_MAX);
	for (uint32_t i = 0; i < 6; i++)
		assert_true((plan_image_find(&daemon->image, 100 + i, ids, 2) != NULL) == (i < 3));
	assert_non_null(plan_image_find(&daemon->image, 100 + PLAN_IMAGES_MAX + 49, ids, 2));
}

/* A detach asks for what is left at once, and processes are told of maps that nobody uses. */
static void test_detach(void **state) {
	static const uint64_t both[] = { 1, 2 };
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	struct shim_connection mirror = { .state = SHIM_MIRROR };

	plan_note_capability(&daemon->image, 90);
	ask(world, WIRE_IMAGE_NAMES, "names");
	answer_plan(0, "", DATA_SIZE, NULL, 0);
	answer_plan(1, KERNEL, DATA_SIZE, both, 2);
	world->connection.userdata = &world->client;
	world->process->connections[world->process->n_connections++] = &mirror;
	n_sent = 0;
	attach_detach(&daemon->attach, registry_attachment(&daemon->registry, 1));
	assert_int_equal(n_sent, 0); /* 2 uses both maps */
	assert_int_equal(n_jobs, 3); /* what the process will ask for */
	assert_null(member(jobs[2].request, "names"));
	assert_int_equal(json_object_array_length(member(jobs[2].request, "attachments")), 1);
	attach_detach(&daemon->attach, registry_attachment(&daemon->registry, 3));
	assert_int_equal(n_sent, 0);
	for (size_t i = 0; i < 2; i++) { /* only what it has memory of is disarmed */
		struct map_instance *instance;

		assert_int_equal(map_instance_get(TAILQ_FIRST(&daemon->registry.objects)->maps[i],
						  world->process->number, 300, 0, 1 + i, &instance),
				 0);
	}
	attach_detach(&daemon->attach, registry_attachment(&daemon->registry, 2));
	for (size_t i = 0; i < n_sent; i++) /* maps that nobody uses any more */
		assert_int_equal(sent[i].header.type, WIRE_DISARM);
	assert_int_equal(n_sent, 2);
}

/* A detach has come before the answer: there is nothing that the process should be probed with. */
static void test_detached_meanwhile(void **state) {
	struct world *world = *state;
	struct image_result *result;

	for (int plan = 0; plan < 2; plan++) {
		assert_int_equal(image_result_new(&result), 0);
		result->made = true;
		result->fd = memfd_new_sealed("new", "new", 3);
		result->plan = plan;
		result->attachments = calloc(2, sizeof(uint64_t));
		result->attachments[0] = 98;
		result->attachments[1] = 99;
		result->n_attachments = 2;
		n_sent = 0;
		assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
		check_own("what was attached went away meanwhile");
		result->attachments[1] = 1; /* one is left */
		n_sent = 0;
		assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
		assert_int_equal(sent[0].image_reply.verdict, WIRE_VERDICT_MADE);
		image_result_unref(result);
	}
}

/* However many processes there are, a detach starts no more than some jobs. */
static void test_detach_with_many(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;
	struct process others[4] = {};

	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t k = 0; k < PROCESS_CAPABILITIES_MAX; k++)
			others[i].capabilities[k] = 70 + 8 * i + k;
		others[i].n_capabilities = PROCESS_CAPABILITIES_MAX;
		LIST_INIT(&others[i].modules);
		LIST_INSERT_HEAD(&daemon->processes.list, &others[i], link);
	}
	plan_prepare_again(&daemon->image);
	assert_int_equal(n_jobs, PLAN_PREPARE_MAX);
	plan_prepare_again(&daemon->image);
	assert_int_equal(n_jobs, PLAN_PREPARE_MAX);
	for (int i = 0; i < 4; i++)
		LIST_REMOVE(&others[i], link);
}

/* A process that lets go of no plan gets no more. */
static void test_too_many_plans(void **state) {
	struct world *world = *state;
	struct image_result *result;

	assert_int_equal(image_result_new(&result), 0);
	result->plan = result->made = true;
	result->fd = memfd_new_sealed("new", "new", 3);
	result->attachments = calloc(1, sizeof(uint64_t));
	result->attachments[result->n_attachments++] = 1;
	for (int i = 0; i <= PROCESS_PLANS_MAX; i++) {
		n_sent = 0;
		assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
		assert_int_equal(sent[0].image_reply.verdict == WIRE_VERDICT_MADE,
				 i < PROCESS_PLANS_MAX);
	}
	check_own("this process has 1024 plans: no more");
	assert_int_equal(sent[0].image_reply.later, WIRE_LATER_KEEP);
	process_module_free(world->process, LIST_FIRST(&world->process->modules));
	n_sent = 0;
	assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
	assert_int_equal(sent[0].image_reply.verdict, WIRE_VERDICT_MADE);
	assert_int_equal(sent[0].image_reply.later, WIRE_LATER_NOT);
	image_result_unref(result);
}

/* A user whose processes have too many modules gets no more. */
static void test_too_many_modules(void **state) {
	struct world *world = *state;
	struct image_result *result;

	assert_int_equal(image_result_new(&result), 0);
	result->made = true;
	result->fd = memfd_new_sealed("new", "new", 3);
	result->attachments = calloc(1, sizeof(uint64_t));
	result->attachments[result->n_attachments++] = 1;
	world->account->modules = ACCOUNT_MODULES_MAX - 1;
	for (int i = 0; i < 2; i++) {
		n_sent = 0;
		assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
		assert_int_equal(sent[0].image_reply.verdict == WIRE_VERDICT_MADE, i == 0);
	}
	check_own("quota: the processes of uid 0 have 32768 probed modules, or those of all users "
		  "262144: no more");
	process_module_free(world->process, LIST_FIRST(&world->process->modules));
	n_sent = 0;
	assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
	assert_int_equal(sent[0].image_reply.verdict, WIRE_VERDICT_MADE);
	image_result_unref(result);
}

/* Where there is no plan, what the process has patched stays only if none of it was detached; where
 * there is to be none, never. */
static void test_later(void **state) {
	struct world *world = *state;
	struct image_result *result;

	assert_int_equal(image_result_new(&result), 0);
	result->plan = result->made = true;
	result->fd = memfd_new_sealed("new", "new", 3);
	result->attachments = calloc(2, sizeof(uint64_t));
	result->attachments[result->n_attachments++] = 1;
	result->attachments[result->n_attachments++] = 2;
	assert_int_equal(image_answer(&world->daemon.image, &world->client, 1, result), 0);
	for (uint32_t later = WIRE_LATER_KEEP; later <= WIRE_LATER_REMOVE; later++) {
		n_sent = 0;
		assert_int_equal(image_answer_own(&world->daemon.image, &world->client, 1, true,
						  true, "%s", "quota"),
				 0);
		check_own("quota");
		assert_int_equal(sent[0].image_reply.later, later);
		n_sent = 0;
		assert_int_equal(image_answer_own(&world->daemon.image, &world->client, 1, true,
						  false, "%s", "off"),
				 0);
		assert_int_equal(sent[0].image_reply.later, WIRE_LATER_NOT);
		if (later == WIRE_LATER_KEEP)
			attach_detach(&world->daemon.attach,
				      registry_attachment(&world->daemon.registry, 1));
	}
	image_result_unref(result);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_plan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_image, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engines, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_directly_run, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepare, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepare_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepare_lied, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepare_strangers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_images, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shared_image, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detach, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detached_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_plans, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_modules, setup, teardown),
		cmocka_unit_test_setup_teardown(test_later, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detach_with_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
