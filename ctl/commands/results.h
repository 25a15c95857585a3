/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an attached object has found, for commands that print it at their end. */

#include "ctl/base/ctl.h"

struct results {
	bool nonzero; /* without elements that are all zeros */
	bool rings; /* with what rings hold */
	bool (*stop)(void *userdata); /* asked between two steps; true ends it */
	void *userdata;
};

/*
 * Prints the log of the object that Attach told of, and its maps: as `log`, `map dump` and `ring
 * read` do. In JSON: the members "log" and "maps" of an object that the caller begins and ends.
 * Returns the exit status; CTL_RESULTS_CUT: stop() said so.
 */
#define CTL_RESULTS_CUT (-1)
int results_print(struct ctl *ctl, json_object *attached, const struct results *results);
