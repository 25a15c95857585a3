/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the names of a plan's kernels (plan-names.h).
 *
 * A worker goes over the list from front to back, so the plan's kernels are in the order of the
 * names, and one walk over both is enough. The list is read as the worker reads it; the plan was
 * checked (plan-check.h). Both are sealed.
 */

#include "plan-names.h"

#include <string.h>
#include <sys/mman.h>

#include "image-result.h"
#include "proto/kernel-id.h"
#include "daemon/gpuprobed/base/memfd.h"

/* Goes on to the name that a kernel means. False: it is not there, or before the one of the last
 * kernel. */
static bool plan_names_find(struct name_list *names, const struct patch_kernel *kernel,
			    const char **namep) {
	uint32_t index;

	for (;;) {
		while (names->modules && names->module.number == kernel->module &&
		       name_list_next(names, namep, &index) == 0)
			if (index == kernel->name)
				return true;
		if (name_list_next_module(names))
			return false;
	}
}

int plan_names_open(struct plan_names *walk, const struct image_result *result) {
	int r;

	*walk = (struct plan_names){};
	if (!result->plan || !result->made || result->names < 0)
		return 0;
	r = memfd_map(result->fd, (size_t)result->size, &walk->bytes);
	if (r < 0)
		return r;
	walk->size = (size_t)result->size;
	r = memfd_map(result->names, (size_t)result->names_size, &walk->list);
	if (r < 0) {
		plan_names_close(walk);
		return r;
	}
	walk->list_size = (size_t)result->names_size;
	memcpy(&walk->plan, walk->bytes, sizeof(walk->plan));
	name_list_init(&walk->names, walk->list, walk->list_size);
	return 0;
}

void plan_names_close(struct plan_names *walk) {
	if (walk->size)
		munmap((void *)walk->bytes, walk->size);
	if (walk->list_size)
		munmap((void *)walk->list, walk->list_size);
	*walk = (struct plan_names){};
}

bool plan_names_next(struct plan_names *walk, struct plan_name *name) {
	const char *bytes = walk->bytes, *text;
	struct patch_kernel kernel;

	while (walk->next < walk->plan.kernel_count) {
		memcpy(&kernel, bytes + walk->plan.kernels + walk->next++ * sizeof(kernel),
		       sizeof(kernel));
		if (!plan_names_find(&walk->names, &kernel, &text))
			break;
		*name = (struct plan_name){ .kernel_id = kernel_id(text, strlen(text)),
					    .name = text,
					    .length = strlen(text),
					    .attachments = kernel.attachments };
		if (name->kernel_id == kernel.kernel_id)
			return true;
	}
	walk->plan.kernel_count = 0; /* nor any more */
	return false;
}
