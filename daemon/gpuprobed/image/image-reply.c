/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks a worker's reply to a job `image` (image-reply.h).
 *
 * The worker has seen a hostile image and may be in its hands. All it can do here is choose which
 * of the offered attachments are applied and what the process that sent the image gets to run;
 * names are only shown.
 */

#include "image-reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/registry/outcome.h"
#include "lib/base/text.h"
#include "proto/wire.h"
#include "lib/json.h"

static bool image_reply_offered(json_object *id, const struct image_reply_request *request) {
	for (size_t i = 0; i < request->n_attachments; i++)
		if (json_object_is_type(id, json_type_int) &&
		    (uint64_t)json_object_get_int64(id) == request->attachments[i])
			return true;
	return false;
}

/* An array of ids out of the offered ones. */
static int image_reply_ids(json_object *object, const char *key,
			   const struct image_reply_request *request, uint64_t **idsp, size_t *np) {
	json_object *array;
	size_t n;

	*idsp = NULL;
	*np = 0;
	if (!json_has(object, key))
		return 0;
	if (!json_get_array(object, key, request->n_attachments, &array))
		return IMAGE_REPLY_E_INVALID;
	n = json_object_array_length(array);
	*idsp = calloc(n ? n : 1, sizeof(**idsp));
	if (!*idsp)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		json_object *id = json_object_array_get_idx(array, i);

		if (!image_reply_offered(id, request))
			return IMAGE_REPLY_E_INVALID;
		(*idsp)[(*np)++] = (uint64_t)json_object_get_int64(id);
	}
	return 0;
}

/* "missing" of a kernel, and the reason if it was left out. */
static int image_reply_missing(struct image_kernel *kernel, json_object *item,
			       const struct image_reply_request *request) {
	const char *point, *reason = json_string_of(item, JOB_KEY_REASON);
	json_object *array, *id, *entry;

	if (!json_has(item, JOB_KEY_MISSING))
		return 0;
	if (!json_get_array(item, JOB_KEY_MISSING, request->n_attachments, &array))
		return IMAGE_REPLY_E_INVALID;
	kernel->missing = calloc(json_object_array_length(array) + 1, sizeof(*kernel->missing));
	if (!kernel->missing)
		return -ENOMEM;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		entry = json_object_array_get_idx(array, i);
		id = json_member(entry, JOB_KEY_ID);
		if (!image_reply_offered(id, request))
			return IMAGE_REPLY_E_INVALID;
		point = json_string_of(entry, JOB_KEY_POINT);
		if (i == 0)
			snprintf(kernel->missing_text, sizeof(kernel->missing_text), "%s",
				 reason ?: point ?: "");
		kernel->missing[kernel->n_missing++] = (uint64_t)json_object_get_int64(id);
	}
	kernel->left_out = reason;
	text_make_printable(kernel->missing_text);
	return 0;
}

int image_reply_kernels(struct image_result *result, json_object *reply,
			const struct image_reply_request *request) {
	json_object *array;
	size_t n;

	if (!json_has(reply, JOB_KEY_KERNELS))
		return 0;
	if (!json_get_array(reply, JOB_KEY_KERNELS, JOB_KERNELS_MAX, &array))
		return IMAGE_REPLY_E_INVALID;
	n = json_object_array_length(array);
	result->kernels = calloc(n ? n : 1, sizeof(*result->kernels));
	if (!result->kernels)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		json_object *item = json_object_array_get_idx(array, i);
		struct image_kernel *kernel = &result->kernels[result->n_kernels];
		const char *name, *demangled;
		int r;

		if (!json_object_is_type(item, json_type_object))
			return IMAGE_REPLY_E_INVALID;
		name = json_string_of(item, JOB_KEY_NAME);
		demangled = json_string_of(item, JOB_KEY_DEMANGLED);
		if (!name)
			return IMAGE_REPLY_E_INVALID;
		result->n_kernels++;
		kernel->name = strdup(name);
		kernel->demangled = strdup(demangled ? demangled : name);
		if (!kernel->name || !kernel->demangled)
			return -ENOMEM;
		kernel->device_function = json_bool_of(item, JOB_KEY_DEVICE_FUNCTION);
		r = image_reply_ids(item, JOB_KEY_ATTACHMENTS, request, &kernel->attachments,
				    &kernel->n_attachments);
		if (r == 0)
			r = image_reply_missing(kernel, item, request);
		if (r)
			return r;
	}
	return 0;
}

/* One more slot; one that is there already is not put in twice. */
static int image_reply_slot(struct image_result *result, uint64_t map, enum wire_slot_kind kind,
			    const char *symbol) {
	if (image_result_uses(result, map))
		return 0;
	if (result->n_slots == WIRE_SLOTS_MAX)
		return IMAGE_REPLY_E_INVALID;
	result->slots[result->n_slots].map = map;
	result->slots[result->n_slots].kind = kind;
	strcpy(result->slots[result->n_slots].symbol, symbol);
	result->n_slots++;
	return 0;
}

/*
 * The maps of the applied programs, and what they know of the process. Those of attachments that
 * went away meanwhile stay unarmed.
 */
static int image_reply_slots(struct image_result *result, const struct registry *registry) {
	int r = 0;

	result->slots = calloc(WIRE_SLOTS_MAX, sizeof(*result->slots));
	if (!result->slots)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < result->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(registry, result->attachments[i]);
		const struct gpu_program *program = attachment_gpu(attachment);
		const struct object *object = program ? attachment->object : NULL;

		for (size_t m = 0; r == 0 && object && m < object->n_maps; m++)
			if (program->maps >> m & 1 && object->maps[m])
				r = image_reply_slot(result, object->maps[m]->id,
						     object->resident >> m & 1 ? WIRE_SLOT_DATA
									       : WIRE_SLOT_POINTER,
						     object->slots[m]);
		if (r == 0 && program && program->process)
			r = image_reply_slot(result, 0, WIRE_SLOT_PROCESS, WIRE_PROCESS_SYMBOL);
	}
	return r;
}

/* Takes the instructions with memory probes, if the worker found any. What they say is looked at
 * when somebody asks. */
static int image_reply_instructions(struct image_result *result, json_object *reply,
				    struct worker_task *task) {
	int64_t size;

	if (!json_has(reply, JOB_KEY_INSTRUCTIONS_SIZE))
		return 0;
	result->n_instructions = worker_task_output_size(task, IMAGE_REPLY_INSTRUCTIONS);
	if (!json_get_int(reply, JOB_KEY_INSTRUCTIONS_SIZE, 0, INT64_MAX, &size) ||
	    (uint64_t)size != result->n_instructions)
		return IMAGE_REPLY_E_INVALID;
	if (result->n_instructions)
		result->instructions = worker_task_steal_fd(task, IMAGE_REPLY_INSTRUCTIONS);
	return 0;
}

static int image_reply_fill(struct image_result *result, json_object *reply,
			    struct worker_task *task, const struct image_reply_request *request) {
	const int status = job_status_of(reply);
	const char *reason;
	int64_t size;
	int r;

	r = image_reply_kernels(result, reply, request);
	if (r)
		return r;
	if (status == JOB_OWN) {
		result->no_ptx = JOB_WORD(job_causes, json_string_of(reply, JOB_KEY_CAUSE)) ==
				 JOB_CAUSE_NO_PTX;
		reason = json_string_of(reply, JOB_KEY_REASON);
		snprintf(result->reason, sizeof(result->reason), "%s",
			 reason ? reason : "the worker gave no reason");
		text_make_printable(result->reason);
		return 0;
	}
	if (status != JOB_MADE || !json_get_int(reply, JOB_KEY_SIZE, 1, INT64_MAX, &size))
		return IMAGE_REPLY_E_INVALID;
	result->machine_code =
		JOB_WORD(job_twins, json_string_of(reply, JOB_KEY_TWIN)) == JOB_TWINS_MACHINE_CODE;
	result->size = worker_task_output_size(task, IMAGE_REPLY_OUTPUT);
	if ((uint64_t)size != result->size)
		return IMAGE_REPLY_E_INVALID;
	r = image_reply_ids(reply, JOB_KEY_APPLIED, request, &result->attachments,
			    &result->n_attachments);
	if (r)
		return r;
	if (!result->n_attachments)
		return IMAGE_REPLY_E_INVALID;
	r = image_reply_slots(result, request->registry);
	if (r == 0)
		r = image_reply_instructions(result, reply, task);
	if (r)
		return r;
	reason = json_string_of(reply, "note"); /* of pass.c */
	if (reason) {
		snprintf(result->reason, sizeof(result->reason), "%s", reason);
		text_make_printable(result->reason);
	}
	result->fd = worker_task_steal_fd(task, IMAGE_REPLY_OUTPUT);
	result->made = true;
	return 0;
}

int image_reply_parse(struct image_result **resultp, json_object *reply, struct worker_task *task,
		      const struct image_reply_request *request) {
	struct image_result *result;
	int r;

	r = image_result_new(&result);
	if (r < 0)
		return r;
	result->image = request->image;
	r = image_reply_fill(result, reply, task, request);
	if (r) {
		image_result_unref(result);
		return r;
	}
	*resultp = result;
	return 0;
}
