/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The thread that copies map instances from device memory to memory shared with the daemon
 * (mirror.h).
 *
 * Maps live in device memory and the daemon reads shared memory: one thread copies, when the daemon
 * asks, every mirror_period_ms otherwise, and a last time when the process exits. It starts with
 * the first armed module, blocks all signals, and polls its own connection; when the daemon is gone
 * it waits for the next, which may go on with what that one had. It ends with the last instance.
 * Copies go over a stream of ours that blocks nothing, in the relaxed capture mode, so that no
 * capture of the application is disturbed.
 *
 * At exit the thread waits for the GPU (kernels that still run count, too) while the exiting thread
 * waits for it, no longer than the deadline. An exit handler that is registered after the driver
 * was initialised runs before the driver's own.
 */

#include "mirror.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "arm.h"
#include "shim/base/cancel.h"
#include "shim/interest/wire-client.h"
#include "shim/base/deadline.h"
#include "shim/base/guard.h"
#include "shim/base/helper-thread.h"
#include "instance.h"
#include "shim/interest/interest-page.h"
#include "load.h"
#include "shim/trace/tracing.h"

#define STACK_SIZE (256 * 1024) /* of the thread */
#define FORK_WAIT_MS 100
#define CONNECT_TRIES 4
#define CONNECT_MAX_MS 300
#define AWAIT_FIRST_MS 20
#define AWAIT_SOON_MS 200 /* for as long as a restart may take, */
#define AWAIT_SOON_TIMES 150
#define AWAIT_LAST_MS 1000 /* and later */
#define TRY_AGAIN_MS 1000 /* where no thread can be made */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t fork_lock =
	PTHREAD_MUTEX_INITIALIZER; /* before it: the thread, alone; and a thread that forks */
static struct mirror_context *contexts;
static bool awaits_kernels; /* read without the lock */
static uint64_t try_ms; /* there is no thread, and when to try again to make one; 0: there is, or
			   none is wanted. Read without the lock */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool running; /* there is a thread */
	bool wanted; /* it is to connect, again perhaps */
	bool stopping, registered;
	bool finished; /* all is copied for the last time: the thread's own */
	uint64_t epoch; /* of the daemon that it is to connect to, */
	pid_t owner; /* this and the deadline: an exiting thread reads them without the lock */
	char folder[INTEREST_FOLDER_MAX];
	uint32_t deadline_ms;
	struct wire_client client;
	struct wire_client
		connecting; /* what will be that, when the daemon has answered: the thread's own */
} thread = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .ended = PTHREAD_COND_INITIALIZER,
	     .client = WIRE_CLIENT_NONE,
	     .connecting = WIRE_CLIENT_NONE };

static __thread int cancel_before; /* it: cancel.h */
static __thread bool copies; /* it is the thread */
static __thread bool forking; /* this thread holds fork_lock till it has forked */

void mirror_lock(void) {
	guard_barred = true;
	cancel_before = cancel_forbid();
	if (copies)
		pthread_mutex_lock(&fork_lock);
	pthread_mutex_lock(&lock);
}

bool mirror_lock_until(uint64_t until_ms) {
	guard_barred = true;
	cancel_before = cancel_forbid();
	if (deadline_lock(&lock, until_ms))
		return true;
	guard_barred = false;
	cancel_allow(cancel_before);
	return false;
}

void mirror_unlock(void) {
	int before = cancel_before;

	pthread_mutex_unlock(&lock);
	if (copies)
		pthread_mutex_unlock(&fork_lock);
	guard_barred = false;
	cancel_allow(before);
}

struct mirror_context *mirror_first_context(void) {
	return contexts;
}

struct mirror_context *mirror_find_context(driver_handle handle) {
	for (struct mirror_context *context = contexts; context; context = context->next)
		if (context->handle == handle && !context->ending)
			return context;
	return NULL;
}

struct mirror_context *mirror_add_context(driver_handle handle) {
	const struct driver *driver = driver_own();
	struct mirror_context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->handle = handle;
	context->born = arm_born();
	context->id = driver_context_id(handle);
	if (driver->ctx_get_device(&context->device) != 0) {
		free(context);
		return NULL;
	}
	context->next = contexts;
	__atomic_store_n(&contexts, context, __ATOMIC_RELAXED);
	return context;
}

bool mirror_has_stream(struct mirror_context *context) {
	return context->stream ||
	       driver_own()->stream_create(&context->stream, DRIVER_STREAM_NON_BLOCKING) == 0;
}

struct instance *mirror_find_instance(struct mirror_context *context, uint64_t map_id) {
	for (struct instance *instance = context->instances; instance; instance = instance->next)
		if (instance->map_id == map_id && !instance->forgotten)
			return instance;
	return NULL;
}

void mirror_add_instance(struct mirror_context *context, struct instance *instance) {
	instance->next = context->instances;
	context->instances = instance;
}

bool mirror_write(struct mirror_context *context, driver_pointer where, const void *bytes,
		  size_t size) {
	const struct driver *driver = driver_own();

	return mirror_has_stream(context) &&
	       driver->copy_to_device(where, bytes, size, context->stream) == 0 &&
	       driver->stream_synchronize(context->stream) == 0;
}

void mirror_copy(struct mirror_context *context, bool wait, bool final) {
	for (struct instance *instance = context->instances; instance; instance = instance->next) {
		if (!instance_is_copied(instance) || !mirror_has_stream(context))
			continue;
		if (wait)
			driver_own()->ctx_synchronize();
		wait = false;
		instance_copy(instance, context->stream, final);
	}
}

void mirror_end_regions(struct mirror_context *context, const struct load *load) {
	for (struct instance *instance = context->instances; instance; instance = instance->next)
		if (instance_has_region(instance, load) && context->ending)
			instance_drop_regions(instance, load);
		else if (instance_has_region(instance, load) && mirror_has_stream(context))
			instance_end_regions(instance, load, context->stream);
}

void mirror_drop_regions(const struct load *load) {
	for (struct mirror_context *context = contexts; context; context = context->next)
		for (struct instance *instance = context->instances; instance;
		     instance = instance->next)
			instance_drop_regions(instance, load);
}

void mirror_end_context(struct mirror_context *context) {
	context->ending = true;
}

void mirror_keep_context(struct mirror_context *context) {
	context->ending = false;
}

static void unlink_context(struct mirror_context *context) {
	for (struct mirror_context **link = &contexts; *link; link = &(*link)->next) {
		if (*link == context) {
			__atomic_store_n(link, context->next, __ATOMIC_RELAXED);
			break;
		}
	}
}

void mirror_join_context(struct mirror_context *to, struct mirror_context *context) {
	struct instance **end = &to->instances;

	unlink_context(context);
	while (*end)
		end = &(*end)->next;
	*end = context->instances;
	if (!to->stream)
		to->stream = context->stream; /* else it stays with the context */
	free(context);
}

void mirror_free_context(struct mirror_context *context) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	if (!context)
		return;
	unlink_context(context);
	driver_own()->exchange_capture_mode(&mode);
	while (context->instances) {
		struct instance *instance = context->instances;

		context->instances = instance->next;
		instance_mark_final(instance);
		instance_free(instance);
	}
	driver_own()->exchange_capture_mode(&mode);
	free(context);
}

/* Does an idle context need its memory no more? */
static bool is_droppable(const struct instance *instance) {
	return instance->disarmed && !instance->held && !instance->forgotten;
}

void mirror_drop_disarmed(driver_handle handle) {
	struct mirror_context *context;

	mirror_lock();
	context = mirror_find_context(handle);
	for (struct instance **link = context ? &context->instances : NULL; link && *link;) {
		struct instance *instance = *link;

		if (!is_droppable(instance) || !instance_release(instance)) {
			link = &instance->next;
			continue;
		}
		*link = instance->next;
		instance_free(instance);
	}
	mirror_unlock();
}

unsigned mirror_count_disarmed(driver_handle handle) {
	const struct mirror_context *context;
	unsigned count = 0;

	mirror_lock();
	context = mirror_find_context(handle);
	for (const struct instance *instance = context ? context->instances : NULL; instance;
	     instance = instance->next)
		count += is_droppable(instance);
	mirror_unlock();
	return count;
}

void mirror_unuse(struct instance *instance) {
	instance->unused_since = arm_born();
	__atomic_store_n(&awaits_kernels, true, __ATOMIC_RELAXED);
}

void mirror_synchronized(driver_handle handle, uint64_t before) {
	bool others = false;

	if (guard_barred || !mirror_lock_until(deadline_now_ms()))
		return;
	for (struct mirror_context *context = contexts; context; context = context->next)
		for (struct instance *instance = context->instances; instance;
		     instance = instance->next) {
			instance->unused |= context->handle == handle && instance->unused_since &&
					    instance->unused_since <= before;
			others |= instance->unused_since && !instance->unused;
		}
	__atomic_store_n(&awaits_kernels, others, __ATOMIC_RELAXED);
	mirror_unlock();
}

bool mirror_awaits_kernels(void) {
	return __atomic_load_n(&awaits_kernels, __ATOMIC_RELAXED);
}

void mirror_reuse(struct mirror_context *context, struct instance *instance) {
	for (struct instance **link = &context->instances; *link; link = &(*link)->next) {
		struct instance *before = *link;

		if (!instance_follow(instance, before))
			continue;
		*link = before->next;
		instance_free(before);
		return;
	}
}

bool mirror_has_contexts(void) {
	return __atomic_load_n(&contexts, __ATOMIC_RELAXED) != NULL;
}

void mirror_forget_daemon(void) {
	mirror_lock();
	for (struct mirror_context *context = contexts; context; context = context->next)
		for (struct instance *instance = context->instances; instance;
		     instance = instance->next)
			instance->forgotten = instance->disarmed = true;
	mirror_unlock();
}

/* Asks whether the daemon knows one instance, with the lock held. */
static bool keep_instance(struct wire_client *client, struct instance *instance,
			  uint64_t deadline_ms) {
	union wire_message message;

	memset(&message, 0, sizeof(message));
	wire_client_prepare(client, &message, WIRE_KEEP, 0);
	message.keep.map_id = instance->map_id;
	message.keep.instance_id = instance->id;
	if (!wire_client_call(client, &message, -1, WIRE_KEPT, NULL, deadline_ms) ||
	    message.kept.map_id != instance->map_id)
		return false;
	if (!message.kept.known)
		instance->forgotten = instance->disarmed = true;
	return true;
}

bool mirror_keep_instances(struct wire_client *client, uint64_t deadline_ms) {
	bool good = true;

	mirror_lock();
	for (struct mirror_context *context = contexts; context; context = context->next)
		for (struct instance *instance = context->instances; instance && good;
		     instance = instance->next)
			good = instance->forgotten || keep_instance(client, instance, deadline_ms);
	mirror_unlock();
	return good;
}

/* ---- the thread --------------------------------------------------------------------- */

static void copy_all(bool wait, bool final) {
	const struct driver *driver = driver_own();

	load_settle(); /* or it would copy from modules that are gone */
	mirror_lock();
	for (struct mirror_context *context = contexts; context; context = context->next)
		if (!context->ending && driver->ctx_set_current(context->handle) == 0)
			mirror_copy(context, wait, final);
	driver->ctx_set_current(NULL);
	mirror_unlock();
}

/* The process exits. */
static void copy_finally(void) {
	if (!thread.finished)
		copy_all(true, true);
	thread.finished = true;
}

/* Serves one message; false: the connection is of no more use. */
static bool serve(uint32_t *period_ms, uint32_t wait_ms) {
	union wire_message message;
	uint64_t deadline_ms = deadline_now_ms() + wait_ms;
	uint32_t sequence;

	if (!wire_client_receive(&thread.client, &message, 0, NULL, deadline_ms))
		return false;
	if (message.header.type == WIRE_WELCOME) {
		*period_ms = message.welcome.mirror_period_ms;
		return true;
	}
	sequence = message.header.sequence;
	if (message.header.type == WIRE_SYNC)
		copy_all(false, false);
	else if (message.header.type == WIRE_DISARM)
		arm_disarm(message.disarm.map_id);
	else
		return false;
	wire_client_prepare(&thread.client, &message, WIRE_SYNCED, sequence);
	wire_client_send(&thread.client, &message, -1,
			 deadline_ms); /* one that has ended may have said more */
	return true;
}

static bool is_stopping(bool *elsewhere) {
	bool stopping;

	pthread_mutex_lock(&thread.lock);
	stopping = thread.stopping;
	*elsewhere = thread.wanted;
	pthread_mutex_unlock(&thread.lock);
	return stopping;
}

/*
 * Ends the thread's work, and returns true, if no instance is left. A thread that adds one starts
 * this thread with the instances' lock held: so it finds this thread at work or ended, never in
 * between.
 */
static bool retire(void) {
	bool idle = true;

	mirror_lock();
	for (const struct mirror_context *context = contexts; context; context = context->next)
		for (const struct instance *instance = context->instances; instance;
		     instance = instance->next)
			idle = idle && (instance->disarmed || instance->unwanted);
	pthread_mutex_lock(&thread.lock);
	idle = idle && !thread.wanted && !thread.stopping;
	if (idle) {
		wire_client_close(&thread.client);
		thread.running = false;
		pthread_cond_broadcast(&thread.ended);
	}
	pthread_mutex_unlock(&thread.lock);
	mirror_unlock();
	return idle;
}

/*
 * Serves a connection until the process exits, the daemon does, or there is a new one. true: the
 * thread has retired.
 */
static bool run(uint32_t *period_ms, uint32_t wait_ms) {
	bool elsewhere;

	while (!is_stopping(&elsewhere) && !elsewhere) {
		struct pollfd polled = { .fd = thread.client.fd, .events = POLLIN };
		int r;

		if (!wire_client_is_open(&thread.client))
			return false;
		r = poll(&polled, 1, *period_ms ? (int)(*period_ms & INT_MAX) : -1);
		if (is_stopping(&elsewhere) || elsewhere)
			break;
		if (r == 0)
			copy_all(false, false);
		else if (r > 0 && !serve(period_ms, wait_ms))
			return false;
		if (r >= 0 && retire())
			return true;
	}
	if (!elsewhere)
		copy_finally();
	return false;
}

enum outcome {
	OUTCOME_ENDED,
	OUTCOME_RETIRED,
	OUTCOME_UNCONNECTED
};

static enum outcome connect_and_run(uint32_t *period_ms) {
	struct wire_welcome welcome = { 0 };
	char folder[INTEREST_FOLDER_MAX];
	uint32_t deadline_ms;
	bool open;

	pthread_mutex_lock(&thread.lock);
	thread.wanted = false;
	strcpy(folder, thread.folder);
	deadline_ms = thread.deadline_ms;
	pthread_mutex_unlock(&thread.lock);
	/* an exiting thread waits for it: a daemon that has gone meanwhile does not answer */
	open = wire_client_open(&thread.connecting, folder, WIRE_ROLE_MIRROR, load_driver_version(),
				deadline_now_ms() + (deadline_ms < CONNECT_MAX_MS ? deadline_ms
										  : CONNECT_MAX_MS),
				&welcome);
	if (open &&
	    !load_is_welcome(
		    &welcome)) { /* it came meanwhile: it has to be told what we have first */
		wire_client_close(&thread.connecting);
		return OUTCOME_ENDED;
	}
	pthread_mutex_lock(&thread.lock);
	thread.client = thread.connecting;
	thread.connecting = (struct wire_client)WIRE_CLIENT_NONE;
	pthread_mutex_unlock(&thread.lock);
	if (!open)
		return OUTCOME_UNCONNECTED;
	*period_ms = welcome.mirror_period_ms;
	if (run(period_ms, deadline_ms))
		return OUTCOME_RETIRED;
	pthread_mutex_lock(&thread.lock);
	wire_client_close(&thread.client);
	pthread_mutex_unlock(&thread.lock);
	return OUTCOME_ENDED;
}

/* Waits so long, or less if something happens. False: the process exits, and all is copied. */
static bool rest(uint32_t wait_ms) {
	const struct timespec until = deadline_time(deadline_now_ms() + wait_ms);
	bool stopping;

	pthread_mutex_lock(&thread.lock);
	while (!thread.stopping && !thread.wanted &&
	       pthread_cond_clockwait(&thread.ended, &thread.lock, CLOCK_MONOTONIC, &until) == 0)
		;
	stopping = thread.stopping;
	pthread_mutex_unlock(&thread.lock);
	if (stopping)
		copy_finally();
	return !stopping;
}

/*
 * The daemon did not answer in time; it may be busy. Says whether to try again. The last copy needs
 * no connection: the memory is there.
 */
static bool try_again(unsigned *tries) {
	return rest(1000) && ++*tries < CONNECT_TRIES;
}

/* The map of an instance that probes still use; 0: there is none. */
static uint64_t next_armed_map(void) {
	uint64_t map_id = 0;

	mirror_lock();
	for (const struct mirror_context *context = contexts; context && !map_id;
	     context = context->next)
		for (const struct instance *instance = context->instances; instance && !map_id;
		     instance = instance->next)
			map_id = instance->disarmed || instance->unwanted ? 0 : instance->map_id;
	mirror_unlock();
	return map_id;
}

/* The daemon has ended for good, and not told us all: no probe is left. */
static void end_all(void) {
	uint64_t map_id, before = 0;

	while ((map_id = next_armed_map()) != 0 && map_id != before) {
		arm_disarm(map_id);
		before = map_id;
	}
	mirror_forget_daemon();
}

/*
 * The daemon is gone. Goes on copying, for a process may be killed at any time, and looks for
 * another daemon, soon often and later once a second.
 */
static enum outcome await_daemon(uint32_t period_ms) {
	uint32_t wait_ms = AWAIT_FIRST_MS, times = 0;
	uint64_t copied_ms = deadline_now_ms();
	bool elsewhere;

	while (!retire()) {
		if (!rest(wait_ms))
			return OUTCOME_ENDED;
		if (is_stopping(&elsewhere) || elsewhere)
			return OUTCOME_UNCONNECTED; /* there is something to connect to */
		if (period_ms && deadline_now_ms() - copied_ms >= period_ms) {
			copied_ms = deadline_now_ms();
			copy_all(false, false);
		}
		wait_ms = wait_ms < AWAIT_SOON_MS / 2  ? wait_ms * 2
			  : times++ < AWAIT_SOON_TIMES ? AWAIT_SOON_MS
						       : AWAIT_LAST_MS;
		if (period_ms && wait_ms > period_ms)
			wait_ms = period_ms;
		switch (load_resume()) {
		case LOAD_RESUMED:
			return OUTCOME_UNCONNECTED;
		case LOAD_RESUME_LATER:
			break;
		case LOAD_RESUME_NEVER:
			end_all();
			break;
		}
	}
	return OUTCOME_RETIRED;
}

static void *mirror_thread(void *unused) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	uint32_t period_ms = 0;
	unsigned tries = 0;
	bool again, elsewhere;

	copies = true;
	trace_ignore_thread();
	prctl(PR_SET_NAME, "gpuprobe");
	mirror_lock(); /* as whenever this thread calls the driver: mirror_forking() */
	driver_own()->exchange_capture_mode(&mode);
	mirror_unlock();
	do {
		enum outcome outcome = connect_and_run(&period_ms);

		again = outcome == OUTCOME_UNCONNECTED && try_again(&tries);
		if (outcome == OUTCOME_ENDED)
			tries = 0;
		is_stopping(&elsewhere);
		if (!again && outcome != OUTCOME_RETIRED && !elsewhere) {
			outcome = await_daemon(period_ms);
			again = outcome == OUTCOME_UNCONNECTED;
		}
		if (outcome == OUTCOME_RETIRED)
			return NULL; /* another thread may run already */
		if (is_stopping(&elsewhere))
			copy_finally();
		pthread_mutex_lock(&thread.lock);
		/* a thread that exits from now on waits for the next round's copy */
		again = again || thread.wanted || thread.stopping;
		again = again && !thread.finished;
		thread.running = again;
		pthread_cond_broadcast(&thread.ended);
		pthread_mutex_unlock(&thread.lock);
	} while (again);
	return NULL;
}

/*
 * Runs when the process exits: the last copy, bounded by the deadline. exit() may have been called
 * anywhere, in a signal handler.
 */
static void at_exit(void) {
	uint64_t until_ms =
		deadline_now_ms() + __atomic_load_n(&thread.deadline_ms, __ATOMIC_RELAXED);
	const struct timespec until = deadline_time(until_ms);

	if (__atomic_load_n(&thread.owner, __ATOMIC_RELAXED) != getpid() || guard_barred ||
	    !deadline_lock(&thread.lock, until_ms))
		return;
	thread.stopping = true;
	if (thread.running && wire_client_is_open(&thread.client))
		shutdown(thread.client.fd, SHUT_RD); /* wakes the thread */
	pthread_cond_broadcast(&thread.ended);
	while (thread.running &&
	       pthread_cond_clockwait(&thread.ended, &thread.lock, CLOCK_MONOTONIC, &until) == 0)
		;
	pthread_mutex_unlock(&thread.lock);
}

bool mirror_is_connected(void) {
	bool connected;

	pthread_mutex_lock(&thread.lock);
	connected = thread.running && !thread.wanted && wire_client_is_open(&thread.client);
	pthread_mutex_unlock(&thread.lock);
	return connected;
}

void mirror_forking(void) {
	if (!forking) /* a signal handler may fork in here */
		forking = deadline_lock(&fork_lock, deadline_now_ms() + FORK_WAIT_MS);
}

void mirror_forked(bool in_child) {
	if (forking)
		pthread_mutex_unlock(&fork_lock);
	forking = false;
	if (in_child) {
		wire_client_close(&thread.client);
		wire_client_close(&thread.connecting);
		__atomic_store_n(&thread.owner, 0,
				 __ATOMIC_RELAXED); /* a child may have its parent's number */
	}
}

/* With the thread's lock held. */
static void make_thread(void) {
	thread.running = helper_thread(mirror_thread, STACK_SIZE);
	__atomic_store_n(&try_ms, thread.running ? 0 : deadline_now_ms() + TRY_AGAIN_MS,
			 __ATOMIC_RELAXED);
}

bool mirror_is_due(void) {
	uint64_t due = __atomic_load_n(&try_ms, __ATOMIC_RELAXED), now;

	if (!due)
		return false;
	now = deadline_now_ms();
	return now >= due && __atomic_compare_exchange_n(&try_ms, &due, now + TRY_AGAIN_MS, false,
							 __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void mirror_try_again(void) {
	pthread_mutex_lock(&thread.lock);
	if (thread.wanted && !thread.running && !thread.stopping)
		make_thread();
	pthread_mutex_unlock(&thread.lock);
}

const char *mirror_start(const char *folder, uint32_t deadline_ms, uint64_t epoch) {
	bool runs;

	pthread_mutex_lock(&thread.lock);
	if (!thread.stopping && (!thread.running || epoch != thread.epoch)) {
		strcpy(thread.folder, folder);
		__atomic_store_n(&thread.deadline_ms, deadline_ms, __ATOMIC_RELAXED);
		thread.epoch = epoch;
		__atomic_store_n(&thread.owner, getpid(), __ATOMIC_RELAXED);
		thread.wanted = true;
		if (!thread.registered)
			thread.registered = atexit(at_exit) == 0;
		if (!thread.running)
			make_thread();
		else if (wire_client_is_open(&thread.client))
			shutdown(thread.client.fd, SHUT_RD); /* wakes it */
		pthread_cond_broadcast(&thread.ended);
	}
	runs = thread.running || thread.stopping;
	pthread_mutex_unlock(&thread.lock);
	return runs ? NULL
		    : "no thread can be made that copies its maps: what they count is not seen";
}
