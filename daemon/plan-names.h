/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernels of a plan are called: its list of names, which a process wrote, beside the plan, which a worker wrote. */

#include <stddef.h>
#include <stdint.h>

struct image_result;

/* A kernel that is meant. Borrowed: good until the function that gets it returns. */
struct plan_name {
	uint64_t kernel_id; /* of the name */
	const char *name; /* mangled, NUL-terminated, foreign bytes; of a bare kernel: without the suffix */
	size_t length;
	uint64_t attachments; /* bit i: result->asked[i] */
};

/*
 * Calls fn for each kernel of a plan whose names are kept, in their order; what fn returns other than 0 ends the walk. As far as plan
 * and list agree: where they do not, it ends. 0, what fn returned, or -errno.
 */
int plan_names_each(const struct image_result *result, int (*fn)(const struct plan_name *name, void *userdata),
		    void *userdata);
