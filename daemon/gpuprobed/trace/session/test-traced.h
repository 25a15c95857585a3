/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes with rings, for tests: this one, under some numbers of struct process. */

#include <fcntl.h>
#include <sys/mman.h>

#include "daemon/gpuprobed/wire/process-facts.h"
#include "daemon/gpuprobed/image/process.h"
#include "shim-ring-private.h"
#include "daemon/gpuprobed/wire/shim-server.h"
#include "test-session.h"
#include "test-trace-producer.h"

/* A process and its connection, which is one that is closed already: the table's closing it does
 * nothing, gone() does. */
struct traced {
	struct process process;
	struct shim_connection connection;
	struct trace_ring *ring; /* its mapping */
	uint64_t size;
	uint32_t ancestor; /* as it says */
};

/* Asks. Whether it gets a ring. */
static inline bool ask(struct traced *traced) {
	int fd;

	assert_int_equal(shim_rings_ask(world.table, &traced->process, traced->ancestor,
					&traced->connection, &fd, &traced->size),
			 0);
	if (fd < 0)
		return false;
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (!traced->ring)
		traced->ring = mmap(NULL, traced->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(traced->ring, MAP_FAILED);
	traced->ring->taken = 1;
	return true;
}

static inline void begin(struct traced *traced, uint64_t number) {
	*traced = (struct traced){ .connection = { .state = SHIM_CLOSED, .pidfd = -1 } };
	assert_int_equal(process_facts_read(&traced->process.facts, getpid(), -1), 0);
	traced->process.facts.start_time += number; /* liars are told apart by it */
	traced->process.number = number;
	traced->process.uid = getuid();
	assert_true(ask(traced));
	assert_int_equal(traced->ring->magic, TRACE_RING_MAGIC);
	assert_int_equal(traced->ring->version, TRACE_RING_VERSION);
	assert_int_equal(traced->ring->enabled, 1);
}

static inline void gone(struct traced *traced) {
	shim_rings_closed(world.table, &traced->connection);
	if (traced->ring)
		munmap(traced->ring, traced->size);
	traced->ring = NULL;
}

static inline uint64_t ring_now(const struct trace_ring *ring) {
	return ring->clock == TRACE_RING_TSC ? tsc_now() : monotonic_now();
}

/* So many units ago. */
static inline uint64_t ring_ago(const struct trace_ring *ring, uint64_t units) {
	return ring_now(ring) - units;
}

/* All that there is: one turn alone may have too little time. */
static inline void drain(void) {
	while (shim_rings_drain(world.table) == SHIM_RINGS_BUSY)
		;
}

struct name_record {
	struct trace_ring_name name;
	char text[64];
};

static inline const struct trace_ring_record *make_name(struct name_record *record, uint32_t kind,
							uint64_t id, const char *text) {
	*record = (struct name_record){ .name = { .record = { .size = sizeof(record->name) + 8,
							      .type = TRACE_RING_NAME },
						  .kind = kind,
						  .id = id } };
	strncpy(record->text, text, sizeof(record->text) - 1);
	record->name.record.size = (uint16_t)(sizeof(record->name) + (strlen(text) + 8) / 8 * 8);
	return &record->name.record;
}
