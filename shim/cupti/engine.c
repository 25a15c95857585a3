/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuprobe-cupti.so: gets times of kernels and copies from CUPTI for a trace, in the
 * application's process.
 *
 * struct cupti_source (cupti-source.h) on top of NVIDIA's profiling library.
 *
 * What ran has the number of the call that caused it. CUPTI tells the number within the call, if
 * calls of that function are asked for, and in the record. Records come in our buffers, from any
 * thread. The thread that flushes reads them at its next flush: the calls have ended by then.
 *
 * CUPTI serves one subscriber at a time, and tells its name. A profiler that comes later is
 * refused, if it subscribes (PyTorch's does, and has no kernels then). But CUPTI uses the buffers
 * of the profiler that registered last, subscriber or not. Then ours do not come back, and at our
 * end we leave alone what that profiler has enabled. It may free() our buffers, and we may get its
 * buffers: we do not read them. CUPTI leaves the process as NVIDIA's documentation says: at the end
 * of a call of the driver. Until there is one it is idle.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/trace/cupti-source.h"
#include "find.h"

#define BUFFER_SIZE ((size_t)128 << 10)
#define BUFFERS_MAX 1024
#define CALLS_MAX 256
#define LEAVE_MS 200 /* for another thread that is at it */
#define TAKEN_CALLS 4096 /* with no buffer given back in so much time: somebody else gets them */
#define TAKEN_NS UINT64_C(3000000000)

enum state {
	AWAY,
	ON,
	LEAVING, /* the next call of the driver that ends takes it away, */
	GOING, /* which is going on */
};

struct buffer {
	struct buffer *next;
	uint8_t *bytes;
	size_t valid;
	uint64_t number; /* of those that CUPTI got, in their order */
	bool away; /* CUPTI has it */
};

static struct cupti cupti;
static bool found;
static const struct cupti_events *events;
static driver_handle subscriber;
static enum state state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around start, flush and stop */
static uint32_t calls[CALLS_MAX];
static uint32_t call_count;
static const int kinds[] = { CUPTI_KERNEL, CUPTI_MEMCPY, CUPTI_MEMCPY_PEER, CUPTI_MEMSET };
static bool enabled[sizeof(kinds) / sizeof(kinds[0])];

/* All buffers that there ever were; of them unused ones, and those with records, in their order. */
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer buffers[BUFFERS_MAX];
static unsigned buffer_count;
static struct buffer *unused, *done, **done_end = &done;
static uint64_t dropped;
static uint64_t given, begun; /* buffers that CUPTI got, ever, and until it was here this time */
static unsigned outstanding; /* that it has, of this time, */
static uint64_t mark; /* and of those until this number */
static unsigned outstanding_marked;
static bool asked; /* CUPTI, for one, since it has none of ours */
static uint64_t returned_at; /* one, at last, */
static unsigned calls_since; /* and calls since then */
static bool told_taken;
static struct buffer *ripe, **ripe_end; /* with the lock: those that wait for the next flush */

/* NULL if a call was successful, else the line for that. */
static const char *failure(const char *call, cupti_result result) {
	static __thread char line[160];
	const char *text = NULL;

	if (!result)
		return NULL;
	if (cupti.get_result_string(result, &text) || !text)
		text = "unknown";
	snprintf(line, sizeof(line), "%s failed: %.80s (%d)", call, text, result);
	return line;
}

/* --- what CUPTI calls --- */

/* Takes CUPTI away. In the thread of a call that ends. */
static void leave(void) {
	enum state leaving = LEAVING;

	if (!__atomic_compare_exchange_n(&state, &leaving, GOING, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return;
	cupti.enable_domain(0, subscriber, CUPTI_DOMAIN_DRIVER);
	cupti.unsubscribe(subscriber);
	cupti.finalize();
	__atomic_store_n(&state, AWAY, __ATOMIC_RELEASE);
}

static void on_call(void *userdata, int domain, uint32_t id, const void *data) {
	const struct cupti_call *call = data;
	enum state now =
		__atomic_load_n(&state, __ATOMIC_ACQUIRE); /* what is used was set before */

	if (domain != CUPTI_DOMAIN_DRIVER)
		return;
	if (now == ON && call->site == CUPTI_ENTER) {
		__atomic_add_fetch(&calls_since, 1, __ATOMIC_RELAXED);
		events->called(call->correlation, call->context);
	} else if (now == LEAVING && call->site == CUPTI_EXIT)
		leave();
}

static struct buffer *new_buffer(void) {
	struct buffer *buffer = &buffers[buffer_count];
	void *bytes = buffer_count < BUFFERS_MAX ? malloc(BUFFER_SIZE) : NULL;

	if (!bytes)
		return NULL;
	buffer->bytes = bytes;
	buffer_count++;
	return buffer;
}

static void on_requested(uint8_t **bytes, size_t *size, size_t *records_max) {
	struct buffer *buffer;

	pthread_mutex_lock(&buffers_lock);
	asked = true;
	buffer = unused;
	if (buffer)
		unused = buffer->next;
	else
		buffer = new_buffer();
	if (buffer) {
		buffer->number = ++given;
		buffer->away = true;
		outstanding++;
	}
	pthread_mutex_unlock(&buffers_lock);
	*bytes = buffer ? buffer->bytes : NULL;
	*size = buffer ? BUFFER_SIZE : 0;
	*records_max = 0;
}

/* The buffer of ours that CUPTI has there; NULL: it is somebody else's. */
static struct buffer *take_back(const uint8_t *bytes) {
	struct buffer *mine = NULL;

	pthread_mutex_lock(&buffers_lock);
	for (unsigned i = 0; !mine && i < buffer_count; i++)
		if (buffers[i].away && buffers[i].bytes == bytes)
			mine = &buffers[i];
	if (mine)
		mine->away = false;
	pthread_mutex_unlock(&buffers_lock);
	return mine;
}

static void on_completed(driver_handle context, uint32_t stream, uint8_t *bytes, size_t size,
			 size_t valid) {
	struct buffer *buffer = take_back(bytes);
	size_t count = 0;

	if (!buffer)
		return;
	if (cupti.dropped_records(NULL, 0, &count))
		count = 0;
	__atomic_store_n(&calls_since, 0, __ATOMIC_RELAXED);
	pthread_mutex_lock(&buffers_lock);
	returned_at = events->clock();
	if (buffer->number > begun) {
		outstanding--;
		if (!outstanding)
			asked = false;
		outstanding_marked -= buffer->number <= mark;
	}
	dropped += count;
	buffer->valid = valid;
	buffer->next = NULL;
	*done_end = buffer;
	done_end = &buffer->next;
	pthread_mutex_unlock(&buffers_lock);
}

/* --- records --- */

static void tell(const struct cupti_record *record) {
	const struct cupti_kernel *kernel = (const void *)record;
	const struct cupti_copy *copy = (const void *)record;
	const struct cupti_copy_peer *peer = (const void *)record;
	const struct cupti_set *set = (const void *)record;
	struct cupti_work work = { 0 };

#define TAKE(from)                                                       \
	(work = (struct cupti_work){ .correlation = (from)->correlation, \
				     .device = (from)->device,           \
				     .start = (from)->start,             \
				     .end = (from)->end })
	switch (record->kind) {
	case CUPTI_KERNEL:
		TAKE(kernel);
		work.name = kernel->name ? kernel->name : "";
		work.in_graph = kernel->graph_node != 0;
		break;
	case CUPTI_MEMCPY:
		TAKE(copy);
		break;
	case CUPTI_MEMCPY_PEER:
		TAKE(peer);
		break;
	case CUPTI_MEMSET:
		TAKE(set);
		break;
	default:
		return;
	}
#undef TAKE
	if (work.start && work.end >= work.start)
		events->ran(&work); /* else it has not ended yet */
}

static void read_buffer(const struct buffer *buffer) {
	struct cupti_record *record = NULL;

	while (cupti.next_record(buffer->bytes, buffer->valid, &record) == CUPTI_OK)
		tell(record);
}

/* Has CUPTI buffers, or has it not even asked for one? */
static bool is_silent(void) {
	bool silent;

	pthread_mutex_lock(&buffers_lock);
	silent = outstanding > 0 || !asked;
	pthread_mutex_unlock(&buffers_lock);
	return silent;
}

/* Has CUPTI everything given back that it had, if it is to? What runs meanwhile makes it ask for
 * more. */
static bool gives_back(void) {
	bool all;

	pthread_mutex_lock(&buffers_lock);
	mark = given;
	outstanding_marked = outstanding;
	pthread_mutex_unlock(&buffers_lock);
	if (cupti.flush_all(CUPTI_FLUSH_FORCED))
		return true; /* nothing is known */
	pthread_mutex_lock(&buffers_lock);
	all = !outstanding_marked;
	pthread_mutex_unlock(&buffers_lock);
	return all;
}

/*
 * Tells once that buffers do not come back any more, or that CUPTI asks for none though there is
 * work.
 */
static void look_for_taker(void) {
	uint64_t since;

	pthread_mutex_lock(&buffers_lock);
	since = events->clock() - returned_at;
	pthread_mutex_unlock(&buffers_lock);
	if (told_taken || since < TAKEN_NS || !is_silent() ||
	    __atomic_load_n(&calls_since, __ATOMIC_RELAXED) < TAKEN_CALLS)
		return;
	told_taken = true;
	events->trouble("another profiler has taken CUPTI over in this process: kernels have no "
			"times from now on");
}

/* Tells of what waits, and takes all buffers that have records by now. */
static void ripen(void) {
	struct buffer *taken = ripe, **end = ripe_end;
	uint64_t lost;

	for (const struct buffer *buffer = taken; buffer; buffer = buffer->next)
		read_buffer(buffer);
	pthread_mutex_lock(&buffers_lock);
	if (taken) {
		*end = unused;
		unused = taken;
	}
	ripe = done;
	ripe_end = done ? done_end : NULL;
	done = NULL;
	done_end = &done;
	lost = dropped;
	dropped = 0;
	pthread_mutex_unlock(&buffers_lock);
	if (lost)
		events->lost(lost);
}

/*
 * What CUPTI had when it was here the last time, it has forgotten; what it gave back when it left
 * is not looked at, as names in it may be gone.
 */
static void forget_buffers(void) {
	pthread_mutex_lock(&buffers_lock);
	*done_end = unused;
	unused = done;
	done = NULL;
	done_end = &done;
	if (ripe) {
		*ripe_end = unused;
		unused = ripe;
	}
	ripe = NULL;
	begun = mark = given;
	outstanding = outstanding_marked = 0;
	asked = false;
	dropped = 0;
	returned_at = events->clock();
	pthread_mutex_unlock(&buffers_lock);
}

/* --- start and stop --- */

static const char *subscribe(void) {
	char other[CUPTI_SUBSCRIBER_OTHER_SIZE + 1] = "";
	struct cupti_subscriber named = { .size = sizeof(named),
					  .name = "gpuprobed",
					  .other = other,
					  .other_size = CUPTI_SUBSCRIBER_OTHER_SIZE };
	static __thread char line[160];
	cupti_result result;

	result = cupti.subscribe_named ? cupti.subscribe_named(&subscriber, on_call, NULL, &named)
				       : cupti.subscribe(&subscriber, on_call, NULL);
	if (result != CUPTI_SOMEBODY_ELSE)
		return failure("cuptiSubscribe", result);
	if (strchr(other, '<')) /* "CUPTI for <not provided>" */
		other[0] = '\0';
	snprintf(line, sizeof(line), "another profiler has CUPTI in this process%s%s",
		 other[0] ? ": " : "", other);
	return line;
}

static void disable_calls(void) {
	for (uint32_t i = 0; i < call_count; i++)
		cupti.enable_callback(0, subscriber, CUPTI_DOMAIN_DRIVER, calls[i]);
	call_count = 0;
}

static void disable_all(void) {
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (enabled[i])
			cupti.disable(kinds[i]);
	memset(enabled, 0, sizeof(enabled));
	disable_calls();
}

/* Enables what is wished. */
static const char *enable_all(const struct cupti_wish *wish) {
	cupti_result result;

	for (uint32_t i = 0; i < wish->call_count && call_count < CALLS_MAX; i++)
		/* a library may be older than a function */
		if (!cupti.enable_callback(1, subscriber, CUPTI_DOMAIN_DRIVER, wish->calls[i]))
			calls[call_count++] = wish->calls[i];
	if (!call_count && wish->call_count)
		return "CUPTI knows none of the functions that launch kernels";
	for (size_t i = 0; i < (wish->copies ? sizeof(kinds) / sizeof(kinds[0]) : 1); i++) {
		result = cupti.enable(kinds[i]);
		if (result && kinds[i] != CUPTI_MEMCPY_PEER)
			return failure("cuptiActivityEnable", result);
		enabled[i] = !result;
	}
	return NULL;
}

static const char *begin(const struct cupti_wish *wish) {
	const char *reason = subscribe();

	if (reason)
		return reason;
	forget_buffers();
	told_taken = false;
	__atomic_store_n(&calls_since, 0, __ATOMIC_RELAXED);
	memset(enabled, 0, sizeof(enabled));
	__atomic_store_n(&state, ON, __ATOMIC_RELEASE);
	reason = failure("cuptiActivityRegisterTimestampCallback",
			 cupti.register_clock(events->clock));
	if (!reason)
		reason = failure("cuptiActivityRegisterCallbacks",
				 cupti.register_buffers(on_requested, on_completed));
	if (!reason)
		reason = enable_all(wish);
	if (reason) {
		disable_all();
		cupti.unsubscribe(subscriber);
		__atomic_store_n(&state, AWAY, __ATOMIC_RELEASE);
	}
	return reason;
}

/* Is it away, or back again? False: another thread takes long. */
static bool come_back(void) {
	enum state leaving = LEAVING;

	for (int i = 0; i < LEAVE_MS; i++) {
		enum state now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);

		if (now == AWAY || now == ON)
			return true;
		if (now == LEAVING &&
		    __atomic_compare_exchange_n(&state, &leaving, ON, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			cupti.enable_domain(0, subscriber, CUPTI_DOMAIN_DRIVER);
			return true;
		}
		leaving = LEAVING;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

static const char *start_locked(const struct cupti_wish *wish, const struct cupti_events *wanted) {
	const char *reason = NULL;

	if (!found) {
		reason = find_cupti(wish->path, &cupti);
		if (reason)
			return reason;
		found = true;
	}
	if (!come_back())
		return "CUPTI is still being detached from the process";
	if (events != wanted) /* calls may be told of just now */
		events = wanted;
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == ON) {
		disable_all();
		reason = enable_all(wish);
		if (reason) {
			disable_all();
			__atomic_store_n(&state, LEAVING, __ATOMIC_RELEASE);
			cupti.enable_domain(1, subscriber, CUPTI_DOMAIN_DRIVER);
		}
		return reason;
	}
	return begin(wish);
}

static const char *start(const struct cupti_wish *wish, const struct cupti_events *wanted) {
	const char *reason;

	pthread_mutex_lock(&lock);
	reason = start_locked(wish, wanted);
	pthread_mutex_unlock(&lock);
	return reason;
}

static void flush(bool all) {
	pthread_mutex_lock(&lock);
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == ON) {
		cupti.flush_all(0);
		ripen();
		if (all)
			ripen();
		look_for_taker();
	}
	pthread_mutex_unlock(&lock);
}

/* The buffers that CUPTI has go to another profiler, which may free them: they are ours no more. */
static void disown_buffers(void) {
	pthread_mutex_lock(&buffers_lock);
	for (unsigned i = 0; i < buffer_count; i++)
		buffers[i].away = false;
	pthread_mutex_unlock(&buffers_lock);
}

static void stop_locked(void) {
	if (told_taken || !gives_back()) {
		/* they are another's now, and so is what is enabled */
		disable_calls();
		disown_buffers();
		__atomic_store_n(&state, AWAY, __ATOMIC_RELEASE);
		cupti.unsubscribe(subscriber);
		return;
	}
	disable_all();
	cupti.flush_all(CUPTI_FLUSH_FORCED);
	ripen();
	ripen();
	__atomic_store_n(&state, LEAVING, __ATOMIC_RELEASE);
	cupti.enable_domain(1, subscriber, CUPTI_DOMAIN_DRIVER);
}

static void stop(void) {
	pthread_mutex_lock(&lock);
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == ON)
		stop_locked();
	pthread_mutex_unlock(&lock);
}

static void forked(void) {
	__atomic_store_n(&state, AWAY, __ATOMIC_RELEASE);
}

__attribute__((visibility("default"))) const struct cupti_source *gpuprobe_cupti(void);

const struct cupti_source *gpuprobe_cupti(void) {
	static const struct cupti_source source = {
		.abi = CUPTI_ABI,
		.start = start,
		.flush = flush,
		.stop = stop,
		.forked = forked,
	};

	return dlopen ? &source : NULL;
}
