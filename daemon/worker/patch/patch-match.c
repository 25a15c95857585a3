/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the kernels of the shim's list that attachments apply to (patch-match.h).
 *
 * A process may have a hundred thousand kernels loaded, and somebody waits for the answer: a name
 * is demangled only if a pattern cannot be decided without, and what a person reads is kept for as
 * many kernels as a reply lists.
 */

#include "patch-match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kernel-id.h"

#define TARGETS_MAX (JOB_KERNELS_MAX + 1) /* one more than are listed: then the reply says so */

/* The attachments that mean the kernel, a bit each; -ENOMEM. */
static int match_name(const struct patch_request *request, const char *mangled, uint64_t *found) {
	struct kernel_name name;
	int r = 0;

	*found = 0;
	kernel_name_init(&name, mangled);
	for (size_t i = 0; r >= 0 && i < request->image.n_attachments; i++) {
		r = kernel_name_match(&name, request->image.attachments[i].kernel);
		if (r > 0)
			*found |= UINT64_C(1) << i;
	}
	kernel_name_deinit(&name);
	return r < 0 ? r : 0;
}

/* The target of that name, or a new one while there is room. *out NULL: there is none. */
static int find_target(struct patch_matches *matches, const char *mangled,
		       struct image_target **out) {
	struct image_targets *targets = &matches->targets;

	*out = NULL;
	if (!targets->targets) {
		targets->targets = calloc(TARGETS_MAX, sizeof(*targets->targets));
		matches->mangled = calloc(TARGETS_MAX, sizeof(*matches->mangled));
		if (!targets->targets || !matches->mangled)
			return -ENOMEM;
	}
	if (targets->n == TARGETS_MAX)
		return 0;
	for (size_t i = 0; i < targets->n; i++) {
		if (!strcmp(targets->targets[i].name.mangled, mangled)) {
			*out = &targets->targets[i];
			return 0;
		}
	}
	matches->mangled[targets->n] = strdup(mangled);
	if (!matches->mangled[targets->n])
		return -ENOMEM;
	*out = &targets->targets[targets->n];
	kernel_name_init(&(*out)->name, matches->mangled[targets->n]);
	targets->n++;
	return 0;
}

/* The kernel is listed, with these attachments too. */
static int list(struct patch_matches *matches, const struct patch_request *request,
		const char *mangled, uint64_t attachments) {
	const size_t n = request->image.n_attachments;
	struct image_target *target;
	int r;

	r = find_target(matches, mangled, &target);
	if (r || !target)
		return r;
	for (uint32_t i = 0; i < target->count; i++)
		attachments |= UINT64_C(1) << target->attachments[i];
	if (!target->attachments)
		target->attachments = calloc(n, sizeof(*target->attachments));
	if (!target->attachments)
		return -ENOMEM;
	target->count = 0;
	for (uint32_t i = 0; i < n; i++)
		if (attachments & UINT64_C(1) << i)
			target->attachments[target->count++] = i;
	return 0;
}

static int add_kernel(struct patch_matches *matches, const struct patch_kernel *kernel) {
	if (matches->n == matches->n_allocated) {
		size_t n = matches->n ? 2 * matches->n : 64;
		struct patch_kernel *more = reallocarray(matches->kernels, n, sizeof(*more));

		if (!more)
			return -ENOMEM;
		matches->kernels = more;
		matches->n_allocated = n;
	}
	matches->kernels[matches->n++] = *kernel;
	return 0;
}

static int match_kernel(struct patch_matches *matches, const struct patch_request *request,
			struct patch_kernel *kernel, const char *mangled) {
	int r;

	r = match_name(request, mangled, &kernel->attachments);
	if (r || !kernel->attachments)
		return r;
	kernel->kernel_id = kernel_id(mangled, strlen(mangled));
	r = add_kernel(matches, kernel);
	return r ? r : list(matches, request, mangled, kernel->attachments);
}

static int match_module(struct patch_matches *matches, const struct patch_request *request,
			struct name_list *names) {
	const char *name;
	uint32_t index;
	int r = 0;

	while (!r && !name_list_next(names, &name, &index)) {
		struct patch_kernel kernel = { .module = names->module.number, .name = index };

		matches->names++;
		if (*name)
			r = match_kernel(matches, request, &kernel, name);
	}
	return r;
}

/* Which patterns with a prefix mean it: a first walk over all names. A list that is malformed is
 * for the second to say. */
static int decide_prefixes(struct patch_request *request) {
	struct name_list names;
	const char *name;
	uint32_t index;
	int r = 0;

	if (!image_request_prefixed(&request->image))
		return 0;
	name_list_init(&names, request->names, request->names_size);
	while (!r && !name_list_next_module(&names))
		while (!r && !name_list_next(&names, &name, &index))
			r = image_request_prefix_seen(&request->image, name);
	image_request_prefix_decide(&request->image);
	return r;
}

int patch_match(struct patch_matches *matches, struct patch_request *request, const char **what) {
	struct name_list names;
	int r;

	*matches = (struct patch_matches){};
	r = decide_prefixes(request);
	if (r)
		return r;
	name_list_init(&names, request->names, request->names_size);
	do {
		r = name_list_next_module(&names);
		if (!r)
			r = match_module(matches, request, &names);
	} while (!r);
	*what = names.what;
	return r == NAME_LIST_E_END ? 0 : r;
}

void patch_matches_deinit(struct patch_matches *matches) {
	for (size_t i = 0; i < matches->targets.n; i++)
		free(matches->mangled[i]);
	free(matches->mangled);
	image_targets_deinit(&matches->targets);
	free(matches->kernels);
	*matches = (struct patch_matches){};
}
