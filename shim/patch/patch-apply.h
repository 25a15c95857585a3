/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Does what patching.c decides: asks for plans, and brings modules into the state that they say.
 * All with the loader's lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/driver.h"
#include "shim/interest/interest-page.h"

struct load;
struct mirror_context;
struct patch_module_entry;
struct sass_engine;

enum patch_outcome {
	PATCH_OUTCOME_DONE,
	PATCH_OUTCOME_FAILED, /* the daemon does not answer, or makes no sense */
	PATCH_OUTCOME_LATER, /* it could not be asked, or has no plan now: nothing is changed */
	PATCH_OUTCOME_REMOVE, /* the same, and nothing that is patched is to stay */
	PATCH_OUTCOME_AGAIN, /* another thread goes first: not all is done */
	PATCH_OUTCOME_BUSY, /* kernels or launches went on for too long: not all is done */
	PATCH_OUTCOME_OTHER, /* the plan is of another image than those there are */
};

/* All plans, the newest first; NULL: there are none. */
struct load *patch_plans(void);

/* For all modules, of every context; called at a launch. */
enum patch_outcome patch_all(const struct sass_engine *engine, const struct interest *found);

/* For the modules that were not asked about, and to do what was left undone; called at a launch. */
enum patch_outcome patch_new(const struct sass_engine *engine, const struct interest *found);

/* For one module that is just being loaded. */
enum patch_outcome patch_one(const struct sass_engine *engine, const struct interest *found,
			     struct patch_module_entry *entry);

/* Nothing is meant any more; called at a launch. */
enum patch_outcome patch_none(const struct sass_engine *engine);

/* The module that a plan was for is gone. plan: its id, or 0. */
void patch_end_plan(uint64_t plan);

/* Takes a map out of the data of a context's patches. False: it may still be there for some. */
bool patch_forget_map(const struct sass_engine *engine, const struct mirror_context *context,
		      uint64_t map_id);
