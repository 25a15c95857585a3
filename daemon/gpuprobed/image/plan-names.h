/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernels of a plan are called: its list of names, which a process wrote, beside the plan,
 * which a worker wrote. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/patch.h"
#include "lib/name-list.h"

struct image_result;

/* A kernel that is meant. Borrowed: good until the walk goes on. */
struct plan_name {
	uint64_t kernel_id; /* of the name */
	const char *name; /* mangled, NUL-terminated, foreign bytes */
	size_t length;
	uint64_t attachments; /* bit i: result->asked[i] */
};

/*
 * A walk over the kernels of a plan whose names are kept, in their order, as far as plan and list
 * agree: where they do not, it ends. It can be left off and taken up again, whatever becomes of the
 * result meanwhile.
 */
struct plan_names {
	const void *bytes, *list; /* mapped */
	size_t size, list_size;
	struct patch_plan plan;
	struct name_list names;
	uint32_t next; /* kernel */
};

/* 0, also if there are none, or -errno: then there is nothing to close. */
int plan_names_open(struct plan_names *walk, const struct image_result *result);
void plan_names_close(struct plan_names *walk);

/* False: that was all. */
bool plan_names_next(struct plan_names *walk, struct plan_name *name);
