/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Plans at one time are of one image: the set. Each has the slots of those attachments that mean
 * some kernel in its list, and the set has them all. Each module says which
 * kernels are meant (from its plan) and what it is patched with; apply() makes the second follow
 * from the first. Memory is made and written first; then modules are (un)patched, for which the
 * GPU must be idle and no launch on its way, because the engine waits for all kernels of the
 * context, and a kernel may wait for what the application has yet to launch. A module that is just
 * being loaded has no launches.
 */

#include "patch-apply.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arm.h"
#include "capture.h"
#include "deadline.h"
#include "gate.h"
#include "graph.h"
#include "instance.h"
#include "load.h"
#include "mirror.h"
#include "patch-data.h"
#include "patch-module.h"
#include "patch-plan.h"
#include "sass.h"

#define DISARMED_MAX 16 /* maps of a context that are gone, and kept till it is idle */
#define DISARMED_WAIT_MS 20
#define IDLE_WAIT_MS 1000
#define EVENT_WAIT_MS 100
#define PAUSE_NS 20000
#define PLANS_MAX 512 /* that are kept; the daemon takes more (process.h) */

#define SLOTS_MAX (PATCH_DATA_MAX / 8)

struct patch_slot {
	uint64_t map_id;
	uint32_t kind; /* enum wire_slot_kind; 0: there is none here */
	uint32_t reserved; /* 0: they are compared as bytes */
};

static struct patch_set {
	struct load *plans; /* linked by next; NULL: there is no set */
	unsigned count; /* of them */
	struct load *base; /* the one whose image the view is of */
	struct patch_view view;
	struct patch_slot slots[SLOTS_MAX]; /* by their place in struct patch_data */
	uint64_t serial; /* changes with image or slots; contexts remember it */
} set;

static uint64_t serials;
static const char *said_busy, *said_kept, *said_old, *said_lost, *said_long;
static bool meant_changed; /* kernels of modules that stay patched may get other data */

/* What one round of apply() is about. */
struct round {
	const struct sass_engine *engine;
	struct load *plan; /* the one that is spoken of to the daemon; NULL: none */
	driver_handle current; /* context */
	bool inside; /* the driver has called us */
	bool left; /* something is left for a launch */
	bool kept; /* modules stay patched for a graph */
};

bool patch_set_is_current(void)
{
	return set.plans && load_is_current(set.base);
}

struct load *patch_plans(void)
{
	return set.plans;
}

/* Is a plan of the set's image? */
static bool is_same_image(const struct patch_view *view)
{
	return patch_set_is_current() && set.view.image_id == view->image_id &&
	       set.view.data_size == view->data_size;
}

/* May it be one of the set: do its slots contradict none that there are? */
static bool is_of_set(const struct load *plan, const struct patch_view *view)
{
	if (!is_same_image(view))
		return false;
	for (uint32_t i = 0; i < plan->slot_count; i++) {
		const struct patch_slot *slot = &set.slots[plan->slots[i].offset / 8];

		if (slot->kind && (slot->kind != plan->slots[i].kind ||
				   slot->map_id != plan->slots[i].map_id))
			return false;
	}
	return true;
}

/* Adds the slots of a plan. Returns whether there are more now. */
static bool add_slots(struct patch_slot slots[static SLOTS_MAX], const struct load *plan)
{
	bool more = false;

	for (uint32_t i = 0; i < plan->slot_count; i++) {
		struct patch_slot *slot = &slots[plan->slots[i].offset / 8];

		more = more || !slot->kind;
		*slot = (struct patch_slot){ .map_id = plan->slots[i].map_id,
					     .kind = plan->slots[i].kind };
	}
	return more;
}

/* ---- kernels that are meant ----------------------------------------------------------- */

/* The module of a kernel; they come in rows. only: the one that was asked about, or NULL. */
static struct patch_module_entry *module_of(const struct patch_kernel *kernel,
					    struct patch_module_entry *before,
					    struct patch_module_entry *only)
{
	struct patch_module_entry *entry =
		before && before->number == kernel->module ? before
							   : patch_module_by_number(kernel->module);

	return entry && (!only || entry == only) && kernel->name < entry->names.count ? entry
											: NULL;
}

static bool are_known(const struct patch_view *view, struct patch_module_entry *only)
{
	struct patch_module_entry *entry = NULL;

	for (uint32_t i = 0; i < view->kernel_count; i++) {
		entry = module_of(&view->kernels[i], entry, only);
		if (!entry)
			return false;
	}
	return true;
}

static void forget_kernels(struct patch_module_entry *entry)
{
	free(entry->attachments);
	free(entry->kernel_ids);
	entry->attachments = entry->kernel_ids = NULL;
}

static void take_kernels(const struct patch_view *view)
{
	struct patch_module_entry *entry = NULL;

	for (uint32_t i = 0; i < view->kernel_count; i++) {
		const struct patch_kernel *kernel = &view->kernels[i];

		entry = module_of(kernel, entry, NULL);
		if (!entry->attachments) {
			entry->attachments = calloc(entry->names.count, sizeof(uint64_t));
			entry->kernel_ids = calloc(entry->names.count, sizeof(uint64_t));
			if (!entry->attachments || !entry->kernel_ids) {
				forget_kernels(entry); /* then it stays bare */
				continue;
			}
		}
		entry->attachments[kernel->name] = kernel->attachments;
		entry->kernel_ids[kernel->name] = kernel->kernel_id;
	}
}

/* ---- a context ------------------------------------------------------------------------ */

/* The address of the data of a slot's map; 0 if there is none, and then perhaps why. */
static const char *fill_slot(struct round *round, struct patch_context *context,
			     struct mirror_context *mirror, const struct patch_slot *slot,
			     driver_pointer *address)
{
	const struct instance_engine inside = { round->engine, context->handle };
	struct instance *instance;
	const char *reason;
	bool later = false;

	*address = 0;
	reason = arm_get_instance(mirror, slot->map_id, &instance);
	if (reason || instance->disarmed)
		return reason;
	if (slot->kind == WIRE_SLOT_REGION)
		return instance_prepare_region(instance, mirror->stream,
					       round->inside ? &inside : NULL, address);
	reason = round->inside ? instance_prepare_inside(instance, &inside, &later)
			       : instance_prepare(instance, mirror->stream);
	*address = reason ? 0 : instance->address;
	context->incomplete = context->incomplete || later;
	return reason;
}

/* Writes down which process it is, where the context has not got that from this daemon. */
static const char *fill_process(struct round *round, struct patch_context *context)
{
	struct gpuprobe_process process;
	const char *reason = NULL;

	if (context->process && context->process_epoch == set.base->epoch)
		return NULL;
	if (!context->process)
		reason = patch_context_alloc(context, round->engine, sizeof(process),
					     &context->process);
	load_process(context->device, &process);
	if (!reason)
		reason = round->engine->write(context->handle, context->process, &process,
					      sizeof(process));
	if (!reason)
		context->process_epoch = set.base->epoch;
	return reason;
}

static const char *fill_locked(struct round *round, struct patch_context *context)
{
	struct mirror_context *mirror = mirror_find_context(context->handle);
	const char *reason;

	if (!mirror)
		mirror = mirror_add_context(context->handle);
	if (!mirror || (!round->inside && !mirror_has_stream(mirror)))
		return "no memory for maps: the context takes none";
	context->device = mirror->device;
	context->incomplete = false;
	memset(context->data, 0, sizeof(context->data));
	reason = fill_process(round, context);
	if (reason)
		return reason;
	for (uint32_t i = 0; i < SLOTS_MAX; i++) {
		const struct patch_slot *slot = &set.slots[i];
		driver_pointer address = context->process;

		if (!slot->kind)
			continue;
		if (slot->kind != WIRE_SLOT_PROCESS)
			reason = fill_slot(round, context, mirror, slot, &address);
		if (reason) /* the others work */
			load_report_map(round->plan ? round->plan->module_id : 0, slot->map_id, reason);
		reason = NULL;
		context->data[i] = address;
	}
	mirror_start(load_folder(), load_deadline_ms(), set.base->epoch);
	context->filled = set.serial;
	return NULL;
}

/* Sees to it that the slots of the set are filled in for a context. */
static const char *fill(struct round *round, struct patch_context *context)
{
	const char *reason;

	if (context->filled == set.serial && (!context->incomplete || round->inside))
		return NULL;
	if (!round->inside)
		mirror_lock();
	else if (!mirror_lock_until(deadline_now_ms() + EVENT_WAIT_MS))
		return "no memory for maps: they are just being copied";
	reason = fill_locked(round, context);
	mirror_unlock();
	round->left = round->left || context->incomplete;
	return reason;
}

/* ---- a module ------------------------------------------------------------------------- */

/*
 * Gives every kernel that is meant its cell, and says of the others that they have none: what was
 * never said of a function that is in a graph is not nothing, and its patches would read from
 * there. Handles stay the same when functions are loaded lazily, and so does what they get.
 */
static const char *give_data(const struct sass_engine *engine,
			     const struct patch_module_entry *entry)
{
	const struct driver *driver = driver_own();
	const char *reason = NULL, *name;
	driver_handle *functions = NULL;
	unsigned count = 0;

	if (driver->module_enumerate_functions && driver->function_get_name &&
	    driver->module_get_function_count &&
	    driver->module_get_function_count(&count, entry->module) == 0)
		functions = calloc(count ? count : 1, sizeof(*functions));
	if (functions && driver->module_enumerate_functions(functions, count, entry->module) == 0) {
		for (unsigned i = 0; i < count && !reason; i++) {
			uint32_t number = driver->function_get_name(&name, functions[i]) == 0
						  ? patch_names_find(&entry->names, name)
						  : PATCH_NAME_NONE;
			driver_pointer data = number == PATCH_NAME_NONE
						      ? 0
						      : patch_cells_find(entry, &set.view, number);

			reason = engine->set_data(functions[i], data);
		}
		free(functions);
		return reason;
	}
	free(functions);
	for (uint32_t i = 0; i < entry->names.count && !reason; i++) {
		driver_pointer data = patch_cells_find(entry, &set.view, i);
		driver_handle function;

		if (driver->module_get_function &&
		    driver->module_get_function(&function, entry->module,
						entry->names.text + entry->names.offsets[i]) == 0)
			reason = engine->set_data(function, data);
	}
	return reason;
}

static bool must_patch(const struct patch_module_entry *entry)
{
	return patch_module_is_loaded(entry) &&
	       entry->patched != (entry->attachments ? set.view.image_id : 0);
}

/* Says once a device and plan that it is armed, or why not. */
static void tell(struct round *round, const struct patch_context *context, const char *reason)
{
	uint64_t bit = UINT64_C(1) << (context->device & 63);

	if (!round->plan || (!reason && (round->plan->armed_devices & bit)))
		return;
	if (!reason)
		round->plan->armed_devices |= bit;
	arm_report(round->plan, context->device, reason);
}

/* Makes the module's context current; not inside, where it is. */
static struct patch_context *enter_context(struct round *round,
					   const struct patch_module_entry *entry)
{
	struct patch_context *context = patch_context_get(entry->context);

	if (!context)
		return NULL;
	if (context->ending) {
		context->skipped = true;
		return NULL;
	}
	if (round->current != entry->context && !round->inside) {
		if (driver_own()->ctx_set_current(entry->context) != 0)
			return NULL;
		round->current = entry->context;
	}
	return context;
}

/* Memory and image, before the module is patched. */
static void prepare(struct round *round, struct patch_module_entry *entry)
{
	struct patch_context *context;
	const char *reason;

	if (!entry->attachments || !patch_module_is_loaded(entry))
		return;
	context = enter_context(round, entry);
	if (!context)
		return;
	reason = patch_context_load(context, round->engine, &set.view);
	if (!reason)
		reason = fill(round, context);
	if (!reason)
		reason = patch_cells_prepare(context, round->engine, entry, &set.view);
	if (!reason && entry->patched == set.view.image_id)
		reason = give_data(round->engine, entry);
	if (reason) {
		tell(round, context, reason);
		forget_kernels(entry); /* it is not patched, or not any more */
	}
}

/* Patches or unpatches the module, with the gate closed or before its first launch. */
static void change(struct round *round, struct patch_module_entry *entry)
{
	struct patch_context *context = enter_context(round, entry);
	const char *reason;

	if (!context)
		return;
	if (entry->attachments) {
		reason = round->engine->patch(entry->module, set.view.points, set.view.point_count);
		entry->patched = reason ? 0 : set.view.image_id;
		if (!reason)
			reason = give_data(round->engine, entry);
	} else {
		reason = round->engine->unpatch(entry->module);
		entry->patched = 0;
	}
	if (reason) {
		tell(round, context, reason);
		forget_kernels(entry);
	}
}

/*
 * What patches of older images read says that nothing is meant, or where they are still in place
 * that only what is meant by now is; and what those read that should be taken out, and cannot now.
 */
static void finish(struct round *round, struct patch_module_entry *entry)
{
	struct patch_context *context =
		entry->cells && patch_module_is_loaded(entry) ? enter_context(round, entry) : NULL;

	if (!context)
		return;
	patch_cells_finish(context, round->engine, entry, entry->attachments ? &set.view : NULL);
	if (entry->attachments && !must_patch(entry))
		tell(round, context, NULL);
}

/* Waits till no kernel of a context runs. False: they go on, or it cannot be known now. */
static bool wait_idle(const struct patch_context *context, uint64_t until_ms)
{
	const struct driver *driver = driver_own();
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	driver_handle event = NULL;
	driver_result result;

	if (!driver->context_record_event || !driver->event_create || !driver->event_query ||
	    !driver->event_destroy)
		return true; /* an old driver: then the engine waits */
	if (driver->event_create(&event, DRIVER_EVENT_NO_TIMING) != 0)
		return false;
	result = driver->context_record_event(context->handle, event);
	while (!result && (result = driver->event_query(event)) == DRIVER_ERROR_NOT_READY &&
	       deadline_now_ms() < until_ms) {
		nanosleep(&pause, NULL);
		result = 0;
	}
	driver->event_destroy(event);
	return !result;
}

/* How long launches may be held up. */
static uint64_t idle_wait_ms(void)
{
	uint32_t deadline_ms = load_deadline_ms();

	return deadline_ms && deadline_ms < IDLE_WAIT_MS ? deadline_ms : IDLE_WAIT_MS;
}

/* Graphs that were instantiated before have not got what is in the modules now. */
static void change_graphs(bool code_gone)
{
	bool patched = false;

	for (const struct patch_module_entry *entry = patch_module_first(); entry;
	     entry = entry->next)
		patched = patched || entry->patched;
	graph_patches_changed(patched, code_gone);
}

/* Changes what must be, with the gate closed. */
static enum patch_outcome change_all(struct round *round)
{
	uint64_t until_ms = deadline_now_ms() + idle_wait_ms();
	struct patch_module_entry *first = patch_module_first();
	const struct patch_context *idle = NULL, *busy = NULL;
	enum patch_outcome outcome = PATCH_OUTCOME_DONE;
	bool keep, changed = meant_changed, code_gone = false;

	while (first && !must_patch(first))
		first = first->next;
	if (first && !gate_close(until_ms))
		return gate_is_hurried() ? PATCH_OUTCOME_AGAIN : PATCH_OUTCOME_BUSY;
	if (first && capture_is_going_on()) { /* it would end if the GPU were asked */
		gate_open();
		return PATCH_OUTCOME_AGAIN;
	}
	keep = first && graph_has_fixed(true);
	for (struct patch_module_entry *entry = first; entry; entry = entry->next) {
		const struct patch_context *context =
			must_patch(entry) ? enter_context(round, entry) : NULL;

		if (!context || context == busy)
			continue;
		if (entry->patched && keep) {
			round->kept = true;
			continue;
		}
		if (context != idle && !wait_idle(context, until_ms)) {
			outcome = PATCH_OUTCOME_BUSY;
			busy = context;
			continue;
		}
		code_gone = code_gone || entry->patched;
		change(round, entry);
		changed = true;
		if (context != idle)
			mirror_drop_disarmed(context->handle);
		idle = context;
	}
	if (changed)
		change_graphs(code_gone);
	meant_changed = false;
	if (first) {
		graph_reap();
		gate_open();
	}
	return outcome;
}

/*
 * Where attachments follow one another and the patches stay, nothing else finds a context idle: then
 * the memory of many maps that are gone is a reason to look.
 */
static void drop_disarmed(struct round *round)
{
	struct patch_module_entry *entry = patch_module_first();
	const struct patch_context *context;

	while (entry && mirror_count_disarmed(entry->context) < DISARMED_MAX)
		entry = entry->next;
	if (!entry || !gate_close(deadline_now_ms() + DISARMED_WAIT_MS))
		return;
	context = capture_is_going_on() ? NULL : enter_context(round, entry);
	if (context && wait_idle(context, deadline_now_ms() + DISARMED_WAIT_MS))
		mirror_drop_disarmed(context->handle);
	gate_open();
}

/* Says what is so (NULL: nothing) once, and again when it was not so in between. */
static void say(uint64_t module_id, const char *what, const char **said)
{
	if (what && what != *said)
		load_report(module_id, what);
	*said = what;
}

static void say_graphs(const struct round *round)
{
	static const char *const kept[] = {
		[GRAPH_NOT_CLONED] = "a CUDA graph keeps kernel patches: it cannot be cloned, and "
				     "modules stay as they are till it is destroyed",
		[GRAPH_NOT_FOLLOWED] = "a CUDA graph keeps kernel patches: it was changed in a way "
				       "that its clone cannot follow, and modules stay as they "
				       "are till it is destroyed",
	};
	static const char *const bare[] = {
		[GRAPH_NOT_CLONED] = "a CUDA graph is launched without probes: it was made before, "
				     "and cannot be cloned",
		[GRAPH_NOT_FOLLOWED] = "a CUDA graph is launched without probes: it was changed in "
				       "a way that its clone cannot follow",
	};
	static const char lost[] = "a CUDA graph cannot be launched any more: its patches are gone, "
				   "and it was changed in a way that its clone cannot follow";

	say(0, round->kept ? kept[graph_has_fixed(true)] : NULL, &said_kept);
	say(0, round->plan && set.plans ? bare[graph_has_fixed(false)] : NULL, &said_old);
	say(0, graph_has_lost() ? lost : NULL, &said_lost);
}

/* Brings all modules into their state. */
static enum patch_outcome apply_all(struct round *round)
{
	enum patch_outcome outcome;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		prepare(round, entry);
	outcome = change_all(round);
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		finish(round, entry);
	drop_disarmed(round);
	say(round->plan ? round->plan->module_id : 0,
	    outcome == PATCH_OUTCOME_BUSY
		    ? "kernels ran on for too long: the SASS engine patches them later"
		    : NULL,
	    &said_busy);
	say_graphs(round);
	return outcome;
}

/* ---- plans ---------------------------------------------------------------------------- */

static void end_plans(struct load *plans)
{
	while (plans) {
		struct load *plan = plans;

		plans = plan->next;
		load_end_plan(plan);
	}
}

/* Makes the plan the only one. Its kernels and no others are meant. */
static void adopt(struct load *plan, const struct patch_view *view)
{
	static struct patch_slot slots[SLOTS_MAX];
	struct load *before = set.plans;
	bool same;

	memset(slots, 0, sizeof(slots));
	add_slots(slots, plan);
	same = is_same_image(view) && !memcmp(slots, set.slots, sizeof(slots));
	memcpy(set.slots, slots, sizeof(slots));
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		forget_kernels(entry);
		entry->plan = 0;
	}
	meant_changed = true;
	plan->next = NULL;
	set.plans = set.base = plan;
	set.count = 1;
	set.view = *view;
	if (!same)
		set.serial = ++serials;
	take_kernels(view);
	end_plans(before);
}

/*
 * Adds a plan of the set. Returns whether it has brought slots: then it stays as long as the set, or
 * the daemon would not know that their maps are used.
 */
static bool join(struct load *plan, const struct patch_view *view)
{
	bool more = add_slots(set.slots, plan);

	if (more)
		set.serial = ++serials;
	for (unsigned bit = 0; bit < PATCH_ATTACHMENTS_MAX; bit++)
		if (view->ids[bit])
			set.view.ids[bit] = view->ids[bit];
	meant_changed = true;
	take_kernels(view);
	plan->next = set.plans;
	set.plans = plan;
	set.count++;
	load_drop_image(plan);
	return more;
}

/*
 * What there is to patch is said: of plans that have brought nothing the daemon keeps no more than
 * what it shows of their kernels, and there may be as many as modules.
 */
static void trim(const struct load *newest)
{
	if (set.count > PLANS_MAX)
		patch_end_plan(newest->module_id);
}

/* Asks about a list of modules. *plan is checked; NULL when nothing is meant. */
static enum patch_outcome ask(const struct interest *found, struct patch_module_entry *only,
			      bool inside, struct load **plan, struct patch_view *view)
{
	size_t size = 0;
	bool left;
	void *list = patch_module_list(only, &size, &left);
	enum load_answer answer = size ? LOAD_ANSWER_LATER : LOAD_ANSWER_OWN;
	const char *reason;

	*plan = NULL;
	if (list)
		answer = load_ask_plan(found, list, size, !inside, plan);
	free(list);
	if (!only)
		say(0, left ? "the names of the kernels that are loaded are past 16 MiB: some modules are not "
			      "patched"
			    : NULL,
		    &said_long);
	if (answer == LOAD_ANSWER_NONE)
		return PATCH_OUTCOME_FAILED;
	if (answer == LOAD_ANSWER_LATER)
		return PATCH_OUTCOME_LATER;
	if (answer == LOAD_ANSWER_BARE)
		return PATCH_OUTCOME_BARE;
	if (*plan) {
		reason = patch_plan_read(view, *plan);
		if (!reason && !are_known(view, only))
			reason = "the daemon's plan has a kernel that is not known";
		if (reason) {
			load_report((*plan)->module_id, reason);
			load_refuse_plan(*plan);
			*plan = NULL;
			return PATCH_OUTCOME_FAILED;
		}
	}
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		entry->asked = entry->asked || !only || entry == only;
	return PATCH_OUTCOME_DONE;
}

enum patch_outcome patch_none(const struct sass_engine *engine)
{
	struct load *before = set.plans;
	struct round round = { .engine = engine, .plan = set.base };
	enum patch_outcome outcome;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		forget_kernels(entry);
		entry->plan = 0;
		entry->asked = false;
	}
	outcome = apply_all(&round);
	set.plans = set.base = NULL;
	set.count = 0;
	end_plans(before);
	return outcome;
}

enum patch_outcome patch_all(const struct sass_engine *engine, const struct interest *found)
{
	struct round round = { .engine = engine };
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		entry->asked = false;
	outcome = ask(found, NULL, false, &plan, &view);
	if (outcome == PATCH_OUTCOME_BARE)
		patch_none(engine);
	if (outcome)
		return outcome;
	if (!plan) {
		outcome = patch_none(engine);
		for (struct patch_module_entry *entry = patch_module_first(); entry;
		     entry = entry->next)
			entry->asked = true;
		return outcome;
	}
	adopt(plan, &view);
	round.plan = plan;
	return apply_all(&round);
}

enum patch_outcome patch_new(const struct sass_engine *engine, const struct interest *found)
{
	struct round round = { .engine = engine };
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;
	bool needed = true;

	outcome = ask(found, NULL, false, &plan, &view);
	if (outcome)
		return outcome;
	if (plan && set.plans && !is_of_set(plan, &view)) {
		load_end_plan(plan);
		return PATCH_OUTCOME_OTHER;
	}
	if (plan && set.plans)
		needed = join(plan, &view);
	else if (plan)
		adopt(plan, &view);
	round.plan = plan ? plan : set.base;
	outcome = apply_all(&round);
	if (!needed)
		trim(plan);
	return outcome;
}

enum patch_outcome patch_one(const struct sass_engine *engine, const struct interest *found,
			     struct patch_module_entry *entry)
{
	struct round round = { .engine = engine, .inside = true };
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;
	bool needed = true;

	outcome = ask(found, entry, true, &plan, &view);
	if (outcome || !plan)
		return outcome;
	if (set.plans && !is_of_set(plan, &view)) {
		load_end_plan(plan);
		entry->asked = false;
		return PATCH_OUTCOME_OTHER;
	}
	if (set.plans)
		needed = join(plan, &view);
	else
		adopt(plan, &view);
	entry->plan = needed ? 0 : plan->module_id;
	round.plan = plan;
	prepare(&round, entry);
	if (!entry->attachments) { /* perhaps it can be done outside of the driver */
		entry->asked = false;
		round.left = true;
	}
	meant_changed = false; /* of a module that no graph knows yet */
	if (must_patch(entry)) {
		if (!graph_patches())
			graph_patches_changed(true, false);
		change(&round, entry);
	}
	finish(&round, entry);
	if (!needed)
		trim(plan);
	return round.left ? PATCH_OUTCOME_BUSY : PATCH_OUTCOME_DONE;
}

void patch_end_plan(uint64_t id)
{
	for (struct load **link = &set.plans; id && *link; link = &(*link)->next) {
		struct load *plan = *link;

		if (plan->module_id != id || plan == set.base)
			continue;
		*link = plan->next;
		set.count--;
		load_end_plan(plan);
		return;
	}
}

/* Takes the data of one instance from the cells of a context; false: it may still be in some. */
static bool forget_instance(const struct sass_engine *engine, const struct patch_context *context,
			    const struct instance *instance)
{
	bool done = true;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		if (entry->context != context->handle)
			continue;
		if (instance->address)
			done &= patch_cells_forget(context, engine, entry, instance->address);
		for (const struct instance_region *region = instance->regions; region;
		     region = region->next)
			if (!region->load)
				done &= patch_cells_forget(context, engine, entry, region->address);
	}
	return done;
}

bool patch_forget_map(const struct sass_engine *engine, const struct mirror_context *mirror,
		      uint64_t map_id)
{
	struct patch_context *context = patch_context_find(mirror->handle);
	bool done = true;

	for (uint32_t i = 0; set.plans && context && i < SLOTS_MAX; i++)
		if (set.slots[i].map_id == map_id && set.slots[i].kind &&
		    set.slots[i].kind != WIRE_SLOT_PROCESS)
			context->data[i] = 0;
	for (const struct instance *instance = mirror->instances; context && instance;
	     instance = instance->next)
		if (instance->map_id == map_id)
			done &= forget_instance(engine, context, instance);
	return done;
}
