/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A daemon in a thread, for tests of ReadRing and ReadLog: its loop, varlink server, registry and
 * maps are the real ones. The test plays the processes: it writes into their instances, and answers
 * what they would be asked for (client_sync).
 */

#include <json-c/json.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "client.h"
#include "daemon/gpuprobed/control/control.h"
#include "daemon/gpuprobed/daemon-private.h"
#include "daemon/gpuprobed/map/test-ring-producer.h"
#include "lib/varlink/varlink-client.h"
#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/json.h"

#define TIMEOUT_MS 20000
#define RECORD 32

static struct {
	struct config config;
	struct daemon daemon;
	uv_loop_t loop;
	pthread_t thread;
	uv_async_t async;
	uv_sem_t done;
	void (*call)(void *argument); /* in the loop's thread */
	void *argument;
	char path[64];
} test;

/* ---- the loop ---- */

static void on_async(uv_async_t *async) {
	test.call(test.argument);
	uv_sem_post(&test.done);
}

static void in_loop(void (*call)(void *argument), void *argument) {
	test.call = call;
	test.argument = argument;
	uv_async_send(&test.async);
	uv_sem_wait(&test.done);
}

static void *run_loop(void *userdata) {
	uv_run(&test.loop, UV_RUN_DEFAULT);
	return NULL;
}

static void stop_loop(void *argument) {
	test.daemon.control_server = varlink_server_free(test.daemon.control_server);
	uv_close((uv_handle_t *)&test.async, NULL);
}

/* ---- what a process is asked for ---- */

struct sync_request {
	uv_timer_t timer;
	void (*done)(void *userdata);
	void *userdata;
};

static struct map_ring *sync_ring; /* its `lost` becomes sync_lost when the process is asked */
static uint64_t sync_lost;

struct sync_request *__wrap_client_sync(struct client_context *context, const struct map *map,
					unsigned int timeout_ms, void (*done)(void *userdata),
					void *userdata, int *rp);
void __wrap_client_sync_cancel(struct sync_request *request);

static void sync_closed(uv_handle_t *handle) {
	free(handle->data);
}

static void on_sync(uv_timer_t *timer) {
	struct sync_request *request = timer->data;

	if (sync_ring)
		sync_ring->lost = sync_lost;
	if (request->done)
		request->done(request->userdata);
	uv_close((uv_handle_t *)timer, sync_closed);
}

struct sync_request *__wrap_client_sync(struct client_context *context, const struct map *map,
					unsigned int timeout_ms, void (*done)(void *userdata),
					void *userdata, int *rp) {
	struct sync_request *request;

	*rp = 0;
	if (!map->n_instances)
		return NULL;
	request = calloc(1, sizeof(*request));
	request->done = done;
	request->userdata = userdata;
	uv_timer_init(context->image->loop, &request->timer);
	request->timer.data = request;
	uv_timer_start(&request->timer, on_sync, 1, 0);
	return request;
}

void __wrap_client_sync_cancel(struct sync_request *request) {
	request->done = NULL;
}

/* ---- objects, maps, instances ---- */

struct made_map {
	const char *name;
	uint64_t ring_bytes;
	struct object *object; /* NULL: a new one */
	struct map *map;
};

static void make_map(void *argument) {
	struct made_map *made = argument;
	struct registry *registry = &test.daemon.registry;
	struct map_shape shape = { .type = 1527,
				   .value_size = RECORD,
				   .max_entries = 1,
				   .key_size = 4,
				   .ring_bytes = made->ring_bytes };
	struct map_spec spec = { .name = made->name,
				 .type = shape.type,
				 .key_size = 4,
				 .value_size = RECORD,
				 .max_entries = 1,
				 .btf_value_type = 9,
				 .kernel_fd = -1 };
	struct attachment *attachment;

	assert_null(map_layout_init(&spec.layout, &shape));
	assert_int_equal(map_new(&made->map, ++registry->last_map, registry->last_object + 1,
				 getuid(), &spec, test.daemon.map_accounts),
			 0);
	assert_int_equal(object_new(&made->object, ++registry->last_object, getuid()), 0);
	made->object->btf = strdup("types");
	made->object->n_btf = 5;
	made->object->maps[made->object->n_maps++] = made->map;
	assert_int_equal(attachment_new(&attachment, made->object, ATTACHMENT_GPU), 0);
	strcpy(attachment->program, "cuda__third");
	strcpy(attachment->of.gpu.symbol, "__gpuprobe_o1_p3");
	registry_link(registry, made->object, &attachment, 1);
}

static struct map *map_made(const char *name, uint64_t ring_bytes) {
	struct made_map made = { .name = name, .ring_bytes = ring_bytes };

	in_loop(make_map, &made);
	return made.map;
}

/* A process's side of an instance. */
struct process_rings {
	struct producer_rings rings;
	struct map *map;
	struct map_instance *instance;
	void *memory;
	uint64_t process;
};

static void make_instance(void *argument) {
	struct process_rings *process = argument;

	assert_int_equal(map_instance_get(process->map, process->process,
					  (pid_t)process->process + 1000, 0,
					  ++test.daemon.registry.last_instance, &process->instance),
			 0);
	snprintf(process->instance->comm, sizeof(process->instance->comm), "\xff%d",
		 (int)process->process); /* a name may be any bytes */
}

static void process_start(struct process_rings *process, struct map *map, uint64_t number) {
	*process = (struct process_rings){ .map = map, .process = number };
	in_loop(make_instance, process);
	process->memory = mmap(NULL, process->instance->size, PROT_READ | PROT_WRITE, MAP_SHARED,
			       process->instance->fd, 0);
	assert_ptr_not_equal(process->memory, MAP_FAILED);
	process->rings = (struct producer_rings){
		.layout = map->spec.layout,
		.data = (void *)((char *)process->memory + MAP_DATA_OFFSET),
		.host = (unsigned char *)process->memory + map_host_offset(&map->spec.layout),
	};
	process->rings.cookie = process->rings.data->cookie;
}

static void process_stop(struct process_rings *process) {
	munmap(process->memory, map_memfd_size(&process->rings.layout));
}

static inline void end_process(void *argument) {
	const struct process_rings *process = argument;

	assert_int_equal(map_process_gone(process->map, process->process), 0);
}

/* Writes records numbered from `from` on, one warp a batch, over all rings. Returns how many found
 * room. */
static inline uint32_t process_write(struct process_rings *process, uint32_t from, uint32_t n) {
	unsigned char records[32 * RECORD] = {};
	uint32_t written = 0;

	for (uint32_t i = 0; i < n; i += 32) {
		uint32_t number = i / 32 % process->rings.layout.rings;

		for (uint32_t lane = 0; lane < 32; lane++) {
			uint32_t value = from + i + lane;

			memcpy(records + (size_t)lane * RECORD, &value, sizeof(value));
		}
		if (producer_write(&process->rings, number, RECORD, UINT32_MAX, records, true))
			written += 32;
	}
	return written;
}

/* ---- the client ---- */

static struct varlink_client *connected(void) {
	struct varlink_client *client;

	assert_int_equal(varlink_client_connect(&client, test.path, TIMEOUT_MS), 0);
	return client;
}

static inline struct varlink_client *ask(const char *method, const char *map, bool follow) {
	struct varlink_client *client = connected();
	json_object *parameters = json_object_new_object();
	char name[64];

	snprintf(name, sizeof(name), "io.gpuprobe.control.%s", method);
	if (map)
		json_add_string(parameters, "map", map);
	json_object_object_add(parameters, "follow", json_object_new_boolean(follow));
	assert_int_equal(varlink_client_call_more(client, name, parameters), 0);
	return client;
}

static inline void next(struct varlink_client *client, struct varlink_reply *reply) {
	assert_int_equal(varlink_client_next(client, reply), 0);
}

static int setup(void **state) {
	struct varlink_server_options options = { .size = sizeof(options),
						  .vendor = "gpuprobe",
						  .product = "test",
						  .version = "1",
						  .url = "http://localhost" };
	struct varlink_fault fault;

	memset(&test, 0, sizeof(test));
	sync_ring = NULL;
	snprintf(test.path, sizeof(test.path), "/tmp/test-ring-reader-%d", (int)getpid());
	uv_loop_init(&test.loop);
	uv_sem_init(&test.done, 0);
	uv_async_init(&test.loop, &test.async, on_async);
	test.daemon.loop = &test.loop;
	test.daemon.config = &test.config;
	daemon_connect_rooms(&test.daemon);
	test.config.mirror_period_ms = 100;
	registry_init(&test.daemon.registry);
	LIST_INIT(&test.daemon.control.ring_readers);
	if (map_accounts_new(&test.daemon.map_accounts, UINT64_C(1) << 30) ||
	    varlink_server_new(&test.daemon.control_server, &test.loop, &options) ||
	    varlink_server_add_interface(test.daemon.control_server, varlink_io_gpuprobe_control,
					 control_methods, &test.daemon.control, &fault) ||
	    varlink_server_listen(test.daemon.control_server, test.path, 0600))
		return -1;
	return pthread_create(&test.thread, NULL, run_loop, NULL);
}

static int teardown(void **state) {
	in_loop(stop_loop, NULL);
	pthread_join(test.thread, NULL);
	assert_true(LIST_EMPTY(&test.daemon.control.ring_readers));
	registry_deinit(&test.daemon.registry);
	map_accounts_free(test.daemon.map_accounts);
	uv_sem_destroy(&test.done);
	assert_int_equal(uv_loop_close(&test.loop), 0);
	unlink(test.path);
	return 0;
}
