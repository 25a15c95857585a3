/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Gets plans from the daemon and brings the loaded modules into the state that they say
 * (patch-apply.h). Runs with the loader's lock held.
 */

#include "patch-apply.h"

#include <stdio.h>
#include <stdlib.h>

#include "shim/module/instance.h"
#include "shim/module/load.h"
#include "shim/module/mirror.h"
#include "patch-data.h"
#include "patch-module.h"
#include "patch-plan.h"
#include "patch-round.h"
#include "patch-set.h"
#include "shim/engine/sass.h"

#define PLANS_MAX 512 /* that are kept; the daemon takes more (process.h) */

static const char *said_long;

struct load *patch_plans(void) {
	return patch_set.plans;
}

/*
 * What there is to patch is said: of plans that have brought nothing the daemon keeps no more than
 * what it shows of their kernels, and there may be as many as modules.
 */
static void trim(const struct load *newest) {
	if (patch_set.count > PLANS_MAX)
		patch_end_plan(newest->module_id);
}

/* patch_module_entry.number of the last module that was loaded. */
static uint32_t newest_number(void) {
	const struct patch_module_entry *newest = patch_module_first();

	return newest ? newest->number : 0;
}

/* Newer ones than `last` were loaded by other threads while the daemon was waited for: they were
 * not in the list. */
static void set_asked(const struct patch_module_entry *only, uint32_t last) {
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		if (only ? entry == only : entry->number <= last)
			entry->asked = true;
}

/* Says of each module that is left alone that it is. False: it could not be said. */
static bool say_left(const struct interest *found) {
	char reason[WIRE_REASON_MAX];

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		if (!entry->names.left || entry->asked || !patch_module_is_loaded(entry))
			continue;
		snprintf(reason, sizeof(reason),
			 WIRE_REPORT_MODULE "%.80s: not patched, because %s",
			 entry->names.count ? entry->names.text : "unknown kernels",
			 entry->names.left);
		if (!load_report_to(found, reason))
			return false;
	}
	return true;
}

/* Asks about the module that is just being loaded, or (NULL) about a list. *plan is checked; NULL
 * when nothing is meant. */
static enum patch_outcome ask(const struct interest *found, struct patch_module_entry *only,
			      struct load **plan, struct patch_view *view) {
	uint32_t last = newest_number();
	size_t size = 0;
	bool left;
	void *list;
	enum load_answer answer;
	const char *reason;

	*plan = NULL;
	if (only && only->names.left) /* a launch says so: it may connect */
		return PATCH_OUTCOME_LATER;
	if (!only && !say_left(found))
		return PATCH_OUTCOME_FAILED;
	list = patch_module_list(only, &size, &left);
	answer = size ? LOAD_ANSWER_LATER : LOAD_ANSWER_OWN;
	if (list)
		answer = load_ask_plan(found, list, size, !only, plan);
	free(list);
	if (!only)
		patch_say(0,
			  left ? "the names of the kernels that are loaded are past 16 MiB: some "
				 "modules are not patched"
			       : NULL,
			  &said_long);
	if (answer == LOAD_ANSWER_NONE)
		return PATCH_OUTCOME_FAILED;
	if (answer == LOAD_ANSWER_LATER)
		return PATCH_OUTCOME_LATER;
	if (answer == LOAD_ANSWER_REMOVE)
		return PATCH_OUTCOME_REMOVE;
	if (*plan) {
		reason = patch_plan_read(view, *plan);
		if (!reason && !patch_set_knows(view, only))
			reason = "the daemon's plan has a kernel that is not known";
		if (reason) {
			load_report((*plan)->module_id, reason);
			load_refuse_plan(*plan);
			*plan = NULL;
			return PATCH_OUTCOME_FAILED;
		}
	}
	set_asked(only, last);
	return PATCH_OUTCOME_DONE;
}

enum patch_outcome patch_none(const struct sass_engine *engine) {
	struct patch_round round = { .engine = engine, .plan = patch_set.base };
	enum patch_outcome outcome;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		patch_set_forget_kernels(entry);
		entry->plan = 0;
		entry->asked = false;
	}
	outcome = patch_round_all(&round);
	patch_set_end();
	return outcome;
}

enum patch_outcome patch_all(const struct sass_engine *engine, const struct interest *found) {
	struct patch_round round = { .engine = engine };
	uint32_t last = newest_number();
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;

	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next)
		entry->asked = false;
	outcome = ask(found, NULL, &plan, &view);
	if (outcome == PATCH_OUTCOME_REMOVE)
		patch_none(engine);
	if (outcome)
		return outcome;
	if (!plan) {
		outcome = patch_none(engine);
		set_asked(NULL, last);
		return outcome;
	}
	patch_set_adopt(plan, &view);
	round.plan = plan;
	return patch_round_all(&round);
}

enum patch_outcome patch_new(const struct sass_engine *engine, const struct interest *found) {
	struct patch_round round = { .engine = engine };
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;
	bool needed = true;

	outcome = ask(found, NULL, &plan, &view);
	if (outcome)
		return outcome;
	if (plan && patch_set.plans && !patch_set_fits(plan, &view)) {
		load_end_plan(plan);
		return PATCH_OUTCOME_OTHER;
	}
	if (plan && patch_set.plans)
		needed = patch_set_join(plan, &view);
	else if (plan)
		patch_set_adopt(plan, &view);
	round.plan = plan ? plan : patch_set.base;
	outcome = patch_round_all(&round);
	if (!needed)
		trim(plan);
	return outcome;
}

enum patch_outcome patch_one(const struct sass_engine *engine, const struct interest *found,
			     struct patch_module_entry *entry) {
	struct patch_round round = { .engine = engine, .inside = true };
	enum patch_outcome outcome;
	struct patch_view view;
	struct load *plan;
	bool needed = true;

	outcome = ask(found, entry, &plan, &view);
	if (outcome || !plan)
		return outcome;
	if (patch_set.plans && !patch_set_fits(plan, &view)) {
		load_end_plan(plan);
		entry->asked = false;
		return PATCH_OUTCOME_OTHER;
	}
	if (patch_set.plans)
		needed = patch_set_join(plan, &view);
	else
		patch_set_adopt(plan, &view);
	entry->plan = needed ? 0 : plan->module_id;
	round.plan = plan;
	outcome = patch_round_one(&round, entry);
	if (!needed)
		trim(plan);
	return outcome;
}

void patch_end_plan(uint64_t id) {
	for (struct load **link = &patch_set.plans; id && *link; link = &(*link)->next) {
		struct load *plan = *link;

		if (plan->module_id != id || plan == patch_set.base)
			continue;
		*link = plan->next;
		patch_set.count--;
		load_end_plan(plan);
		return;
	}
}

/* Takes the data of one instance from the cells of a context; false: it may still be in some. */
static bool forget_instance(const struct sass_engine *engine, const struct patch_context *context,
			    const struct instance *instance) {
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
		      uint64_t map_id) {
	struct patch_context *context = patch_context_find(mirror->handle);
	bool done = true;

	for (uint32_t i = 0; patch_set.plans && context && i < PATCH_SLOTS_MAX; i++)
		if (patch_set.slots[i].map_id == map_id && patch_set.slots[i].kind &&
		    patch_set.slots[i].kind != WIRE_SLOT_PROCESS)
			context->data[i] = 0;
	for (const struct instance *instance = mirror->instances; context && instance;
	     instance = instance->next)
		if (instance->map_id == map_id)
			done &= forget_instance(engine, context, instance);
	return done;
}
