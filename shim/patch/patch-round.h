/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A round brings modules into the state that the set of plans says. With the loader's lock held. */

#include <stdbool.h>

#include "shim/driver/driver.h"
#include "patch-apply.h"

struct load;
struct patch_module_entry;
struct sass_engine;

/* What one round is about. */
struct patch_round {
	const struct sass_engine *engine;
	struct load *plan; /* the one that is spoken of to the daemon; NULL: none */
	driver_handle current; /* context */
	bool inside; /* the driver has called us */
	bool left; /* something is left for a launch */
	bool kept; /* modules stay patched for a graph */
};

/* All modules. */
enum patch_outcome patch_round_all(struct patch_round *round);

/* One that is just being loaded, from within the driver. */
enum patch_outcome patch_round_one(struct patch_round *round, struct patch_module_entry *entry);

/* Says what is so (NULL: nothing) once, and again when it was not so in between. */
void patch_say(uint64_t module_id, const char *what, const char **said);
