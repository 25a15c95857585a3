/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes a plan for a process (plan-work.h).
 *
 * The worker that matches names has seen a hostile list and may be in its sender's hands: what it
 * says is checked, and reaches that sender alone. Slots are laid out here, as proto/patch.h says,
 * for the attachments whose bits a kernel has; the data of the others are left at 0.
 */

#include "plan-work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "image-context.h"
#include "image-work.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "plan-check.h"
#include "plan-image.h"
#include "lib/json.h"

/* ---- the reply ---- */

/* One slot more. 0 or IMAGE_REPLY_E_INVALID: there are too many. */
static int plan_slot(struct image_result *result, uint64_t map, enum wire_slot_kind kind,
		     size_t index) {
	if (result->n_slots == WIRE_SLOTS_MAX)
		return IMAGE_REPLY_E_INVALID;
	result->slots[result->n_slots++] = (struct image_slot){
		.map = map,
		.kind = kind,
		.offset = (uint32_t)(sizeof(struct patch_data) + index * sizeof(uint64_t)),
	};
	return 0;
}

/* The slots of one attachment, from index on. */
static int plan_slots_of(struct image_result *result, const struct attachment *attachment,
			 size_t index) {
	const struct gpu_program *program = attachment_gpu(attachment);
	const struct object *object = attachment->object;
	int r;

	r = plan_slot(result, 0, WIRE_SLOT_PROCESS, index);
	for (size_t i = 0; r == 0 && i < program->n_patch_maps; i++) {
		const size_t map = program->patch_maps[i];

		r = plan_slot(result, object->maps[map]->id,
			      object->resident >> map & 1 ? WIRE_SLOT_REGION : WIRE_SLOT_POINTER,
			      index + 1 + i);
	}
	return r;
}

/* The attachments that are meant, and their slots. */
static int plan_apply(struct image_result *result, const struct image_reply_request *request,
		      uint64_t meant) {
	size_t index = 0;
	int r = 0;

	result->asked = calloc(request->n_attachments, sizeof(*result->asked));
	if (!result->asked)
		return -ENOMEM;
	result->n_asked = request->n_attachments;
	memcpy(result->asked, request->attachments,
	       request->n_attachments * sizeof(*result->asked));
	result->attachments = calloc(request->n_attachments, sizeof(*result->attachments));
	result->slots = calloc(WIRE_SLOTS_MAX, sizeof(*result->slots));
	if (!result->attachments || !result->slots)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < request->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(request->registry, request->attachments[i]);

		if (!attachment)
			return -ESTALE;
		if (meant >> i & 1) {
			result->attachments[result->n_attachments++] = attachment->id;
			r = plan_slots_of(result, attachment, index);
		}
		index += attachment_patch_slots(attachment);
	}
	return r;
}

/* Reads the plan itself, after its size is known to be true. */
static int plan_fill(struct image_result *result, int fd, const struct image_context *context,
		     const struct image_reply_request *request) {
	const uint32_t data_size =
		plan_data_size(context, request->attachments, request->n_attachments);
	const void *bytes;
	const char *why;
	uint64_t meant;
	int r;

	if (!data_size)
		return -ESTALE;
	r = memfd_map(fd, result->size, &bytes);
	if (r < 0)
		return -ENOMEM;
	why = plan_check(bytes, result->size, request->n_attachments, data_size, &meant);
	munmap((void *)bytes, result->size);
	if (why)
		return IMAGE_REPLY_E_INVALID;
	if (!meant) {
		strcpy(result->reason, "no kernel that is loaded matches");
		return 0;
	}
	r = plan_apply(result, request, meant);
	result->made = r == 0;
	return r;
}

int plan_reply_parse(struct image_result **resultp, json_object *reply, struct worker_task *task,
		     const struct image_context *context,
		     const struct image_reply_request *request) {
	struct image_result *result;
	int64_t size;
	int r;

	r = image_result_new(&result);
	if (r < 0)
		return r;
	result->plan = true;
	result->size = worker_task_output_size(task, PLAN_OUTPUT);
	r = image_reply_kernels(result, reply, request);
	if (r == 0 && (!json_get_int(reply, JOB_KEY_SIZE, 1, INT64_MAX, &size) ||
		       (uint64_t)size != result->size))
		r = IMAGE_REPLY_E_INVALID;
	if (r == 0) {
		result->fd = worker_task_steal_fd(task, PLAN_OUTPUT);
		r = result->fd < 0 ? -ENOMEM : plan_fill(result, result->fd, context, request);
		if (!result->made)
			result->fd = fd_close(result->fd);
	}
	if (r) {
		image_result_unref(result);
		return r;
	}
	*resultp = result;
	return 0;
}

/* ---- the work ---- */

static void plan_work_take(struct worker_task *task, int result, json_object *reply,
			   const char *message, void *userdata) {
	struct image_work *work = userdata;
	const struct image_reply_request request = {
		.registry = work->context->registry,
		.attachments = work->attachments,
		.n_attachments = work->n_attachments,
	};
	struct image_result *made = NULL;
	int r;

	if (result) {
		image_work_fail_job(work, result, reply, message);
		return;
	}
	r = plan_reply_parse(&made, reply, task, work->context, &request);
	if (r > 0)
		image_work_fail(work, IMAGE_KEEP_BAD_MS, "worker sent a malformed plan");
	else if (r == -ESTALE)
		image_work_fail(work, 0, "an attachment went away meanwhile");
	else
		image_work_end(work, made, IMAGE_KEEP_ALWAYS);
}

/* Has the names matched: the patch image is there. 0 or -errno. */
static int plan_work_match(struct image_work *work, const struct plan_image *image) {
	const struct plan_job job = {
		.context = work->context,
		.capability = work->capability,
		.attachments = work->attachments,
		.n_attachments = work->n_attachments,
		.names = work->fd,
		.patch = image->fd,
	};
	struct worker_task *task;
	int r;

	r = plan_job_task(&task, &job, image_work_on_task, work);
	if (r == 0)
		image_work_submit_task(work, task, NULL, plan_work_take, work);
	return r;
}

static void plan_work_on_image(struct plan_waiter *waiter, const struct plan_image *image) {
	struct image_work *work =
		(struct image_work *)((char *)waiter - offsetof(struct image_work, waiter));
	int r = 0;

	if (image->state == PLAN_FAILED)
		image_work_fail(work, 0, "%s", image->reason);
	else
		r = plan_work_match(work, image);
	if (r == -ESTALE)
		image_work_fail(work, 0, "an attachment went away meanwhile");
	else if (r < 0)
		image_work_fail(work, 0, "%s", strerror(-r));
}

int plan_work_start(struct image_work *work) {
	struct plan_image *image;
	int r;

	r = plan_image_get(&image, work->context, work->uid, work->capability, work->attachments,
			   work->n_attachments);
	if (r < 0)
		return r;
	if (image->state == PLAN_READY)
		return plan_work_match(work, image);
	if (image->state == PLAN_FAILED)
		return -EAGAIN;
	image_work_compiles(work);
	work->waiter.fn = plan_work_on_image;
	plan_image_wait(image, &work->waiter);
	return 0;
}
