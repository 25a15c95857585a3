/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The runs of passes that an image needs: one run is one pass on one kernel. */

#include "lib/pass/pass-definition.h"
#include "daemon/gpuprobed/registry/registry.h"

#define PASS_RUNS_MAX 16 /* in one image */

struct pass_step {
	const struct pass_definition *definition; /* borrowed */
	char *attach_point;
	char *kernel; /* mangled */
};

struct pass_plan {
	struct pass_step steps[PASS_RUNS_MAX]; /* in order */
	size_t n_steps;
	size_t n_before; /* the first ones, which work on what is not edited yet */
	bool truncated; /* there would be more */
};

/* Makes a plan, all zeros before, from what EXTRACT has replied. 0 or -ENOMEM; deinit is due in any
 * case. */
int pass_plan_make(struct pass_plan *plan, const struct pass_set *set,
		   const struct registry *registry, json_object *reply);
void pass_plan_deinit(struct pass_plan *plan);
