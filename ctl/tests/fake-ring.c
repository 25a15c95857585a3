/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A part of the fake daemon for tests of gpuprobectl. The fake daemon's rings and logs. What a ring
 * gives follows from its name; with `follow` it has nothing more after that, and does not end.
 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base64.h"
#include "fake-daemon.h"
#include "proto/ring-reply.h"
#include "lib/varlink/varlink-json.h"
#include "lib/varlink/varlink-server.h"

#define LARGE 100000
#define RECORDS_MAX 3

struct fake_ring {
	const char *name;
	bool typed;
	size_t sizes[RECORDS_MAX]; /* of its records, which begin with the first event; 0: none */
	int64_t lost[2]; /* in the first and in the second reply */
};

static const struct fake_ring rings[] = {
	{ "events", true, { sizeof(struct event), sizeof(struct event) }, { 0, 0 } },
	{ "mixed", true, { 4, sizeof(struct event) + 4, 2 * sizeof(struct event) }, { 0, 0 } },
	{ "plain", false, { 5 }, { 0, 0 } },
	{ "losing", false, { 4 }, { 2, 5 } },
	{ "falling", false, { 4 }, { 2, 2 } }, /* or as FAKE_LOST says */
	{ "empty", true, {}, { 0, 0 } },
	{ "detached", true, { 4 }, { 0, 0 } },
	{ "large", false, {}, { 0, 0 } },
	{ "garbage", false, {}, { 0, 0 } },
	{ "cut", false, { 4 }, { 0, 0 } },
	{ "torn", false, { 4 }, { 0, 0 } },
	{ "lanes", false, { 4 }, { 0, 0 } },
	{ "unsent", false, { 4 }, { 0, 0 } }, /* a descriptor is told of, and does not come */
	{ "short", false, { 4 }, { 0, 0 } }, /* of less memory than it says */
	{ "beyond", false, { 4 }, { 0, 0 } }, /* an end that lies behind the memory's */
	{ "nowhere", false, { 4 }, { 0, 0 } }, /* an end, and no memory */
};

/* A call in work. */
struct work {
	const struct fake_ring *ring; /* NULL: a log */
	const struct fake_types *types;
	bool follow;
	int n_replies;
	uint32_t next; /* of the large one */
};

static json_object *get(json_object *object, const char *key) {
	json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

/* Bytes of a reply: batches of one record each. */
struct batches {
	size_t n;
	unsigned char bytes[64 * 1024];
};

static void add_record(struct batches *batches, const void *data, size_t n_data,
		       unsigned int lane) {
	struct ring_reply_batch batch = {
		.pid = 77, .sm = 5, .size = (uint32_t)n_data, .count = 1, .lanes = 1u << lane
	};

	memcpy(batches->bytes + batches->n, &batch, sizeof(batch));
	memcpy(batches->bytes + batches->n + sizeof(batch), data, n_data);
	batches->n += sizeof(batch) + n_data;
}

static void add_records_of(struct batches *batches, const struct fake_ring *ring) {
	const struct event events[3] = {
		{ .a = 1, .b = -2, .name = "a", .color = 1, .list = { 7, 8 }, .f = 1.5F, .flag = 1 }
	};

	for (unsigned int i = 0; i < RECORDS_MAX && ring->sizes[i]; i++)
		add_record(batches, events, ring->sizes[i], i);
	if (!strcmp(ring->name, "cut"))
		batches->n -= 1;
	if (!strcmp(ring->name, "torn"))
		batches->n = 10;
	if (!strcmp(ring->name, "lanes"))
		batches->bytes[offsetof(struct ring_reply_batch, lanes)] = 3;
}

static json_object *reply_of(const struct work *work, const struct batches *batches, bool first) {
	bool typed = work->ring->typed;
	char *text = malloc(base64_encoded_size(batches->n) + 1);
	const char *lost = !strcmp(work->ring->name, "falling") ? getenv("FAKE_LOST") : NULL;
	json_object *reply;

	base64_encode(text, batches->bytes, batches->n);
	if (!strcmp(work->ring->name, "garbage"))
		strcpy(text, "!");
	reply = varlink_json_pack(
		"records", json_object_new_array(), "batches", json_object_new_string(text), "lost",
		json_object_new_int64(lost ? strtoll(lost, NULL, 10) : work->ring->lost[!first]),
		"btf", first && typed ? json_object_new_string(work->types->btf) : NULL,
		"btf_value_type", json_object_new_int(typed ? work->types->event : 0), NULL);
	free(text);
	return reply;
}

/* Replies about memory that the daemon would not send. Returns whether it is a ring of these. */
static bool send_memory(struct varlink_call *call, const struct work *work, json_object *reply,
			int *rp) {
	const char *name = work->ring->name;
	const bool is_short = !strcmp(name, "short"), beyond = !strcmp(name, "beyond");
	int fd = -1;

	if (!is_short && !beyond && strcmp(name, "unsent") != 0 && strcmp(name, "nowhere") != 0)
		return false;
	if (strcmp(name, "nowhere") != 0)
		json_object_object_add(reply, "descriptor", json_object_new_int(4096));
	if (beyond || !strcmp(name, "nowhere"))
		json_object_object_add(reply, "end", json_object_new_int(4097));
	if (is_short || beyond) {
		fd = memfd_create("fake", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, is_short ? 4096 : 8192) < 0)
			abort();
	}
	*rp = varlink_call_continue_with(call, reply, fd);
	if (fd >= 0)
		close(fd);
	return true;
}

/* A thousand records a reply. */
static int produce_large(struct varlink_call *call, struct work *work) {
	struct batches batches = {};
	bool first = work->next == 0;

	for (uint32_t end = work->next + 1000; work->next < end; work->next++)
		add_record(&batches, &work->next, sizeof(work->next), 0);
	if (work->next < LARGE || work->follow)
		return varlink_call_continue(call, reply_of(work, &batches, first));
	return varlink_call_reply(call, reply_of(work, &batches, first));
}

static json_object *lines(void) {
	json_object *line = varlink_json_pack("pid", json_object_new_int(1234), "comm",
					      json_object_new_string("vec\x1b"
								     "add"),
					      "time", json_object_new_int64(1700000000000000001),
					      "program", json_object_new_string("cuda__probe"),
					      "text", json_object_new_string("ts=5 \"x\""), NULL);
	json_object *array = json_object_new_array();

	json_object_array_add(array, line);
	return array;
}

static int produce(struct varlink_call *call, void *userdata) {
	struct work *work = userdata;
	bool first = !work->n_replies++;
	struct batches batches = {};
	json_object *reply;
	int r;

	if (work->ring && !strcmp(work->ring->name, "large"))
		return produce_large(call, work);
	if (work->ring && !first && !strcmp(work->ring->name, "detached"))
		return varlink_call_error(
			call, "io.gpuprobe.control.NotFound",
			varlink_json_pack(
				"what",
				json_object_new_string("the map: it was detached meanwhile"),
				NULL));
	if (!first && work->follow)
		return VARLINK_PRODUCE_IDLE;
	if (work->ring && first)
		add_records_of(&batches, work->ring);
	reply = work->ring ? reply_of(work, &batches, first)
			   : varlink_json_pack("lines", first ? lines() : json_object_new_array(),
					       "lost", json_object_new_int(first ? 0 : 3), NULL);
	if (first && work->ring && send_memory(call, work, reply, &r))
		return r;
	return first ? varlink_call_continue(call, reply) : varlink_call_reply(call, reply);
}

static int start(struct varlink_call *call, json_object *parameters, const struct fake_ring *ring,
		 void *userdata) {
	struct work *work = calloc(1, sizeof(*work)); /* lives as long as the process */

	work->ring = ring;
	work->types = userdata;
	work->follow = json_object_get_boolean(get(parameters, "follow"));
	varlink_call_set_userdata(call, work);
	return varlink_call_stream(call, produce);
}

int fake_read_ring(struct varlink_call *call, json_object *parameters, void *userdata) {
	const char *name = json_object_get_string(get(parameters, "map"));

	if (!json_object_get_boolean(get(parameters, "raw")))
		return varlink_call_invalid_parameter(call, "raw");
	for (size_t i = 0; i < sizeof(rings) / sizeof(*rings); i++)
		if (!strcmp(name, rings[i].name))
			return start(call, parameters, &rings[i], userdata);
	if (!strcmp(name, "busy"))
		return varlink_call_error(
			call, "io.gpuprobe.control.Unavailable",
			varlink_json_pack("reason",
					  json_object_new_string("process 77 reads it already"),
					  NULL));
	return varlink_call_error(call, "io.gpuprobe.control.NotFound",
				  varlink_json_pack("what", json_object_new_string(name), NULL));
}

int fake_read_log(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *object = get(parameters, "object");
	char text[32];

	if (!object || json_object_get_int64(object) != 9)
		return start(call, parameters, NULL, userdata);
	snprintf(text, sizeof(text), "object %lld", (long long)json_object_get_int64(object));
	return varlink_call_error(call, "io.gpuprobe.control.NotFound",
				  varlink_json_pack("what", json_object_new_string(text), NULL));
}
