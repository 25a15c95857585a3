/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plans that hold at present, and the slots that they have together (patch-set.h). Runs with
 * the loader's lock held.
 */

#include "patch-set.h"

#include <stdlib.h>
#include <string.h>

#include "shim/module/load.h"
#include "patch-module.h"

struct patch_set patch_set;
static uint64_t serials;

bool patch_set_is_current(void) {
	return patch_set.plans && load_is_current(patch_set.base);
}

/* Is a plan of the set's image? */
static bool is_same_image(const struct patch_view *view) {
	return patch_set_is_current() && patch_set.view.image_id == view->image_id &&
	       patch_set.view.data_size == view->data_size;
}

bool patch_set_fits(const struct load *plan, const struct patch_view *view) {
	if (!is_same_image(view))
		return false;
	for (uint32_t i = 0; i < plan->slot_count; i++) {
		const struct patch_slot *slot = &patch_set.slots[plan->slots[i].offset / 8];

		if (slot->kind &&
		    (slot->kind != plan->slots[i].kind || slot->map_id != plan->slots[i].map_id))
			return false;
	}
	return true;
}

/* Adds the slots of a plan. Returns whether there are more now. */
static bool add_slots(struct patch_slot slots[static PATCH_SLOTS_MAX], const struct load *plan) {
	bool more = false;

	for (uint32_t i = 0; i < plan->slot_count; i++) {
		struct patch_slot *slot = &slots[plan->slots[i].offset / 8];

		more = more || !slot->kind;
		*slot = (struct patch_slot){ .map_id = plan->slots[i].map_id,
					     .kind = plan->slots[i].kind };
	}
	return more;
}

/* The module of a kernel; they come in rows. only: the one that was asked about, or NULL. */
static struct patch_module_entry *module_of(const struct patch_kernel *kernel,
					    struct patch_module_entry *before,
					    struct patch_module_entry *only) {
	struct patch_module_entry *entry = before && before->number == kernel->module
						   ? before
						   : patch_module_by_number(kernel->module);

	return entry && (!only || entry == only) && kernel->name < entry->names.count ? entry
										      : NULL;
}

bool patch_set_knows(const struct patch_view *view, struct patch_module_entry *only) {
	struct patch_module_entry *entry = NULL;

	for (uint32_t i = 0; i < view->kernel_count; i++) {
		entry = module_of(&view->kernels[i], entry, only);
		if (!entry)
			return false;
	}
	return true;
}

void patch_set_forget_kernels(struct patch_module_entry *entry) {
	free(entry->attachments);
	free(entry->kernel_ids);
	entry->attachments = entry->kernel_ids = NULL;
}

static void take_kernels(const struct patch_view *view) {
	struct patch_module_entry *entry = NULL;

	for (uint32_t i = 0; i < view->kernel_count; i++) {
		const struct patch_kernel *kernel = &view->kernels[i];

		entry = module_of(kernel, entry, NULL);
		if (!entry->attachments) {
			entry->attachments = calloc(entry->names.count, sizeof(uint64_t));
			entry->kernel_ids = calloc(entry->names.count, sizeof(uint64_t));
			if (!entry->attachments || !entry->kernel_ids) {
				patch_set_forget_kernels(entry); /* then it stays bare */
				continue;
			}
		}
		entry->attachments[kernel->name] = kernel->attachments;
		entry->kernel_ids[kernel->name] = kernel->kernel_id;
	}
}

static void end_plans(struct load *plans) {
	while (plans) {
		struct load *plan = plans;

		plans = plan->next;
		load_end_plan(plan);
	}
}

void patch_set_adopt(struct load *plan, const struct patch_view *view) {
	static struct patch_slot slots[PATCH_SLOTS_MAX];
	struct load *before = patch_set.plans;
	bool same;

	memset(slots, 0, sizeof(slots));
	add_slots(slots, plan);
	same = is_same_image(view) && !memcmp(slots, patch_set.slots, sizeof(slots));
	memcpy(patch_set.slots, slots, sizeof(slots));
	for (struct patch_module_entry *entry = patch_module_first(); entry; entry = entry->next) {
		patch_set_forget_kernels(entry);
		entry->plan = 0;
	}
	patch_set.meant_changed = true;
	plan->next = NULL;
	patch_set.plans = patch_set.base = plan;
	patch_set.count = 1;
	patch_set.view = *view;
	if (!same)
		patch_set.serial = ++serials;
	take_kernels(view);
	end_plans(before);
}

bool patch_set_join(struct load *plan, const struct patch_view *view) {
	bool more = add_slots(patch_set.slots, plan);

	if (more)
		patch_set.serial = ++serials;
	for (unsigned bit = 0; bit < PATCH_ATTACHMENTS_MAX; bit++)
		if (view->ids[bit])
			patch_set.view.ids[bit] = view->ids[bit];
	patch_set.meant_changed = true;
	take_kernels(view);
	plan->next = patch_set.plans;
	patch_set.plans = plan;
	patch_set.count++;
	load_drop_image(plan);
	return more;
}

void patch_set_end(void) {
	struct load *before = patch_set.plans;

	patch_set.plans = patch_set.base = NULL;
	patch_set.count = 0;
	end_plans(before);
}
