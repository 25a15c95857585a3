/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The fake GPU of the mock driver for tests of tracing (mock.h).
 *
 * A GPU with a clock of its own: it began at 1000 seconds and is 100 ppm fast. Each launch takes
 * KERNEL_NS of it, in order in its stream; an event has the time at which all before it is done.
 * The legacy stream, 0 or 1, waits for the others, and they for it, but for ours. A kernel from
 * SLOW on runs for as many milliseconds as its grid is wide.
 *
 * After mock_occupy() the streams of others wait for so long, too. After mock_fail() the context
 * has failed: whatever is asked has that result.
 *
 * In the stream BAD no event can be recorded; in HALF_BAD the first one can, the second not, and so
 * on.
 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mock.h"

#define KERNEL_NS 2000000
#define BAD ((void *)0x666)
#define HALF_BAD ((void *)0x667)
#define GRAPH_LAUNCH 514
#define COPY 277
#define STREAMS 1024
#define OURS (STREAMS - 1)
#define NOT_READY 600
#define INVALID_HANDLE 400
#define CAPTURE_UNSUPPORTED 900

struct event {
	bool recorded;
	uint64_t time;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t begin, busy_until[STREAMS];
static bool capturing[STREAMS];
static int events, streams;
static int failed; /* with which result; 0: it has not */
static int slow_create; /* milliseconds that the next cuEventCreate() takes; 0: it does not */
static __thread int mode; /* 2: relaxed */
static const struct mock_tool *tool;
static uint32_t correlations;

/* NULL: none. */
FUNCTION(mock_set_tool, const struct mock_tool *wanted) {
	__atomic_store_n(&tool, wanted, __ATOMIC_RELEASE);
	return 0;
}

uint32_t gpu_call_begin(uint32_t id) {
	const struct mock_tool *told = __atomic_load_n(&tool, __ATOMIC_ACQUIRE);
	uint32_t correlation = __atomic_add_fetch(&correlations, 1, __ATOMIC_RELAXED);

	if (told)
		told->call(id, 0, correlation);
	return correlation;
}

void gpu_call_end(uint32_t id, uint32_t correlation) {
	const struct mock_tool *told = __atomic_load_n(&tool, __ATOMIC_ACQUIRE);

	if (told)
		told->call(id, 1, correlation);
}

static uint64_t now(void) {
	struct timespec host;
	uint64_t time;

	clock_gettime(CLOCK_MONOTONIC, &host);
	time = (uint64_t)host.tv_sec * 1000000000 + (uint64_t)host.tv_nsec;
	if (!begin)
		begin = time;
	return UINT64_C(1000000000000) + (time - begin) + (time - begin) / 10000;
}

/* The default stream has two names. */
static unsigned place_of(void *stream) {
	return stream == (void *)1 ? 0 : (uintptr_t)stream % STREAMS;
}

/* When all is done that is in a stream now, or that it waits for. */
static uint64_t *end_of(void *stream) {
	unsigned place = place_of(stream);
	uint64_t *end = &busy_until[place], time = now();

	if (*end < time)
		*end = time;
	for (unsigned i = 0; i < STREAMS; i++)
		if (i != OURS && place != OURS && (!place || !i) && *end < busy_until[i])
			*end = busy_until[i];
	return end;
}

/* A time of the GPU, as the host's clock has it. */
static uint64_t host_time(uint64_t time) {
	return begin + (uint64_t)((double)(time - UINT64_C(1000000000000)) * 10000 / 10001);
}

void gpu_launch_long(void *stream, uint64_t length, uint32_t correlation, const char *name,
		     uint64_t node) {
	const struct mock_tool *told = __atomic_load_n(&tool, __ATOMIC_ACQUIRE);
	bool captured = capturing[place_of(stream)];
	uint64_t start = 0;

	pthread_mutex_lock(&lock);
	if (!captured) {
		start = *end_of(stream);
		busy_until[place_of(stream)] = start + length;
	}
	pthread_mutex_unlock(&lock);
	if (told && !captured)
		told->ran(correlation, host_time(start), host_time(start + length), name, node);
}

void gpu_launch(void *stream, uint32_t correlation, const char *name, uint64_t node) {
	gpu_launch_long(stream, KERNEL_NS, correlation, name, node);
}

/* What is forbidden while somebody captures, but for threads in relaxed mode. */
static bool is_forbidden(void) {
	for (int i = 0; i < STREAMS; i++)
		if (capturing[i] && mode != 2)
			return true;
	return false;
}

int gpu_query(void *event) {
	struct event *one = event;
	int result;

	if (is_forbidden())
		return CAPTURE_UNSUPPORTED;
	if (gpu_failed())
		return gpu_failed();
	pthread_mutex_lock(&lock);
	result = (uintptr_t)event < 4096 || (one->recorded && one->time > now()) ? NOT_READY : 0;
	pthread_mutex_unlock(&lock);
	return result;
}

void gpu_wait(void) {
	for (int i = 0; i < STREAMS; i++)
		while (busy_until[i] > now())
			usleep(100);
}

FUNCTION(mock_occupy, int milliseconds) {
	pthread_mutex_lock(&lock);
	busy_until[OURS] = now() + (uint64_t)milliseconds * 1000000;
	pthread_mutex_unlock(&lock);
	return 0;
}

FUNCTION(mock_fail, int result) {
	__atomic_store_n(&failed, result, __ATOMIC_RELAXED);
	return 0;
}

int gpu_failed(void) {
	return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}

FUNCTION(mock_slow_create, int milliseconds) {
	__atomic_store_n(&slow_create, milliseconds, __ATOMIC_RELAXED);
	return 0;
}

FUNCTION(cuEventCreate, void **event, unsigned flags) {
	int wait = __atomic_exchange_n(&slow_create, 0, __ATOMIC_RELAXED);

	if (wait)
		usleep((useconds_t)wait * 1000);
	if (is_forbidden())
		return CAPTURE_UNSUPPORTED;
	*event = calloc(1, sizeof(struct event));
	__atomic_add_fetch(&events, 1, __ATOMIC_RELAXED);
	return 0;
}

FUNCTION(cuEventDestroy_v2, void *event) {
	free(event);
	__atomic_sub_fetch(&events, 1, __ATOMIC_RELAXED);
	return 0;
}

FUNCTION(cuEventRecord, void *event, void *stream) {
	static unsigned half_bad;

	if (stream == BAD || (stream == HALF_BAD && half_bad++ % 2))
		return INVALID_HANDLE;
	if (capturing[place_of(stream)])
		return CAPTURE_UNSUPPORTED;
	if (gpu_failed())
		return gpu_failed();
	errno = EAGAIN;
	pthread_testcancel(); /* as a system call of the driver's may be */
	pthread_mutex_lock(&lock);
	*(struct event *)event = (struct event){ true, *end_of(stream) };
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Of every thread the own stream is the same here. */
FUNCTION(cuEventRecord_ptsz, void *event, void *stream) {
	return cuEventRecord(event, stream ? stream : (void *)2);
}

FUNCTION(cuEventElapsedTime_v2, float *milliseconds, void *start, void *end) {
	const struct event *from = start, *to = end;

	if (gpu_failed())
		return gpu_failed();
	if (!from->recorded || !to->recorded)
		return INVALID_HANDLE;
	if (from->time > now() || to->time > now())
		return NOT_READY;
	*milliseconds = (float)((double)(int64_t)(to->time - from->time) / 1e6);
	return 0;
}

FUNCTION(cuStreamCreate, void **stream, unsigned flags) {
	*stream = (void *)(uintptr_t)OURS;
	__atomic_add_fetch(&streams, 1, __ATOMIC_RELAXED);
	return is_forbidden() ? CAPTURE_UNSUPPORTED : 0;
}

FUNCTION(cuStreamDestroy_v2, void *stream) {
	if (place_of(stream) == OURS)
		__atomic_sub_fetch(&streams, 1, __ATOMIC_RELAXED);
	else /* who gets its place finds nothing there; what is in it goes on */
		busy_until[place_of(stream)] = 0;
	return 0;
}

FUNCTION(cuStreamIsCapturing, void *stream, int *status) {
	*status = capturing[place_of(stream)];
	return 0;
}

FUNCTION(cuStreamIsCapturing_ptsz, void *stream, int *status) {
	return cuStreamIsCapturing(stream ? stream : (void *)2, status);
}

FUNCTION(cuThreadExchangeStreamCaptureMode, int *other) {
	int before = mode;

	mode = *other;
	*other = before;
	return 0;
}

FUNCTION(cuStreamBeginCapture_v2, void *stream, int how) {
	capturing[place_of(stream)] = true;
	return 0;
}

FUNCTION(cuStreamEndCapture, void *stream, void **graph) {
	capturing[place_of(stream)] = false;
	*graph = (void *)0x9000;
	return 0;
}

/* It has two kernels and a copy. */
FUNCTION(cuGraphLaunch, void *exec, void *stream) {
	uint32_t correlation = gpu_call_begin(GRAPH_LAUNCH);

	gpu_launch(stream, correlation, "first", 1);
	gpu_launch(stream, correlation, "second", 2);
	gpu_launch(stream, correlation, NULL, 3);
	gpu_call_end(GRAPH_LAUNCH, correlation);
	return 0;
}

FUNCTION(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t size, void *stream) {
	uint32_t correlation = gpu_call_begin(COPY);

	gpu_launch(stream, correlation, NULL, 0);
	gpu_call_end(COPY, correlation);
	return 0;
}

FUNCTION(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t size) {
	gpu_wait();
	return 0;
}

FUNCTION(cuCtxGetDevice, int *device) {
	*device = 3;
	return 0;
}

/* Another has retained it, too. */
FUNCTION(cuDevicePrimaryCtxRelease_v2, int device) {
	return 0;
}

FUNCTION(cuDevicePrimaryCtxReset_v2, int device) {
	return 0;
}

/* Says how many events and streams there are still, which a program did not make. */
FUNCTION(cuCtxDestroy_v2, void *context) {
	return events + streams;
}
