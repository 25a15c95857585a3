/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes and unloads twins (twin.h).
 *
 * A launch that finds the interest page changed looks at it. If an attachment means this process,
 * the first launch of a kernel of each original after that asks the daemon for a twin of that
 * module, and loads it. Loading waits until the context is idle, and every launch of the process
 * waits with it; a kernel that waits for a later launch would never end. So a twin is loaded only
 * with the gate closed and the context idle; else a later launch tries again. Twins of earlier
 * attachments are unloaded under the same rule; till then they are kept, but not launched.
 *
 * Graphs are captured and built with originals: while a stream is being captured, nothing here
 * happens, and originals are launched.
 *
 * Locks: `lock` is around the list of originals. It is held for no call of the driver, and not
 * while the daemon is asked.
 */

#include "twin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm.h"
#include "bare.h"
#include "idle.h"
#include "image.h"
#include "shim/base/deadline.h"
#include "shim/base/gate.h"
#include "capture.h"
#include "shim/interest/interest-lock.h"

#define TWIN_COPIES_MAX ((size_t)256 << 20) /* bytes of images that programs do not preserve */
#define LIBRARY_BINARY_IS_PRESERVED 1 /* CUlibraryOption */
#define GATE_WAIT_MS 5
#define IDLE_WAIT_MS 2
#define RETRY_FIRST_MS 1 /* then twice as long each time */
#define RETRY_LAST_MS 1000

struct original {
	struct original *next; /* never taken off */
	driver_handle handle; /* NULL: it is unloaded, and this can be used again */
	enum load_kind kind;
	driver_handle context; /* of a module, */
	uint64_t context_id, born; /* and driver_context_id() of it; arm_born() */
	struct image image;
	void *copy; /* owned: the image, if it was not preserved */
	struct load
		*twin; /* its twin, if it has one that is not unloaded; arm.h and load.h know it */
	driver_handle twin_context; /* where it was made */
	bool busy; /* a thread is about its twin */
	bool asked; /* since attachments last changed */
	uint64_t retry_at_ms, retry_ms; /* after it was not idle */
};

uint64_t twin_seen[2];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct original *originals;
static size_t copied; /* bytes */
static bool wanted; /* an attachment means this process: as of the last look */
static struct interest found; /* by it */

/* ---- originals ------------------------------------------------------------------------ */

bool twin_is_preserved(const int *options, void *const *values, unsigned count) {
	for (unsigned i = 0; options && values && i < count; i++)
		if (options[i] == LIBRARY_BINARY_IS_PRESERVED)
			return values[i] != NULL;
	return false;
}

/* A place in the list; with the lock held. */
static struct original *get_place(void) {
	struct original *one = originals;

	while (one && (one->handle || one->busy))
		one = one->next;
	if (one)
		return one;
	one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	one->next = originals;
	originals = one;
	return one;
}

/* Keeps a copy of an image; NULL: there is no room for it. */
static void *copy_image(const struct image *image) {
	void *copy = NULL;

	pthread_mutex_lock(&lock);
	if (image->size <= TWIN_COPIES_MAX - copied)
		copy = malloc(image->size + IMAGE_TAIL);
	if (copy)
		copied += image->size;
	pthread_mutex_unlock(&lock);
	if (copy) {
		memcpy(copy, image->data, image->size);
		memset((char *)copy + image->size, 0, IMAGE_TAIL);
	}
	return copy;
}

/* Without a daemon nobody will ask for a twin. */
static bool is_there_daemon(void) {
	bool there;

	if (!interest_lock())
		return false;
	there = !interest_is_gone();
	interest_unlock();
	return there;
}

static void start_once(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, gate_start);
}

/*
 * Twins have not been tried on a GPU yet: they are made only in processes whose environment has
 * GPUPROBE_TWINS=1. Read once: the program may be changing its environment in another thread.
 */
static bool is_enabled(void) {
	static int known; /* 1: no, 2: yes */
	int now = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!now) {
		const char *text = secure_getenv("GPUPROBE_TWINS");

		now = text && !strcmp(text, "1") ? 2 : 1;
		__atomic_store_n(&known, now, __ATOMIC_RELAXED);
	}
	return now == 2;
}

/* May a module that is loaded now get a twin? */
static bool may_be_asked_for(void) {
	return is_enabled() && !(arm_work() & ARM_ENGINE) && interest_allowed() && driver_own() &&
	       load_is_owner() && is_there_daemon();
}

static void add(enum load_kind kind, driver_handle handle, const struct image *image,
		bool preserved) {
	struct original *one = NULL, made = { .kind = kind, .handle = handle, .image = *image };

	if (image->kind == WIRE_IMAGE_CUBIN)
		return;
	if (!preserved) {
		made.copy = copy_image(&made.image);
		made.image.data = made.copy;
	}
	if (kind == LOAD_MODULE && driver_own()->ctx_get_current(&made.context) == 0 &&
	    made.context)
		made.context_id = driver_context_id(made.context);
	made.born = arm_born();
	if (made.image.data) {
		start_once();
		pthread_mutex_lock(&lock);
		one = get_place();
		if (one) {
			made.next = one->next;
			*one = made;
		}
		pthread_mutex_unlock(&lock);
	}
	if (one) {
		bare_original_added(one, handle, made.context, made.context_id, made.born);
		__atomic_or_fetch(&arm_load_count, ARM_TWINS, __ATOMIC_RELEASE);
	} else {
		free(made.copy);
	}
}

void twin_loaded(enum load_kind kind, driver_handle handle, const void *code, bool preserved) {
	int saved = errno;
	struct image image;

	if (may_be_asked_for() && image_recognise(&image, code, IMAGE_IN_MEMORY))
		add(kind, handle, &image, preserved);
	errno = saved;
}

void twin_loaded_file(enum load_kind kind, driver_handle handle, const char *path) {
	int saved = errno;
	struct image image;
	size_t size;

	if (may_be_asked_for() && image_file_begin(path, &image, &size)) {
		add(kind, handle, &image, false);
		image_file_end(&image, size);
	}
	errno = saved;
}

/* ---- idle ------------------------------------------------------------------------------ */

/*
 * Closes the gate when the current context is idle. False: it is not, or a stream is being
 * captured, which asking would end.
 */
static bool begin_idle(void) {
	driver_handle context = NULL;

	if (driver_own()->ctx_get_current(&context) != 0 ||
	    !gate_close(deadline_now_ms() + GATE_WAIT_MS))
		return false;
	if (!capture_is_going_on() &&
	    wait_idle(context, deadline_now_ms() + IDLE_WAIT_MS) == IDLE_YES)
		return true;
	gate_open();
	return false;
}

/* ---- twins ------------------------------------------------------------------------------ */

/* What the driver is told of a twin that is not needed any more. The context is idle. */
static void unload(struct load *twin) {
	const struct driver *driver = driver_own();
	const enum load_kind kind = twin->kind;
	const driver_handle handle = twin->handle;
	driver_result result;

	twin = load_begin_unload(kind, handle);
	if (!twin) /* its context is gone, and it went with it; or it stays */
		return;
	result = kind == LOAD_LIBRARY ? driver->library_unload(handle)
				      : driver->module_unload(handle);
	load_end_unload(twin, result);
}

/* Takes a twin away, so that no launch finds it, for unload(). */
static struct load *take_twin(struct original *one) {
	struct load *twin;

	bare_twin_changed(one, false, NULL);
	pthread_mutex_lock(&lock);
	twin = one->twin;
	one->twin = NULL;
	pthread_mutex_unlock(&lock);
	return twin;
}

/* Gives the driver the image. The context is idle. */
static driver_result give(const struct original *one, const struct load *load,
			  driver_handle *handle) {
	const struct driver *driver = driver_own();
	driver_result result;

	load_set_current(load);
	result = one->kind == LOAD_LIBRARY ? driver->library_load_data(handle, load->image, NULL,
								       NULL, 0, NULL, NULL, 0)
					   : driver->module_load_data(handle, load->image);
	load_set_current(NULL);
	return result;
}

static bool can_load(const struct original *one) {
	const struct driver *driver = driver_own();

	return one->kind == LOAD_LIBRARY ? driver->library_load_data && driver->library_unload
					 : driver->module_load_data && driver->module_unload;
}

/* The image is there: loads it in place of an earlier twin. False: not now. */
static bool replace_twin(struct original *one, struct load *load) {
	driver_handle context = NULL, handle = NULL;
	driver_result result;
	struct load *before;
	const char *missing;

	if (driver_own()->ctx_get_current(&context) != 0 || !context ||
	    (one->kind == LOAD_MODULE && context != one->context) || !begin_idle())
		return false;
	before = take_twin(one);
	if (before)
		unload(before);
	if (!twin_image_fill(load, one->kind, one->handle, &missing)) {
		gate_open();
		load_twin_refused(load, missing);
		return true;
	}
	result = give(one, load, &handle);
	gate_open();
	if (result) {
		load_refused(load, result, 0);
		return true;
	}
	load_commit(load, one->kind, handle);
	pthread_mutex_lock(&lock);
	one->twin = load;
	one->twin_context = context;
	pthread_mutex_unlock(&lock);
	bare_twin_changed(one, one->kind == LOAD_LIBRARY, handle);
	return true;
}

/* Begins to work on an original; false: another thread does, or it is not due. */
static bool begin(struct original *one, struct interest *interest) {
	bool mine;

	pthread_mutex_lock(&lock);
	mine = wanted && one->handle && !one->busy && !one->asked &&
	       deadline_now_ms() >= one->retry_at_ms;
	one->busy |= mine;
	*interest = found;
	pthread_mutex_unlock(&lock);
	return mine;
}

static void end(struct original *one, bool done) {
	pthread_mutex_lock(&lock);
	one->busy = false;
	one->asked = done;
	if (done) {
		one->retry_ms = one->retry_at_ms = 0;
	} else {
		one->retry_ms = one->retry_ms ? 2 * one->retry_ms : RETRY_FIRST_MS;
		if (one->retry_ms > RETRY_LAST_MS)
			one->retry_ms = RETRY_LAST_MS;
		one->retry_at_ms = deadline_now_ms() + one->retry_ms;
	}
	pthread_mutex_unlock(&lock);
}

/* Asks for a twin and loads it, or takes one away that is not wanted any more. */
static void make(struct original *one) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct interest interest;
	struct load *load, *before;
	enum load_answer answer = LOAD_ANSWER_OWN;
	bool done;

	if (capture_is_going_on() || !begin(one, &interest))
		return;
	driver_own()->exchange_capture_mode(&mode);
	load = can_load(one) ? load_twin(&interest, &one->image, &answer) : NULL;
	if (load) {
		done = replace_twin(one, load);
		if (!done)
			load_refused(load, 0, 1); /* asked for again: the daemon has it by then */
	} else if (answer == LOAD_ANSWER_LATER) {
		done = false;
	} else if (answer == LOAD_ANSWER_BARE) { /* it goes when the next one is there */
		bare_twin_changed(one, false, NULL);
		done = false;
	} else {
		done = true;
		before = take_twin(one);
		if (before && begin_idle()) {
			unload(before);
			gate_open();
		}
	}
	driver_own()->exchange_capture_mode(&mode);
	end(one, done);
}

/* Nobody means this process any more. What cannot be unloaded now is kept, but not launched. */
static void drop_all(void) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	bool idle;

	for (struct original *one = originals; one; one = one->next)
		if (one->twin)
			bare_twin_changed(one, false, NULL);
	driver_own()->exchange_capture_mode(&mode);
	idle = begin_idle();
	for (struct original *one = originals; idle && one; one = one->next) {
		struct load *twin = one->twin ? take_twin(one) : NULL;

		if (twin)
			unload(twin);
	}
	if (idle)
		gate_open();
	driver_own()->exchange_capture_mode(&mode);
}

/* ---- launches --------------------------------------------------------------------------- */

static void read_generations(uint64_t now[2]) {
	for (unsigned i = 0; i < 2; i++)
		now[i] =
			__atomic_load_n(__atomic_load_n(&interest_generations[i], __ATOMIC_ACQUIRE),
					__ATOMIC_ACQUIRE);
}

/* The page has changed. */
static void look(void) {
	struct interest now_found;
	uint64_t now[2];
	bool yes, before;

	if (!interest_lock())
		return;
	yes = interest_find(&now_found, true) && now_found.deadline_ms;
	read_generations(now);
	interest_unlock();
	pthread_mutex_lock(&lock);
	before = wanted;
	wanted = yes;
	if (yes)
		found = now_found;
	for (struct original *one = originals; one; one = one->next) {
		one->asked = false;
		one->retry_ms = one->retry_at_ms = 0;
	}
	pthread_mutex_unlock(&lock);
	if (before && !yes)
		drop_all();
	for (unsigned i = 0; i < 2; i++)
		__atomic_store_n(&twin_seen[i], now[i], __ATOMIC_RELEASE);
}

void twin_prepare(driver_handle function) {
	int saved = errno;
	struct original *one;

	if (gate_is_inside())
		return; /* a callback in a launch: the next one */
	if (twin_needed())
		look();
	if (__atomic_load_n(&wanted, __ATOMIC_RELAXED)) {
		one = bare_original(function);
		if (one && !__atomic_load_n(&one->asked, __ATOMIC_RELAXED))
			make(one);
		if (one && bare_needed())
			bare_twin_resolve(function);
	}
	errno = saved;
}

driver_handle twin_choose(driver_handle function, uint64_t threads) {
	const struct original *one;
	driver_handle twin, context;

	if (!bare_needed() || capture_is_going_on())
		return function;
	twin = bare_twin(function, threads);
	if (twin == function)
		return function;
	one = bare_original(function);
	return one && driver_own()->ctx_get_current(&context) == 0 &&
			       context == __atomic_load_n(&one->twin_context, __ATOMIC_RELAXED)
		       ? twin
		       : function;
}

/* ---- ends ------------------------------------------------------------------------------- */

/* With the lock held: the original is gone. */
static void forget(struct original *one) {
	if (one->copy)
		copied -= one->image.size;
	free(one->copy);
	one->copy = NULL;
	one->handle = NULL;
	one->twin = NULL;
}

void twin_unloading(enum load_kind kind, driver_handle handle) {
	int saved = errno;
	struct original *one;
	struct load *twin;

	if (!(arm_work() & ARM_TWINS))
		return;
	pthread_mutex_lock(&lock);
	one = originals;
	while (one && (one->handle != handle || one->kind != kind))
		one = one->next;
	pthread_mutex_unlock(&lock);
	if (!one)
		return;
	bare_original_removed(one);
	pthread_mutex_lock(&lock);
	twin = one->twin;
	forget(one);
	pthread_mutex_unlock(&lock);
	if (twin)
		unload(twin); /* waits for kernels, as the application's own call does */
	errno = saved;
}

void twin_context_ended(driver_handle context, uint64_t now, uint64_t until) {
	if (!(arm_work() & ARM_TWINS))
		return;
	pthread_mutex_lock(&lock);
	for (struct original *one = originals; one; one = one->next) {
		if (one->handle && one->kind == LOAD_MODULE && one->context == context &&
		    !arm_outlives(one->context_id, one->born, now, until)) {
			bare_original_removed(one);
			forget(one);
		} else if (one->twin && one->twin_context == context) {
			one->twin = NULL; /* the driver forgets it with the context */
			bare_twin_changed(one, false, NULL);
		}
	}
	pthread_mutex_unlock(&lock);
}
