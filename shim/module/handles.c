/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Remembers handles of kernels, and finds those of their twins (handles.h).
 *
 * Handles that the driver gives out for kernels of modules that may get a twin are remembered with
 * where they came from, and what the application changes about them. Once there is a twin, the
 * first launch of a handle asks the driver for the twin's kernel in the same way in which the
 * application came to its own, repeats the changes on it, and from then on a launch finds it in a
 * table. If any of that fails, the application's own kernel is launched, as before.
 *
 * The table is read without a lock: entries are added to chains and never taken off. One whose
 * handle is gone is used again in its chain. While the driver is called no lock is held: it may
 * call tools, and they us.
 */

#include "handles.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arm.h"
#include "handles-ask.h"
#include "shim/base/deadline.h"
#include "fit.h"
#include "load.h"
#include "twin.h"

#define BUCKETS 1024
#define LOCK_WAIT_MS 100 /* in a forked child somebody else may have held it */
#define ROUNDS_MAX 8
#define FOLLOWERS_MAX 32 /* a kernel's twins: one a context */

/* One kernel of a module, under all its handles. */
struct kernel {
	struct kernel *next;
	char *name;
	struct handles_change *changes;
	unsigned change_count;
	unsigned version; /* of the changes */
	bool failed; /* its twin is not launched */
	bool busy; /* somebody asks the driver */
	bool gone; /* meanwhile: he frees it */
};

/* A module or library, or (a place) a library in a context. */
struct module {
	struct module *next;
	struct original *original;
	const struct module
		*library; /* of a place (handles_place_add()): which is in that context */
	driver_handle context;
	uint64_t context_id;
	driver_handle twin; /* NULL: it has none */
	bool twin_is_library;
	uint64_t module_id, epoch; /* of the twin */
	struct kernel *kernels;
};

struct entry {
	struct entry *next; /* of the bucket; stays */
	driver_handle handle; /* NULL: not in use */
	driver_handle place; /* NULL, or in which context: handles_place_add() */
	bool container;
	driver_handle target; /* what is launched; NULL: to be asked for */
	unsigned launched_own; /* because the twin could not be */
	int unsaid; /* that has to be reported: enum handles_why */
	struct original *original; /* its module's */
	struct launch_form form; /* of `target`, if that is a twin's: written before it */
	/* what follows is only for who holds the lock */
	struct handles_origin origin;
	struct module *module;
	struct kernel *kernel; /* NULL: a container */
};

unsigned handles_twin_count;
bool handles_unsaid;
uint64_t handles_twin_version, handles_gone_version;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around all but reading the table */
static struct entry *buckets[BUCKETS];
static struct module *modules;
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

/* What a launch of this handle is to find before it has asked the driver. */
static void reset(struct entry *entry, driver_handle handle) {
	const bool ask = entry->module->twin && entry->kernel && !entry->kernel->failed;

	set_target(entry, ask ? NULL : handle);
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

static void add(driver_handle handle, struct handles_origin origin, struct module *module,
		struct kernel *kernel, driver_handle place) {
	bool container = origin.kind == HANDLES_CONTAINER;
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
	__atomic_store_n(&entry->launched_own, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->handle, handle, __ATOMIC_RELEASE);
}

/* All entries, those that are not in use, too. */
#define FOR_EACH_ENTRY(entry)                                    \
	for (unsigned bucket_ = 0; bucket_ < BUCKETS; bucket_++) \
		for (struct entry *entry = buckets[bucket_]; entry; entry = entry->next)

/* ---- kernels and modules ---------------------------------------------------------------- */

/* The module's kernel of that name; it is made if there is none. */
static struct kernel *get_kernel(struct module *module, const char *name) {
	struct kernel *kernel;

	for (kernel = module->kernels; kernel; kernel = kernel->next)
		if (!strcmp(kernel->name, name))
			return kernel;
	kernel = calloc(1, sizeof(*kernel));
	if (kernel)
		kernel->name = strdup(name);
	if (!kernel || !kernel->name) {
		free(kernel);
		return NULL;
	}
	kernel->next = module->kernels;
	module->kernels = kernel;
	return kernel;
}

static void free_kernel(struct kernel *kernel) {
	free(kernel->name);
	free(kernel->changes);
	free(kernel);
}

static void free_module(struct module *module) {
	__atomic_add_fetch(&handles_gone_version, 1, __ATOMIC_RELEASE);
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
	if (module->twin)
		__atomic_sub_fetch(&handles_twin_count, 1, __ATOMIC_RELAXED);
	free(module);
}

void handles_original_added(struct original *original, driver_handle container,
			    driver_handle context, uint64_t context_id, uint64_t born) {
	struct module *module = calloc(1, sizeof(*module));

	if (!module || !enter()) {
		free(module);
		return;
	}
	*module = (struct module){ .next = modules, .original = original };
	modules = module;
	if (container)
		add(container,
		    (struct handles_origin){ HANDLES_CONTAINER, NULL, context, context_id, born },
		    module, NULL, NULL);
	leave();
}

void handles_original_removed(struct original *original) {
	if (!enter_surely())
		return;
	for (struct module **link = &modules; *link; link = &(*link)->next) {
		struct module *module = *link;

		if (module->original != original)
			continue;
		*link = module->next;
		free_module(module);
		break;
	}
	leave();
}

struct original *handles_original(driver_handle handle, driver_handle context) {
	const struct entry *entry = find_at(handle, context);

	return entry ? __atomic_load_n(&entry->original, __ATOMIC_RELAXED) : NULL;
}

static struct module *module_of(const struct original *original) {
	struct module *module = modules;

	while (module && module->original != original)
		module = module->next;
	return module;
}

static struct handles_origin origin_in(struct handles_origin origin, driver_handle context,
				       uint64_t context_id) {
	origin.context = context;
	origin.context_id = context_id;
	origin.born = arm_born();
	return origin;
}

/* A function of another context has nothing to do with a twin in this one. */
static bool is_meant(const struct handles_origin *origin, driver_handle context) {
	return origin->kind == HANDLES_KERNEL || origin->context == context;
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
		struct handles_change change = from->changes[i];

		if (!is_meant(&change.origin, context))
			continue;
		change.origin = origin_in(change.origin, context, context_id);
		to->changes[to->change_count++] = change;
	}
	return true;
}

bool handles_place_add(driver_handle handle, struct original *original, driver_handle context,
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
		kernel = get_kernel(module, entry->kernel->name);
	}
	if (kernel && copy_changes_to(kernel, entry->kernel, context, context_id))
		add(handle, origin_in(entry->origin, context, context_id), module, kernel, context);
	kernel = find_in(handle, false, context) ? kernel : NULL;
	leave();
	return kernel;
}

void handles_twin_changed(struct original *original, const struct load *twin) {
	struct module *module;

	fit_forget(); /* handles of kernels may be used again */
	if (!enter_surely())
		return;
	module = module_of(original);
	if (module && !(twin && module->twin == twin->handle &&
			module->module_id == twin->module_id && module->epoch == twin->epoch)) {
		if (module->twin != (twin ? twin->handle : NULL))
			__atomic_add_fetch(&handles_twin_version, 1, __ATOMIC_RELEASE);
		if (!module->twin != !twin)
			__atomic_add_fetch(&handles_twin_count, twin ? 1 : -1, __ATOMIC_RELAXED);
		module->twin = twin ? twin->handle : NULL;
		module->twin_is_library = twin && twin->kind == LOAD_LIBRARY;
		module->module_id = twin ? twin->module_id : 0;
		module->epoch = twin ? twin->epoch : 0;
		for (struct kernel *kernel = module->kernels; kernel; kernel = kernel->next) {
			kernel->failed = false;
			kernel->version++;
		}
		FOR_EACH_ENTRY(entry)
		if (entry->module == module) {
			reset(entry, entry->handle);
			__atomic_store_n(&entry->launched_own, 0, __ATOMIC_RELAXED);
		}
	}
	leave();
}

/* Went what was come by so with a context that has ended? */
static bool is_gone(const struct handles_origin *origin, driver_handle context, uint64_t now,
		    uint64_t until) {
	return origin->context == context &&
	       !arm_outlives(origin->context_id, origin->born, now, until);
}

void handles_context_ended(driver_handle context, uint64_t now, uint64_t until) {
	if (!context || !enter_surely())
		return;
	__atomic_add_fetch(&handles_gone_version, 1, __ATOMIC_RELEASE);
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

/* ---- what the driver gave out, and what is changed about it ------------------------------- */

bool handles_is_original(driver_handle container) {
	return find(container, true);
}

static void got(driver_handle from, driver_handle handle, const char *name,
		enum handles_kind kind) {
	struct handles_origin origin = { .kind = kind, .from = from };
	const struct entry *container;
	struct kernel *kernel = NULL;

	if (!find(from, true) || !driver_own())
		return;
	if (kind != HANDLES_KERNEL)
		handles_note_context(&origin);
	if (!enter())
		return;
	container = find(from, true);
	if (container && name)
		kernel = get_kernel(container->module, name);
	if (container && (kernel || !name))
		add(handle, origin, container->module, kernel, NULL);
	leave();
}

void handles_got_function(driver_handle module, driver_handle function, const char *name) {
	got(module, function, name, HANDLES_FUNCTION);
}

void handles_got_kernel(driver_handle library, driver_handle kernel, const char *name) {
	got(library, kernel, name, HANDLES_KERNEL);
}

void handles_got_module(driver_handle library, driver_handle module) {
	got(library, module, NULL, HANDLES_CONTAINER);
}

void handles_got_function_of(driver_handle kernel, driver_handle function) {
	struct handles_origin origin = { .kind = HANDLES_KERNEL_FUNCTION };
	const struct entry *entry;

	if (!find(kernel, false) || !driver_own())
		return;
	handles_note_context(&origin);
	if (!enter())
		return;
	entry = find(kernel, false);
	if (entry && entry->origin.kind == HANDLES_KERNEL) {
		origin.from = entry->origin.from;
		add(function, origin, entry->module, entry->kernel, NULL);
	}
	leave();
}

void handles_listed(bool library, driver_handle container, driver_handle *list, unsigned limit) {
	const struct driver *driver = driver_own();
	driver_result (*count_of)(unsigned *, driver_handle);
	driver_result (*name_of)(const char **, driver_handle);
	unsigned count = 0;
	const char *name;

	if (!driver || !handles_is_original(container))
		return;
	count_of = library ? driver->library_get_kernel_count : driver->module_get_function_count;
	name_of = library ? driver->kernel_get_name : driver->function_get_name;
	if (!count_of || !name_of || count_of(&count, container) != 0)
		return;
	for (unsigned i = 0; i < count && i < limit; i++)
		if (name_of(&name, list[i]) == 0)
			(library ? handles_got_kernel : handles_got_function)(container, list[i],
									      name);
}

/* Notes a change in place of an earlier one of the same thing. True: the twin needs it. */
static bool note(struct kernel *kernel, const struct handles_change *change) {
	struct handles_change *larger;

	for (unsigned i = 0; i < kernel->change_count; i++) {
		struct handles_change *old = &kernel->changes[i];

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

/* Where the twin of what came from there is. */
static struct handles_origin other_origin(const struct module *module,
					  struct handles_origin origin) {
	origin.from = module->twin;
	if (!module->twin_is_library)
		origin.kind = HANDLES_FUNCTION;
	else if (origin.kind == HANDLES_FUNCTION)
		origin.kind = HANDLES_KERNEL_FUNCTION;
	return origin;
}

/* The change for that: of a function, where it was made about a kernel. */
static struct handles_change other_change(const struct module *module,
					  struct handles_change change) {
	change.origin = other_origin(module, change.origin);
	if (!module->twin_is_library) {
		if (change.setting == HANDLES_KERNEL_ATTRIBUTE)
			change.setting = HANDLES_FUNCTION_ATTRIBUTE;
		if (change.setting == HANDLES_KERNEL_CACHE)
			change.setting = HANDLES_FUNCTION_CACHE;
	}
	return change;
}

/* A kernel's twin that is launched already gets a change at once. */
struct follower {
	struct entry *entry;
	driver_handle target;
	struct handles_change change;
};

/* With the lock held: all handles of a kernel are asked for anew. */
static void reset_kernel(const struct kernel *kernel) {
	FOR_EACH_ENTRY(entry)
	if (entry->kernel == kernel)
		reset(entry, entry->handle);
}

/* With the lock held. A library's kernel is known in a context by another handle than this one. */
static void note_elsewhere(const struct entry *changed, struct handles_change change) {
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
static bool note_change(struct entry *changed, struct handles_change change,
			struct follower followers[FOLLOWERS_MAX], unsigned *count) {
	struct kernel *kernel = changed->kernel;
	driver_handle target = changed->target;

	change.origin = changed->origin;
	if (!note(kernel, &change))
		return false;
	kernel->version++;
	if (!kernel->failed && target && target != changed->handle && *count < FOLLOWERS_MAX) {
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

	if (handles_change(&follower->change, follower->target) || !enter_surely())
		return;
	if (follower->entry->handle == handle && follower->entry->kernel)
		reset(follower->entry, handle);
	leave();
}

void handles_changed(enum handles_setting setting, driver_handle handle, int attribute, int value,
		     int device) {
	const struct handles_change change = { setting, handle, { 0 }, attribute, value, device };
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

/* ---- the twin's kernel -------------------------------------------------------------------- */

/* What is asked of the driver for one handle, while its kernel is marked as busy. */
struct question {
	struct entry *entry;
	driver_handle handle;
	struct handles_origin origin; /* of the twin's */
	enum handles_kind kind; /* of the handle */
	struct kernel *kernel;
	struct handles_change *changes; /* a copy */
	unsigned change_count, version;
	struct original *original;
	struct launch_form form; /* how it takes the block of a launch */
};

/* With the lock held. */
static bool copy_changes(struct question *question) {
	const struct kernel *kernel = question->kernel;

	free(question->changes);
	question->change_count = kernel->change_count;
	question->version = kernel->version;
	question->changes =
		reallocarray(NULL, kernel->change_count + 1, sizeof(struct handles_change));
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
		question->original = entry->module->original;
		question->kernel = kernel;
		good = copy_changes(question);
		kernel->busy = good;
	}
	leave();
	return good;
}

/* The twin of the handle, with all changes made; NULL if that fails. */
static driver_handle answer(const struct question *question) {
	const char *name = question->kernel->name;
	driver_handle twin = handles_ask(&question->origin, name);

	if (twin && !handles_like(&question->origin, twin, question->kind, question->handle))
		twin = NULL;
	for (unsigned i = 0; i < question->change_count && twin; i++)
		if (!handles_repeat(&question->changes[i], name))
			twin = NULL;
	return twin;
}

/* Publishes the answer, or takes it back. False: something was changed meanwhile, ask again. */
static bool finish(struct question *question, driver_handle twin, unsigned rounds) {
	struct kernel *kernel = question->kernel;
	bool again;

	enter_surely();
	again = twin && !kernel->gone && kernel->version != question->version;
	if (again && rounds < ROUNDS_MAX && copy_changes(question)) {
		leave();
		return false;
	}
	kernel->busy = false;
	if (kernel->gone) {
		free_kernel(kernel);
	} else if (!twin) {
		kernel->failed = true;
		reset_kernel(kernel);
	} else if (!again && question->entry->handle == question->handle &&
		   question->entry->kernel == kernel) {
		__atomic_store(&question->entry->form, &question->form, __ATOMIC_RELAXED);
		set_target(question->entry, twin);
	}
	leave();
	free(question->changes);
	return true;
}

bool handles_twin_is_open(driver_handle handle, driver_handle context) {
	const struct entry *entry = handles_needed() ? find_at(handle, context) : NULL;

	return entry && !__atomic_load_n(&entry->target, __ATOMIC_ACQUIRE);
}

bool handles_is_kernel(driver_handle handle) {
	const struct entry *entry;
	bool kernel = false;

	if (!enter())
		return false;
	entry = find(handle, false);
	if (entry)
		kernel = entry->origin.kind == HANDLES_KERNEL;
	leave();
	return kernel;
}

void handles_twin_resolve(driver_handle handle, driver_handle context) {
	struct entry *entry = find_at(handle, context);
	int saved = errno, mode = DRIVER_CAPTURE_MODE_RELAXED;
	struct question question;
	driver_handle twin;
	unsigned rounds = 0;

	if (!entry || __atomic_load_n(&entry->target, __ATOMIC_ACQUIRE) ||
	    !begin(&question, entry, handle))
		return;
	driver_own()->exchange_capture_mode(&mode);
	do {
		twin = answer(&question);
		question.form = twin ? twin_form(question.original, question.kernel->name)
				     : (struct launch_form){};
	} while (!finish(&question, twin, rounds++));
	driver_own()->exchange_capture_mode(&mode);
	errno = saved;
}

driver_handle handles_twin(driver_handle handle, driver_handle context, struct original **original,
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

/* ---- kernels that are launched without their twins ---------------------------------------- */

/* What load_report_own() is told. */
struct unsaid {
	uint64_t module_id, epoch;
	char name[WIRE_REPORT_NAME_MAX + 1];
	enum handles_why why;
	unsigned count;
};

/* With the lock held. */
static void describe(struct unsaid *unsaid, const struct entry *entry, enum handles_why why) {
	*unsaid = (struct unsaid){
		.module_id = entry->module->module_id,
		.epoch = entry->module->epoch,
		.why = why,
		.count = __atomic_load_n(&entry->launched_own, __ATOMIC_RELAXED),
	};
	strncpy(unsaid->name, entry->kernel->name, sizeof(unsaid->name) - 1);
}

static void say(const struct unsaid *unsaid) {
	if (unsaid->module_id)
		load_report_own(unsaid->module_id, unsaid->epoch, unsaid->name, unsaid->why,
				unsaid->count);
}

/* Counts a launch of the own kernel. Is it one to be reported? */
static bool counts(struct entry *entry) {
	unsigned count = __atomic_add_fetch(&entry->launched_own, 1, __ATOMIC_RELAXED);

	return count == 1 || count == 100 || count == 10000 || count == 1000000;
}

void handles_twin_refused(driver_handle handle, driver_handle context, enum handles_why why) {
	struct entry *entry = find_at(handle, context);

	if (!entry || !counts(entry))
		return;
	__atomic_store_n(&entry->unsaid, why, __ATOMIC_RELAXED);
	__atomic_store_n(&handles_unsaid, true, __ATOMIC_RELEASE);
}

static bool find_unsaid(struct unsaid *unsaid) {
	bool found = false;

	if (!enter())
		return false;
	FOR_EACH_ENTRY(entry) {
		int why = found ? 0 : __atomic_exchange_n(&entry->unsaid, 0, __ATOMIC_RELAXED);

		if (why && entry->handle && entry->kernel) {
			describe(unsaid, entry, (enum handles_why)why);
			found = true;
		}
	}
	leave();
	return found;
}

void handles_say(void) {
	struct unsaid unsaid;
	int saved = errno;

	__atomic_store_n(&handles_unsaid, false, __ATOMIC_SEQ_CST);
	while (find_unsaid(&unsaid))
		say(&unsaid);
	errno = saved;
}
