/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A round: patches or unpatches modules as the plans say (patch-round.h), with the gate closed.
 *
 * Each module says which kernels are meant (from its plan) and what it is patched with; a round
 * makes the second follow from the first. Memory is made and written first; then modules are
 * (un)patched, for which the GPU must be idle and no launch on its way, because the engine waits
 * for all kernels of the context, and a kernel may wait for what the application has yet to launch.
 * A module that is just being loaded has no launches.
 */

#include "patch-round.h"

#include <stdlib.h>
#include <string.h>

#include "shim/module/arm.h"
#include "shim/module/capture.h"
#include "shim/base/deadline.h"
#include "shim/base/gate.h"
#include "shim/graph/graph.h"
#include "shim/module/idle.h"
#include "shim/module/instance.h"
#include "shim/module/load.h"
#include "shim/module/mirror.h"
#include "patch-data.h"
#include "patch-module.h"
#include "patch-set.h"
#include "shim/engine/sass.h"

#define DISARMED_MAX 16 /* maps of a context that are gone, and kept till it is idle */
#define DISARMED_WAIT_MS 20
#define IDLE_WAIT_MS 1000
#define EVENT_WAIT_MS 100

static const char *said_busy, *said_kept, *said_old, *said_lost;

/* ---- a context ------------------------------------------------------------------------ */

/* The address of the data of a slot's map; 0 if there is none, and then perhaps why. */
static const char *fill_slot(struct patch_round *round, struct patch_context *context,
			     struct mirror_context *mirror, const struct patch_slot *slot,
			     driver_pointer *address) {
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
static const char *fill_process(struct patch_round *round, struct patch_context *context) {
	struct gpuprobe_process process;
	const char *reason = NULL;

	if (context->process && context->process_epoch == patch_set.base->epoch)
		return NULL;
	if (!context->process)
		reason = patch_context_alloc(context, round->engine, sizeof(process),
					     &context->process);
	load_process(context->device, &process);
	if (!reason)
		reason = round->engine->write(context->handle, context->process, &process,
					      sizeof(process));
	if (!reason)
		context->process_epoch = patch_set.base->epoch;
	return reason;
}

static const char *fill_locked(struct patch_round *round, struct patch_context *context) {
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
	for (uint32_t i = 0; i < PATCH_SLOTS_MAX; i++) {
		const struct patch_slot *slot = &patch_set.slots[i];
		driver_pointer address = context->process;

		if (!slot->kind)
			continue;
		if (slot->kind != WIRE_SLOT_PROCESS)
			reason = fill_slot(round, context, mirror, slot, &address);
		if (reason) /* the others work */
			load_report_map(round->plan ? round->plan->module_id : 0, slot->map_id,
					reason);
		reason = NULL;
		context->data[i] = address;
	}
	reason = mirror_start(load_folder(), load_deadline_ms(), patch_set.base->epoch);
	if (reason)
		load_report(round->plan ? round->plan->module_id : 0, reason);
	context->filled = patch_set.serial;
	return NULL;
}

/* Sees to it that the slots of the set are filled in for a context. */
static const char *fill(struct patch_round *round, struct patch_context *context) {
	const char *reason;

	if (context->filled == patch_set.serial && (!context->incomplete || round->inside))
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
			     const struct patch_module_entry *entry) {
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
			driver_pointer data =
				number == PATCH_NAME_NONE
					? 0
					: patch_cells_find(entry, &patch_set.view, number);

			reason = engine->set_data(functions[i], data);
		}
		free(functions);
		return reason;
	}
	free(functions);
	for (uint32_t i = 0; i < entry->names.count && !reason; i++) {
		driver_pointer data = patch_cells_find(entry, &patch_set.view, i);
		driver_handle function;

		if (driver->module_get_function &&
		    driver->module_get_function(&function, entry->module,
						entry->names.text + entry->names.offsets[i]) == 0)
			reason = engine->set_data(function, data);
	}
	return reason;
}

static bool must_patch(const struct patch_module_entry *entry) {
	return patch_module_is_loaded(entry) &&
	       entry->patched != (entry->attachments ? patch_set.view.image_id : 0);
}

/* Says once a device and plan that it is armed, or why not. */
static void tell(struct patch_round *round, const struct patch_context *context,
		 const char *reason) {
	uint64_t bit = UINT64_C(1) << (context->device & 63);

	if (!round->plan || (!reason && (round->plan->armed_devices & bit)))
		return;
	if (!reason)
		round->plan->armed_devices |= bit;
	arm_report(round->plan, context->device, reason);
}

/* Makes the module's context current; not inside, where it is. */
static struct patch_context *enter_context(struct patch_round *round,
					   const struct patch_module_entry *entry) {
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
static void prepare(struct patch_round *round, struct patch_module_entry *entry) {
	struct patch_context *context;
	const char *reason;

	if (!entry->attachments || !patch_module_is_loaded(entry))
		return;
	context = enter_context(round, entry);
	if (!context)
		return;
	reason = patch_context_load(context, round->engine, &patch_set.view);
	if (!reason)
		reason = fill(round, context);
	if (!reason)
		reason = patch_cells_prepare(context, round->engine, entry, &patch_set.view);
	if (!reason && entry->patched == patch_set.view.image_id)
		reason = give_data(round->engine, entry);
	if (reason) {
		tell(round, context, reason);
		patch_set_forget_kernels(entry); /* it is not patched, or not any more */
	}
}

/* Patches or unpatches the module, with the gate closed or before its first launch. */
static void change(struct patch_round *round, struct patch_module_entry *entry) {
	struct patch_context *context = enter_context(round, entry);
	const char *reason;

	if (!context)
		return;
	if (entry->attachments) {
		reason = round->engine->patch(entry->module, patch_set.view.points,
					      patch_set.view.point_count);
		entry->patched = reason ? 0 : patch_set.view.image_id;
		if (!reason)
			reason = give_data(round->engine, entry);
	} else {
		reason = round->engine->unpatch(entry->module);
		entry->patched = 0;
	}
	if (reason) {
		tell(round, context, reason);
		patch_set_forget_kernels(entry);
	}
}

/*
 * What patches of older images read says that nothing is meant, or where they are still in place
 * that only what is meant by now is; and what those read that should be taken out, and cannot now.
 */
static void finish(struct patch_round *round, struct patch_module_entry *entry) {
	struct patch_context *context =
		entry->cells && patch_module_is_loaded(entry) ? enter_context(round, entry) : NULL;

	if (!context)
		return;
	patch_cells_finish(context, round->engine, entry,
			   entry->attachments ? &patch_set.view : NULL);
	if (entry->attachments && !must_patch(entry))
		tell(round, context, NULL);
}

/* How long launches may be held up. */
static uint64_t idle_wait_ms(void) {
	uint32_t deadline_ms = load_deadline_ms();

	return deadline_ms && deadline_ms < IDLE_WAIT_MS ? deadline_ms : IDLE_WAIT_MS;
}

/* Graphs that were instantiated before have not got what is in the modules now. */
static void change_graphs(bool code_gone) {
	bool patched = false;

	for (const struct patch_module_entry *entry = patch_module_first(); entry;
	     entry = entry->next)
		patched = patched || entry->patched;
	graph_patches_changed(patched, code_gone);
}

/* Changes what must be, with the gate closed. */
static enum patch_outcome change_all(struct patch_round *round) {
	uint64_t until_ms = deadline_now_ms() + idle_wait_ms();
	struct patch_module_entry *first = patch_module_first();
	const struct patch_context *idle = NULL, *busy = NULL;
	enum patch_outcome outcome = PATCH_OUTCOME_DONE;
	bool keep, changed = patch_set.meant_changed, code_gone = false;

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
		if (context != idle && wait_idle(context->handle, until_ms) == IDLE_NO) {
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
	patch_set.meant_changed = false;
	if (first) {
		graph_reap();
		gate_open();
	}
	return outcome;
}

/*
 * Where attachments follow one another and the patches stay, nothing else finds a context idle:
 * then the memory of many maps that are gone is a reason to look.
 */
static void drop_disarmed(struct patch_round *round) {
	struct patch_module_entry *entry = patch_module_first();
	const struct patch_context *context;

	while (entry && mirror_count_disarmed(entry->context) < DISARMED_MAX)
		entry = entry->next;
	if (!entry || !gate_close(deadline_now_ms() + DISARMED_WAIT_MS))
		return;
	context = capture_is_going_on() ? NULL : enter_context(round, entry);
	if (context && wait_idle(context->handle, deadline_now_ms() + DISARMED_WAIT_MS) != IDLE_NO)
		mirror_drop_disarmed(context->handle);
	gate_open();
}

void patch_say(uint64_t module_id, const char *what, const char **said) {
	if (what && what != *said)
		load_report(module_id, what);
	*said = what;
}

static void say_graphs(const struct patch_round *round) {
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
		[GRAPH_NOT_MADE] = "a CUDA graph is launched without probes, or with some only: "
				   "the driver makes no executable graph of its clone",
	};
	static const char lost[] =
		"a CUDA graph cannot be launched any more: its patches are gone, "
		"and it was changed in a way that its clone cannot follow";

	patch_say(0, round->kept ? kept[graph_has_fixed(true)] : NULL, &said_kept);
	patch_say(0, round->plan && patch_set.plans ? bare[graph_has_fixed(false)] : NULL,
		  &said_old);
	patch_say(0, graph_has_lost() ? lost : NULL, &said_lost);
}

enum patch_outcome patch_round_all(struct patch_round *round) {
	enum patch_outcome outcome;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		prepare(round, entry);
	outcome = change_all(round);
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		finish(round, entry);
	drop_disarmed(round);
	patch_say(round->plan ? round->plan->module_id : 0,
		  outcome == PATCH_OUTCOME_BUSY
			  ? "kernels ran on for too long: the sanitizer engine patches them later"
			  : NULL,
		  &said_busy);
	say_graphs(round);
	return outcome;
}

enum patch_outcome patch_round_one(struct patch_round *round, struct patch_module_entry *entry) {
	prepare(round, entry);
	if (!entry->attachments) { /* perhaps it can be done outside of the driver */
		entry->asked = false;
		round->left = true;
	}
	patch_set.meant_changed = false; /* of a module that no graph knows yet */
	if (must_patch(entry)) {
		if (!graph_patches())
			graph_patches_changed(true, false);
		change(round, entry);
	}
	finish(round, entry);
	return round->left ? PATCH_OUTCOME_BUSY : PATCH_OUTCOME_DONE;
}
