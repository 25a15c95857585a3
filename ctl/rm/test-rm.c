/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the resource manager's client (rm-client.h), against the double of the driver: what
 * it asks for, and what it does after each refusal.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include <cmocka.h>

#include "ctxsw-tag.h"
#include "clock.h"
#include "ctxsw.h"
#include "fake-driver.h"
#include "record.h"
#include "source.h"
#include "proto/trace.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define LOST_PERMISSION 0x1b

struct event { /* as in the buffer */
	uint16_t type, subtype;
	uint32_t data;
	uint8_t tag, vmid;
	uint16_t sequence;
	uint32_t context, pid;
	uint16_t reserved;
	uint8_t gpu_instance, compute_instance;
	uint64_t time;
};

static struct event event(uint16_t sequence, uint8_t tag, uint32_t pid, uint64_t time) {
	return (struct event){ .type = 2,
			       .tag = tag,
			       .sequence = sequence,
			       .context = pid + 1,
			       .pid = pid,
			       .gpu_instance = 0xff,
			       .compute_instance = 0xff,
			       .time = time };
}

static uint64_t now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

/* ---- a source with its output ---- */

struct world {
	struct fake_driver fake;
	struct rm_driver driver;
	struct rm_source *source;
	char lines[2048];
	char *bytes;
	size_t n;
};

static void take_line(void *userdata, const char *line) {
	struct world *world = userdata;

	snprintf(world->lines + strlen(world->lines), sizeof(world->lines) - strlen(world->lines),
		 "%s\n", line);
}

static void setup(struct world *world) {
	memset(world, 0, sizeof(*world));
	fake_driver_init(&world->fake, &world->driver);
}

static void take(struct world *world) {
	size_t n;
	void *bytes = rm_source_take(world->source, &n);

	world->bytes = realloc(world->bytes, world->n + n + 1);
	assert_non_null(world->bytes);
	if (bytes)
		memcpy(world->bytes + world->n, bytes, n);
	world->n += n;
	free(bytes);
}

static void open_world(struct world *world, bool ctxsw) {
	const struct rm_source_options options = {
		.driver = &world->driver, .ctxsw = ctxsw, .tell = take_line, .userdata = world
	};

	assert_int_equal(rm_source_new(&world->source, &options), 0);
	take(world);
}

/* Nothing is left open, and nothing is left of what was made. */
static void close_world(struct world *world) {
	world->source = rm_source_free(world->source);
	fake_driver_deinit(&world->fake);
	assert_int_equal(world->fake.n_fds, 0);
	assert_int_equal(world->fake.n_objects, 0);
	free(world->bytes);
}

/* The n-th record of that type, from 0. */
static const void *record(const struct world *world, uint16_t type, size_t n) {
	for (size_t at = 0; at < world->n;) {
		const struct trace_record *record = (const void *)(world->bytes + at);

		assert_true(record->size >= sizeof(*record) && record->size % 8 == 0 &&
			    at + record->size <= world->n);
		if (record->type == type && !n--)
			return record;
		at += record->size;
	}
	return NULL;
}

static size_t count(const struct world *world, uint16_t type) {
	size_t n = 0;

	while (record(world, type, n))
		n++;
	return n;
}

/* ---- what is asked for ---- */

/* The calls in their order, each of the number that it has in NVIDIA's headers; sizes and arguments
 * the double checks. */
static void test_calls(void **state) {
	static const struct {
		uint32_t nr, number;
	} calls[] = { { 210, 0 },           { 0x2b, 0x41 },       { 200, 0 },
		      { 201, 0 },           { 0x2a, 0x205 },      { 0x2b, 0x80 },
		      { 0x2b, 0x2080 },     { 0x2a, 0x20800406 }, { 0x2a, 0x20800406 },
		      { 0x2a, 0x20800406 }, { 0x2a, 0x20800406 }, { 0x2a, 0x20800406 },
		      { 0x2b, 0x90ce },     { 0x4e, 0 },          { 0x2b, 0x90ce },
		      { 0x4e, 0 },          { 0x2b, 0x90cd },     { 0x2a, 0x20801238 },
		      { 0x2a, 0x90cd0101 } };
	struct world world;

	setup(&world);
	open_world(&world, true);
	assert_string_equal(world.lines, "");
	assert_int_equal(world.fake.n_ioctls, sizeof(calls) / sizeof(*calls));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		assert_int_equal(world.fake.log[i].nr, calls[i].nr);
		if (calls[i].number)
			assert_int_equal(world.fake.log[i].number, calls[i].number);
		assert_int_equal(world.fake.log[i].status, 0);
	}
	close_world(&world);
}

/* The bytes of one request, as they go to the driver. */
static unsigned char golden[56];

static int golden_ioctl(void *userdata, int fd, unsigned long command, void *argument) {
	memcpy(golden, argument, _IOC_SIZE(command));
	return _IOC_NR(command) == 0x2a ? 0 : -5;
}

static void test_golden(void **state) {
	static const unsigned char expected[32] = { 0x1a, 0,    0xd0, 0xc1, 0x01, 0,    0xf0, 0xca,
						    0x06, 0x04, 0x80, 0x20, 0,    0,    0,    0,
						    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
						    0x08, 0x01, 0,    0,    0,    0,    0,    0 };
	const struct rm_driver driver = { .ioctl = golden_ioctl };
	struct rm_client client = { .driver = &driver, .root = 0xc1d0001a };

	assert_int_equal(rm_control(&client, 0xcaf00001, 0x20800406,
				    (void *)(uintptr_t)0x1122334455667788, 264),
			 0); /* as seen on an H200 */
	assert_memory_equal(golden, expected, sizeof(expected));
	assert_int_equal(rm_alloc(&client, 0, 0x41, NULL, 0, &client.root), -5);
	assert_string_equal(client.error, "RM_ALLOC 0x41: Input/output error");
}

/* ---- refusals ---- */

/* Whichever call is refused: one line says which and how, the rest goes on, and nothing is left
 * behind. */
static void refused(const char *version) {
	struct world world;
	int n;

	setup(&world);
	world.fake.version = version;
	open_world(&world, true);
	n = world.fake.n_ioctls;
	close_world(&world);
	for (int i = 1; i <= n; i++)
		for (int by_errno = 0; by_errno < 2; by_errno++) {
			setup(&world);
			world.fake.version = version;
			world.fake.refuse_at = by_errno ? 0 : i;
			world.fake.status = LOST_PERMISSION;
			world.fake.fail_at = by_errno ? i : 0;
			world.fake.error = 13;
			open_world(&world, true);
			/* ioctls without a status; the measurement of a reading, without which
			 * pairs are as good as their calls are short; all users' contexts */
			if ((by_errno || world.fake.log[i - 1].status == LOST_PERMISSION) &&
			    i != 8 && (i != 18 || by_errno)) {
				assert_non_null(strstr(
					world.lines, by_errno ? "Permission denied"
							      : "NV_ERR_INSUFFICIENT_PERMISSIONS"));
				assert_ptr_equal(strchr(world.lines, '\n'),
						 world.lines + strlen(world.lines) - 1);
			} else {
				assert_string_equal(world.lines, "");
			}
			assert_int_equal(rm_source_poll(world.source, now_ns()), 0);
			assert_int_equal(rm_source_finish(world.source, now_ns()), 0);
			close_world(&world);
		}
}

static void test_refused(void **state) {
	refused(NULL);
	refused("525.60.11"); /* NVOS21 had the status elsewhere */
}

/* Later on, too: of what is refused then there is no more, which is said once. */
static void test_refused_later(void **state) {
	struct event events[] = { event(0, CTXSW_SIMPLE_START, 7, MS),
				  event(1, CTXSW_SIMPLE_END, 7, 2 * MS) };

	for (int i = 1; i <= 6; i++) {
		struct world world;

		setup(&world);
		world.fake.records = events;
		world.fake.n_records = 2;
		open_world(&world, true);
		world.fake.refuse_at = world.fake.n_ioctls + i;
		world.fake.status = 0x0f; /* GPU_IS_LOST */
		assert_int_equal(rm_source_poll(world.source, now_ns() + 1000 * MS),
				 0); /* clock: 4; flush; get */
		assert_non_null(strstr(world.lines, "NV_ERR_GPU_IS_LOST"));
		assert_non_null(
			strstr(world.lines, i <= 4 ? "clock of GPU 0: "
						   : "context switches of GPU 0 from here on: "));
		assert_int_equal(rm_source_poll(world.source, now_ns() + 2000 * MS), 0);
		assert_int_equal(rm_source_finish(world.source, now_ns() + 3000 * MS), 0);
		assert_ptr_equal(strchr(world.lines, '\n'), world.lines + strlen(world.lines) - 1);
		close_world(&world);
	}
}

static void test_bind(void **state) {
	static const struct {
		uint32_t status, reason;
		const char *help;
	} refusals[] = {
		{ 0x56, RM_CTXSW_REASON_NEED_ADMIN,
		  "NV_ERR_NOT_SUPPORTED; root may, or all if the driver is loaded with "
		  "NVreg_RestrictProfilingToAdminUsers=0\n" },
		{ 0x56, RM_CTXSW_REASON_NEED_CAPABILITY,
		  "NV_ERR_NOT_SUPPORTED; the host of this virtual GPU does not allow profiling\n" },
		{ 0x56, RM_CTXSW_REASON_GPU_TOO_OLD,
		  "NV_ERR_NOT_SUPPORTED; this GPU does not log them\n" },
		{ 0x56, RM_CTXSW_REASON_NOT_ENABLED,
		  "NV_ERR_NOT_SUPPORTED; they are not told to this instance of MIG or virtual "
		  "GPU\n" },
		{ 0x1b, 0,
		  "NV_ERR_INSUFFICIENT_PERMISSIONS; root may, or all if the driver is loaded with "
		  "NVreg_RestrictProfilingToAdminUsers=0\n" },
		{ 0x3a, 0,
		  "NV_ERR_INVALID_PARAM_STRUCT; this driver is newer than what gpuprobe was tried "
		  "with\n" },
		{ 0x12345, 77,
		  "context switches of GPU 0: RM_CONTROL 0x20801238: NV_STATUS 0x12345\n" },
	};
	struct world world;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		setup(&world);
		world.fake.version = "999.1";
		world.fake.bind_status = refusals[i].status;
		world.fake.bind_reason = refusals[i].reason;
		open_world(&world, true);
		assert_non_null(strstr(world.lines, refusals[i].help));
		assert_int_equal(count(&world, TRACE_CLOCK), 1); /* the clock goes on */
		close_world(&world);
	}
	/* who may not see contexts of all users sees his own */
	setup(&world);
	world.fake.bind_status = 0x1b;
	world.fake.only_all_users = true;
	open_world(&world, true);
	assert_string_equal(world.lines, "");
	close_world(&world);
}

static void test_versions(void **state) {
	static const struct {
		const char *version;
		bool good;
	} versions[] = { { "580.159.04", true }, { "525.60.11", true },
			 { "595.45.04", true },  { "700.1", true },
			 { "470.57", false },    { "", false },
			 { "unknown", false },   { "99999999999999999999", false } };

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		struct world world;

		setup(&world);
		world.fake.version = versions[i].version;
		open_world(&world, true);
		assert_int_equal(count(&world, TRACE_CLOCK), versions[i].good);
		if (versions[i].good)
			assert_string_equal(world.lines, "");
		else
			assert_non_null(strstr(
				world.lines,
				"the GPU's clock and context switches: the driver's version is "));
		close_world(&world);
	}
}

static void test_gpus(void **state) {
	struct world world;

	setup(&world);
	world.fake.n_gpus = 0;
	open_world(&world, true);
	assert_string_equal(world.lines, "context switches: the driver has no GPU\n");
	assert_int_equal(world.n, 0);
	assert_int_equal(rm_source_finish(world.source, now_ns()), 0);
	close_world(&world);
	/* three */
	setup(&world);
	world.fake.n_gpus = 3;
	open_world(&world, false);
	assert_int_equal(count(&world, TRACE_CLOCK), 3);
	assert_int_equal(((const struct trace_clock *)record(&world, TRACE_CLOCK, 2))->device, 2);
	close_world(&world);
}

/* ---- clocks ---- */

/* A timer that is 50 ppm faster: the line through the pairs says so, and how good it is. */
static void test_clock(void **state) {
	struct world world;
	const struct trace_clock *clock;
	uint64_t now;

	setup(&world);
	world.fake.ppm = 50;
	open_world(&world, false);
	for (int i = 1; i <= 30; i++) {
		const struct timespec wait = { .tv_nsec = 10 * (long)MS };

		nanosleep(&wait, NULL);
		now = now_ns();
		assert_int_equal(rm_source_poll(world.source, now + (uint64_t)i * 1000 * MS),
				 0); /* each takes a pair */
	}
	take(&world);
	assert_int_equal(count(&world, TRACE_CLOCK), 31);
	clock = record(&world, TRACE_CLOCK, 30);
	assert_int_equal(clock->pid, 0);
	assert_true(clock->host_time > now - 1000 * MS && clock->host_time < now + 1000 * MS);
	assert_in_range((uint64_t)-clock->drift, 20000,
			80000); /* the host's clock in times of the GPU's; 50,000 but for noise */
	assert_in_range(clock->error, 1, 100 * US);
	close_world(&world);
}

static void test_clock_wrong(void **state) {
	struct world world;

	setup(&world);
	world.fake.clock_wrong = true;
	open_world(&world, true);
	assert_string_equal(world.lines,
			    "clock of GPU 0: RM_CONTROL 0x20800406: times that cannot be\n");
	assert_int_equal(world.n, 0);
	close_world(&world);
}

/* ---- context switches ---- */

static void test_spans(void **state) {
	struct event events[] = {
		event(100, CTXSW_SIMPLE_END, 7, 1 * MS), /* it was there before */
		event(101, CTXSW_SIMPLE_START, 8, 2 * MS),
		event(102, CTXSW_FE_ACK_CILP, 8, 3 * MS),
		event(103, CTXSW_SIMPLE_END, 8, 3 * MS + 10),
		event(106, CTXSW_SIMPLE_START, 9, 4 * MS), /* two are missing */
		event(107, CTXSW_SIMPLE_START, 7, 5 * MS), /* nobody saw the end of 9 */
		event(108, CTXSW_ENGINE_RESET, 7, 6 * MS),
		event(109, 0x77, 0, 7 * MS),
		event(110, CTXSW_SIMPLE_START, 0, 8 * MS), /* another user's */
	};
	static const struct {
		uint8_t flags, began, ended, preemption;
		uint32_t pid;
		uint64_t duration;
	} spans[] = {
		{ 0, 0, CTXSW_SIMPLE_END, 0, 7, UINT64_MAX },
		{ 0, CTXSW_SIMPLE_START, CTXSW_SIMPLE_END, CTXSW_FE_ACK_CILP, 8, 1 * MS + 10 },
		{ 0, CTXSW_SIMPLE_START, 0, 0, 9, 1 * MS },
		{ 0, CTXSW_SIMPLE_START, CTXSW_ENGINE_RESET, 0, 7, 1 * MS },
		{ TRACE_CTXSW_INSTANT, CTXSW_ENGINE_RESET, 0, 0, 7, 0 },
		{ TRACE_CTXSW_INSTANT, 0x77, 0, 0, 0, 0 },
		{ TRACE_CTXSW_OPEN, CTXSW_SIMPLE_START, 0, 0, 0, UINT64_MAX },
	};
	struct world world;

	setup(&world);
	world.fake.records = events;
	world.fake.n_records = sizeof(events) / sizeof(*events);
	open_world(&world, true);
	assert_int_equal(rm_source_poll(world.source, now_ns()),
			 0); /* the first poll has flushed */
	take(&world);
	assert_int_equal(rm_source_finish(world.source, now_ns() + 60000 * MS), 0);
	take(&world);
	assert_int_equal(count(&world, TRACE_CTXSW), sizeof(spans) / sizeof(*spans));
	for (size_t i = 0; i < sizeof(spans) / sizeof(*spans); i++) {
		const struct trace_ctxsw *span = record(&world, TRACE_CTXSW, i);

		assert_int_equal(span->record.flags & ~TRACE_CTXSW_FOREIGN, spans[i].flags);
		assert_int_equal(span->pid, spans[i].pid);
		assert_int_equal(span->context, spans[i].pid + 1);
		assert_int_equal(span->began, spans[i].began);
		assert_int_equal(span->ended, spans[i].ended);
		assert_int_equal(span->preemption, spans[i].preemption);
		assert_true(span->end >= span->start);
		if (spans[i].duration != UINT64_MAX) /* to a step of the timer */
			assert_in_range(span->end - span->start,
					spans[i].duration > 64 ? spans[i].duration - 64 : 0,
					spans[i].duration + 64);
	}
	assert_int_equal(count(&world, TRACE_LOST), 1);
	assert_int_equal(((const struct trace_lost *)record(&world, TRACE_LOST, 0))->count, 2);
	close_world(&world);
}

/* With MIG each instance has an engine, and so a context of its own; more instances than there is
 * room for are losses. */
static void test_instances(void **state) {
	struct event events[40];
	struct world world;

	for (uint8_t i = 0; i < 20; i++) {
		events[i] = event(i, CTXSW_SIMPLE_START, 100 + i, (1 + i) * MS);
		events[20 + i] = event(20 + i, CTXSW_SIMPLE_END, 100 + i, (40 + i) * MS);
		events[i].gpu_instance = events[20 + i].gpu_instance = i / 4;
		events[i].compute_instance = events[20 + i].compute_instance = i % 4;
	}
	setup(&world);
	world.fake.records = events;
	world.fake.n_records = 40;
	open_world(&world, true);
	assert_int_equal(rm_source_finish(world.source, now_ns() + 60000 * MS), 0);
	take(&world);
	assert_int_equal(count(&world, TRACE_CTXSW), 16);
	for (size_t i = 0; i < 16; i++) {
		const struct trace_ctxsw *span = record(&world, TRACE_CTXSW, i);

		assert_int_equal(span->gpu_instance, i / 4);
		assert_in_range(span->end - span->start, 39 * MS - 64, 39 * MS + 64);
	}
	assert_int_equal(count(&world, TRACE_LOST), 8);
	close_world(&world);
}

/* 20,000 events through a ring of 4096, as they come and in a burst that is too much for it: all
 * come in order, or are counted. */
static void test_ring(void **state) {
	enum {
		N = 20000
	};
	struct event *events = calloc(N + 1, sizeof(*events));

	assert_non_null(events);
	for (uint32_t i = 0; i <= N; i++)
		events[i] = event((uint16_t)i, i % 2 ? CTXSW_SIMPLE_END : CTXSW_SIMPLE_START,
				  1000 + i / 2, i * 10 * US);
	for (int burst = 0; burst < 2; burst++) {
		struct world world;
		uint64_t lost = 0, last = 0;
		const struct trace_lost *loss;

		setup(&world);
		world.fake.records = events;
		world.fake.n_records = N;
		world.fake.portion = burst ? 0 : 1001;
		open_world(&world, true);
		for (uint64_t i = 1; i <= 24; i++)
			assert_int_equal(rm_source_poll(world.source, now_ns() + i * 1000 * MS), 0);
		/* what comes behind a burst shows that something is missing */
		if (burst) {
			world.fake.n_records = N + 1;
			assert_int_equal(rm_source_poll(world.source, now_ns() + 30000 * MS), 0);
		}
		take(&world);
		for (size_t i = 0; (loss = record(&world, TRACE_LOST, i)); i++)
			lost += loss->count;
		assert_int_equal(lost, world.fake.n_dropped);
		assert_int_equal(lost, burst ? N - 4095 : 0);
		assert_int_equal(count(&world, TRACE_CTXSW), burst ? 2048 : N / 2);
		for (size_t i = 0, at = 0; at < world.n;
		     at += ((const struct trace_record *)(const void *)(world.bytes + at))->size) {
			const struct trace_ctxsw *span = (const void *)(world.bytes + at);

			if (span->record.type != TRACE_CTXSW)
				continue;
			assert_int_equal(span->pid, 1000 + i++);
			assert_true(span->start >= last);
			last = span->end;
		}
		close_world(&world);
	}
	free(events);
}

/* What is no ring, and what is no event of ours. */
static void test_records(void **state) {
	struct event ring[4] = { event(3, 6, 1, 30), event(4, 7, 1, 40), event(1, 6, 1, 10),
				 event(2, 7, 1, 20) };
	struct rm_ctxsw_record records[4];
	uint32_t get = 2;

	assert_int_equal(rm_records_read(ring, 4, &get, 2, records, 4), 0);
	assert_int_equal(rm_records_read(ring, 4, &get, 4, records, 4), 0); /* outside */
	assert_int_equal(rm_records_read(ring, 4, &get, UINT32_MAX, records, 4), 0);
	assert_int_equal(get, 2);
	assert_int_equal(rm_records_read(ring, 4, &get, 1, records, 4), 3); /* round its end */
	assert_int_equal(get, 1);
	for (uint16_t i = 0; i < 3; i++) {
		assert_int_equal(records[i].sequence, i + 1);
		assert_int_equal(records[i].gpu_time, 10 * (i + 1));
	}
	get = 0;
	assert_int_equal(rm_records_read(ring, 4, &get, 3, records, 2),
			 2); /* no more than there is room for */
	assert_int_equal(get, 2);
	get = 9;
	assert_int_equal(rm_records_read(ring, 4, &get, 3, records, 4), 0);
	ring[0].type = 8; /* not of a context switch */
	ring[1].type = 134; /* the first version: pids of 64 bits, no instances */
	ring[1].gpu_instance = 0;
	get = 0;
	assert_int_equal(rm_records_read(ring, 4, &get, 2, records, 4), 1);
	assert_int_equal(records[0].sequence, 4);
	assert_int_equal(records[0].gpu_instance, 0xff);
	assert_int_equal(get, 2);
}

/* What is there when the driver tells no more of them is not made longer than it was seen. */
static void test_refused_open(void **state) {
	struct event events[] = { event(0, CTXSW_SIMPLE_START, 7, MS) };
	const struct trace_ctxsw *span;
	struct world world;
	uint64_t failed;

	setup(&world);
	world.fake.records = events;
	world.fake.n_records = 1;
	open_world(&world, true);
	assert_int_equal(rm_source_poll(world.source, now_ns() + 1000 * MS), 0);
	world.fake.refuse_at = world.fake.n_ioctls + 5; /* the flush, behind the clock */
	world.fake.status = 0x0f;
	failed = now_ns() + 2000 * MS;
	assert_int_equal(rm_source_poll(world.source, failed), 0);
	assert_non_null(strstr(world.lines, "context switches of GPU 0 from here on: "));
	assert_int_equal(rm_source_finish(world.source, failed + 60000 * MS), 0);
	take(&world);
	assert_int_equal(count(&world, TRACE_CTXSW), 1);
	span = record(&world, TRACE_CTXSW, 0);
	assert_int_equal(span->record.flags & TRACE_CTXSW_OPEN, TRACE_CTXSW_OPEN);
	assert_int_equal(span->end, failed);
	close_world(&world);
}

/* The driver's memory says things that cannot be: nothing is read, nothing hangs. */
static void test_put_wrong(void **state) {
	struct event events[] = { event(0, CTXSW_SIMPLE_START, 7, MS),
				  event(1, CTXSW_SIMPLE_END, 7, UINT64_MAX / 2),
				  event(2, CTXSW_FE_ACK, 7, 2 * MS) };
	struct world world;

	setup(&world);
	world.fake.records = events;
	world.fake.n_records = 2;
	world.fake.put_wrong = true;
	open_world(&world, true);
	assert_int_equal(rm_source_poll(world.source, now_ns()), 0);
	assert_int_equal(rm_source_finish(world.source, now_ns()), 0);
	take(&world);
	assert_int_equal(count(&world, TRACE_CTXSW), 0);
	close_world(&world);
	/* a time of another century is a loss, one */
	setup(&world);
	world.fake.records = events;
	world.fake.n_records = 3;
	open_world(&world, true);
	assert_int_equal(rm_source_finish(world.source, now_ns() + 1000 * MS), 0);
	take(&world);
	assert_int_equal(count(&world, TRACE_LOST), 1);
	assert_int_equal(((const struct trace_lost *)record(&world, TRACE_LOST, 0))->count, 1);
	assert_int_equal(count(&world, TRACE_CTXSW), 1);
	assert_int_equal(
		((const struct trace_ctxsw *)record(&world, TRACE_CTXSW, 0))->record.flags &
			TRACE_CTXSW_OPEN,
		TRACE_CTXSW_OPEN);
	close_world(&world);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),        cmocka_unit_test(test_golden),
		cmocka_unit_test(test_refused),      cmocka_unit_test(test_refused_later),
		cmocka_unit_test(test_bind),         cmocka_unit_test(test_versions),
		cmocka_unit_test(test_gpus),         cmocka_unit_test(test_clock),
		cmocka_unit_test(test_clock_wrong),  cmocka_unit_test(test_spans),
		cmocka_unit_test(test_instances),    cmocka_unit_test(test_ring),
		cmocka_unit_test(test_records),      cmocka_unit_test(test_put_wrong),
		cmocka_unit_test(test_refused_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
