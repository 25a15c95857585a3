/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The methods ReadRing and ReadLog.
 *
 * ReadRing and ReadLog: a reader takes records out of the rings of its maps as fast as its client
 * reads the replies; what the client does not take stays in the rings, where producers count what
 * finds no room. Nothing else is kept between two replies: maps and instances may come and go.
 *
 * Without `follow` a reader ends when it has seen what the rings could hold at its start; before
 * the last reply it asks the processes for a copy of their counters. With it, it looks again after
 * 1 to 20 ms. Without `more` there is one reply, with what fits into it; the rest waits for the
 * next call. Of a user one such reply is gathered at a time.
 *
 * A record goes to one reader, so there is one at a time for each map. Who reads the logs of all
 * objects yields to the owner of an object: nobody can keep another user from reading.
 */

#include "client-memory.h"
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64.h"
#include "daemon/gpuprobed/clients/client.h"
#include "daemon/gpuprobed/map/log-format.h"
#include "lib/json.h"
#include "proto/log-record.h"
#include "daemon/gpuprobed/map/ring.h"
#include "proto/ring-reply.h"
#include "lib/varlink/varlink-json.h"

#define READER_CHUNK_BYTES (128 * 1024) /* of text in one reply; also of one turn */
#define READER_SINGLE_BYTES (8 * 1024 * 1024) /* of text in an only reply */
#define READER_RAW_SIZE(more)                                                       \
	(((more) ? READER_CHUNK_BYTES : READER_SINGLE_BYTES + READER_CHUNK_BYTES) + \
	 sizeof(struct ring_reply_batch) + RING_SCRATCH_SIZE)
#define READER_MEMORY \
	((size_t)1 << 20) /* for the client: bytes of records that it can lag behind */
#define READER_BUDGET ((size_t)4 << 20) /* bytes of rings in one turn */
#define LINE_COST 32 /* of a line that makes no sense, as bytes of text */
#define READER_STALL_MS 10000 /* without room for the client: as the server's for replies */
#define READER_PAUSE_MAX_MS 20
#define READER_SYNC_MS 200 /* to wait for the last copy of the counters */
#define READER_REFRESH_MS 1000 /* how old they get where nobody copies them periodically */

#define READER_DETACHED "the map: it was detached meanwhile"

enum reader_state {
	READER_TAKING,
	READER_SYNCING, /* before the last reply */
	READER_LAST,
};

struct ring_reader {
	struct control_work work;
	LIST_ENTRY(ring_reader) link;
	struct control_context *context;
	bool log;
	uint64_t map; /* that it reads; 0: logs */
	uint64_t object; /* logs: of this object; 0: of all that the caller may see */
	bool more, follow;
	bool started; /* the first reply, with the BTF, is out */
	enum reader_state state;
	uv_timer_t timer; /* until the next look */
	unsigned int pause_ms;
	uint64_t last_instance; /* without follow, none after it is read */
	struct sync_request *sync;
	uint64_t synced_map; /* asked last */
	uint64_t synced; /* when, of uv_now() */
	uint64_t malformed; /* records of logs that were none */
	uint64_t lost; /* as the client knows it */
	json_object *lines; /* gathered, not sent yet; NULL: records */
	struct varlink_json_list records;
	unsigned char *raw; /* the same, as the client wants it; NULL: as records */
	size_t n_raw; /* bytes in it */
	struct client_memory memory; /* where they go, if the client wants that */
	uint64_t stalled; /* since when there is no room in it, of uv_now(); 0: there is */
	size_t n_bytes; /* of text in these or of raw, about */
	size_t skip; /* instances; where to begin */
	/* while it takes: */
	size_t n_enough; /* of n_bytes */
	const struct object *source_object;
	const struct map_instance *source;
	unsigned char scratch[RING_SCRATCH_SIZE] __attribute__((aligned(64)));
};

/* ---- its maps ---- */

static uid_t reader_uid(const struct ring_reader *reader) {
	return varlink_call_peer(reader->work.call)->uid;
}

/* Whether the log of the object goes to the other one of two readers, who is its owner. */
static bool reader_yields(const struct ring_reader *reader, const struct ring_reader *other,
			  const struct object *object) {
	return reader->log && !reader->object && other->log &&
	       reader_uid(reader) != object->owner && reader_uid(other) == object->owner &&
	       (!other->object || other->object == object->id);
}

static bool reader_means(const struct ring_reader *reader, const struct object *object,
			 const struct map *map) {
	const struct ring_reader *other;

	if (map->spec.layout.kind != MAP_KIND_RING)
		return false;
	if (!reader->log)
		return map->id == reader->map;
	if (strcmp(map->name, LOG_MAP_NAME) != 0 ||
	    !control_may_see(reader->work.call, object->owner) ||
	    (reader->object && reader->object != object->id))
		return false;
	LIST_FOREACH(other, &reader->context->ring_readers, link)
		if (reader_yields(reader, other, object))
			return false;
	return true;
}

/* Its maps, as registry_next_map(). */
static struct map *reader_next(const struct ring_reader *reader, struct registry_place *place) {
	struct map *map;

	do
		map = registry_next_map(reader->context->image->registry, place);
	while (map && !reader_means(reader, place->object, map));
	return map;
}

static uint64_t reader_lost(const struct ring_reader *reader) {
	uint64_t lost = reader->malformed;
	struct registry_place place = {};
	const struct map *map;

	while ((map = reader_next(reader, &place)))
		lost += map_lost(map);
	return lost < INT64_MAX ? lost : INT64_MAX;
}

/* Whether two readers would take records from each other. */
static bool readers_clash(const struct ring_reader *a, const struct ring_reader *b) {
	struct registry_place place = {};
	const struct map *map;

	while ((map = reader_next(a, &place)))
		if (reader_means(b, place.object, map) && !reader_yields(a, b, place.object) &&
		    !reader_yields(b, a, place.object))
			return true;
	/* logs of objects to come */
	return a->log && b->log && !a->object && !b->object &&
	       (reader_uid(a) == reader_uid(b) ||
		(control_is_admin(a->work.call) && control_is_admin(b->work.call)));
}

/* ---- replies ---- */

static bool reader_take_records(const struct ring_batch *batch, void *userdata) {
	char text[(MAP_RECORD_SIZE_MAX + 2) / 3 * 4 + 1];
	struct ring_reader *reader = userdata;
	uint32_t lanes = batch->lanes;

	for (uint32_t i = 0; i < batch->count; i++, lanes &= lanes - 1) {
		json_object *json = json_object_new_object();

		base64_encode(text, batch->records + (size_t)i * batch->size, batch->size);
		json_add_int(json, "pid", reader->source->pid);
		json_add_text(json, "data", text);
		json_add_int(json, "sm", batch->sm);
		json_add_int(json, "lane", __builtin_ctz(lanes));
		varlink_json_list_add(&reader->records, json);
		reader->n_bytes += 64 + base64_encoded_size(batch->size);
	}
	return reader->n_bytes < reader->n_enough;
}

/* raw has room for one batch more than a reply is to have. */
static bool reader_take_raw(const struct ring_batch *batch, void *userdata) {
	struct ring_reader *reader = userdata;
	struct ring_reply_batch header = { .pid = (uint32_t)reader->source->pid,
					   .sm = batch->sm,
					   .size = batch->size,
					   .count = batch->count,
					   .lanes = batch->lanes };
	size_t n = (size_t)batch->size * batch->count;

	memcpy(reader->raw + reader->n_raw, &header, sizeof(header));
	memcpy(reader->raw + reader->n_raw + sizeof(header), batch->records, n);
	reader->n_raw += sizeof(header) + n;
	reader->n_bytes = base64_encoded_size(reader->n_raw);
	return reader->n_bytes < reader->n_enough;
}

/* The name of a program, whose symbol ends with its index: __gpuprobe_o1_p0. */
static void reader_add_program(const struct ring_reader *reader, json_object *json,
			       uint16_t index) {
	const struct attachment *attachment;
	char name[32];

	snprintf(name, sizeof(name), "_p%u", index);
	TAILQ_FOREACH(attachment, &reader->context->image->registry->attachments, link) {
		const struct gpu_program *program = attachment_gpu(attachment);
		const char *end = program ? strrchr(program->symbol, '_') : NULL;

		if (attachment->object == reader->source_object && end && !strcmp(end, name)) {
			json_add_text(json, "program", attachment->program);
			return;
		}
	}
	snprintf(name, sizeof(name), "program %u", index);
	json_add_text(json, "program", name);
}

static bool reader_take_lines(const struct ring_batch *batch, void *userdata) {
	struct ring_reader *reader = userdata;
	struct log_line line;

	for (uint32_t i = 0; i < batch->count; i++) {
		json_object *json;

		if (log_line_read(&line, batch->records + (size_t)i * batch->size, batch->size)) {
			reader->malformed++;
			reader->n_enough -= reader->n_enough < LINE_COST
						    ? reader->n_enough
						    : LINE_COST; /* it takes time, too */
			continue;
		}
		json = json_object_new_object();
		json_add_int(json, "pid", reader->source->pid);
		json_add_text(json, "comm", reader->source->comm);
		json_add_uint(json, "time", line.time);
		reader_add_program(reader, json, line.program);
		json_add_text(json, "text", line.text);
		json_append(reader->lines, json);
		reader->context->metrics->counters.log_lines++;
		reader->n_bytes += 256 + strlen(line.text);
	}
	return reader->n_bytes < reader->n_enough;
}

static int64_t line_time(const void *element) {
	json_object *const *line = element;

	return json_object_get_int64(json_member(*line, "time"));
}

/* Rings have no order between them; lines of one reply get that of their times. */
static int compare_lines(const void *a, const void *b) {
	int64_t x = line_time(a), y = line_time(b);

	return x < y ? -1 : x > y;
}

/* The parameters of a reply with what was gathered so far. */
static json_object *reader_reply(struct ring_reader *reader) {
	json_object *json = json_object_new_object();
	struct registry_place place = {};
	const struct map *map = reader_next(reader, &place);

	if (reader->log) {
		json_object_array_sort(reader->lines, compare_lines);
		json_add(json, "lines", reader->lines);
		reader->lines = json_object_new_array();
	} else {
		json_add(json, "records", varlink_json_list_steal(&reader->records));
	}
	reader->n_bytes = 0;
	reader->lost = reader_lost(reader);
	json_add_int(json, "lost", reader->lost);
	if (!reader->log) {
		if (map && !reader->started && place.object->btf)
			control_add_base64(json, "btf", place.object->btf, place.object->n_btf);
		if (reader->n_raw && client_memory_room(&reader->memory) >= reader->n_raw)
			client_memory_put(&reader->memory, reader->raw, reader->n_raw);
		else if (reader->raw)
			control_add_base64(json, "batches", reader->raw, reader->n_raw);
		client_memory_tell(&reader->memory, json);
		reader->n_raw = 0;
		json_add_int(json, "btf_value_type", map ? map->spec.btf_value_type : 0);
	}
	reader->started = true;
	return json;
}

/* ---- turns ---- */

/* Takes from one map until there is enough, or the budget is used up. As reader_take(). */
static int reader_take_map(struct ring_reader *reader, struct map *map, size_t *ordinalp,
			   bool first, size_t *budgetp) {
	ring_take take = reader->log   ? reader_take_lines
			 : reader->raw ? reader_take_raw
				       : reader_take_records;
	bool gone = false;
	int r = RING_E_EMPTY;

	for (const struct map_instance *i = map->instances; i; i = i->next) {
		if (!i->consumer || (!reader->follow && i->id > reader->last_instance) ||
		    (++*ordinalp > reader->skip) != first)
			continue;
		reader->source = i;
		gone = gone || i->gone;
		if (ring_consume_some(i->consumer, reader->scratch, budgetp, take, reader) !=
		    RING_E_EMPTY) {
			reader->skip = *ordinalp;
			r = 0;
			break;
		}
	}
	if (gone)
		map_reap(map);
	return r;
}

/*
 * Gathers n_bytes of text, about. It begins where it stopped, so that no instance waits for ever
 * behind another. 0: there may be more; RING_E_EMPTY; or -ESTALE: what it was to read is gone.
 */
static int reader_take(struct ring_reader *reader, size_t n_bytes) {
	size_t n_maps = 0, budget = READER_BUDGET;

	reader->n_enough = reader->n_bytes + n_bytes;
	for (int pass = 0; pass < 2; pass++) {
		struct registry_place place = {};
		size_t ordinal = 0;
		struct map *map;

		while ((map = reader_next(reader, &place))) {
			reader->source_object = place.object;
			n_maps++;
			if (reader_take_map(reader, map, &ordinal, pass == 0, &budget) !=
			    RING_E_EMPTY)
				return 0;
		}
	}
	return n_maps || (reader->log && !reader->object) ? RING_E_EMPTY : -ESTALE;
}

/* Every consumer goes on to the end, or only to what its rings can hold now. */
static void reader_limit(const struct ring_reader *reader) {
	struct registry_place place = {};
	const struct map *map;

	while ((map = reader_next(reader, &place)))
		for (const struct map_instance *i = map->instances; i; i = i->next)
			if (i->consumer)
				ring_consumer_limit(i->consumer, !reader->follow);
}

static void reader_closed(uv_handle_t *handle) {
	free(handle->data);
}

static void reader_free(void *userdata) {
	struct ring_reader *reader = userdata;
	const struct ring_reader *other;

	LIST_REMOVE(reader, link);
	LIST_FOREACH(other, &reader->context->ring_readers, link)
		if (other->follow) /* it may have the records again that it left to this one */
			reader_limit(other);
	if (reader->sync)
		client_sync_cancel(reader->sync);
	json_object_put(reader->lines);
	varlink_json_list_deinit(&reader->records);
	free(reader->raw);
	client_memory_deinit(&reader->memory);
	uv_close((uv_handle_t *)&reader->timer, reader_closed);
}

static void reader_on_timer(uv_timer_t *timer) {
	struct ring_reader *reader = timer->data;

	varlink_call_wake(reader->work.call);
}

/* The next turn, after some time. */
static int reader_wait(struct ring_reader *reader, unsigned int ms) {
	uv_timer_start(&reader->timer, reader_on_timer, ms, 0);
	return VARLINK_PRODUCE_IDLE;
}

static void reader_on_refreshed(void *userdata) {
	struct ring_reader *reader = userdata;

	reader->sync = NULL;
}

/* The first of its maps with an id above that which was asked last. */
static struct map *reader_next_sync(struct ring_reader *reader) {
	struct registry_place place = {};
	struct map *map, *found = NULL;

	while ((map = reader_next(reader, &place)))
		if (map->id > reader->synced_map && (!found || map->id < found->id))
			found = map;
	reader->synced_map = found ? found->id : 0;
	return found;
}

/* Asks for a copy of the counters of one map now and then, if processes make none on their own. */
static void reader_refresh(struct ring_reader *reader) {
	const unsigned int period = reader->context->image->config->mirror_period_ms;
	const struct map *map;
	int r;

	if (reader->sync || (period && period <= READER_REFRESH_MS) ||
	    uv_now(reader->context->image->loop) - reader->synced < READER_REFRESH_MS)
		return;
	reader->synced = uv_now(reader->context->image->loop);
	map = reader_next_sync(reader);
	if (map)
		reader->sync = client_sync(reader->context->client, map, READER_REFRESH_MS,
					   reader_on_refreshed, reader, &r);
}

/* Asks for the counters of all its maps, one after the other. */
static void reader_sync_next(void *userdata) {
	struct ring_reader *reader = userdata;
	uint64_t waited = uv_now(reader->context->image->loop) - reader->synced;
	struct map *map;
	int r;

	reader->sync = NULL;
	while (!reader->sync && waited < READER_SYNC_MS && (map = reader_next_sync(reader)))
		reader->sync = client_sync(reader->context->client, map,
					   READER_SYNC_MS - (unsigned int)waited, reader_sync_next,
					   reader, &r);
	if (!reader->sync) {
		reader->state = READER_LAST;
		reader_wait(reader, 0);
	}
}

static int reader_finish(struct ring_reader *reader) {
	if (reader->sync)
		client_sync_cancel(reader->sync);
	reader->state = READER_SYNCING;
	reader->synced = uv_now(reader->context->image->loop);
	reader->synced_map = 0;
	reader_sync_next(reader);
	return VARLINK_PRODUCE_IDLE;
}

/* The client has to read first. One that does not is no reader, as one that reads no replies. */
static int reader_stall(struct ring_reader *reader) {
	const uint64_t now = uv_now(reader->context->image->loop);

	reader->stalled = reader->stalled ?: now;
	if (now - reader->stalled < READER_STALL_MS)
		return reader_wait(reader, 1);
	return control_work_end(&reader->work,
				control_error_reason(reader->work.call, "Unavailable",
						     "the client takes no records"));
}

/* A turn: takes records, and sends a reply if there is something to say. */
static int reader_turn(struct varlink_call *call, void *userdata) {
	struct ring_reader *reader = userdata;
	int r;

	if (reader->state == READER_SYNCING)
		return VARLINK_PRODUCE_IDLE;
	if (reader->state == READER_LAST)
		return control_work_end(&reader->work,
					varlink_call_reply(call, reader_reply(reader)));
	if (reader->memory.ring && reader->memory.fd < 0 &&
	    client_memory_room(&reader->memory) < READER_RAW_SIZE(true))
		return reader_stall(reader);
	reader->stalled = 0;
	r = reader_take(reader, READER_CHUNK_BYTES);
	if (r == -ESTALE && reader->log)
		return reader_finish(reader);
	if (r == -ESTALE)
		return control_work_end(&reader->work,
					control_error_not_found(call, READER_DETACHED));
	if (!reader->more)
		return r == RING_E_EMPTY || reader->n_bytes >= READER_SINGLE_BYTES
			       ? reader_finish(reader)
			       : reader_wait(reader, 0);
	reader_refresh(reader);
	if (reader->n_bytes || (reader->follow && reader_lost(reader) != reader->lost)) {
		reader->pause_ms = 1;
		r = client_memory_continue(&reader->memory, call, reader_reply(reader));
		return r < 0 || r == VARLINK_E_INVALID ? control_work_end(&reader->work, r)
						       : VARLINK_PRODUCE_AGAIN;
	}
	if (r != RING_E_EMPTY) /* who sends nothing is not asked again */
		return reader_wait(reader, 0);
	if (!reader->follow)
		return reader_finish(reader);
	r = reader_wait(reader, reader->pause_ms);
	reader->pause_ms *= 2;
	if (reader->pause_ms > READER_PAUSE_MAX_MS)
		reader->pause_ms = READER_PAUSE_MAX_MS;
	return r;
}

/* ---- the methods ---- */

/* Another reader has its records. */
static int reader_refuse(const struct ring_reader *other, struct varlink_call *call) {
	return control_error_reason(
		call, "Unavailable",
		"process %d reads it already (%s), and a record goes to one reader only",
		(int)varlink_call_peer(other->work.call)->pid, other->log ? "ReadLog" : "ReadRing");
}

/* Starts a reader of one map, or of logs if it is 0. */
static int reader_start(struct control_context *context, struct varlink_call *call,
			json_object *parameters, uint64_t map, uint64_t object) {
	struct ring_reader *reader, *other;
	bool refused = false;
	int r = 0;

	reader = calloc(1, sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	reader->context = context;
	reader->work.call = call;
	reader->log = !map;
	reader->map = map;
	reader->object = object;
	reader->more = varlink_call_more(call);
	reader->follow = reader->more && json_bool_of(parameters, "follow");
	reader->pause_ms = 1;
	reader->memory = CLIENT_MEMORY_NONE;
	reader->last_instance = context->image->registry->last_instance;
	reader->synced = uv_now(context->image->loop);
	reader->lines = reader->log ? json_object_new_array() : NULL;
	if (map && json_bool_of(parameters, "raw")) {
		reader->raw = malloc(READER_RAW_SIZE(reader->more));
		r = reader->raw ? 0 : -ENOMEM;
	}
	LIST_FOREACH(other, &context->ring_readers, link)
		if (r == 0 && !refused && readers_clash(reader, other)) {
			r = reader_refuse(other, call);
			refused = true;
		}
	if (r || refused) {
		json_object_put(reader->lines);
		free(reader->raw);
		free(reader);
		return r;
	}
	LIST_INSERT_HEAD(&context->ring_readers, reader, link);
	uv_timer_init(context->image->loop, &reader->timer);
	reader->timer.data = reader;
	reader_limit(reader);
	if (reader->raw && reader->more && json_bool_of(parameters, "descriptor"))
		client_memory_init(&reader->memory, call,
				   READER_MEMORY); /* without, if it must be */
	control_work_begin(&reader->work, call, reader_free);
	control_work_run(&reader->work, reader->more ? varlink_call_stream : varlink_call_gather,
			 reader_turn);
	return 0;
}

int control_read_ring(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	struct map *map;
	int r = 0;

	map = control_find_map(context, call, json_string_of(parameters, "map"), &r);
	if (!map)
		return r;
	if (map->spec.layout.kind != MAP_KIND_RING)
		return control_error_argument(call, "map",
					      "it is not a ring: gpuprobectl map dump shows it");
	return reader_start(context, call, parameters, map->id, 0);
}

int control_read_log(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *member = json_member(parameters, "object");
	struct control_context *context = userdata;
	const int64_t id = json_object_get_int64(member);
	const struct object *object =
		id > 0 ? registry_object(context->image->registry, (uint64_t)id) : NULL;

	if (member && (!object || !control_may_see(call, object->owner)))
		return control_error_not_found(call, "object %lld", (long long)id);
	return reader_start(context, call, parameters, 0, object ? object->id : 0);
}
