/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Remembers handles of probed kernels and finds their bare kernels when a module is retired
 * (bare.h).
 *
 * Handles that the driver gives out for kernels of replaced modules are remembered with where they
 * came from, and what the application changes about them. Nothing else happens until the module is
 * retired. Then the first launch of a handle asks the driver for the bare kernel in the same way
 * that the application came to its own, repeats the changes on it, and from then on a launch finds
 * it in a table. If any of that fails, the probed kernel is launched, as before; its probes have no
 * maps.
 *
 * Without that, the bare kernel is launched where the probed one cannot be: with blocks of so many
 * threads that there are not registers enough for it, and enough for the bare one.
 *
 * The table is read without a lock: entries are added to chains and never taken off. One whose
 * handle is gone is used again in its chain. While the driver is called no lock is held: it may
 * call tools, and they us.
 */

#include "bare.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arm.h"
#include "bare-ask.h"
#include "shim/base/cancel.h"
#include "shim/base/deadline.h"
#include "fit.h"
#include "load.h"
#include "twin.h"

#define BUCKETS 1024
#define LOCK_WAIT_MS 100 /* in a forked child somebody else may have held it */
#define EARLY_MAX 16
#define ROUNDS_MAX 8
#define FOLLOWERS_MAX 32 /* a kernel's twins: one a context */
#define TRIES_MAX 20 /* a millisecond each, while another thread asks the driver */

/* One kernel of a module, under all its handles. */
struct kernel {
	struct kernel *next;
	char *name; /* with the suffix */
	struct bare_change *changes;
	unsigned change_count;
	unsigned version; /* of the changes */
	bool failed; /* there is no bare one */
	bool busy; /* somebody asks the driver */
	bool gone; /* meanwhile: he frees it */
};

/* A replaced module. */
struct module {
	struct module *next;
	const struct load *load; /* its address only; NULL: an original */
	struct original *original; /* NULL: a replaced module */
	const struct module *library; /* of a place (bare_place_add()): which is in that context */
	driver_handle context;
	uint64_t context_id;
	driver_handle twin; /* of an original, if it has one: its kernels are launched */
	bool twin_is_library;
	uint64_t module_id, epoch; /* of an original: those of the twin */
	bool retired; /* the other form of each kernel is launched: bare ones, or those of a twin */
	struct kernel *kernels;
};

struct entry {
	struct entry *next; /* of the bucket; stays */
	driver_handle handle; /* NULL: not in use */
	driver_handle place; /* NULL, or in which context: bare_place_add() */
	bool container;
	driver_handle target; /* what is launched; NULL: to be asked for */
	driver_handle bare; /* the same if it has to be the bare one */
	unsigned threads; /* that a block of it can have; 0: to be asked for */
	unsigned bare_threads; /* of the bare one */
	unsigned launched_bare; /* because the probed one could not be, or the twin not */
	int unsaid; /* that has to be reported: enum bare_why */
	struct original *original; /* its module's; NULL: it is of a replaced module */
	struct launch_form form; /* of `target`, if that is a twin's: written before it */
	/* what follows is only for who holds the lock */
	struct bare_origin origin;
	struct module *module;
	struct kernel *kernel; /* NULL: a container */
};

unsigned bare_retired_count;
bool bare_unsaid;
uint64_t bare_twin_version, bare_gone_version;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around all but reading the table */
static struct entry *buckets[BUCKETS];
static struct module *modules;
/* RETIREs that came before the driver had taken the module */
static struct {
	uint64_t module_id, epoch;
} early[EARLY_MAX];
static unsigned early_next;

static __thread bool inside; /* this thread holds the lock: a signal handler goes away */

static bool enter(void) {
	if (inside)
		return false;
	inside = true;
	if (deadline_lock(&lock, deadline_now_ms() + LOCK_WAIT_MS))
		return true;
	inside = false;
	return false;
}

/* For what must not be missed: handles that end. Nobody comes here in a forked child. */
static bool enter_surely(void) {
	if (inside)
		return false;
	inside = true;
	pthread_mutex_lock(&lock);
	return true;
}

static void leave(void) {
	pthread_mutex_unlock(&lock);
	inside = false;
}

/* ---- the table -------------------------------------------------------------------------- */

static struct entry **bucket_of(driver_handle handle) {
	return &buckets[(uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static bool is_entry(const struct entry *entry, driver_handle handle, bool container,
		     driver_handle place) {
	return __atomic_load_n(&entry->handle, __ATOMIC_ACQUIRE) == handle &&
	       __atomic_load_n(&entry->container, __ATOMIC_RELAXED) == container &&
	       __atomic_load_n(&entry->place, __ATOMIC_RELAXED) == place;
}

static struct entry *find_in(driver_handle handle, bool container, driver_handle place) {
	struct entry *entry = __atomic_load_n(bucket_of(handle), __ATOMIC_ACQUIRE);

	while (entry && !is_entry(entry, handle, container, place))
		entry = entry->next;
	return handle ? entry : NULL;
}

static struct entry *find(driver_handle handle, bool container) {
	return find_in(handle, container, NULL);
}

/* Of a function or kernel in a context: where it has an entry for that context, that one. */
static struct entry *find_at(driver_handle handle, driver_handle context) {
	struct entry *entry = find_in(handle, false, context);

	return entry || !context ? entry : find(handle, false);
}

static void set_target(struct entry *entry, driver_handle target) {
	__atomic_store_n(&entry->target, target, __ATOMIC_RELEASE);
}

static void set_bare(struct entry *entry, driver_handle bare) {
	__atomic_store_n(&entry->bare, bare, __ATOMIC_RELEASE);
}

/* What a launch of this handle is to find before it has asked the driver. */
static void reset(struct entry *entry, driver_handle handle) {
	driver_handle bare = entry->kernel && !entry->kernel->failed ? NULL : handle;

	set_bare(entry, bare);
	set_target(entry, entry->module->retired ? bare : handle);
}

/* What the other form of a kernel has behind its name. */
static const char *suffix_of(const struct module *module) {
	return module->original ? "" : BARE_SUFFIX;
}

static void forget(struct entry *entry) {
	__atomic_store_n(&entry->handle, NULL, __ATOMIC_RELEASE);
	entry->module = NULL;
	entry->kernel = NULL;
	__atomic_store_n(&entry->original, NULL, __ATOMIC_RELAXED);
}

/* An entry of the handle's chain that is not in use. */
static struct entry *get_free(driver_handle handle) {
	struct entry **bucket = bucket_of(handle), *entry = *bucket;

	while (entry && entry->handle)
		entry = entry->next;
	if (entry)
		return entry;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->next = *bucket;
	__atomic_store_n(bucket, entry, __ATOMIC_RELEASE);
	return entry;
}

static void add(driver_handle handle, struct bare_origin origin, struct module *module,
		struct kernel *kernel, driver_handle place) {
	bool container = origin.kind == BARE_CONTAINER;
	struct entry *entry = find_in(handle, container, place);

	if (entry && entry->module == module && entry->kernel == kernel) {
		entry->origin = origin; /* its context may be another one with the same handle */
		return;
	}
	if (entry) /* a handle that is used again: its first module went without our notice */
		forget(entry);
	entry = get_free(handle);
	if (!entry)
		return;
	__atomic_store_n(&entry->container, container, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->place, place, __ATOMIC_RELAXED);
	entry->origin = origin;
	entry->module = module;
	entry->kernel = kernel;
	__atomic_store_n(&entry->original, module->original, __ATOMIC_RELAXED);
	reset(entry, handle);
	__atomic_store_n(&entry->threads, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->launched_bare, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->handle, handle, __ATOMIC_RELEASE);
}

/* All entries, those that are not in use, too. */
#define FOR_EACH_ENTRY(entry)                                    \
	for (unsigned bucket_ = 0; bucket_ < BUCKETS; bucket_++) \
		for (struct entry *entry = buckets[bucket_]; entry; entry = entry->next)

/* ---- kernels and modules ---------------------------------------------------------------- */

/*
 * The module's kernel of that name (length counts, without the suffix); it is made if there is
 * none.
 */
static struct kernel *get_kernel(struct module *module, const char *name, size_t length) {
	const char *suffix = suffix_of(module);
	struct kernel *kernel;

	for (kernel = module->kernels; kernel; kernel = kernel->next)
		if (!strncmp(kernel->name, name, length) && !strcmp(kernel->name + length, suffix))
			return kernel;
	kernel = calloc(1, sizeof(*kernel));
	if (kernel)
		kernel->name = malloc(length + strlen(suffix) + 1);
	if (!kernel || !kernel->name) {
		free(kernel);
		return NULL;
	}
	memcpy(kernel->name, name, length);
	strcpy(kernel->name + length, suffix);
	kernel->next = module->kernels;
	module->kernels = kernel;
	return kernel;
}

static void free_kernel(struct kernel *kernel) {
	free(kernel->name);
	free(kernel->changes);
	free(kernel);
}

void bare_load_added(const struct load *load) {
	struct module *module = calloc(1, sizeof(*module));

	if (!module || !enter()) {
		free(module);
		return;
	}
	*module = (struct module){
		.next = modules, .load = load, .module_id = load->module_id, .epoch = load->epoch
	};
	for (unsigned i = 0; i < EARLY_MAX; i++)
		module->retired |=
			early[i].module_id == load->module_id && early[i].epoch == load->epoch;
	if (module->retired)
		__atomic_add_fetch(&bare_retired_count, 1, __ATOMIC_RELAXED);
	modules = module;
	add(load->handle,
	    (struct bare_origin){ BARE_CONTAINER, NULL, load->context, load->context_id,
				  load->born },
	    module, NULL, NULL);
	leave();
}

static void free_module(struct module *module) {
	__atomic_add_fetch(&bare_gone_version, 1, __ATOMIC_RELEASE);
	FOR_EACH_ENTRY(entry)
	if (entry->module == module)
		forget(entry);
	while (module->kernels) {
		struct kernel *kernel = module->kernels;

		module->kernels = kernel->next;
		if (kernel->busy)
			kernel->gone = true;
		else
			free_kernel(kernel);
	}
	if (module->retired)
		__atomic_sub_fetch(&bare_retired_count, 1, __ATOMIC_RELAXED);
	free(module);
}

/* One of them is NULL, as in the module. */
static void remove_module(const struct load *load, const struct original *original) {
	if (!enter_surely())
		return;
	for (struct module **link = &modules; *link; link = &(*link)->next) {
		struct module *module = *link;

		if (module->load != load || module->original != original)
			continue;
		*link = module->next;
		free_module(module);
		break;
	}
	leave();
}

void bare_load_removed(const struct load *load) {
	remove_module(load, NULL);
}

void bare_original_added(struct original *original, driver_handle container, driver_handle context,
			 uint64_t context_id, uint64_t born) {
	struct module *module = calloc(1, sizeof(*module));

	if (!module || !enter()) {
		free(module);
		return;
	}
	*module = (struct module){ .next = modules, .original = original };
	modules = module;
	if (container)
		add(container,
		    (struct bare_origin){ BARE_CONTAINER, NULL, context, context_id, born }, module,
		    NULL, NULL);
	leave();
}

void bare_original_removed(struct original *original) {
	remove_module(NULL, original);
}

struct original *bare_original(driver_handle handle, driver_handle context) {
	const struct entry *entry = find_at(handle, context);

	return entry ? __atomic_load_n(&entry->original, __ATOMIC_RELAXED) : NULL;
}

static struct module *module_of(const struct original *original) {
	struct module *module = modules;

	while (module && module->original != original)
		module = module->next;
	return module;
}

static struct bare_origin origin_in(struct bare_origin origin, driver_handle context,
				    uint64_t context_id) {
	origin.context = context;
	origin.context_id = context_id;
	origin.born = arm_born();
	return origin;
}

/* A function of another context has nothing to do with a twin in this one. */
static bool is_meant(const struct bare_origin *origin, driver_handle context) {
	return origin->kind == BARE_KERNEL || origin->context == context;
}

/* What the application has changed about a kernel, for its twin in a context. */
static bool copy_changes_to(struct kernel *to, const struct kernel *from, driver_handle context,
			    uint64_t context_id) {
	if (to->changes || !from->change_count)
		return true;
	to->changes = calloc(from->change_count, sizeof(*to->changes));
	if (!to->changes)
		return false;
	for (unsigned i = 0; i < from->change_count; i++) {
		struct bare_change change = from->changes[i];

		if (!is_meant(&change.origin, context))
			continue;
		change.origin = origin_in(change.origin, context, context_id);
		to->changes[to->change_count++] = change;
	}
	return true;
}

bool bare_place_add(driver_handle handle, struct original *original, driver_handle context,
		    uint64_t context_id) {
	const struct entry *entry;
	struct kernel *kernel = NULL;
	struct module *module;

	if (!enter())
		return false;
	entry = find(handle, false);
	module = module_of(original);
	if (module && entry && entry->kernel && is_meant(&entry->origin, context)) {
		module->library = entry->module;
		module->context = context;
		module->context_id = context_id;
		kernel = get_kernel(module, entry->kernel->name, strlen(entry->kernel->name));
	}
	if (kernel && copy_changes_to(kernel, entry->kernel, context, context_id))
		add(handle, origin_in(entry->origin, context, context_id), module, kernel, context);
	kernel = find_in(handle, false, context) ? kernel : NULL;
	leave();
	return kernel;
}

void bare_twin_changed(struct original *original, const struct load *twin) {
	struct module *module;

	fit_forget(); /* handles of kernels may be used again */
	if (!enter_surely())
		return;
	module = module_of(original);
	if (module) {
		if (module->twin != (twin ? twin->handle : NULL))
			__atomic_add_fetch(&bare_twin_version, 1, __ATOMIC_RELEASE);
		module->twin = twin ? twin->handle : NULL;
		module->twin_is_library = twin && twin->kind == LOAD_LIBRARY;
		module->module_id = twin ? twin->module_id : 0;
		module->epoch = twin ? twin->epoch : 0;
		if (module->retired != (twin != NULL))
			__atomic_add_fetch(&bare_retired_count, twin ? 1 : -1, __ATOMIC_RELAXED);
		module->retired = twin != NULL;
		for (struct kernel *kernel = module->kernels; kernel; kernel = kernel->next) {
			kernel->failed = false;
			kernel->version++;
		}
		FOR_EACH_ENTRY(entry)
		if (entry->module == module) {
			reset(entry, entry->handle);
			__atomic_store_n(&entry->launched_bare, 0, __ATOMIC_RELAXED);
		}
	}
	leave();
}

/* Went what was come by so with a context that has ended? */
static bool is_gone(const struct bare_origin *origin, driver_handle context, uint64_t now,
		    uint64_t until) {
	return origin->context == context &&
	       !arm_outlives(origin->context_id, origin->born, now, until);
}

void bare_context_ended(driver_handle context, uint64_t now, uint64_t until) {
	if (!context || !enter_surely())
		return;
	__atomic_add_fetch(&bare_gone_version, 1, __ATOMIC_RELEASE);
	FOR_EACH_ENTRY(entry)
	if (entry->handle && is_gone(&entry->origin, context, now, until))
		forget(entry);
	for (struct module *module = modules; module; module = module->next) {
		for (struct kernel *kernel = module->kernels; kernel; kernel = kernel->next) {
			unsigned kept = 0;

			for (unsigned i = 0; i < kernel->change_count; i++)
				if (!is_gone(&kernel->changes[i].origin, context, now, until))
					kernel->changes[kept++] = kernel->changes[i];
			kernel->change_count = kept;
		}
	}
	leave();
}

/* With the lock held. */
static void retire(struct module *module) {
	if (module->retired)
		return;
	module->retired = true;
	FOR_EACH_ENTRY(entry)
	if (entry->module == module)
		reset(entry, entry->handle);
	__atomic_add_fetch(&bare_retired_count, 1, __ATOMIC_RELAXED);
}

void bare_retire(uint64_t module_id, uint64_t epoch) {
	struct module *module;

	if (!enter())
		return;
	for (module = modules; module; module = module->next)
		if (!module->original && module->module_id == module_id && module->epoch == epoch)
			break;
	if (!module) {
		early[early_next].module_id = module_id;
		early[early_next].epoch = epoch;
		early_next = (early_next + 1) % EARLY_MAX;
	} else {
		retire(module);
	}
	leave();
}

void bare_retire_others(uint64_t epoch) {
	if (!enter())
		return;
	for (struct module *module = modules; module; module = module->next)
		if (!module->original && module->epoch != epoch)
			retire(module);
	leave();
}

bool bare_is_awaited(uint64_t epoch) {
	bool awaited = false;

	if (!enter())
		return true;
	for (const struct module *module = modules; module; module = module->next)
		awaited |= !module->original && module->epoch == epoch && !module->retired;
	leave();
	return awaited;
}

/* ---- what the driver gave out, and what is changed about it ------------------------------- */

bool bare_is_container(driver_handle handle) {
	const struct entry *entry = find(handle, true);

	return entry && !__atomic_load_n(&entry->original, __ATOMIC_RELAXED);
}

bool bare_is_original(driver_handle container) {
	const struct entry *entry = find(container, true);

	return entry && __atomic_load_n(&entry->original, __ATOMIC_RELAXED);
}

static void got(driver_handle from, driver_handle handle, const char *name, enum bare_kind kind) {
	struct bare_origin origin = { .kind = kind, .from = from };
	const struct entry *container;
	struct kernel *kernel = NULL;

	if (!find(from, true) || !driver_own())
		return;
	if (kind != BARE_KERNEL)
		bare_note_context(&origin);
	if (!enter())
		return;
	container = find(from, true);
	if (container && name)
		kernel = get_kernel(container->module, name, strlen(name));
	if (container && (kernel || !name))
		add(handle, origin, container->module, kernel, NULL);
	leave();
}

void bare_got_function(driver_handle module, driver_handle function, const char *name) {
	got(module, function, name, BARE_FUNCTION);
}

void bare_got_kernel(driver_handle library, driver_handle kernel, const char *name) {
	got(library, kernel, name, BARE_KERNEL);
}

void bare_got_module(driver_handle library, driver_handle module) {
	got(library, module, NULL, BARE_CONTAINER);
}

void bare_got_function_of(driver_handle kernel, driver_handle function) {
	struct bare_origin origin = { .kind = BARE_KERNEL_FUNCTION };
	const struct entry *entry;

	if (!find(kernel, false) || !driver_own())
		return;
	bare_note_context(&origin);
	if (!enter())
		return;
	entry = find(kernel, false);
	if (entry && entry->origin.kind == BARE_KERNEL) {
		origin.from = entry->origin.from;
		add(function, origin, entry->module, entry->kernel, NULL);
	}
	leave();
}

/* Notes a change in place of an earlier one of the same thing. True: the bare kernel needs it. */
static bool note(struct kernel *kernel, const struct bare_change *change) {
	struct bare_change *larger;

	for (unsigned i = 0; i < kernel->change_count; i++) {
		struct bare_change *old = &kernel->changes[i];

		if (old->setting != change->setting || old->handle != change->handle ||
		    old->attribute != change->attribute || old->device != change->device)
			continue;
		if (old->value == change->value)
			return false;
		old->value = change->value;
		return true;
	}
	larger = reallocarray(kernel->changes, kernel->change_count + 1, sizeof(*larger));
	if (!larger) {
		kernel->failed = true;
		return true;
	}
	kernel->changes = larger;
	larger[kernel->change_count++] = *change;
	return true;
}

/* Where the other form of what came from there is: in the same module, or in the twin's. */
static struct bare_origin other_origin(const struct module *module, struct bare_origin origin) {
	if (!module->original)
		return origin;
	origin.from = module->twin;
	if (!module->twin_is_library)
		origin.kind = BARE_FUNCTION;
	else if (origin.kind == BARE_FUNCTION)
		origin.kind = BARE_KERNEL_FUNCTION;
	return origin;
}

/* The change for that: of a function, where it was made about a kernel. */
static struct bare_change other_change(const struct module *module, struct bare_change change) {
	change.origin = other_origin(module, change.origin);
	if (module->original && !module->twin_is_library) {
		if (change.setting == BARE_KERNEL_ATTRIBUTE)
			change.setting = BARE_FUNCTION_ATTRIBUTE;
		if (change.setting == BARE_KERNEL_CACHE)
			change.setting = BARE_FUNCTION_CACHE;
	}
	return change;
}

/* A kernel's other form that is launched already gets a change at once. */
struct follower {
	struct entry *entry;
	driver_handle target;
	struct bare_change change;
};

/* With the lock held: all handles of a kernel are asked for anew. */
static void reset_kernel(const struct kernel *kernel) {
	FOR_EACH_ENTRY(entry)
	if (entry->kernel == kernel)
		reset(entry, entry->handle);
}

/* With the lock held. A library's kernel is known in a context by another handle than this one. */
static void note_elsewhere(const struct entry *changed, struct bare_change change) {
	for (struct module *module = modules; module; module = module->next) {
		struct kernel *kernel = module->kernels;

		if (module->library != changed->module ||
		    !is_meant(&changed->origin, module->context) ||
		    find_in(changed->handle, false, module->context))
			continue;
		while (kernel && strcmp(kernel->name, changed->kernel->name) != 0)
			kernel = kernel->next;
		change.origin = origin_in(changed->origin, module->context, module->context_id);
		if (!kernel || !note(kernel, &change))
			continue;
		kernel->version++;
		reset_kernel(kernel);
	}
}

/* With the lock held. False: it is nothing new. */
static bool note_change(struct entry *changed, struct bare_change change,
			struct follower followers[FOLLOWERS_MAX], unsigned *count) {
	struct kernel *kernel = changed->kernel;
	driver_handle target = changed->target;

	change.origin = changed->origin;
	if (!note(kernel, &change))
		return false;
	kernel->version++;
	if (!kernel->failed && changed->module->original && target && target != changed->handle &&
	    *count < FOLLOWERS_MAX) {
		followers[(*count)++] =
			(struct follower){ changed, target, other_change(changed->module, change) };
		return true;
	}
	reset_kernel(kernel);
	if (!changed->place)
		note_elsewhere(changed, change);
	return true;
}

/* What did not take the change is asked for anew, and not launched till then. */
static void follow(const struct follower *follower) {
	const driver_handle handle = follower->change.handle;

	if (bare_change(&follower->change, follower->target) || !enter_surely())
		return;
	if (follower->entry->handle == handle && follower->entry->kernel)
		reset(follower->entry, handle);
	leave();
}

void bare_changed(enum bare_setting setting, driver_handle handle, int attribute, int value,
		  int device) {
	const struct bare_change change = { setting, handle, { 0 }, attribute, value, device };
	struct follower followers[FOLLOWERS_MAX];
	unsigned count = 0;
	bool news = false;

	if (!find(handle, false) || !enter())
		return;
	for (struct entry *entry = *bucket_of(handle); entry; entry = entry->next)
		if (entry->handle == handle && entry->kernel)
			news |= note_change(entry, change, followers, &count);
	leave();
	for (unsigned i = 0; i < count; i++)
		follow(&followers[i]);
	if (news)
		fit_forget();
}

/* ---- the bare kernel ---------------------------------------------------------------------- */

/* What is asked of the driver for one handle, while its kernel is marked as busy. */
struct question {
	struct entry *entry;
	driver_handle handle;
	struct bare_origin origin; /* of the other form */
	enum bare_kind kind; /* of the handle */
	struct kernel *kernel;
	struct bare_change *changes; /* a copy */
	unsigned change_count, version;
	struct original *twin; /* the other form is that of this original's twin; or NULL */
	struct launch_form form; /* how it takes the block of a launch */
};

/* With the lock held. */
static bool copy_changes(struct question *question) {
	const struct kernel *kernel = question->kernel;

	free(question->changes);
	question->change_count = kernel->change_count;
	question->version = kernel->version;
	question->changes =
		reallocarray(NULL, kernel->change_count + 1, sizeof(struct bare_change));
	for (unsigned i = 0; question->changes && i < kernel->change_count; i++)
		question->changes[i] = other_change(question->entry->module, kernel->changes[i]);
	return question->changes;
}

static bool begin(struct question *question, struct entry *entry, driver_handle handle) {
	struct kernel *kernel;
	bool good = false;

	*question = (struct question){ .entry = entry, .handle = handle };
	if (!driver_own() || !enter())
		return false;
	kernel = entry->kernel;
	if (entry->handle == handle && kernel && !kernel->busy && !kernel->failed) {
		question->origin = other_origin(entry->module, entry->origin);
		question->kind = entry->origin.kind;
		question->twin = entry->module->original;
		question->kernel = kernel;
		good = copy_changes(question);
		kernel->busy = good;
	}
	leave();
	return good;
}

/* The bare form of the handle, with all changes made; NULL if that fails. */
static driver_handle answer(const struct question *question) {
	const char *name = question->kernel->name;
	driver_handle bare = bare_ask(&question->origin, name);

	if (bare && question->twin &&
	    !bare_like(&question->origin, bare, question->kind, question->handle))
		bare = NULL;
	for (unsigned i = 0; i < question->change_count && bare; i++)
		if (!bare_repeat(&question->changes[i], name))
			bare = NULL;
	return bare;
}

/* Publishes the answer, or takes it back. False: something was changed meanwhile, ask again. */
static bool finish(struct question *question, driver_handle *bare, unsigned rounds) {
	struct kernel *kernel = question->kernel;
	bool again;

	enter_surely();
	again = *bare && !kernel->gone && kernel->version != question->version;
	if (again && rounds < ROUNDS_MAX && copy_changes(question)) {
		leave();
		return false;
	}
	kernel->busy = false;
	if (kernel->gone) {
		free_kernel(kernel);
	} else if (!*bare) {
		kernel->failed = true;
		reset_kernel(kernel);
	} else if (!again && question->entry->handle == question->handle &&
		   question->entry->kernel == kernel) {
		if (question->twin)
			__atomic_store(&question->entry->form, &question->form, __ATOMIC_RELAXED);
		set_bare(question->entry, *bare);
		if (question->entry->module->retired)
			set_target(question->entry, *bare);
	}
	if (again)
		*bare = NULL;
	leave();
	free(question->changes);
	return true;
}

/* The slow path of a launch. */
static __attribute__((noinline)) driver_handle resolve(struct entry *entry, driver_handle handle) {
	int saved = errno, mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle bare = NULL;
	struct question question;

	if (begin(&question, entry, handle)) {
		unsigned rounds = 0;

		driver_own()->exchange_capture_mode(&mode);
		do {
			bare = answer(&question);
			question.form = bare && question.twin
						? twin_form(question.twin, question.kernel->name)
						: (struct launch_form){};
		} while (!finish(&question, &bare, rounds++));
		driver_own()->exchange_capture_mode(&mode);
	}
	errno = saved;
	return bare ? bare : handle;
}

/* Of a replaced module; NULL: it is of none. */
static struct entry *find_replaced(driver_handle handle) {
	struct entry *entry = find(handle, false);

	return entry && !__atomic_load_n(&entry->original, __ATOMIC_RELAXED) ? entry : NULL;
}

driver_handle bare_function(driver_handle handle) {
	struct entry *entry = find_replaced(handle);
	driver_handle target;

	if (!entry)
		return handle;
	target = __atomic_load_n(&entry->target, __ATOMIC_ACQUIRE);
	return target ? target : resolve(entry, handle);
}

bool bare_twin_is_open(driver_handle handle, driver_handle context) {
	const struct entry *entry = bare_needed() ? find_at(handle, context) : NULL;

	return entry && __atomic_load_n(&entry->original, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&entry->target, __ATOMIC_ACQUIRE);
}

bool bare_is_kernel(driver_handle handle) {
	const struct entry *entry;
	bool kernel = false;

	if (!enter())
		return false;
	entry = find(handle, false);
	if (entry)
		kernel = entry->origin.kind == BARE_KERNEL;
	leave();
	return kernel;
}

void bare_twin_resolve(driver_handle handle, driver_handle context) {
	struct entry *entry = find_at(handle, context);

	if (entry && !__atomic_load_n(&entry->target, __ATOMIC_ACQUIRE))
		resolve(entry, handle);
}

driver_handle bare_twin(driver_handle handle, driver_handle context, struct original **original,
			struct launch_form *form) {
	const struct entry *entry = find_at(handle, context);
	driver_handle target;

	*original = entry ? __atomic_load_n(&entry->original, __ATOMIC_RELAXED) : NULL;
	if (!*original)
		return handle;
	target = __atomic_load_n(&entry->target, __ATOMIC_ACQUIRE);
	__atomic_load(&entry->form, form, __ATOMIC_RELAXED);
	return target ? target : handle;
}

/* ---- what the probed kernel has not registers enough for ----------------------------------- */

/* The bare form of a handle, or itself: waits a moment for a thread that is asking for it. */
static driver_handle get_bare(struct entry *entry, driver_handle handle) {
	const struct timespec moment = { .tv_nsec = 1000000 };
	driver_handle bare;
	int saved = errno, cancel = cancel_forbid();

	for (unsigned tries = 0;; tries++) {
		bare = __atomic_load_n(&entry->bare, __ATOMIC_ACQUIRE);
		if (!bare)
			bare = resolve(entry, handle);
		if (bare != handle || tries == TRIES_MAX ||
		    __atomic_load_n(&entry->bare, __ATOMIC_ACQUIRE) == handle)
			break;
		nanosleep(&moment, NULL);
	}
	cancel_allow(cancel);
	errno = saved;
	return bare;
}

/*
 * Asks the driver how many threads a block of the kernel and of its bare form can have. Without a
 * bare one, and where the driver does not say: as many as there may be. Returns entry->threads.
 */
static __attribute__((noinline)) unsigned ask_threads(struct entry *entry, driver_handle handle) {
	int saved = errno, mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle bare = get_bare(entry, handle);
	unsigned threads = UINT_MAX, bare_threads = 0;
	struct bare_origin origin = { 0 };
	bool known = false;

	if (enter()) {
		known = entry->handle == handle && entry->bare;
		if (known)
			origin = entry->origin;
		leave();
	}
	if (!known)
		return threads;
	if (bare != handle) {
		driver_own()->exchange_capture_mode(&mode);
		bare_threads = bare_ask_threads(&origin, bare);
		threads = bare_threads ? bare_ask_threads(&origin, handle) : 0;
		driver_own()->exchange_capture_mode(&mode);
	}
	if (!threads || threads >= bare_threads)
		threads = UINT_MAX;
	if (enter()) {
		if (entry->handle == handle) {
			__atomic_store_n(&entry->bare_threads, bare_threads, __ATOMIC_RELAXED);
			__atomic_store_n(&entry->threads, threads, __ATOMIC_RELEASE);
		}
		leave();
	}
	errno = saved;
	return threads;
}

/* What load_report_bare() is told. */
struct unsaid {
	uint64_t module_id, epoch;
	char name[WIRE_REPORT_NAME_MAX + 1];
	enum bare_why why;
	unsigned count;
};

/* With the lock held. */
static void describe(struct unsaid *unsaid, const struct entry *entry, enum bare_why why) {
	const char *name = entry->kernel->name;
	size_t length = strlen(name) - strlen(suffix_of(entry->module));

	*unsaid = (struct unsaid){
		.module_id = entry->module->module_id,
		.epoch = entry->module->epoch,
		.why = why,
		.count = __atomic_load_n(&entry->launched_bare, __ATOMIC_RELAXED),
	};
	memcpy(unsaid->name, name,
	       length < sizeof(unsaid->name) ? length : sizeof(unsaid->name) - 1);
}

static void say(const struct unsaid *unsaid) {
	if (unsaid->module_id)
		load_report_bare(unsaid->module_id, unsaid->epoch, unsaid->name, unsaid->why,
				 unsaid->count);
}

/* Counts a launch of the bare form. Is it one to be reported? */
static bool counts(struct entry *entry) {
	unsigned count = __atomic_add_fetch(&entry->launched_bare, 1, __ATOMIC_RELAXED);

	return count == 1 || count == 100 || count == 10000 || count == 1000000;
}

void bare_launched(driver_handle handle) {
	struct entry *entry = find(handle, false);
	struct unsaid unsaid = { 0 };
	int saved = errno;

	if (!entry || !counts(entry))
		return;
	if (enter()) {
		if (entry->handle == handle && entry->kernel)
			describe(&unsaid, entry, BARE_NO_REGISTERS);
		leave();
	}
	say(&unsaid);
	errno = saved;
}

void bare_twin_refused(driver_handle handle, driver_handle context, enum bare_why why) {
	struct entry *entry = find_at(handle, context);

	if (!entry || !counts(entry))
		return;
	__atomic_store_n(&entry->unsaid, why, __ATOMIC_RELAXED);
	__atomic_store_n(&bare_unsaid, true, __ATOMIC_RELEASE);
}

static bool find_unsaid(struct unsaid *unsaid) {
	bool found = false;

	if (!enter())
		return false;
	FOR_EACH_ENTRY(entry) {
		int why = found ? 0 : __atomic_exchange_n(&entry->unsaid, 0, __ATOMIC_RELAXED);

		if (why && entry->handle && entry->kernel) {
			describe(unsaid, entry, (enum bare_why)why);
			found = true;
		}
	}
	leave();
	return found;
}

void bare_say(void) {
	struct unsaid unsaid;
	int saved = errno;

	__atomic_store_n(&bare_unsaid, false, __ATOMIC_SEQ_CST);
	while (find_unsaid(&unsaid))
		say(&unsaid);
	errno = saved;
}

driver_handle bare_for_block(driver_handle handle, uint64_t threads) {
	struct entry *entry = find_replaced(handle);
	driver_handle bare;
	unsigned most;

	if (!entry)
		return handle;
	most = __atomic_load_n(&entry->threads, __ATOMIC_ACQUIRE);
	if (!most)
		most = ask_threads(entry, handle);
	if (threads <= most || threads > __atomic_load_n(&entry->bare_threads, __ATOMIC_RELAXED))
		return handle;
	bare = get_bare(entry, handle);
	if (bare != handle)
		bare_launched(handle);
	return bare;
}

static driver_handle get_own(driver_handle handle, driver_handle (*ask)(driver_handle)) {
	int mode = DRIVER_CAPTURE_MODE_RELAXED;
	driver_handle own = NULL;

	if (!handle || !driver_own() || !enter())
		return handle;
	FOR_EACH_ENTRY(entry)
	if (entry->handle && entry->handle != handle && entry->bare == handle)
		own = entry->handle;
	leave();
	if (!own) { /* it may have another one in each context */
		driver_own()->exchange_capture_mode(&mode);
		own = ask(handle);
		driver_own()->exchange_capture_mode(&mode);
	}
	return own ? own : handle;
}

driver_handle bare_own_function(driver_handle function) {
	return get_own(function, bare_ask_own_function);
}

driver_handle bare_own_kernel(driver_handle kernel) {
	return get_own(kernel, bare_ask_own_kernel);
}

driver_handle bare_instead(driver_handle handle, driver_result result) {
	struct entry *entry;
	driver_handle bare;

	if (result != DRIVER_ERROR_OUT_OF_RESOURCES &&
	    result != DRIVER_ERROR_COOPERATIVE_TOO_LARGE && result != DRIVER_ERROR_CLUSTER_SIZE)
		return NULL;
	entry = find_replaced(handle);
	bare = entry ? get_bare(entry, handle) : handle;
	return bare != handle ? bare : NULL;
}
