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
 * Locks: one thread at a time looks, makes and unloads (`maker`); others do not wait for it, and
 * launch what there is. `lock` is around what an original has; it is held for no call of the driver
 * and of the daemon. A context may end meanwhile, which needs `lock` alone.
 */

#include "twin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arm.h"
#include "handles.h"
#include "idle.h"
#include "image.h"
#include "mirror.h"
#include "capture.h"
#include "twin-hold.h"
#include "shim/base/cancel.h"
#include "shim/base/deadline.h"
#include "shim/base/gate.h"
#include "shim/interest/interest-lock.h"

#define TWIN_COPIES_MAX ((size_t)256 << 20) /* bytes of images that programs do not preserve */
#define LIBRARY_BINARY_IS_PRESERVED 1 /* CUlibraryOption */
#define GATE_WAIT_MS 5
#define IDLE_WAIT_MS 2
#define AWAITED_GATE_WAIT_MS 100 /* for twins that are awaited, */
#define AWAITED_IDLE_WAIT_MS 1000 /* where loading the original may wait as long */
#define REPORT_WAIT_MS 1
#define TRIES_SHORT 12 /* then a context, or a gate, is waited for longer that was never free: */
#define IDLE_WAIT_LONG_MS 20
#define SYNC_RETRY_MS 20
#define RETRY_FIRST_MS 1 /* then twice as long each time */
#define RETRY_LAST_MS 1000
#define TWIN_UNSEEN UINT64_MAX /* no page has it */
#define PLACES_MAX 16 /* contexts with twins of a library */

struct original {
	struct original *next; /* never taken off; written before others see it */
	/* launches read these without a lock */
	driver_handle context; /* of a module or place; NULL: a library */
	bool asked; /* since attachments last changed */
	bool awaited; /* it was loaded under an attachment: its first launch waits for its twin */
	/* with the lock */
	driver_handle handle; /* NULL: it is unloaded, and this can be used again */
	enum load_kind kind;
	/* A library can be launched in any context, and its variables are elsewhere in each: so it
	 * has a place for each context, and twins belong to places. */
	struct original *library; /* of a place: that is in which context */
	driver_handle primary; /* if that is a green context: the primary one of the device */
	uint64_t context_id, born; /* driver_context_id() of it; arm_born() */
	struct image image;
	void *copy; /* owned: the image, if it was not preserved */
	struct load *twin; /* that is not unloaded, launched or not; arm.h and load.h know it */
	bool busy; /* the maker is about it */
	bool has_ready; /* `ready` is not NULL */
	uint64_t retry_at_ms, retry_ms;
	unsigned tries; /* in vain, since attachments changed */
	uint64_t tried_ms, syncs; /* the last one: when, and twin_syncs then */
	/* the maker's alone */
	struct load *ready; /* the next twin, for which the context was not idle yet */
};

/* A twin that executable graphs hold, in whose place there is another one, or none. */
struct kept {
	struct kept *next;
	struct original *original;
	struct load *twin;
	driver_handle context;
};

uint64_t twin_seen[2], twin_syncs;

static pthread_mutex_t maker = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct original *originals;
static size_t copied; /* bytes */
static struct kept *kept_twins;
static bool wanted; /* an attachment means this process: as of the last look */
static struct interest found; /* by it; the maker's alone */
static bool anew; /* the next look looks for pages, too */

static __thread bool inside; /* this thread has one of the locks: a signal handler goes away */

/* ---- originals ------------------------------------------------------------------------ */

bool twin_is_preserved(const int *options, void *const *values, unsigned count) {
	for (unsigned i = 0; options && values && i < count; i++)
		if (options[i] == LIBRARY_BINARY_IS_PRESERVED)
			return values[i] != NULL;
	return false;
}

static struct original *first(void) {
	return __atomic_load_n(&originals, __ATOMIC_ACQUIRE);
}

static driver_handle context_of_original(const struct original *one) {
	return __atomic_load_n(&one->context, __ATOMIC_RELAXED);
}

static bool is_asked(const struct original *one) {
	return __atomic_load_n(&one->asked, __ATOMIC_RELAXED);
}

static bool is_awaited(const struct original *one) {
	return __atomic_load_n(&one->awaited, __ATOMIC_RELAXED);
}

/*
 * Adds an original to the list, in an unused one's place if there is one; with the lock held. NULL:
 * no memory.
 */
static struct original *put(const struct original *made) {
	struct original *one = originals;

	while (one && (one->handle || one->busy || one->twin || one->has_ready))
		one = one->next;
	if (!one) {
		one = calloc(1, sizeof(*one));
		if (!one)
			return NULL;
		one->next = originals;
		__atomic_store_n(&originals, one, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&one->context, made->context, __ATOMIC_RELAXED);
	__atomic_store_n(&one->asked, false, __ATOMIC_RELAXED);
	__atomic_store_n(&one->awaited, made->awaited, __ATOMIC_RELAXED);
	one->handle = made->handle;
	one->kind = made->kind;
	one->library = made->library;
	one->primary = made->primary;
	one->context_id = made->context_id;
	one->born = made->born;
	one->image = made->image;
	one->copy = made->copy;
	one->retry_at_ms = one->retry_ms = one->tries = 0;
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

void twin_start(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if ((arm_work() & ARM_ENGINE) || !interest_allowed())
		return;
	pthread_once(&once, gate_start);
	__atomic_or_fetch(&arm_load_count, ARM_TWINS, __ATOMIC_RELEASE);
}

/* Enters what signal handlers and threads that are cancelled must not be in. */
static bool enter(int *cancel) {
	if (inside)
		return false;
	inside = true;
	*cancel = cancel_forbid();
	return true;
}

static void leave(int cancel) {
	inside = false;
	cancel_allow(cancel);
}

/*
 * May a module that is loaded now get a twin? *awaited: an attachment means this process. Looks
 * for a daemon, which may have come since.
 */
static bool may_be_asked_for(bool *awaited) {
	struct interest meant;

	if (!(arm_work() & ARM_TWINS) || !driver_own() || !load_is_owner())
		return false;
	*awaited = interest_is_meant(&meant);
	return *awaited || is_there_daemon();
}

/* If a stream is of a green context: the primary context of its device, else NULL. */
static driver_handle find_primary(driver_handle stream) {
	const struct driver *driver = driver_own();
	driver_handle primary = NULL, green = NULL;

	return driver->stream_get_contexts &&
			       driver->stream_get_contexts(stream, &primary, &green) == 0 && green
		       ? primary
		       : NULL;
}

static void add(enum load_kind kind, driver_handle handle, const struct image *image,
		bool preserved, bool awaited) {
	struct original *one = NULL, made = {
		.kind = kind, .handle = handle, .image = *image, .awaited = awaited
	};

	if (!preserved) {
		made.copy = copy_image(&made.image);
		made.image.data = made.copy;
	}
	if (kind == LOAD_MODULE && driver_own()->ctx_get_current(&made.context) == 0 &&
	    made.context) {
		made.context_id = driver_context_id(made.context);
		made.primary = find_primary(NULL);
	}
	made.born = arm_born();
	if (made.image.data) {
		pthread_mutex_lock(&lock);
		one = put(&made);
		if (!one && made.copy)
			copied -= made.image.size;
		pthread_mutex_unlock(&lock);
	}
	if (one)
		handles_original_added(one, handle, made.context, made.context_id, made.born);
	else
		free(made.copy);
}

void twin_loaded(enum load_kind kind, driver_handle handle, const void *code, bool preserved) {
	int saved = errno, cancel;
	struct image image;
	bool awaited;

	if (may_be_asked_for(&awaited) && image_recognise(&image, code, IMAGE_IN_MEMORY) &&
	    enter(&cancel)) {
		add(kind, handle, &image, preserved, awaited);
		leave(cancel);
	}
	errno = saved;
}

void twin_loaded_file(enum load_kind kind, driver_handle handle, const char *path) {
	int saved = errno, cancel;
	struct image image;
	size_t size;
	bool awaited;

	if (may_be_asked_for(&awaited) && enter(&cancel)) {
		if (image_file_begin(path, &image, &size)) {
			add(kind, handle, &image, false, awaited);
			image_file_end(&image, size);
		}
		leave(cancel);
	}
	errno = saved;
}

/* ---- idle ------------------------------------------------------------------------------ */

/*
 * Is the current context idle? The driver may wait for all of the device's primary context where a
 * green one is used.
 */
static bool is_idle(driver_handle primary, uint64_t until_ms) {
	const struct driver *driver = driver_own();
	driver_handle context = NULL;
	bool idle;

	if (driver->ctx_get_current(&context) != 0 || wait_idle(context, until_ms) != IDLE_YES)
		return false;
	if (!primary)
		return true;
	if (driver->ctx_set_current(primary) != 0)
		return false;
	idle = wait_idle(primary, until_ms) == IDLE_YES;
	return driver->ctx_set_current(context) == 0 && idle;
}

/* Closes the gate; where a twin is awaited, launches of other threads may take a while. */
static bool close_gate(bool awaited, unsigned tries) {
	const uint64_t wait_ms = tries < TRIES_SHORT ? GATE_WAIT_MS : IDLE_WAIT_LONG_MS,
		       until = deadline_now_ms() + (awaited ? AWAITED_GATE_WAIT_MS : wait_ms);
	bool closed;

	do {
		closed = gate_close(deadline_now_ms() + wait_ms);
	} while (!closed && deadline_now_ms() < until);
	return closed;
}

/*
 * Closes the gate when the current context, which is the original's, is idle. primary: see
 * is_idle(). False: it is not, or a stream is being captured, which asking would end. awaited: the
 * driver would wait for the context at the first launch of the original, too. tries: in vain so
 * far.
 */
static bool begin_idle(driver_handle primary, bool awaited, unsigned tries) {
	const uint64_t wait_ms = awaited                ? AWAITED_IDLE_WAIT_MS
				 : tries >= TRIES_SHORT ? IDLE_WAIT_LONG_MS
							: IDLE_WAIT_MS;

	if (!close_gate(awaited, tries))
		return false;
	if (!capture_is_going_on() && is_idle(primary, deadline_now_ms() + wait_ms))
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

/*
 * Unloads a twin that take_twin() gave, or keeps it if executable graphs hold it. The context is
 * idle, and launches do not pass the gate, so no graph gets it meanwhile.
 */
static void put_away(struct original *one, struct load *twin) {
	struct kept *kept;

	if (!twin_is_held(twin->born)) {
		unload(twin);
		return;
	}
	kept = malloc(sizeof(*kept));
	if (!kept) /* it stays loaded for good */
		return;
	pthread_mutex_lock(&lock);
	*kept = (struct kept){ kept_twins, one, twin, one->context };
	kept_twins = kept;
	pthread_mutex_unlock(&lock);
}

/* Takes a twin off the list that was kept: of an original (NULL: that no graph holds), or NULL. */
static struct load *take_kept(const struct original *one, driver_handle context) {
	struct load *twin = NULL;

	pthread_mutex_lock(&lock);
	for (struct kept **link = &kept_twins; *link && !twin;) {
		struct kept *kept = *link;

		if (one ? kept->original != one
			: kept->context != context || twin_is_held(kept->twin->born)) {
			link = &kept->next;
			continue;
		}
		*link = kept->next;
		twin = kept->twin;
		free(kept);
	}
	pthread_mutex_unlock(&lock);
	return twin;
}

/* Unloads what graphs have let go, and frees the memory of maps that are gone. The context is
 * current and idle, and the gate closed. */
static void reap(driver_handle context) {
	struct load *twin;

	while ((twin = take_kept(NULL, context)) != NULL)
		unload(twin);
	mirror_drop_disarmed(context);
}

/* No launch finds the twin any more. It stays loaded. */
static void hide_twin(struct original *one) {
	pthread_mutex_lock(&lock);
	handles_twin_changed(one, NULL);
	pthread_mutex_unlock(&lock);
}

/* The twin, for unload(); no launch finds it any more. */
static struct load *take_twin(struct original *one) {
	struct load *twin;

	pthread_mutex_lock(&lock);
	handles_twin_changed(one, NULL);
	twin = one->twin;
	one->twin = NULL;
	pthread_mutex_unlock(&lock);
	return twin;
}

/* Launches find the twin from now on. False: the original has gone meanwhile. */
static bool show_twin(struct original *one, const struct original *as, struct load *twin) {
	bool same;

	pthread_mutex_lock(&lock);
	same = one->handle == as->handle && one->born == as->born;
	if (same) {
		one->twin = twin;
		handles_twin_changed(one, twin);
	}
	pthread_mutex_unlock(&lock);
	return same;
}

/*
 * Makes the driver load the functions of a module or library by now: with lazy loading it would do
 * so at their first launch, when the context need not be idle.
 */
static void load_functions(enum load_kind kind, driver_handle handle) {
	const struct driver *driver = driver_own();
	const bool library = kind == LOAD_LIBRARY;
	driver_result (*count_of)(unsigned *, driver_handle) =
		library ? driver->library_get_kernel_count : driver->module_get_function_count;
	driver_result (*list_of)(driver_handle *, unsigned, driver_handle) =
		library ? driver->library_enumerate_kernels : driver->module_enumerate_functions;
	driver_handle *handles = NULL, function;
	unsigned count = 0;

	if (driver->function_load && count_of && list_of && count_of(&count, handle) == 0)
		handles = calloc((size_t)count + 1, sizeof(*handles));
	if (handles && count && list_of(handles, count, handle) == 0)
		for (unsigned i = 0; i < count; i++) {
			function = handles[i];
			if (!library || (driver->kernel_get_function &&
					 driver->kernel_get_function(&function, handles[i]) == 0))
				driver->function_load(function);
		}
	free(handles);
}

/* Gives the driver the image. The context is idle. */
static driver_result give(enum load_kind kind, const struct load *load, driver_handle *handle) {
	const struct driver *driver = driver_own();
	driver_result result;

	result = kind == LOAD_LIBRARY ? driver->library_load_data(handle, load->image, NULL, NULL,
								  0, NULL, NULL, 0)
				      : driver->module_load_data(handle, load->image);
	if (!result)
		load_functions(kind, *handle);
	return result;
}

/*
 * What a twin is loaded as. Where modules are loaded eagerly, the driver would load a library into
 * all contexts, and wait for their kernels: in place of a library's kernel a function of a module
 * is launched then.
 */
static enum load_kind twin_kind(const struct original *as) {
	const struct driver *driver = driver_own();
	int mode = 0;

	return as->kind == LOAD_LIBRARY && driver->module_get_loading_mode &&
			       driver->module_get_loading_mode(&mode) == 0 &&
			       mode == DRIVER_LOADING_LAZY
		       ? LOAD_LIBRARY
		       : LOAD_MODULE;
}

static bool can_load(enum load_kind kind) {
	const struct driver *driver = driver_own();

	return kind == LOAD_LIBRARY ? driver->library_load_data && driver->library_unload
				    : driver->module_load_data && driver->module_unload;
}

/* The image is there: loads it in place of an earlier twin. False: not now. */
static bool replace_twin(struct original *one, const struct original *as, struct load *load) {
	const enum load_kind kind = twin_kind(as);
	driver_handle handle = NULL;
	driver_result result;
	struct load *before;
	const char *missing;

	if (!begin_idle(as->primary, as->awaited, as->tries))
		return false;
	before = take_twin(one);
	if (before)
		put_away(one, before);
	reap(as->context);
	if (!twin_image_fill(load, as->kind, as->handle, &missing)) {
		gate_open();
		load_twin_refused(load, missing);
		return true;
	}
	result = give(kind, load, &handle);
	gate_open();
	if (result) {
		load_refused(load, result);
		return true;
	}
	load_commit(load, kind, handle);
	if (!show_twin(one, as, load))
		unload(load);
	return true;
}

/* With the lock held. After a try in vain the next one comes later, or soon after the program has
 * waited for kernels. */
static bool is_time(const struct original *one) {
	const uint64_t now = deadline_now_ms();

	return now >= one->retry_at_ms ||
	       (one->syncs != __atomic_load_n(&twin_syncs, __ATOMIC_RELAXED) &&
		now >= one->tried_ms + SYNC_RETRY_MS);
}

/* The maker begins to work on an original, of which it gets a copy; false: it is not due. */
static bool begin(struct original *one, struct original *as) {
	bool due;

	pthread_mutex_lock(&lock);
	due = one->handle && !is_asked(one) && is_time(one);
	one->busy = due;
	*as = *one;
	pthread_mutex_unlock(&lock);
	return due;
}

static void end(struct original *one, bool done) {
	pthread_mutex_lock(&lock);
	one->busy = false;
	__atomic_store_n(&one->asked, done, __ATOMIC_RELAXED);
	__atomic_store_n(&one->awaited, false, __ATOMIC_RELAXED);
	one->has_ready = one->ready != NULL;
	if (done) {
		one->retry_ms = one->retry_at_ms = 0;
	} else {
		one->retry_ms = one->retry_ms ? 2 * one->retry_ms : RETRY_FIRST_MS;
		if (one->retry_ms > RETRY_LAST_MS)
			one->retry_ms = RETRY_LAST_MS;
		one->tried_ms = deadline_now_ms();
		one->retry_at_ms = one->tried_ms + one->retry_ms;
		one->syncs = __atomic_load_n(&twin_syncs, __ATOMIC_RELAXED);
		one->tries++;
	}
	pthread_mutex_unlock(&lock);
}

/* There is to be no twin. One that cannot be unloaded now is kept, but not launched: false. In the
 * original's context. */
static bool drop(struct original *one) {
	struct load *twin;

	hide_twin(one);
	if (!one->twin)
		return true;
	if (!begin_idle(one->primary, false, 0))
		return false;
	twin = take_twin(one);
	if (twin)
		put_away(one, twin);
	reap(one->context);
	gate_open();
	return true;
}

/* Has a twin what was asked for? */
static bool is_same(const struct load *twin, const struct load *load) {
	return twin && twin->epoch == load->epoch &&
	       twin->attachment_count == load->attachment_count &&
	       !memcmp(twin->attachments, load->attachments,
		       load->attachment_count * sizeof(*load->attachments));
}

/* Launches find the twin that there is, if they did not. */
static void keep_twin(struct original *one, const struct original *as) {
	pthread_mutex_lock(&lock);
	if (one->twin == as->twin && one->handle == as->handle && one->born == as->born)
		handles_twin_changed(one, one->twin);
	pthread_mutex_unlock(&lock);
}

/* Does what the daemon says now. False: not yet. */
static bool obey(struct original *one, const struct original *as) {
	enum load_answer answer = LOAD_ANSWER_OWN;
	struct load *load = one->ready;

	one->ready = NULL;
	if (!load && can_load(twin_kind(as)))
		load = load_twin(&found, &as->image, as->awaited, &answer);
	if (load && is_same(as->twin, load)) {
		load_unused(load);
		keep_twin(one, as);
		return true;
	}
	if (load) {
		if (replace_twin(one, as, load))
			return true;
		one->ready = load;
		return false;
	}
	if (answer == LOAD_ANSWER_OWN)
		drop(one);
	else if (answer == LOAD_ANSWER_REMOVE)
		hide_twin(one); /* it goes when the next one is there */
	return answer == LOAD_ANSWER_OWN;
}

/* Makes a context current (NULL: leaves the one that is); before, mode: for leave_context(). */
static bool enter_context(driver_handle context, driver_handle *before, int *mode) {
	const struct driver *driver = driver_own();

	*mode = DRIVER_CAPTURE_MODE_RELAXED;
	if (driver->ctx_get_current(before) != 0)
		return false;
	driver->exchange_capture_mode(mode);
	if (!context || context == *before || driver->ctx_set_current(context) == 0)
		return true;
	driver->exchange_capture_mode(mode);
	return false;
}

static void leave_context(driver_handle context, driver_handle before, int mode) {
	if (context && context != before)
		driver_own()->ctx_set_current(before);
	driver_own()->exchange_capture_mode(&mode);
}

static void make(struct original *one) {
	driver_handle before = NULL;
	struct original as;
	bool done = false;
	int mode;

	if (capture_is_going_on() || !begin(one, &as))
		return;
	if (enter_context(as.context, &before, &mode)) {
		done = obey(one, &as);
		leave_context(as.context, before, mode);
	}
	end(one, done);
}

/* What was asked for before attachments changed. */
static void drop_ready(struct original *one) {
	if (!one->ready)
		return;
	load_unused(one->ready);
	one->ready = NULL;
	pthread_mutex_lock(&lock);
	one->has_ready = false;
	pthread_mutex_unlock(&lock);
}

/*
 * No twin is launched any more. Those of this context are unloaded; others are not, as their
 * context may be ending. Where the context is not idle it is waited for once, not for each of them.
 * gone: only twins of libraries whose context has ended, which did not go with it.
 */
static void drop_all(bool gone) {
	driver_handle context = NULL;
	bool idle = driver_own()->ctx_get_current(&context) == 0;
	int mode = DRIVER_CAPTURE_MODE_RELAXED;

	driver_own()->exchange_capture_mode(&mode);
	for (struct original *one = first(); one; one = one->next) {
		bool ended, has_twin;

		pthread_mutex_lock(&lock);
		ended = !one->handle;
		has_twin = one->twin != NULL;
		pthread_mutex_unlock(&lock);
		if (ended)
			drop_ready(one);
		if (!has_twin || (gone && !ended))
			continue;
		if (idle && (ended || context_of_original(one) == context))
			idle = drop(one);
		else
			hide_twin(one);
	}
	driver_own()->exchange_capture_mode(&mode);
}

/* ---- places ----------------------------------------------------------------------------- */

/* With the lock held: the place of a library in a context, or NULL; *count: of all its places. */
static struct original *find_place(const struct original *library, driver_handle context,
				   unsigned *count) {
	struct original *place = NULL;

	*count = 0;
	for (struct original *one = originals; one; one = one->next) {
		if (!one->handle || one->library != library)
			continue;
		++*count;
		if (one->context == context)
			place = one;
	}
	return place;
}

/* The place of a library in a context; it is made if there is none. NULL: there is no room. *id:
 * of the context. */
static struct original *get_library_place(struct original *library, driver_handle context,
					  driver_handle stream, uint64_t *id) {
	struct original *one, as;
	unsigned count;

	*id = driver_context_id(context);
	pthread_mutex_lock(&lock);
	one = find_place(library, context, &count);
	pthread_mutex_unlock(&lock);
	if (one || count >= PLACES_MAX)
		return one;
	drop_all(true);
	pthread_mutex_lock(&lock);
	as = *library;
	pthread_mutex_unlock(&lock);
	as.library = library;
	as.copy = NULL; /* it is the library's */
	as.context = context;
	as.context_id = *id;
	as.primary = find_primary(stream);
	as.born = arm_born();
	pthread_mutex_lock(&lock);
	one = put(&as);
	pthread_mutex_unlock(&lock);
	if (one)
		handles_original_added(one, NULL, context, *id, as.born);
	return one;
}

/* The context of a launch, asked once; NULL: it is not known. */
static driver_handle context_of(struct twin_shape *shape) {
	const struct driver *driver = driver_own();
	driver_result result;

	if (shape->context || !driver)
		return shape->context;
	if ((uintptr_t)shape->stream > DRIVER_STREAM_SPECIAL_MAX && driver->stream_get_context)
		result = driver->stream_get_context(shape->stream, &shape->context);
	else
		result = driver->ctx_get_current(&shape->context);
	if (result)
		shape->context = NULL;
	return shape->context;
}

/* The original of the kernel in the context of the launch, or its library, which has no place there
 * yet; NULL: there is none. Any thread, no lock. */
static struct original *find_original(struct twin_shape *shape) {
	struct original *one = handles_original(shape->function, NULL);

	return one && !context_of_original(one)
		       ? handles_original(shape->function, context_of(shape))
		       : one;
}

/* The same with a place, which is made if need be. The maker's. */
static struct original *get_original(struct twin_shape *shape) {
	struct original *one = find_original(shape), *place;
	uint64_t id;

	if (!one || context_of_original(one))
		return one;
	place = get_library_place(one, shape->context, shape->stream, &id);
	if (place && handles_place_add(shape->function, place, shape->context, id))
		return place;
	pthread_mutex_lock(&lock);
	__atomic_store_n(&one->asked, true, __ATOMIC_RELAXED); /* not at every launch */
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- launches --------------------------------------------------------------------------- */

/* The page has changed. */
static void look(void) {
	uint64_t now[2];
	bool yes, foreign, before = wanted;
	struct interest now_found;

	interest_read_generations(now);
	if (!interest_lock())
		return;
	yes = interest_find(&now_found, !__atomic_exchange_n(&anew, false, __ATOMIC_RELAXED)) &&
	      now_found.deadline_ms;
	foreign = !yes && interest_is_foreign();
	interest_unlock();
	if (foreign) { /* what there is counts on: who upgrades the daemon has not said otherwise */
		for (unsigned i = 0; i < 2; i++)
			__atomic_store_n(&twin_seen[i], now[i], __ATOMIC_RELEASE);
		return;
	}
	if (yes)
		found = now_found;
	__atomic_store_n(&wanted, yes, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	for (struct original *one = originals; one; one = one->next) {
		__atomic_store_n(&one->asked, false, __ATOMIC_RELAXED);
		one->retry_ms = one->retry_at_ms = one->tries = 0;
	}
	pthread_mutex_unlock(&lock);
	for (struct original *one = first(); one; one = one->next)
		drop_ready(one);
	if (before && !yes)
		drop_all(false);
	__atomic_add_fetch(&handles_twin_version, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 2; i++)
		__atomic_store_n(&twin_seen[i], now[i], __ATOMIC_RELEASE);
}

/* Is there something to be done before such a launch? */
static bool is_due(struct twin_shape *shape) {
	const struct original *one;

	if (twin_needed())
		return true;
	if (!__atomic_load_n(&wanted, __ATOMIC_RELAXED) || capture_is_going_on())
		return false;
	one = find_original(shape);
	return one && (!is_asked(one) || handles_twin_is_open(shape->function, shape->context));
}

/* Does a launch wait for its twin, and so for another thread that makes it? */
static bool waits(struct twin_shape *shape) {
	const struct original *one = shape ? find_original(shape) : NULL;

	return one && is_awaited(one);
}

/* The maker's lock. waits: how long it is waited for is bounded by what its owner may wait for. */
static bool lock_maker(bool waiting) {
	return waiting ? deadline_lock(&maker, deadline_now_ms() + 2 * load_deadline_ms() +
						       AWAITED_IDLE_WAIT_MS)
		       : pthread_mutex_trylock(&maker) == 0;
}

/* shape: NULL: looks only whether attachments have changed. */
static void prepare(struct twin_shape *shape) {
	struct original *one;

	if (twin_needed())
		look();
	if (!shape)
		return;
	one = wanted && !capture_is_going_on() && context_of(shape) ? get_original(shape) : NULL;
	if (one && !is_asked(one))
		make(one);
	if (one && handles_twin_is_open(shape->function, shape->context)) {
		gate_enter();
		handles_twin_resolve(shape->function, shape->context);
		gate_leave();
	}
}

void twin_prepare(struct twin_shape *shape) {
	int saved = errno, cancel;

	if ((shape ? is_due(shape) : twin_needed()) && !gate_is_inside() && driver_own() &&
	    load_is_owner() && enter(&cancel)) {
		if (lock_maker(waits(shape))) {
			prepare(shape);
			pthread_mutex_unlock(&maker);
		}
		leave(cancel);
	}
	errno = saved;
}

/* What is launched so; *one: whose twin it is, if it is one. */
static driver_handle choose(struct twin_shape *shape, struct original **one,
			    struct launch_form *form) {
	const driver_handle function = shape->function;
	driver_handle twin;
	enum fit fit;

	if (shape->own || !handles_needed() || !context_of(shape))
		return function;
	twin = handles_twin(function, shape->context, one, form);
	if (twin == function || context_of_original(*one) != shape->context)
		return function;
	fit = fit_ask(shape, twin);
	if (fit == FIT_NO_REGISTERS || fit == FIT_NOT_AT_ONCE)
		handles_twin_refused(function, shape->context,
				     fit == FIT_NOT_AT_ONCE ? HANDLES_NOT_AT_ONCE
							    : HANDLES_NO_REGISTERS);
	return fit == FIT_YES ? twin : function;
}

driver_handle twin_choose(struct twin_shape *shape, struct launch_form *form) {
	struct original *one;

	return capture_is_going_on() ? shape->function : choose(shape, &one, form);
}

driver_handle twin_choose_for_node(struct twin_shape *shape, struct launch_form *form,
				   uint64_t *number) {
	struct original *one = NULL;
	driver_handle chosen = shape->function;
	int cancel;

	*number = TWIN_HOLD_NONE;
	if (!handles_needed() || !enter(&cancel))
		return chosen;
	chosen = choose(shape, &one, form); /* in the gate it is neither unloaded nor replaced */
	pthread_mutex_lock(&lock);
	if (one && one->twin)
		*number = one->twin->born;
	else
		chosen = shape->function;
	pthread_mutex_unlock(&lock);
	leave(cancel);
	return chosen;
}

struct launch_form twin_form(struct original *original, const char *kernel) {
	struct launch_form form = {};

	pthread_mutex_lock(&lock);
	if (original->twin)
		form = twin_image_form(original->twin, kernel);
	pthread_mutex_unlock(&lock);
	return form;
}

void twin_look_again(void) {
	__atomic_store_n(&anew, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		__atomic_store_n(&twin_seen[i], TWIN_UNSEEN, __ATOMIC_RELEASE);
}

bool twin_is_wanted(void) {
	return __atomic_load_n(&wanted, __ATOMIC_RELAXED);
}

bool twin_is_awaited(struct twin_shape *shape) {
	return is_due(shape);
}

/* The context of a twin that a graph has let go, or NULL; one that is current first. */
static const struct original *find_free(driver_handle context) {
	const struct original *one = NULL;

	pthread_mutex_lock(&lock);
	for (const struct kept *kept = kept_twins; kept && !one; kept = kept->next)
		if (kept->context == context && !twin_is_held(kept->twin->born))
			one = kept->original;
	pthread_mutex_unlock(&lock);
	return one;
}

void twin_released(void) {
	int saved = errno, cancel, mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle context = NULL;
	const struct original *one;

	if (gate_is_inside() || !enter(&cancel))
		return;
	if (pthread_mutex_trylock(&maker) == 0) {
		driver_own()->exchange_capture_mode(&mode);
		one = driver_own()->ctx_get_current(&context) == 0 ? find_free(context) : NULL;
		if (one && begin_idle(one->primary, false, 0)) {
			reap(context);
			gate_open();
		}
		driver_own()->exchange_capture_mode(&mode);
		pthread_mutex_unlock(&maker);
	}
	leave(cancel);
	errno = saved;
}

bool twin_report(const char *reason) {
	int saved = errno, cancel;
	bool sent = false;

	if (!enter(&cancel))
		return false;
	if (pthread_mutex_trylock(&maker) == 0) {
		if (wanted && load_lock_twice(deadline_now_ms() + REPORT_WAIT_MS,
					      deadline_now_ms() + found.deadline_ms)) {
			sent = load_report_to(&found, reason);
			load_unlock();
		}
		pthread_mutex_unlock(&maker);
	}
	leave(cancel);
	errno = saved;
	return sent;
}

/* ---- ends ------------------------------------------------------------------------------- */

/* With the lock held: the original is gone. Its twin is the caller's to unload, or stays for
 * drop_all(). */
static void forget(struct original *one) {
	if (one->copy)
		copied -= one->image.size;
	free(one->copy);
	one->copy = NULL;
	one->handle = NULL;
	one->library = NULL;
}

static struct original *find(enum load_kind kind, driver_handle handle) {
	struct original *one;

	pthread_mutex_lock(&lock);
	one = originals;
	while (one && (one->handle != handle || one->kind != kind || one->library))
		one = one->next;
	pthread_mutex_unlock(&lock);
	return one;
}

/* With the maker's lock. Waits for kernels, as the application's own call does. */
static void end_original(struct original *one) {
	driver_handle at = one->context, context, before = NULL;
	struct load *twin;
	int mode;

	drop_ready(one);
	handles_original_removed(one);
	pthread_mutex_lock(&lock);
	twin = one->twin;
	one->twin = NULL;
	forget(one);
	pthread_mutex_unlock(&lock);
	for (; twin || (twin = take_kept(one, NULL)) != NULL; twin = NULL) {
		twin_hold_forget(twin->born);
		context = twin->kind == LOAD_LIBRARY ? NULL : at; /* it may be ending */
		if (enter_context(context, &before, &mode)) {
			unload(twin);
			leave_context(context, before, mode);
		}
	}
}

static bool is_place_of(const struct original *place, const struct original *library) {
	bool is;

	pthread_mutex_lock(&lock);
	is = place->library == library;
	pthread_mutex_unlock(&lock);
	return is;
}

void twin_unloading(enum load_kind kind, driver_handle handle) {
	int saved = errno, cancel;
	struct original *one;

	if (!(arm_work() & ARM_TWINS) || !enter(&cancel))
		return;
	pthread_mutex_lock(&maker); /* a thread that makes twins reads the image */
	one = find(kind, handle);
	if (one) {
		for (struct original *place = first(); place; place = place->next)
			if (is_place_of(place, one))
				end_original(place);
		end_original(one);
	}
	pthread_mutex_unlock(&maker);
	leave(cancel);
	errno = saved;
}

/* With the lock held: twins that were kept in a context have gone with it. */
static void forget_kept(driver_handle context, uint64_t now, uint64_t until) {
	for (struct kept **link = &kept_twins; *link;) {
		struct kept *kept = *link;

		if (kept->twin->kind != LOAD_MODULE || kept->context != context ||
		    arm_outlives(kept->twin->context_id, kept->twin->born, now, until)) {
			link = &kept->next;
			continue;
		}
		*link = kept->next;
		twin_hold_forget(kept->twin->born);
		free(kept);
	}
}

void twin_context_ended(driver_handle context, uint64_t now, uint64_t until) {
	if (!(arm_work() & ARM_TWINS))
		return;
	capture_forget(context, now, until);
	pthread_mutex_lock(&lock);
	for (struct original *one = originals; one; one = one->next) {
		if (!one->handle || context_of_original(one) != context ||
		    arm_outlives(one->context_id, one->born, now, until))
			continue;
		handles_original_removed(one);
		forget(one);
		if (one->twin)
			twin_hold_forget(one->twin->born);
		if (one->twin && one->twin->kind == LOAD_MODULE)
			one->twin = NULL; /* gone, too */
	}
	forget_kept(context, now, until);
	pthread_mutex_unlock(&lock);
}
