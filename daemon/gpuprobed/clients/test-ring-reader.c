/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of the methods ReadRing and ReadLog, as their clients see them. */

#include "test-ring-daemon.h"

#include "lib/base64.h"
#include "lib/json.h"
#include "lib/varlink/varlink-json.h"
#include "proto/client-ring.h"
#include "proto/log-record.h"
#include "proto/ring-reply.h"

static size_t n_of(const struct varlink_reply *reply, const char *key) {
	return json_object_array_length(json_member(reply->parameters, key));
}

static int64_t number_of(json_object *object, const char *key) {
	return json_object_get_int64(json_member(object, key));
}

/* The number that process_write() gave a record. */
static uint32_t record_number(json_object *record) {
	json_object *data = json_member(record, "data");
	unsigned char *bytes;
	uint32_t number;
	size_t n;

	assert_int_equal(base64_decode(json_object_get_string(data),
				       (size_t)json_object_get_string_len(data), &bytes, &n),
			 0);
	assert_int_equal(n, RECORD);
	memcpy(&number, bytes, sizeof(number));
	free(bytes);
	return number;
}

/* Fails unless the call is refused for that reason, about. */
static void refused(const char *method, const char *map, int64_t object, const char *error,
		    const char *reason) {
	struct varlink_client *client = connected();
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	char name[64];

	snprintf(name, sizeof(name), "io.gpuprobe.control.%s", method);
	if (map)
		json_add_string(parameters, "map", map);
	if (object)
		json_add_int(parameters, "object", object);
	assert_int_equal(varlink_client_call(client, name, parameters, &reply),
			 VARLINK_CLIENT_E_ERROR);
	snprintf(name, sizeof(name), "io.gpuprobe.control.%s", error);
	assert_string_equal(reply.error, name);
	assert_non_null(strstr(json_object_to_json_string(reply.parameters), reason));
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
}

/* All records of two processes come once, with who wrote them; the last reply says what was lost.
 */
static void test_drain(void **state) {
	enum {
		n = 64000
	};
	static bool seen[2 * n];
	struct map *map = map_made("events", 0);
	struct varlink_client *client;
	struct varlink_reply reply;
	bool first = true, continues = true;
	struct process_rings processes[2];
	size_t n_seen = 0;

	for (uint32_t i = 0; i < 2; i++) {
		process_start(&processes[i], map, i + 1);
		assert_int_equal(process_write(&processes[i], i * n, n), n);
	}
	sync_ring = processes[0].rings.data;
	sync_lost = 17;
	client = ask("ReadRing", "events", false);
	for (; continues; first = false) {
		next(client, &reply);
		assert_true(n_of(&reply, "records") < 20000);
		for (size_t i = 0; i < n_of(&reply, "records"); i++) {
			json_object *record = json_object_array_get_idx(
				json_member(reply.parameters, "records"), i);
			uint32_t number = record_number(record);

			assert_true(number < 2 * n && !seen[number]);
			seen[number] = true;
			n_seen++;
			assert_int_equal(number_of(record, "pid"), number < n ? 1001 : 1002);
			assert_int_equal(number_of(record, "lane"), number % 32);
			assert_int_equal(number_of(record, "sm"), 100 + number % n / 32 % 128);
		}
		assert_int_equal(first, json_member(reply.parameters, "btf") != NULL);
		assert_int_equal(number_of(reply.parameters, "btf_value_type"), 9);
		assert_int_equal(number_of(reply.parameters, "lost"), reply.continues ? 0 : 17);
		continues = reply.continues;
		varlink_reply_deinit(&reply);
	}
	assert_int_equal(n_seen, 2 * n);
	varlink_client_free(client);
	client = ask("ReadRing", "1", false); /* nothing comes twice */
	next(client, &reply);
	assert_false(reply.continues);
	assert_int_equal(n_of(&reply, "records"), 0);
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
	process_stop(&processes[0]);
	process_stop(&processes[1]);
}

/* Each record of batches once. */
static size_t see_batches(const unsigned char *bytes, size_t n_bytes, bool *seen) {
	const unsigned char *at;
	size_t n = 0;

	for (at = bytes; at < bytes + n_bytes;) {
		struct ring_reply_batch batch;

		memcpy(&batch, at, sizeof(batch));
		at += sizeof(batch);
		assert_int_equal(batch.pid, 1001);
		assert_int_equal(batch.size, RECORD);
		assert_int_equal(batch.lanes, UINT32_MAX);
		assert_int_equal(batch.reserved, 0);
		for (uint32_t i = 0; i < batch.count; i++, at += RECORD) {
			uint32_t number;

			memcpy(&number, at, sizeof(number));
			assert_int_equal(batch.sm, 100 + number / 32 % 128);
			assert_false(seen[number]);
			seen[number] = true;
			n++;
		}
	}
	assert_ptr_equal(at, bytes + n_bytes);
	return n;
}

/* The same in batches, with `more` and without. */
static size_t read_batches(const struct varlink_reply *reply, bool *seen) {
	json_object *text = json_member(reply->parameters, "batches");
	unsigned char *bytes;
	size_t n_bytes, n;

	assert_non_null(text);
	assert_int_equal(n_of(reply, "records"), 0);
	assert_int_equal(base64_decode(json_object_get_string(text),
				       (size_t)json_object_get_string_len(text), &bytes, &n_bytes),
			 0);
	n = see_batches(bytes, n_bytes, seen);
	free(bytes);
	return n;
}

static void test_raw(void **state) {
	enum {
		n = 960000
	};
	static bool seen[n];
	struct map *map = map_made("events", UINT64_C(64) << 20);
	struct varlink_client *client = connected();
	struct process_rings process;
	struct varlink_reply reply;
	bool continues = true;
	size_t n_seen = 0;

	process_start(&process, map, 1);
	assert_int_equal(process_write(&process, 0, n), n);
	for (int more = 0; more < 2; more++) {
		json_object *parameters = json_object_new_object();

		json_add_string(parameters, "map", "events");
		json_object_object_add(parameters, "raw", json_object_new_boolean(true));
		if (more)
			assert_int_equal(varlink_client_call_more(client,
								  "io.gpuprobe.control.ReadRing",
								  parameters),
					 0);
		else
			assert_int_equal(varlink_client_call(client, "io.gpuprobe.control.ReadRing",
							     parameters, &reply),
					 0);
		while (more && continues) {
			next(client, &reply);
			n_seen += read_batches(&reply, seen);
			continues = reply.continues;
			varlink_reply_deinit(&reply);
		}
		if (!more) {
			n_seen = read_batches(&reply, seen);
			varlink_reply_deinit(&reply);
			assert_in_range(n_seen, 32, n - 32);
		}
	}
	assert_int_equal(n_seen, n);
	varlink_client_free(client);
	process_stop(&process);
}

/* A client that has the daemon's memory. */
struct memory_client {
	struct varlink_client *client;
	struct client_ring *ring;
	size_t size;
	uint64_t end;
	bool *seen;
	size_t n_seen;
};

/* Takes a reply; what is in the memory is copied, since it may go around its end. Returns whether
 * it continues. */
static bool take_memory(struct memory_client *client) {
	static unsigned char bytes[4 << 20];
	struct varlink_reply reply;
	uint64_t end;
	size_t n = 0;
	bool continues;
	int fd;

	next(client->client, &reply);
	continues = reply.continues;
	if (json_member(reply.parameters, "descriptor")) {
		fd = varlink_client_take_descriptor(client->client);
		client->size = (size_t)json_int_of(reply.parameters, "descriptor");
		client->ring = mmap(NULL, sizeof(*client->ring) + client->size,
				    PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(client->ring, MAP_FAILED);
		assert_int_equal(ftruncate(fd, 0), -1); /* the daemon writes there */
		close(fd);
	}
	if (json_member(reply.parameters, "batches"))
		client->n_seen += read_batches(&reply, client->seen);
	end = json_member(reply.parameters, "end") ? (uint64_t)json_int_of(reply.parameters, "end")
						   : client->end;
	assert_true(end - client->end <= client->size && end - client->end <= sizeof(bytes));
	for (; client->end < end; client->end++)
		bytes[n++] = client->ring->data[client->end & (client->size - 1)];
	client->n_seen += see_batches(bytes, n, client->seen);
	varlink_reply_deinit(&reply);
	return continues;
}

static struct memory_client ask_memory(bool *seen) {
	struct memory_client client = { .client = connected(), .seen = seen };

	assert_int_equal(varlink_client_call_more(
				 client.client, "io.gpuprobe.control.ReadRing",
				 varlink_json_pack("map", json_object_new_string("events"), "raw",
						   json_object_new_boolean(true), "descriptor",
						   json_object_new_boolean(true), NULL)),
			 0);
	return client;
}

/* Through memory: all records, many times around. */
static void test_memory(void **state) {
	enum {
		n = 960000
	};
	static bool seen[n];
	struct map *map = map_made("events", UINT64_C(64) << 20);
	struct memory_client client;
	struct process_rings process;

	process_start(&process, map, 1);
	assert_int_equal(process_write(&process, 0, n), n);
	client = ask_memory(seen);
	while (take_memory(&client))
		if (client.ring)
			__atomic_store_n(&client.ring->consumed, client.end, __ATOMIC_RELEASE);
	assert_int_equal(client.n_seen, n);
	assert_true(client.end > 8 * client.size);
	munmap(client.ring, sizeof(*client.ring) + client.size);
	varlink_client_free(client.client);
	process_stop(&process);
}

/* A client that says it needs nothing any more, or more than there was, gets nothing over what it
 * reads; neither does one that says nothing. What it has not read, another one gets. */
static void test_memory_misused(void **state) {
	enum {
		n = 96000
	};
	static bool seen[n], rest[n];
	struct map *map = map_made("events", UINT64_C(64) << 20);
	struct memory_client client, other;
	struct process_rings process;

	process_start(&process, map, 1);
	assert_int_equal(process_write(&process, 0, n), n);
	client = ask_memory(seen);
	do
		assert_true(take_memory(&client));
	while (!client.ring);
	while (varlink_client_wait(client.client, -1, 300) == 0)
		assert_true(take_memory(&client));
	assert_true(client.end <= client.size && client.n_seen < n);
	client.ring->consumed = UINT64_MAX;
	assert_int_equal(varlink_client_wait(client.client, -1, 300), VARLINK_CLIENT_E_AGAIN);
	client.ring->consumed = client.end + 1;
	assert_int_equal(varlink_client_wait(client.client, -1, 300), VARLINK_CLIENT_E_AGAIN);
	munmap(client.ring, sizeof(*client.ring) + client.size);
	varlink_client_free(client.client);
	usleep(100000); /* it has noticed */
	other = ask_memory(rest);
	while (take_memory(&other))
		if (other.ring)
			__atomic_store_n(&other.ring->consumed, other.end, __ATOMIC_RELEASE);
	assert_int_equal(client.n_seen + other.n_seen, n);
	for (size_t i = 0; i < n; i++)
		assert_true(seen[i] != rest[i]);
	munmap(other.ring, sizeof(*other.ring) + other.size);
	varlink_client_free(other.client);
	process_stop(&process);
}

/* Without `more`: one reply, no larger than a message; the rest with the next call. */
static void test_single(void **state) {
	struct map *map = map_made("events", UINT64_C(64) << 20);
	struct process_rings process;
	size_t n_seen = 0, n;
	uint32_t written;
	int calls = 0;

	process_start(&process, map, 1);
	written = process_write(&process, 0, 120000);
	assert_int_equal(written, 120000);
	do {
		struct varlink_client *client = connected();
		json_object *parameters = json_object_new_object();
		struct varlink_reply reply;

		json_add_string(parameters, "map", "events");
		assert_int_equal(varlink_client_call(client, "io.gpuprobe.control.ReadRing",
						     parameters, &reply),
				 0);
		n = n_of(&reply, "records");
		n_seen += n;
		calls++;
		varlink_reply_deinit(&reply);
		varlink_client_free(client);
	} while (n);
	assert_int_equal(n_seen, written);
	assert_true(calls > 2);
	process_stop(&process);
}

/* Records that come later, losses without records; a client that goes lets the next one read. */
static void test_follow(void **state) {
	struct map *map = map_made("events", 64 << 10);
	struct process_rings processes[2];
	struct varlink_client *client;
	struct varlink_reply reply;

	for (int round = 0; round < 3; round++) {
		size_t n_seen = 0;
		int64_t lost;

		for (;;) { /* until the daemon has seen the last client go */
			client = ask("ReadRing", "events", true);
			if (round == 0)
				process_start(&processes[0], map, 1);
			process_write(&processes[0], 5, 32);
			if (varlink_client_next(client, &reply) == 0)
				break;
			varlink_reply_deinit(&reply);
			varlink_client_free(client);
		}
		n_seen = n_of(&reply, "records");
		assert_int_equal(n_seen % 32, 0);
		varlink_reply_deinit(&reply);
		processes[0].rings.data[1].lost += 3;
		do { /* what was written at first, the last reader may have taken */
			process_write(&processes[0], 5, 32);
			next(client, &reply);
			assert_true(reply.continues);
			lost = number_of(reply.parameters, "lost");
			n_seen += n_of(&reply, "records");
			varlink_reply_deinit(&reply);
		} while (!n_seen || lost != 3 * (round + 1));
		varlink_client_free(client);
	}
	process_start(&processes[1], map, 2); /* while nobody reads */
	process_write(&processes[1], 7, 32);
	process_stop(&processes[0]);
	process_stop(&processes[1]);
}

/* Where processes do not copy their counters on their own, they are asked now and then. */
static void test_refresh(void **state) {
	struct map *map = map_made("events", 64 << 10);
	struct process_rings process;
	struct varlink_client *client;
	struct varlink_reply reply;

	test.config.mirror_period_ms = 0;
	process_start(&process, map, 1);
	sync_ring = process.rings.data;
	sync_lost = 9;
	client = ask("ReadRing", "events", true);
	next(client, &reply);
	assert_int_equal(n_of(&reply, "records"), 0);
	assert_int_equal(number_of(reply.parameters, "lost"), 9);
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
	process_stop(&process);
}

/* What a process wrote before it ended is read after it; then its memory goes. */
static void test_ended(void **state) {
	struct map *map = map_made("events", 64 << 10);
	struct process_rings process;
	struct varlink_client *client;
	struct varlink_reply reply;

	process_start(&process, map, 1);
	process_write(&process, 0, 64);
	in_loop(end_process, &process);
	assert_non_null(map->instances);
	client = ask("ReadRing", "events", false);
	next(client, &reply);
	assert_int_equal(n_of(&reply, "records"), 64);
	assert_int_equal(
		number_of(json_object_array_get_idx(json_member(reply.parameters, "records"), 0),
			  "pid"),
		1001);
	varlink_reply_deinit(&reply);
	next(client, &reply);
	assert_false(reply.continues);
	assert_null(map->instances);
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
	process_stop(&process);
}

/* A client that does not read keeps the records in the rings, not in the daemon. */
static void test_slow_client(void **state) {
	struct map *map = map_made("events", UINT64_C(16) << 20);
	struct process_rings process;
	struct varlink_client *client;
	uint64_t taken, before;

	process_start(&process, map, 1);
	process_write(&process, 0, 300000);
	client = ask("ReadRing", "events", true);
	taken = 0;
	do {
		before = taken;
		usleep(100000);
		taken = 0;
		for (uint32_t i = 0; i < process.rings.layout.rings; i++)
			taken += __atomic_load_n(
				(uint64_t *)(void *)(process.rings.host +
						     (size_t)i * MAP_RING_TAIL_STRIDE),
				__ATOMIC_RELAXED);
	} while (!taken || taken != before);
	assert_in_range(taken, 1, 2 << 20);
	varlink_client_free(client);
	process_stop(&process);
}

static void remove_map(void *argument) {
	registry_remove(&test.daemon.registry, TAILQ_FIRST(&test.daemon.registry.attachments));
}

static void test_detached(void **state) {
	struct map *map = map_made("events", 64 << 10);
	struct process_rings process;
	struct varlink_client *client;
	struct varlink_reply reply;

	process_start(&process, map, 1);
	process_write(&process, 0, 32);
	client = ask("ReadRing", "events", true);
	next(client, &reply);
	varlink_reply_deinit(&reply);
	process_stop(&process);
	in_loop(remove_map, NULL);
	assert_int_equal(varlink_client_next(client, &reply), VARLINK_CLIENT_E_ERROR);
	assert_string_equal(reply.error, "io.gpuprobe.control.NotFound");
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
}

static void test_refused(void **state) {
	struct varlink_client *ring, *log;
	struct process_rings process;
	struct varlink_reply reply;
	struct map *map;
	char pid[32];

	map = map_made("events", 64 << 10);
	map_made("other", 64 << 10);
	map_made(LOG_MAP_NAME, 64 << 10);
	map->spec.layout.kind = MAP_KIND_HASH;
	refused("ReadRing", "events", 0, "InvalidArgument", "not a ring");
	map->spec.layout.kind = MAP_KIND_RING;
	refused("ReadRing", "nothing", 0, "NotFound", "nothing");
	refused("ReadLog", NULL, 99, "NotFound", "object 99");

	process_start(&process, map, 1);
	process_write(&process, 0, 32);
	ring = ask("ReadRing", "events", true);
	next(ring, &reply); /* it reads */
	varlink_reply_deinit(&reply);
	snprintf(pid, sizeof(pid), "process %d reads", (int)getpid());
	refused("ReadRing", "events", 0, "Unavailable", pid);
	process_stop(&process);

	process_start(&process, registry_map(&test.daemon.registry, 3, NULL), 1);
	process.rings.data->lost = 1;
	log = ask("ReadLog", NULL, true);
	next(log, &reply);
	varlink_reply_deinit(&reply);
	refused("ReadLog", NULL, 0, "Unavailable", "ReadLog");
	refused("ReadLog", NULL, 3, "Unavailable", "ReadLog");
	refused("ReadRing", LOG_MAP_NAME, 0, "Unavailable", "ReadLog");
	process_stop(&process);
	varlink_client_free(ring);
	varlink_client_free(log);
}

struct log_text {
	struct log_record record;
	uint64_t argument;
	char text[16];
};

static void write_line(struct process_rings *process, uint32_t ring, uint64_t time,
		       uint16_t program, uint64_t argument) {
	struct log_text text = { .record = { .time = time,
					     .kind = argument ? LOG_PRINTK : 0,
					     .format_length = 8,
					     .arg_count = 1,
					     .program = program },
				 .argument = argument,
				 .text = "n is %d\n" };

	assert_true(producer_write(&process->rings, ring, sizeof(text), 1, &text, true));
}

static void check_line(const struct varlink_reply *reply, size_t i, const char *expected) {
	json_object *line = json_object_array_get_idx(json_member(reply->parameters, "lines"), i);

	assert_non_null(line);
	assert_string_equal(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN), expected);
}

/* Lines of two objects, in the order of time; what is no record is lost. */
static void test_log(void **state) {
	struct map *maps[] = { map_made(LOG_MAP_NAME, 64 << 10), map_made(LOG_MAP_NAME, 64 << 10),
			       map_made("events", 64 << 10) };
	struct process_rings processes[2];
	struct varlink_client *client;
	struct varlink_reply reply;

	process_start(&processes[0], maps[0], 1);
	process_start(&processes[1], maps[1], 2);
	write_line(&processes[0], 0, 300, 3, 7);
	write_line(&processes[0], 1, 100, 4, UINT64_MAX);
	write_line(&processes[1], 0, 200, 3, 8);
	write_line(&processes[1], 0, 250, 3, 0); /* malformed */
	client = ask("ReadLog", NULL, false);
	next(client, &reply);
	assert_int_equal(n_of(&reply, "lines"), 3);
	check_line(&reply, 0,
		   "{\"pid\":1001,\"comm\":\"\xef\xbf\xbd"
		   "1\",\"time\":100,\"program\":\"program 4\",\"text\":\"n is -1\"}");
	check_line(&reply, 1,
		   "{\"pid\":1002,\"comm\":\"\xef\xbf\xbd"
		   "2\",\"time\":200,\"program\":\"cuda__third\",\"text\":\"n is 8\"}");
	check_line(&reply, 2,
		   "{\"pid\":1001,\"comm\":\"\xef\xbf\xbd"
		   "1\",\"time\":300,\"program\":\"cuda__third\",\"text\":\"n is 7\"}");
	assert_int_equal(number_of(reply.parameters, "lost"), 1);
	varlink_reply_deinit(&reply);
	next(client, &reply);
	assert_false(reply.continues);
	varlink_reply_deinit(&reply);
	varlink_client_free(client);
	process_stop(&processes[0]);
	process_stop(&processes[1]);
}

/* Much of what is no line, of several processes: the reader comes to its end, all is lost. */
static void test_garbage(void **state) {
	struct map *map = map_made(LOG_MAP_NAME, 16 << 20);
	unsigned char garbage[1024] = {};
	struct process_rings processes[2];
	struct varlink_client *client;
	struct varlink_reply reply;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 2; i++) {
		process_start(&processes[i], map, i + 1);
		for (uint32_t ring = 0; ring < map->spec.layout.rings; ring++)
			for (int k = 0; k < 120; k++, n++)
				assert_true(producer_write(&processes[i].rings, ring,
							   sizeof(garbage), 1, garbage, true));
	}
	client = ask("ReadLog", NULL, false);
	do {
		next(client, &reply);
		assert_int_equal(n_of(&reply, "lines"), 0);
		if (!reply.continues)
			assert_int_equal(number_of(reply.parameters, "lost"), n);
		varlink_reply_deinit(&reply);
	} while (reply.continues);
	varlink_client_free(client);
	process_stop(&processes[0]);
	process_stop(&processes[1]);
}

/* Who reads all logs is not kept from it by users who read theirs, nor they by him: a log goes to
 * its owner. */
static void test_users(void **state) {
	struct map *maps[2];
	struct process_rings processes[2];
	struct varlink_client *clients[2];
	struct varlink_reply reply;

	if (geteuid() != 0)
		skip();
	for (int i = 0; i < 2; i++) {
		maps[i] = map_made(LOG_MAP_NAME, 64 << 10);
		TAILQ_LAST(&test.daemon.registry.objects, object_list)->owner = i ? 65534 : 0;
		process_start(&processes[i], maps[i], (uint64_t)i + 1);
	}
	assert_int_equal(chmod(test.path, 0666), 0);
	for (int order = 0; order < 2; order++) {
		for (int i = 0; i < 2; i++) {
			int who = i ^ order;

			assert_int_equal(seteuid(who ? 65534 : 0), 0);
			clients[who] = ask("ReadLog", NULL, true);
			assert_int_equal(seteuid(0), 0);
			refused("ReadLog", NULL, who + 1, "Unavailable", "reads it already");
		}
		write_line(&processes[0], 0, 100, 3, 7);
		write_line(&processes[1], 0, 200, 3, 8);
		for (int who = 0; who < 2; who++) {
			next(clients[who], &reply);
			assert_int_equal(n_of(&reply, "lines"), 1);
			check_line(&reply, 0,
				   who ? "{\"pid\":1002,\"comm\":\"\xef\xbf\xbd"
					 "2\",\"time\":200,\"program\":\"cuda__third\",\"text\":"
					 "\"n is 8\"}"
				       : "{\"pid\":1001,\"comm\":\"\xef\xbf\xbd"
					 "1\",\"time\":100,\"program\":\"cuda__third\",\"text\":"
					 "\"n is 7\"}");
			varlink_reply_deinit(&reply);
		}
		for (int who = 0; who < 2; who++)
			varlink_client_free(clients[who]);
		while (!LIST_EMPTY(&test.daemon.control.ring_readers))
			usleep(1000);
	}
	process_stop(&processes[0]);
	process_stop(&processes[1]);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_single, setup, teardown),
		cmocka_unit_test_setup_teardown(test_raw, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_misused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_follow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refresh, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ended, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slow_client, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detached, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log, setup, teardown),
		cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_users, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
