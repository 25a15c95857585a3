/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The mock of libcupti.so for tests of tracing.
 *
 * The stand-in for NVIDIA's libcupti.so on top of the driver of mock/traced: what is used of it
 * (shim/cupti/cupti-abi.h). As the real one does, it serves one subscriber, gives no buffer back
 * that has a record of what has not ended unless it is forced, and is not to be finalized but at
 * the end of a call.
 *
 * GPUPROBE_CUPTI_FAIL makes one thing fail: subscribe (another profiler), clock, buffers, callback,
 * enable, flush, finalize, taken (another has registered for buffers since), idle (likewise, at a
 * moment when there are none), busy (not so much a failure: during each flush something else runs),
 * memory (no buffer is taken), dropped (each buffer says that five records are missing), slow
 * (subscribing takes a second), signal (SIGUSR1 comes while a record is written). What was done is
 * written into the file GPUPROBE_CUPTI_LOG.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/cupti/cupti-abi.h"
#include "shim/mock/traced/mock.h"

#define EXPORT __attribute__((visibility("default")))
#define FAILED 999
#define CALLS 1024
#define KINDS 64
#define BUFFERS 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cupti_callback callback;
static void *callback_data;
static bool calls[CALLS], all_calls, kinds[KINDS];
static uint64_t (*clock_now)(void);
static cupti_requested requested;
static cupti_completed completed;
static __thread bool in_exit;

static struct buffer {
	uint8_t *bytes;
	size_t size, used;
} buffers[BUFFERS]; /* the first one is being filled */

static bool fails(const char *what) {
	const char *wanted = getenv("GPUPROBE_CUPTI_FAIL");

	return wanted && !strcmp(wanted, what);
}

static void say(const char *what) {
	const char *path = getenv("GPUPROBE_CUPTI_LOG");
	FILE *file = path ? fopen(path, "ae") : NULL;

	if (!file)
		return;
	fprintf(file, "%s\n", what);
	fclose(file);
}

static size_t size_of(uint32_t kind) {
	return kind == CUPTI_KERNEL ? sizeof(struct cupti_kernel) : sizeof(struct cupti_copy);
}

/* --- the driver --- */

static void call(uint32_t id, int site, uint32_t correlation) {
	struct cupti_call data = { .site = site,
				   .context = (void *)0x1000,
				   .correlation = correlation };
	cupti_callback told = callback;

	if (!told || !(all_calls || (id < CALLS && calls[id])))
		return;
	in_exit = site == CUPTI_EXIT;
	told(callback_data, CUPTI_DOMAIN_DRIVER, id, &data);
	in_exit = false;
}

static bool gone; /* who has asked for buffers gets none any more */

/* With the lock: room for a record. */
static void *reserve(size_t size) {
	struct buffer *buffer = &buffers[0];
	size_t most;

	if (buffer->bytes && buffer->used + size > buffer->size) {
		for (int i = BUFFERS - 1; i > 0; i--)
			buffers[i] = buffers[i - 1];
		*buffer = (struct buffer){ 0 };
	}
	if (!buffer->bytes && requested && !fails("memory") && !gone) {
		requested(&buffer->bytes, &buffer->size, &most);
		buffer->used = 0;
	}
	if (!buffer->bytes)
		return NULL;
	buffer->used += size;
	return buffer->bytes + buffer->used - size;
}

static void ran(uint32_t correlation, uint64_t start, uint64_t end, const char *name,
		uint64_t node) {
	uint32_t kind = name ? CUPTI_KERNEL : CUPTI_MEMCPY;
	struct cupti_kernel *kernel;
	struct cupti_copy *copy;
	void *room;

	pthread_mutex_lock(&lock);
	room = kinds[kind] ? reserve(size_of(kind)) : NULL;
	if (room && fails("signal"))
		raise(SIGUSR1);
	kernel = room;
	copy = room;
	if (room && name)
		*kernel = (struct cupti_kernel){ .kind = kind,
						 .start = start,
						 .end = end,
						 .device = 3,
						 .correlation = correlation,
						 .name = name,
						 .graph_node = node };
	else if (room)
		*copy = (struct cupti_copy){ .kind = kind,
					     .start = start,
					     .end = end,
					     .device = 3,
					     .correlation = correlation,
					     .graph_node = node };
	pthread_mutex_unlock(&lock);
}

static void listen(bool on) {
	static const struct mock_tool tool = { call, ran };
	int (*set)(const struct mock_tool *) = NULL;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (driver)
		*(void **)&set = dlsym(driver, "mock_set_tool");
	if (set)
		set(on ? &tool : NULL);
}

/* --- the interface --- */

EXPORT cupti_result cuptiGetResultString(cupti_result result, const char **text);
EXPORT cupti_result cuptiSubscribe(driver_handle *subscriber, cupti_callback wanted, void *data);
EXPORT cupti_result cuptiSubscribe_v2(driver_handle *subscriber, cupti_callback wanted, void *data,
				      struct cupti_subscriber *named);
EXPORT cupti_result cuptiUnsubscribe(driver_handle subscriber);
EXPORT cupti_result cuptiEnableCallback(uint32_t on, driver_handle subscriber, int domain,
					uint32_t id);
EXPORT cupti_result cuptiEnableDomain(uint32_t on, driver_handle subscriber, int domain);
EXPORT cupti_result cuptiActivityRegisterTimestampCallback(uint64_t (*wanted)(void));
EXPORT cupti_result cuptiActivityRegisterCallbacks(cupti_requested one, cupti_completed other);
EXPORT cupti_result cuptiActivityEnable(int kind);
EXPORT cupti_result cuptiActivityDisable(int kind);
EXPORT cupti_result cuptiActivityFlushAll(uint32_t flags);
EXPORT cupti_result cuptiActivityGetNextRecord(uint8_t *bytes, size_t valid,
					       struct cupti_record **record);
EXPORT cupti_result cuptiActivityGetNumDroppedRecords(driver_handle context, uint32_t stream,
						      size_t *count);
EXPORT cupti_result cuptiFinalize(void);

cupti_result cuptiGetResultString(cupti_result result, const char **text) {
	*text = "a reason";
	return CUPTI_OK;
}

cupti_result cuptiSubscribe(driver_handle *subscriber, cupti_callback wanted, void *data) {
	if (callback || fails("subscribe"))
		return CUPTI_SOMEBODY_ELSE;
	if (fails("slow"))
		sleep(1);
	say("subscribe");
	listen(true);
	callback_data = data;
	callback = wanted;
	*subscriber = &callback;
	return CUPTI_OK;
}

cupti_result cuptiSubscribe_v2(driver_handle *subscriber, cupti_callback wanted, void *data,
			       struct cupti_subscriber *named) {
	cupti_result result = cuptiSubscribe(subscriber, wanted, data);

	if (result && named->other && named->other_size >= CUPTI_SUBSCRIBER_OTHER_SIZE)
		strcpy(named->other, "Nsight Thing");
	return result;
}

cupti_result cuptiUnsubscribe(driver_handle subscriber) {
	say("unsubscribe");
	callback = NULL;
	memset(calls, 0, sizeof(calls));
	all_calls = false;
	return subscriber == &callback ? CUPTI_OK : FAILED;
}

cupti_result cuptiEnableCallback(uint32_t on, driver_handle subscriber, int domain, uint32_t id) {
	if (fails("callback") || subscriber != &callback || domain != CUPTI_DOMAIN_DRIVER ||
	    id >= CALLS)
		return FAILED;
	calls[id] = on;
	return CUPTI_OK;
}

cupti_result cuptiEnableDomain(uint32_t on, driver_handle subscriber, int domain) {
	if (subscriber != &callback || domain != CUPTI_DOMAIN_DRIVER)
		return FAILED;
	all_calls = on;
	return CUPTI_OK;
}

cupti_result cuptiActivityRegisterTimestampCallback(uint64_t (*wanted)(void)) {
	clock_now = wanted;
	return fails("clock") ? FAILED : CUPTI_OK;
}

cupti_result cuptiActivityRegisterCallbacks(cupti_requested one, cupti_completed other) {
	requested = one;
	completed = other;
	return fails("buffers") ? FAILED : CUPTI_OK;
}

cupti_result cuptiActivityEnable(int kind) {
	char line[64];

	if (fails("enable") || !requested || !clock_now)
		return FAILED;
	snprintf(line, sizeof(line), "enable %d", kind);
	say(line);
	listen(true); /* who subscribes to nothing may have records */
	kinds[kind] = true;
	return CUPTI_OK;
}

cupti_result cuptiActivityDisable(int kind) {
	char line[64];

	snprintf(line, sizeof(line), "disable %d", kind);
	say(line);
	kinds[kind] = false;
	return CUPTI_OK;
}

/* Has all ended that is in the buffer? What has not gets no end, if it is to go anyway. */
static bool is_ripe(struct buffer *buffer, bool forced) {
	struct cupti_record *record = NULL;
	uint64_t now = clock_now();
	bool ripe = true;

	while (cuptiActivityGetNextRecord(buffer->bytes, buffer->used, &record) == CUPTI_OK) {
		struct cupti_kernel *kernel = (void *)record;
		struct cupti_copy *copy = (void *)record;
		uint64_t *end = record->kind == CUPTI_KERNEL ? &kernel->end : &copy->end;

		if (*end > now) {
			ripe = false;
			*end = forced ? 0 : *end;
		}
	}
	return ripe || forced;
}

cupti_result cuptiActivityFlushAll(uint32_t flags) {
	struct buffer ripe[BUFFERS];
	int count = 0;

	if (!completed || fails("flush"))
		return FAILED;
	pthread_mutex_lock(&lock);
	for (int i = BUFFERS - 1; i >= 0; i--)
		if (buffers[i].bytes && is_ripe(&buffers[i], flags & CUPTI_FLUSH_FORCED)) {
			ripe[count++] = buffers[i];
			buffers[i] = (struct buffer){ 0 };
		}
	pthread_mutex_unlock(&lock);
	if (fails("taken"))
		return CUPTI_OK; /* they go to somebody else */
	for (int i = 0; i < count; i++)
		completed(NULL, 0, ripe[i].bytes, ripe[i].size, ripe[i].used);
	if (fails("idle") && count)
		gone = true;
	if (fails("busy")) {
		pthread_mutex_lock(&lock);
		reserve(0);
		pthread_mutex_unlock(&lock);
	}
	return CUPTI_OK;
}

cupti_result cuptiActivityGetNextRecord(uint8_t *bytes, size_t valid,
					struct cupti_record **record) {
	uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : bytes;

	if (next >= bytes + valid)
		return CUPTI_NO_MORE_RECORDS;
	*record = (void *)next;
	return CUPTI_OK;
}

cupti_result cuptiActivityGetNumDroppedRecords(driver_handle context, uint32_t stream,
					       size_t *count) {
	*count = fails("dropped") ? 5 : 0;
	return CUPTI_OK;
}

cupti_result cuptiFinalize(void) {
	say(in_exit ? "finalize" : "finalize outside of a call's end");
	listen(false);
	requested = NULL;
	completed = NULL;
	memset(kinds, 0, sizeof(kinds));
	return fails("finalize") ? FAILED : CUPTI_OK;
}
