/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A worker goes over the list from front to back, so the plan's kernels are in the order of the names, and one walk
 * over both is enough. The list is read as the worker reads it; the plan was checked (plan-check.h). Both are sealed.
 */

#include "plan-names.h"

#include <string.h>
#include <sys/mman.h>

#include "../passes/probe.h"
#include "image-result.h"
#include "kernel-id.h"
#include "memfd.h"
#include "patch.h"
#include "worker/patch-names.h"

/* Goes on to the name that a kernel means. False: it is not there, or before the one of the last kernel. */
static bool plan_names_find(struct patch_names *names, const struct patch_kernel *kernel, const char **namep) {
	uint32_t index;

	for (;;) {
		while (names->modules && names->module.number == kernel->module &&
		       patch_names_next(names, namep, &index) == 0)
			if (index == kernel->name)
				return true;
		if (patch_names_next_module(names))
			return false;
	}
}

/* The name as kernels are numbered: without the suffix of bare ones. */
static void plan_names_fill(struct plan_name *name, const char *text, const struct patch_kernel *kernel) {
	static const size_t suffix = sizeof(PROBE_BARE_SUFFIX) - 1;
	size_t length = strlen(text);

	if (length > suffix && memcmp(text + length - suffix, PROBE_BARE_SUFFIX, suffix) == 0)
		length -= suffix;
	*name = (struct plan_name){ .kernel_id = kernel_id(text, length),
				    .name = text,
				    .length = length,
				    .attachments = kernel->attachments };
}

static int plan_names_walk(const char *bytes, const void *list, size_t size,
			   int (*fn)(const struct plan_name *name, void *userdata), void *userdata) {
	struct patch_kernel kernel;
	struct patch_names names;
	struct plan_name name;
	struct patch_plan plan;
	const char *text;
	int r = 0;

	memcpy(&plan, bytes, sizeof(plan));
	patch_names_init(&names, list, size);
	for (uint32_t i = 0; r == 0 && i < plan.kernel_count; i++) {
		memcpy(&kernel, bytes + plan.kernels + i * sizeof(kernel), sizeof(kernel));
		if (!plan_names_find(&names, &kernel, &text))
			break;
		plan_names_fill(&name, text, &kernel);
		if (name.kernel_id == kernel.kernel_id)
			r = fn(&name, userdata);
	}
	return r;
}

int plan_names_each(const struct image_result *result, int (*fn)(const struct plan_name *name, void *userdata),
		    void *userdata) {
	const void *bytes, *list;
	int r;

	if (!result->plan || !result->replaced || result->names < 0)
		return 0;
	r = memfd_map(result->fd, (size_t)result->size, &bytes);
	if (r < 0)
		return r;
	r = memfd_map(result->names, (size_t)result->names_size, &list);
	if (r == 0) {
		r = plan_names_walk(bytes, list, (size_t)result->names_size, fn, userdata);
		munmap((void *)list, (size_t)result->names_size);
	}
	munmap((void *)bytes, (size_t)result->size);
	return r;
}
