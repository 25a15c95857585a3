/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of the methods DumpMap, ListMaps and Why.
 *
 * DumpMap and ListMaps of all kinds of maps: the daemon's own code on a loop in a thread, with the
 * varlink server, maps and instances as in the daemon. The test is the client; the processes have
 * done their work before. Why, too.
 */

#include <json-c/json.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base64.h"
#include "control.h"
#include "daemon/gpuprobed/daemon-private.h"
#include "daemon/gpuprobed/map/map-internal.h"
#include "lib/pass/section.h"
#include "daemon/gpuprobed/map/test-map-view.h"
#include "lib/varlink/varlink-client.h"
#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/varlink/varlink-json.h"

#define TIMEOUT_MS 20000

static struct {
	struct daemon daemon;
	uv_loop_t loop;
	pthread_t thread;
	uv_async_t stop;
	uv_prepare_t turn;
	atomic_uint n_turns, n_new; /* outcomes that each turn adds */
	char path[64];
	struct varlink_client *client;
} test;

/* Of a kernel whose name costs the glob of test_why() most. */
static void add_outcome(const char *end) {
	char name[2040];

	memset(name, 'a', 2000);
	snprintf(name + 2000, sizeof(name) - 2000, "%s", end);
	assert_int_equal(
		outcome_log_add(&test.daemon.outcomes, getuid(), 1, "x", OUTCOME_PROBED,
				&(struct outcome_subject){ .kernel = name, .demangled = name }, ""),
		0);
}

static void on_turn(uv_prepare_t *turn) {
	test.n_turns++;
	for (unsigned int i = 0; i < test.n_new; i++)
		add_outcome("b");
}

static void on_stop(uv_async_t *async) {
	test.daemon.control_server = varlink_server_free(test.daemon.control_server);
	uv_close((uv_handle_t *)&test.turn, NULL);
	uv_close((uv_handle_t *)async, NULL);
}

static void *run_loop(void *userdata) {
	uv_run(&test.loop, UV_RUN_DEFAULT);
	return NULL;
}

static int setup(void **state) {
	struct varlink_server_options options = { .size = sizeof(options),
						  .vendor = "gpuprobe",
						  .product = "test",
						  .version = "1",
						  .url = "http://localhost" };
	struct varlink_fault fault;

	memset(&test, 0, sizeof(test));
	snprintf(test.path, sizeof(test.path), "/tmp/test-control-dump-%d", (int)getpid());
	uv_loop_init(&test.loop);
	uv_async_init(&test.loop, &test.stop, on_stop);
	uv_prepare_init(&test.loop, &test.turn);
	uv_prepare_start(&test.turn, on_turn);
	test.daemon.loop = &test.loop;
	daemon_connect_rooms(&test.daemon);
	outcome_log_init(&test.daemon.outcomes);
	registry_init(&test.daemon.registry);
	if (map_accounts_new(&test.daemon.map_accounts, UINT64_C(1) << 30) ||
	    varlink_server_new(&test.daemon.control_server, &test.loop, &options) ||
	    varlink_server_add_interface(test.daemon.control_server, varlink_io_gpuprobe_control,
					 control_methods, &test.daemon.control, &fault))
		return -1;
	return varlink_server_listen(test.daemon.control_server, test.path, 0600);
}

/* Everything is as the test wants it: from here on it only asks. */
static void serve(void) {
	assert_int_equal(pthread_create(&test.thread, NULL, run_loop, NULL), 0);
	assert_int_equal(varlink_client_connect(&test.client, test.path, TIMEOUT_MS), 0);
}

static int teardown(void **state) {
	varlink_client_free(test.client);
	uv_async_send(&test.stop);
	pthread_join(test.thread, NULL);
	assert_int_equal(map_accounts_room(test.daemon.map_accounts, 0), MAP_SNAPSHOT_BYTES_MAX);
	registry_deinit(&test.daemon.registry);
	outcome_log_deinit(&test.daemon.outcomes);
	map_accounts_free(test.daemon.map_accounts);
	assert_int_equal(uv_loop_close(&test.loop), 0);
	unlink(test.path);
	return 0;
}

/* A map of an attached object. */
static struct map *make_map(const char *name, const struct map_shape *shape) {
	struct registry *registry = &test.daemon.registry;
	struct map_spec spec = spec_of(shape);
	struct attachment *attachment;
	struct object *object;

	spec.name = name;
	spec.btf_key_type = 3;
	spec.btf_value_type = 4;
	assert_int_equal(object_new(&object, ++registry->last_object, getuid()), 0);
	object->n_maps = 1;
	assert_int_equal(map_new(&object->maps[0], ++registry->last_map, object->id, object->owner,
				 &spec, test.daemon.map_accounts),
			 0);
	assert_int_equal(attachment_new(&attachment, object, ATTACHMENT_GPU), 0);
	registry_link(registry, object, &attachment, 1);
	return object->maps[0];
}

/* Calls DumpMap with these parameters. Returns the error, or NULL; NULL too if it streams. */
static const char *dump(const char *parameters, struct varlink_reply *reply) {
	int r = varlink_client_call(test.client, "io.gpuprobe.control.DumpMap",
				    json_tokener_parse(parameters), reply);

	assert_int_equal(r, reply->error ? VARLINK_CLIENT_E_ERROR : 0);
	return reply->error ? strrchr(reply->error, '.') + 1 : NULL;
}

/* Compares the entries of a dump, without spaces, with ' for ". */
static void assert_entries(const char *parameters, const char *expected) {
	struct varlink_reply reply;
	json_object *entries = NULL;
	char *text;

	assert_null(dump(parameters, &reply));
	json_object_object_get_ex(reply.parameters, "entries", &entries);
	text = strdup(json_object_to_json_string_ext(
		entries, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	for (char *at = text; *at; at++)
		if (*at == '"')
			*at = '\'';
	assert_string_equal(text, expected);
	free(text);
	varlink_reply_deinit(&reply);
}

/* Compares a member of a map, as ListMaps says. expected NULL: there is none. */
static void assert_listed(const char *member, const char *expected) {
	struct varlink_reply reply;
	json_object *maps = NULL, *value = NULL;

	assert_int_equal(
		varlink_client_call(test.client, "io.gpuprobe.control.ListMaps", NULL, &reply), 0);
	json_object_object_get_ex(reply.parameters, "maps", &maps);
	json_object_object_get_ex(json_object_array_get_idx(maps, 0), member, &value);
	if (expected)
		assert_string_equal(json_object_get_string(value), expected);
	else
		assert_null(value);
	varlink_reply_deinit(&reply);
}

/* A slot of a hash map with keys and values of 8 bytes. */
static void put_slot(struct view *view, uint64_t slot, uint64_t key, uint64_t value) {
	uint64_t at =
		sizeof(struct map_hash) + slot * view->instance->map->spec.layout.entry_stride;

	put64(view, at, MAP_SLOT_LIVE);
	put64(view, at + 8, key);
	put64(view, at + 16, value);
}

static void test_hash(void **state) {
	struct map *map = make_map("keys", &(struct map_shape){ BPF_MAP_TYPE_HASH, 8, 8, 100 });
	struct view a = view_make(map, 1, 0), b = view_make(map, 2, 0);

	put_slot(&a, 7, 1, 2);
	put_slot(&b, 9, 1, 3);
	put_slot(&b, 10, 2, 0);
	a.header->mirrored_ns = 1;
	view_free(&a);
	view_free(&b);
	serve();
	assert_listed("kind", "hash");
	assert_listed("place", "device");
	assert_listed("merge", "none");
	assert_listed("threads", NULL);
	assert_listed("written", NULL);
	assert_entries("{\"map\":\"keys\"}", "[{'key':'AQAAAAAAAAA=','values':['BQAAAAAAAAA=']},"
					     "{'key':'AgAAAAAAAAA=','values':['AAAAAAAAAAA=']}]");
	assert_entries("{\"map\":\"1\",\"nonzero\":true,\"merge\":\"sum\"}",
		       "[{'key':'AQAAAAAAAAA=','values':['BQAAAAAAAAA=']}]");
	assert_entries("{\"map\":\"1\",\"nonzero\":true,\"merge\":\"latest\"}",
		       "[{'key':'AQAAAAAAAAA=','values':['AgAAAAAAAAA=']}]");
	assert_entries("{\"map\":\"1\",\"nonzero\":true,\"per_process\":true}",
		       "[{'key':'AQAAAAAAAAA=','values':['AgAAAAAAAAA='],'pid':101},"
		       "{'key':'AQAAAAAAAAA=','values':['AwAAAAAAAAA='],'pid':102}]");
}

static void test_refused(void **state) {
	struct map *map = make_map("keys", &(struct map_shape){ BPF_MAP_TYPE_HASH, 8, 8, 100 });
	struct view a = view_make(map, 1, 0);
	struct varlink_reply reply;
	uint64_t held = 0;

	make_map("ring", &(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096 });
	put_slot(&a, 7, 1, 2);
	view_free(&a);
	map_accounts_hold(test.daemon.map_accounts, 0, &held, MAP_SNAPSHOT_BYTES_MAX - 64);
	serve();
	assert_string_equal(dump("{\"map\":\"keys\",\"merge\":\"most\"}", &reply),
			    "InvalidArgument");
	varlink_reply_deinit(&reply);
	assert_string_equal(dump("{\"map\":\"ring\"}", &reply), "InvalidArgument");
	varlink_reply_deinit(&reply);
	assert_string_equal(dump("{\"map\":\"none\"}", &reply), "NotFound");
	varlink_reply_deinit(&reply);
	assert_string_equal(dump("{\"map\":\"keys\"}", &reply), "LimitExceeded");
	varlink_reply_deinit(&reply);
	map_accounts_hold(test.daemon.map_accounts, 0, &held, 0);
	assert_entries("{\"map\":\"keys\"}", "[{'key':'AQAAAAAAAAA=','values':['AgAAAAAAAAA=']}]");
}

static void test_threads(void **state) {
	struct map *map = make_map("threads", &(struct map_shape){ 1502, 4, 8, 2, .threads = 10 });
	struct view a = view_make(map, 1, 0);

	put64(&a, 8, 1);
	put64(&a, (10 + 9) * 8, 2);
	view_free(&a);
	serve();
	assert_listed("kind", "threads");
	assert_listed("threads", "10");
	assert_entries("{\"map\":\"threads\",\"nonzero\":true}",
		       "[{'key':'AAAAAA==','values':['AQAAAAAAAAA='],'thread':1},"
		       "{'key':'AQAAAA==','values':['AgAAAAAAAAA='],'thread':9}]");
}

static void test_ring_listed(void **state) {
	struct map *map = make_map("ring", &(struct map_shape){ BPF_MAP_TYPE_RINGBUF, 0, 0, 4096 });
	struct view a = view_make(map, 1, 0);

	((struct map_ring *)(void *)a.data)[1].written = 5;
	((struct map_ring *)(void *)a.data)[2].lost = 6;
	view_free(&a);
	serve();
	assert_listed("kind", "ring");
	assert_listed("written", "5");
	assert_listed("lost", "6");
}

/*
 * A large map comes in several replies, the first after some turns without one. Who hangs up in the
 * middle leaves nothing behind.
 */
static void test_stream(void **state) {
	enum {
		n = 50000
	};
	struct map *map = make_map("keys", &(struct map_shape){ BPF_MAP_TYPE_HASH, 8, 8, 8 * n });
	struct view a = view_make(map, 1, 0);
	struct varlink_reply reply;
	unsigned int replies = 0;
	json_object *entries;
	bool continues = true;
	size_t count = 0;

	for (uint64_t i = 0; i < n; i++)
		put_slot(&a, i, i, i + 1);
	view_free(&a);
	serve();
	for (; continues; replies++) {
		if (!replies)
			assert_int_equal(
				varlink_client_call_more(test.client, "io.gpuprobe.control.DumpMap",
							 json_tokener_parse("{\"map\":\"keys\"}")),
				0);
		assert_int_equal(varlink_client_next(test.client, &reply), 0);
		json_object_object_get_ex(reply.parameters, "entries", &entries);
		count += json_object_array_length(entries);
		continues = reply.continues;
		varlink_reply_deinit(&reply);
	}
	assert_in_range(replies, 10, n);
	assert_int_equal(count, n);
	assert_int_equal(varlink_client_call_more(test.client, "io.gpuprobe.control.DumpMap",
						  json_tokener_parse("{\"map\":\"keys\"}")),
			 0);
	assert_int_equal(varlink_client_next(test.client, &reply), 0);
	varlink_reply_deinit(&reply); /* teardown hangs up, and looks at what is held */
}

/* An element that is too much for any reply. */
static void test_large_element(void **state) {
	enum {
		size = 1 << 20
	};
	struct map *map =
		make_map("large", &(struct map_shape){ BPF_MAP_TYPE_PERCPU_ARRAY, 4, size, 1 });
	struct view a = view_make(map, 1, 0);
	struct varlink_reply reply;

	put64(&a, 20 * map->spec.layout.shard_stride, 1); /* of an SM: more than 12 MiB */
	view_free(&a);
	serve();
	assert_string_equal(dump("{\"map\":\"large\"}", &reply), "LimitExceeded");
	varlink_reply_deinit(&reply);
	assert_int_equal(varlink_client_call_more(test.client, "io.gpuprobe.control.DumpMap",
						  json_tokener_parse("{\"map\":\"large\"}")),
			 0);
	assert_int_equal(varlink_client_next(test.client, &reply), VARLINK_CLIENT_E_ERROR);
	assert_string_equal(reply.error, "io.gpuprobe.control.LimitExceeded");
	varlink_reply_deinit(&reply);
}

/* How many outcomes Why tells of, with that glob. -1: it is refused. */
static int why(const char *kernel) {
	struct varlink_reply reply;
	json_object *outcomes = NULL;
	int n = -1;

	varlink_client_call(test.client, "io.gpuprobe.control.Why",
			    varlink_json_pack("kernel", json_object_new_string(kernel), NULL),
			    &reply);
	if (reply.error)
		assert_string_equal(reply.error, "io.gpuprobe.control.InvalidArgument");
	else if (json_object_object_get_ex(reply.parameters, "outcomes", &outcomes))
		n = (int)json_object_array_length(outcomes);
	varlink_reply_deinit(&reply);
	return n;
}

/* A glob that takes long for each name keeps nobody else waiting; what is forgotten meanwhile does
 * no harm. */
static void test_why(void **state) {
	char glob[SECTION_KERNEL_SIZE + 1];
	unsigned int before;

	for (unsigned int i = 0; i < 100; i++)
		add_outcome(i % 10 ? "c" : "b");
	serve();
	assert_int_equal(why("*b"), 10);
	memset(glob, '*', SECTION_KERNEL_SIZE);
	glob[SECTION_KERNEL_SIZE] = '\0';
	assert_int_equal(why(glob), -1);
	glob[SECTION_KERNEL_SIZE - 1] = '\0';
	assert_int_equal(why(glob), 100);
	memset(glob + 1, 'a', 1000);
	strcpy(glob + 1001, "b");
	before = test.n_turns;
	assert_int_equal(why(glob), 10);
	assert_true(test.n_turns - before >= 20);
	test.n_new = 2 * OUTCOME_UID_MAX;
	assert_true(why(glob) >= 0);
	test.n_new = 0;
}

int main(void) {
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_hash),        TEST(test_refused), TEST(test_threads),
		TEST(test_ring_listed), TEST(test_stream),  TEST(test_large_element),
		TEST(test_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
