/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A table and sessions for tests: what a client of Trace would see is gathered here. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "session.h"
#include "session-private.h"

struct test_client {
	struct trace_session *session;
	unsigned char *bytes; /* all records so far */
	size_t n;
	unsigned int wakes;
	bool lazy; /* it does not read */
};

static struct {
	uv_loop_t loop;
	struct trace_table *table;
} world;

static inline void client_read(struct test_client *client) {
	const void *records;
	size_t n;

	while ((n = trace_session_take(client->session, &records))) {
		client->bytes = realloc(client->bytes, client->n + n);
		memcpy(client->bytes + client->n, records, n);
		client->n += n;
	}
}

static inline void client_on_wake(struct trace_session *session, void *userdata) {
	struct test_client *client = userdata;

	client->wakes++;
	if (!client->lazy)
		client_read(client);
}

/* Options that mean this process, and all calls. */
static inline struct trace_config usual_config(struct test_client *client) {
	struct trace_config config = { .wake = client_on_wake, .userdata = client };

	config.options.caller = getuid();
	config.options.all_users = getuid() == 0;
	config.options.shim = config.options.extras = true;
	config.options.sample = 1;
	config.options.buffer = 65536;
	config.options.filter.has_pid = true;
	config.options.filter.pid = getpid();
	memset(config.options.functions, 0xff, sizeof(config.options.functions));
	return config;
}

static inline int start_session(struct test_client *client, const struct trace_config *config) {
	uint32_t bad_pid = 0;

	*client = (struct test_client){ .lazy = client->lazy };
	return trace_session_new(&client->session, world.table, config, &bad_pid);
}

static inline void start_usual(struct test_client *client) {
	struct trace_config config = usual_config(client);

	assert_int_equal(start_session(client, &config), 0);
}

static inline void end_client(struct test_client *client) {
	trace_session_free(client->session);
	free(client->bytes);
	*client = (struct test_client){};
}

/* The next record of a type, or NULL. */
static inline const void *next_record(const struct test_client *client, size_t *at, uint16_t type) {
	while (*at < client->n) {
		const struct trace_record *record = (const void *)(client->bytes + *at);

		assert_true(record->size >= 8 && record->size % 8 == 0 &&
			    *at + record->size <= client->n && record->size <= TRACE_RECORD_MAX);
		*at += record->size;
		if (record->type == type)
			return record;
	}
	return NULL;
}

static inline size_t count_records(const struct test_client *client, uint16_t type) {
	size_t at = 0, n = 0;

	while (next_record(client, &at, type))
		n++;
	return n;
}

static inline const void *first_record(const struct test_client *client, uint16_t type) {
	size_t at = 0;

	return next_record(client, &at, type);
}

/* The sum of all LOST of a source. */
static inline uint64_t count_lost(const struct test_client *client, uint8_t source) {
	const struct trace_lost *lost;
	uint64_t n = 0;
	size_t at = 0;

	while ((lost = next_record(client, &at, TRACE_LOST)))
		n += lost->record.source == source && !(lost->record.flags & TRACE_LOST_ENDS)
			     ? lost->count
			     : 0;
	return n;
}

static inline void turn_for(unsigned int ms) {
	uint64_t end = monotonic_now() + ms * UINT64_C(1000000);

	do {
		uv_run(&world.loop, UV_RUN_NOWAIT);
		usleep(500);
	} while (monotonic_now() < end);
}

static inline int world_setup(void **state) {
	memset(&world, 0, sizeof(world));
	uv_loop_init(&world.loop);
	return trace_table_new(&world.table, &world.loop, NULL, NULL);
}

static inline int world_teardown(void **state) {
	assert_int_equal(world.table->n_rings, 0);
	trace_table_stop(world.table);
	uv_run(&world.loop, UV_RUN_DEFAULT);
	trace_table_free(world.table);
	return uv_loop_close(&world.loop);
}
