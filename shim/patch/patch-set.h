/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The set of present plans, all of one image. Each plan has the slots of the attachments that apply
 * to a kernel in its list; the set has the slots of all. With the loader's lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include "patch-data.h"
#include "patch-plan.h"

struct load;
struct patch_module_entry;

#define PATCH_SLOTS_MAX (PATCH_DATA_MAX / 8)

struct patch_slot {
	uint64_t map_id;
	uint32_t kind; /* enum wire_slot_kind; 0: there is none here */
	uint32_t reserved; /* 0: they are compared as bytes */
};

struct patch_set {
	struct load *plans; /* linked by next, the newest first; NULL: there is no set */
	unsigned count; /* of them */
	struct load *base; /* the one whose image the view is of */
	struct patch_view view;
	struct patch_slot slots[PATCH_SLOTS_MAX]; /* by their place in struct patch_data */
	uint64_t serial; /* changes with image or slots; contexts remember it */
	bool meant_changed; /* kernels of modules that stay patched may get other data */
};

extern struct patch_set patch_set;

/* Are there plans, of the daemon that we are connected with? */
bool patch_set_is_current(void);

/* May the plan be one of the set: is it of its image, and do its slots contradict none that there
 * are? */
bool patch_set_fits(const struct load *plan, const struct patch_view *view);

/* Are all kernels of a plan of modules that there are? only: the one that was asked about, or NULL.
 */
bool patch_set_knows(const struct patch_view *view, struct patch_module_entry *only);

/* Makes the plan the only one. Its kernels and no others are meant. */
void patch_set_adopt(struct load *plan, const struct patch_view *view);

/*
 * Adds a plan that fits. Returns whether it has brought slots: then it stays as long as the set, or
 * the daemon would not know that their maps are used.
 */
bool patch_set_join(struct load *plan, const struct patch_view *view);

/* There is no plan any more. */
void patch_set_end(void);

/* No kernel of the module is meant. */
void patch_set_forget_kernels(struct patch_module_entry *entry);
