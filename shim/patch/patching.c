/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides when modules are patched and unpatched (patching.h), for the sanitizer engine.
 *
 * When: a launch that finds the interest page changed asks the daemon for a plan for all modules
 * that are loaded; a module that is loaded meanwhile is asked about and patched from within the
 * driver, before its first kernel can run. All plans at one time are of one image, with the same
 * slots: they are one set, and a module is patched with a set or bare.
 *
 * Who: every change is made with the loader's lock held. A launch waits for it as a load does. The
 * driver's events come while the driver holds locks of its own, which who has ours may be waiting
 * for, so they wait for ours a moment only; what they cannot do is left for the next launch
 * (patch_again). Events that come while this thread has the lock, because a call of ours caused
 * them, are left so, too. Within events the driver is asked for names and numbers, but for nothing
 * that takes memory or waits for the GPU: that is the engine's.
 *
 * What goes wrong leaves kernels unpatched, and the launch goes on. A session daemon that was
 * stopped has taken its page away, and no page tells of the next one: launches look for it now and
 * then.
 */

#include "patching.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/module/arm.h"
#include "shim/base/cancel.h"
#include "shim/module/capture.h"
#include "shim/base/deadline.h"
#include "shim/base/gate.h"
#include "shim/interest/interest-lock.h"
#include "shim/module/mirror.h"
#include "patch-apply.h"
#include "patch-data.h"
#include "patch-kernel.h"
#include "patch-module.h"
#include "patch-set.h"
#include "shim/engine/sass-start.h"
#include "shim/engine/sass.h"

#define TRIES 3
#define LOCK_WAIT_MS 1000
#define EVENT_WAIT_MS 100
#define BACK_OFF_MS 10000
#define GONE_MS 100 /* how often a page is looked for where there is none: three system calls */
#define BUSY_FIRST_MS \
	1000 /* then twice as long each time: it costs launches that are held up or wait */
#define BUSY_LAST_MS 320000
#define START_WAIT_MS 2000
#define START_PAUSE_NS 1000000
#define STARTER_DONE -1

uint64_t patch_seen[2];
unsigned patch_again;

static const struct sass_engine *_Atomic engine; /* NULL: it is not in this process */
static bool meant; /* at the last look */
static bool all_left; /* with the loader's lock: not all could be asked about at the last look */
static uint64_t retry_ms; /* after a failure: not before */
static uint64_t busy_ms; /* with the loader's lock: how long is waited next time */

/* A context that ended, told from within the driver. */
struct ended {
	struct ended *next;
	driver_handle context;
};

static struct ended *ended;

static pid_t starter; /* the process whose first cuInit() is in patch_start(); 0: none was yet */
static __thread bool starting; /* it is this thread */

static void leave_for_launch(void) {
	patch_ask_again();
}

static bool are_seen(const uint64_t now[2]) {
	return now[0] == __atomic_load_n(&patch_seen[0], __ATOMIC_RELAXED) &&
	       now[1] == __atomic_load_n(&patch_seen[1], __ATOMIC_RELAXED);
}

static void see(const uint64_t now[2]) {
	__atomic_store_n(&patch_seen[0], now[0], __ATOMIC_RELAXED);
	__atomic_store_n(&patch_seen[1], now[1], __ATOMIC_RELAXED);
}

/* A module is gone, and off the list: the engine forgets what it knows of it, but nothing of
 * another one that has its handle. */
static void forget_module(driver_handle module) {
	const struct patch_module_entry *entry = patch_module_first();

	while (entry && entry->module != module)
		entry = entry->next;
	if (!entry)
		engine->forget(module);
}

/*
 * Frees what belongs to modules and contexts that are gone. A context that was made since may have
 * the handle of one, so the modules were marked when it ended.
 */
static void reap(void) {
	struct ended *one = __atomic_exchange_n(&ended, NULL, __ATOMIC_ACQUIRE);
	struct patch_module_entry *entry;

	while (one) {
		struct ended *next = one->next;

		patch_context_forget(one->context, 0, UINT64_MAX);
		free(one);
		one = next;
	}
	while ((entry = patch_module_take_gone()) != NULL) {
		patch_cells_free(patch_context_find(entry->context), entry);
		patch_end_plan(entry->plan);
		forget_module(entry->module);
		patch_module_free(entry);
	}
}

/* ---- launches ----------------------------------------------------------------------- */

/* What could not be done is tried again: after a failure of the daemon in a while. */
static void leave(enum patch_outcome outcome) {
	uint64_t wait_ms = BACK_OFF_MS;

	if (outcome == PATCH_OUTCOME_DONE) {
		busy_ms = 0;
		return;
	}
	if (outcome != PATCH_OUTCOME_FAILED && outcome != PATCH_OUTCOME_AGAIN) {
		busy_ms = busy_ms ? 2 * busy_ms : BUSY_FIRST_MS;
		wait_ms = busy_ms = busy_ms < BUSY_LAST_MS ? busy_ms : BUSY_LAST_MS;
	}
	if (outcome != PATCH_OUTCOME_AGAIN)
		__atomic_store_n(&retry_ms, deadline_now_ms() + wait_ms, __ATOMIC_RELAXED);
	leave_for_launch();
}

/*
 * Asks about all modules, or (all false) about those that came since and could not be asked about
 * then.
 */
static void plan_and_apply(const struct interest *found, bool all) {
	enum patch_outcome outcome = PATCH_OUTCOME_OTHER;

	all = all || all_left || !patch_set_is_current();
	if (!all)
		outcome = patch_new(engine, found);
	if (outcome == PATCH_OUTCOME_OTHER) {
		outcome = patch_all(engine, found);
		all_left = outcome == PATCH_OUTCOME_FAILED || outcome == PATCH_OUTCOME_LATER;
	}
	leave(outcome);
}

/* With the lock held. */
static void work(const struct interest *found, bool all) {
	const struct driver *driver = driver_own();
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle before = NULL;

	__atomic_store_n(&retry_ms, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&patch_again, PATCH_WORKING, __ATOMIC_RELEASE);
	if (all)
		busy_ms = 0;
	reap();
	if (driver->ctx_get_current(&before) == 0) {
		driver->exchange_capture_mode(&mode);
		if (found)
			plan_and_apply(found, all);
		else
			leave(patch_none(engine));
		driver->ctx_set_current(before);
		driver->exchange_capture_mode(&mode);
	}
	__atomic_and_fetch(&patch_again, ~PATCH_WORKING, __ATOMIC_RELEASE);
}

/* One look at the pages; false: they have changed since. */
static bool look(void) {
	struct interest found;
	uint64_t now[2], then[2];
	bool yes, gone, foreign, changed;

	interest_read_generations(now);
	changed = !are_seen(now);
	if (capture_is_going_on() ||
	    (!changed && deadline_now_ms() < __atomic_load_n(&retry_ms, __ATOMIC_RELAXED)))
		return true;
	if (!interest_lock())
		return true; /* the next launch tries again */
	yes = interest_find(&found, changed) && found.deadline_ms;
	gone = interest_is_gone();
	foreign = !yes && interest_is_foreign();
	interest_unlock();
	interest_read_generations(then);
	/* the pages may be other ones now; older ones are not looked at */
	if (now[0] != then[0] || now[1] != then[1])
		return false;
	if (changed && !yes && !gone && !foreign && !__atomic_load_n(&meant, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&patch_again, __ATOMIC_RELAXED)) { /* of others, before and now */
		see(now);
		return true;
	}
	if (!load_lock_until(deadline_now_ms() + (yes ? found.deadline_ms : LOCK_WAIT_MS)))
		return true;
	interest_read_generations(then);
	if (now[0] == then[0] && now[1] == then[1] && patch_needed()) {
		bool all = !are_seen(now);

		__atomic_store_n(&meant, yes, __ATOMIC_RELAXED);
		if (foreign) /* what is patched counts on: who upgrades the daemon has not said
				otherwise */
			__atomic_and_fetch(&patch_again, ~PATCH_AGAIN, __ATOMIC_RELAXED);
		else
			work(yes ? &found : NULL, all);
		if (gone && !__atomic_load_n(&patch_again, __ATOMIC_RELAXED)) {
			__atomic_store_n(&retry_ms, deadline_now_ms() + GONE_MS, __ATOMIC_RELAXED);
			leave_for_launch();
		}
		see(now);
	}
	load_unlock();
	return now[0] == then[0] && now[1] == then[1];
}

void patch_launch(void) {
	int saved = errno;

	if (gate_is_inside()) {
		; /* a callback in a launch, or a signal handler in here: the next one */
	} else if (driver_own()) {
		for (unsigned i = 0; i < TRIES && !look(); i++)
			;
	} else { /* it lacks what we need: nothing can be patched */
		__atomic_and_fetch(&arm_load_count, ~ARM_ENGINE, __ATOMIC_RELAXED);
	}
	errno = saved;
}

void patch_first_launch(driver_handle kernel) {
	int saved = errno, mode = DRIVER_CAPTURE_MODE_RELAXED;
	const struct driver *driver;
	driver_handle function;

	if (!__atomic_load_n(&meant, __ATOMIC_RELAXED) || !patch_kernel_take(kernel))
		return;
	driver = driver_own();
	if (driver && driver->kernel_get_function && !gate_is_inside() && !capture_is_going_on()) {
		driver->exchange_capture_mode(&mode);
		driver->kernel_get_function(&function, kernel); /* the launch says what is wrong */
		driver->exchange_capture_mode(&mode);
		if (patch_needed())
			patch_launch();
	}
	errno = saved;
}

/* ---- events ------------------------------------------------------------------------- */

/* With the lock held: asks about a module that is being loaded, and patches it. */
static void patch_arrived(const struct interest *found, struct patch_module_entry *entry) {
	driver_handle current = NULL;

	if (entry->asked)
		return; /* a launch in another thread has seen it first */
	reap(); /* the context may have the handle of an older one */
	if (capture_is_going_on() || driver_own()->ctx_get_current(&current) != 0 ||
	    current != entry->context || patch_one(engine, found, entry) != PATCH_OUTCOME_DONE)
		leave_for_launch();
}

/*
 * Within the driver. Who has the lock may wait for what this thread has of the driver, so it is not
 * waited for long; but while he waits for the daemon alone, it is, and for launches he does not.
 */
static bool lock_in_event(const struct interest *found) {
	uint64_t until_ms = deadline_now_ms() + found->deadline_ms;
	bool locked;

	gate_hurry(true);
	do
		locked = load_lock_twice(deadline_now_ms() + EVENT_WAIT_MS, until_ms);
	while (!locked && load_is_asking() && deadline_now_ms() < until_ms);
	gate_hurry(false);
	return locked;
}

static void arrived(struct patch_module_entry *entry) {
	struct interest found;
	uint64_t now[2];
	bool yes;

	interest_read_generations(now);
	if (!__atomic_load_n(&meant, __ATOMIC_RELAXED) && are_seen(now))
		return;
	if (!driver_own() || !interest_lock()) {
		leave_for_launch();
		return;
	}
	yes = interest_find(&found, false) && found.deadline_ms;
	interest_unlock();
	if (!yes)
		return;
	if (!lock_in_event(&found)) {
		leave_for_launch();
		return;
	}
	patch_arrived(&found, entry);
	load_unlock();
}

static void module_loaded(driver_handle context, driver_handle module, driver_handle library,
			  const void *cubin, size_t size) {
	int saved = errno;
	struct patch_module_entry *entry = patch_module_add(context, module, library, cubin, size);

	if (entry)
		arrived(entry);
	errno = saved;
}

static void module_unloading(driver_handle context, driver_handle module) {
	int saved = errno;

	if (module)
		patch_module_mark(context, module, NULL, PATCH_MODULE_LOADED, PATCH_MODULE_GONE);
	errno = saved;
}

/*
 * They have the patches, and what they are given was given to their handles when those were
 * patched.
 */
static void functions_loaded(driver_handle context, driver_handle module,
			     const driver_handle *functions, uint32_t count) {
}

static void context_ending(driver_handle context) {
	int saved = errno;
	struct ended *one = malloc(sizeof(*one));

	patch_module_mark(context, NULL, NULL, PATCH_MODULE_LOADED, PATCH_MODULE_GONE);
	patch_module_mark(context, NULL, NULL, PATCH_MODULE_ENDING, PATCH_MODULE_GONE);
	if (one) {
		one->context = context;
		one->next = __atomic_load_n(&ended, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(&ended, &one->next, one, true, __ATOMIC_RELEASE,
						    __ATOMIC_RELAXED))
			;
	}
	errno = saved;
}

/*
 * Another thread is in there: cuInit() is to reach the driver when the engine has subscribed. It is
 * not waited for long: it may want what this thread has, the loader's lock in a constructor.
 */
static void wait_for_starter(void) {
	const struct timespec pause = { .tv_nsec = START_PAUSE_NS };
	uint64_t until_ms = deadline_now_ms() + START_WAIT_MS;
	int before = cancel_forbid();

	while (!starting && __atomic_load_n(&starter, __ATOMIC_ACQUIRE) == getpid() &&
	       deadline_now_ms() < until_ms)
		nanosleep(&pause, NULL);
	cancel_allow(before);
}

static void start_engine(void) {
	static const struct sass_events events = {
		.module_loaded = module_loaded,
		.module_unloading = module_unloading,
		.functions_loaded = functions_loaded,
		.context_ending = context_ending,
	};
	const struct sass_engine *started = sass_start(&events);

	if (!started)
		return;
	engine = started;
	gate_start();
	pthread_atfork(NULL, NULL, arm_forked);
	__atomic_or_fetch(&arm_load_count, ARM_ENGINE, __ATOMIC_RELEASE);
}

void patch_start(void) {
	pid_t nobody = 0;
	int saved = errno;

	if (__atomic_compare_exchange_n(&starter, &nobody, getpid(), false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED)) {
		starting = true;
		start_engine();
		starting = false;
		__atomic_store_n(&starter, STARTER_DONE, __ATOMIC_RELEASE);
	} else {
		wait_for_starter();
	}
	errno = saved;
}

/* ---- unloading ---------------------------------------------------------------------- */

/* Who patches is done with it then; what he did later would be done to what is gone. */
static bool lock_for_unload(void) {
	return load_lock_until(deadline_now_ms() + 2 * load_deadline_ms() + LOCK_WAIT_MS);
}

static void mark(enum load_kind kind, driver_handle handle, enum patch_module_state from,
		 enum patch_module_state to) {
	patch_module_mark(NULL, kind == LOAD_MODULE ? handle : NULL,
			  kind == LOAD_LIBRARY ? handle : NULL, from, to);
}

/* What the driver did not unload is asked about again: it was left alone meanwhile. */
static void live_on(enum load_kind kind, driver_handle handle) {
	bool locked = lock_for_unload();

	mark(kind, handle, PATCH_MODULE_ENDING, PATCH_MODULE_LOADED);
	for (struct patch_module_entry *entry = locked ? patch_module_first() : NULL; entry;
	     entry = entry->next)
		if (handle == (kind == LOAD_LIBRARY ? entry->library : entry->module))
			entry->asked = false;
	if (locked)
		load_unlock();
	leave_for_launch();
}

void patch_unload_begin(enum load_kind kind, driver_handle handle) {
	bool locked;

	if (!engine || !handle || !load_is_owner())
		return;
	locked = lock_for_unload();
	if (kind == LOAD_LIBRARY)
		patch_kernel_forget(handle);
	mark(kind, handle, PATCH_MODULE_LOADED, PATCH_MODULE_ENDING);
	if (locked)
		load_unlock();
}

void patch_unload_end(enum load_kind kind, driver_handle handle, driver_result result) {
	if (!engine || !handle || !load_is_owner())
		return;
	if (result) {
		live_on(kind, handle);
		return;
	}
	mark(kind, handle, PATCH_MODULE_ENDING, PATCH_MODULE_GONE);
	if (load_lock()) {
		reap();
		load_unlock();
	}
}

void patch_context_ending(driver_handle handle, bool ending) {
	struct patch_context *context = NULL;

	if (engine)
		context = ending ? patch_context_get(handle) : patch_context_find(handle);
	if (!context)
		return;
	context->ending = ending;
	if (!ending && context->skipped) { /* it lives on */
		context->skipped = false;
		leave_for_launch();
	}
}

void patch_context_gone(driver_handle handle, uint64_t now, uint64_t until) {
	if (!engine)
		return;
	reap(); /* the engine has told that it ends */
	patch_context_forget(handle, now, until);
	capture_forget(handle, now, until);
}

bool patch_disarm(const struct mirror_context *context, uint64_t map_id) {
	return !engine || patch_forget_map(engine, context, map_id);
}
