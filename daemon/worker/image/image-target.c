/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the functions of an image that attachments apply to, and writes about them into the reply
 * (image-target.h).
 *
 * Which functions, and what is said about them. A module may have ten thousand kernels with names
 * of kilobytes, and a reply is one datagram: what would burst it is left out, and the reply says
 * so.
 */

#include "image-target.h"
#include "lib/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_BYTES_MAX (96 * 1024) /* of their names and numbers in the reply */

static void target_deinit(struct image_target *target) {
	kernel_name_deinit(&target->name);
	free(target->attachments);
	free(target->uses);
	free(target->reason);
}

void image_targets_deinit(struct image_targets *targets) {
	for (size_t i = 0; i < targets->n; i++)
		target_deinit(&targets->targets[i]);
	for (size_t i = 0; i < targets->n_left; i++)
		target_deinit(&targets->left[i]);
	free(targets->targets);
	free(targets->left);
	*targets = (struct image_targets){};
}

static int add_use(struct image_target *target, const struct image_request *request, size_t index) {
	if (!target->attachments) {
		target->attachments = calloc(request->n_attachments, sizeof(*target->attachments));
		target->uses = calloc(request->n_attachments, sizeof(*target->uses));
		if (!target->attachments || !target->uses)
			return -ENOMEM;
	}
	target->attachments[target->count] = (uint32_t)index;
	target->uses[target->count++] = request->attachments[index].use;
	return 0;
}

static int add_target(struct image_targets *targets, const struct image_target *target) {
	if (targets->n == targets->n_allocated) {
		size_t n = targets->n ? 2 * targets->n : 4;
		struct image_target *more = reallocarray(targets->targets, n, sizeof(*more));

		if (!more)
			return -ENOMEM;
		targets->targets = more;
		targets->n_allocated = n;
	}
	targets->targets[targets->n++] = *target;
	return 0;
}

int image_targets_match(struct image_targets *targets, const struct image_request *request,
			const char *mangled, bool device_function) {
	struct image_target target = { .device_function = device_function };
	int r = 0;

	kernel_name_init(&target.name, mangled);
	for (size_t i = 0; r >= 0 && i < request->n_attachments; i++) {
		if (request->attachments[i].device_function != device_function)
			continue;
		r = kernel_name_match(&target.name, request->attachments[i].kernel);
		if (r > 0)
			r = add_use(&target, request, i);
	}
	if (r >= 0 && target.count) {
		r = add_target(targets, &target);
		if (!r)
			return 0;
	}
	target_deinit(&target);
	return r;
}

int image_targets_leave_out(struct image_targets *targets,
			    int (*why)(char **reason, const struct image_target *target,
				       void *userdata),
			    void *userdata) {
	const size_t n = targets->n;
	int r = 0;

	targets->left = calloc(n + 1, sizeof(*targets->left));
	if (!targets->left)
		return -ENOMEM;
	targets->n = 0;
	for (size_t i = 0; i < n; i++) {
		struct image_target target = targets->targets[i];

		if (!r)
			r = why(&target.reason, &target, userdata);
		if (target.reason)
			targets->left[targets->n_left++] = target;
		else
			targets->targets[targets->n++] = target;
	}
	return r;
}

uint64_t image_targets_sites(const struct image_targets *targets) {
	uint64_t sites = 0;

	for (size_t i = 0; i < targets->n; i++)
		for (uint32_t j = 0; j < targets->targets[i].count; j++)
			sites += targets->targets[i].uses[j].sites;
	return sites;
}

/* Whether somebody asked for a point of this very function that it does not have. Globs may mean
 * functions without it. */
static bool misses(const struct image_target *target, const struct image_request *request,
		   uint32_t use) {
	const struct image_attachment *attachment = &request->attachments[target->attachments[use]];

	return target->reason || (!target->uses[use].sites && !strpbrk(attachment->kernel, "*?["));
}

/* "missing" of an object of "kernels", if there is something. */
static void add_missing(struct json_object *object, const struct image_target *target,
			const struct image_request *request) {
	struct json_object *list = NULL;
	char point[192];

	for (uint32_t i = 0; i < target->count; i++) {
		struct json_object *item;

		if (!misses(target, request, i))
			continue;
		list = list ?: json_add_array(object, JOB_KEY_MISSING);
		item = json_append_object(list);
		image_point_format(&target->uses[i], point, sizeof(point));
		json_add_int(item, JOB_KEY_ID, request->attachments[target->attachments[i]].id);
		worker_add_line(item, JOB_KEY_POINT, point);
	}
}

/* The members of one object of "kernels". */
static void fill_kernel(struct json_object *object, const struct image_target *target,
			const struct image_request *request, bool only_applied) {
	const char *demangled =
		target->name.demangled ? target->name.demangled : target->name.mangled;
	struct json_object *list = json_add_array(object, JOB_KEY_ATTACHMENTS);

	for (uint32_t i = 0; i < target->count && !target->reason; i++)
		if (!only_applied || target->uses[i].sites)
			json_append_int(list, request->attachments[target->attachments[i]].id);
	worker_add_string(object, JOB_KEY_NAME, target->name.mangled);
	worker_add_string(object, JOB_KEY_DEMANGLED, demangled);
	if (target->device_function)
		json_add_bool(object, JOB_KEY_DEVICE_FUNCTION, true);
	if (only_applied || target->reason)
		add_missing(object, target, request);
	if (target->reason)
		worker_add_line(object, JOB_KEY_REASON, target->reason);
}

/* One member of "kernels"; *bytes counts what it takes. 1: there is no room for it. */
static int add_kernel(struct json_object *kernels, struct image_target *target,
		      const struct image_request *request, bool only_applied, size_t *bytes) {
	int r;

	r = kernel_name_demangle(&target->name);
	if (r)
		return r;
	/* Quotes and the like double at most what compilers write. */
	*bytes +=
		2 * strlen(target->name.mangled) + 96 + 21 * (size_t)target->count +
		2 * strlen(target->name.demangled ? target->name.demangled : target->name.mangled);
	for (uint32_t i = 0; (only_applied || target->reason) && i < target->count; i++)
		*bytes += misses(target, request, i) ? 256 : 0;
	*bytes += target->reason ? 2 * strlen(target->reason) : 0;
	if (*bytes > KERNELS_BYTES_MAX)
		return 1;
	fill_kernel(json_append_object(kernels), target, request, only_applied);
	return 0;
}

static bool stands_or_misses(const struct image_target *target,
			     const struct image_request *request) {
	for (uint32_t i = 0; i < target->count; i++)
		if (target->uses[i].sites || misses(target, request, i))
			return true;
	return false;
}

/* Members of "kernels" for some of the targets. 1: there is no room for all. */
static int add_kernels(struct json_object *kernels, struct image_target *targets, size_t n,
		       const struct image_request *request, bool only_applied, size_t *bytes) {
	int r = 0;

	for (size_t i = 0; !r && i < n; i++) {
		if (only_applied && !stands_or_misses(&targets[i], request))
			continue;
		r = json_length_of(kernels) == JOB_KERNELS_MAX
			    ? 1
			    : add_kernel(kernels, &targets[i], request, only_applied, bytes);
	}
	return r;
}

int image_targets_add_kernels(struct image_targets *targets, const struct image_request *request,
			      struct json_object *reply, bool only_applied) {
	struct json_object *kernels = json_add_array(reply, JOB_KEY_KERNELS);
	size_t bytes = 0;
	int r;

	r = add_kernels(kernels, targets->targets, targets->n, request, only_applied, &bytes);
	if (!r)
		r = add_kernels(kernels, targets->left, targets->n_left, request, only_applied,
				&bytes);
	if (r > 0)
		json_add_bool(reply, JOB_KEY_TRUNCATED, true);
	return r < 0 ? r : 0;
}

int image_targets_add_applied(const struct image_targets *targets,
			      const struct image_request *request, struct json_object *reply) {
	struct json_object *applied = json_add_array(reply, JOB_KEY_APPLIED);
	bool *stands = calloc(request->n_attachments + 1, sizeof(*stands));

	if (!stands)
		return -ENOMEM;
	for (size_t i = 0; i < targets->n; i++)
		for (uint32_t j = 0; j < targets->targets[i].count; j++)
			if (targets->targets[i].uses[j].sites)
				stands[targets->targets[i].attachments[j]] = true;
	for (size_t i = 0; i < request->n_attachments; i++)
		if (stands[i])
			json_append_int(applied, request->attachments[i].id);
	free(stands);
	return 0;
}

void image_point_format(const struct probe_use *use, char *text, size_t size) {
	*text = '\0';
	switch (use->point) {
	case POINT_ENTRY:
		snprintf(text, size, "entry");
		break;
	case POINT_RETURN:
		snprintf(text, size, "return");
		break;
	case POINT_MEMORY:
		snprintf(text, size, "memory instruction");
		break;
	case POINT_LINE:
		snprintf(text, size, "line %.120s:%u", use->file, use->line);
		break;
	case POINT_BLOCK:
		snprintf(text, size, "block %u", use->block);
		break;
	case POINT_CLASS: /* of machine code */
		break;
	}
}
