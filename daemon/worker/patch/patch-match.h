/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the kernels of the shim's list to which attachments apply. */

#include "daemon/worker/image/image-target.h"
#include "lib/name-list.h"
#include "patch-request.h"

struct patch_matches {
	struct patch_kernel *kernels; /* owned; those that are meant, in the order of the list */
	size_t n, n_allocated;
	uint64_t names; /* in the list */
	/* What a reply lists: a name once, whichever modules have it. */
	struct image_targets targets;
	char **mangled; /* owned, the targets' names */
};

/*
 * 0, enum name_list_error (*what says how the list is malformed) or -ENOMEM.
 * patch_matches_deinit() is due in any case.
 */
int patch_match(struct patch_matches *matches, struct patch_request *request, const char **what);
void patch_matches_deinit(struct patch_matches *matches);
