/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes patch images and keeps them (plan-image.h).
 *
 * Nothing foreign goes into a patch image, only programs of attachments: so one is for all
 * processes that the same attachments mean, whoever's they are. So no worker makes it that has seen
 * anybody's image. A failure is remembered, too: for good if the programs are at fault, because
 * another job would say the same, else for half a minute.
 */

#include "plan-image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/gpuprobed/registry/attachment-json.h"
#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "image-context.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "lib/json.h"
#include "pass.h"
#include "plan-check.h"

#define PLAN_SIZE_MAX (UINT64_C(64) << 20)
#define PLAN_COMPILE_MS 20000
#define PLAN_RETRY_MS 30000

void plan_images_init(struct plan_images *images) {
	*images = (struct plan_images){};
	TAILQ_INIT(&images->list);
}

static void plan_image_free(struct plan_images *images, struct plan_image *image) {
	TAILQ_REMOVE(&images->list, image, link);
	images->n--;
	fd_close(image->fd);
	free(image);
}

void plan_images_deinit(struct plan_images *images) {
	while (!TAILQ_EMPTY(&images->list))
		plan_image_free(images, TAILQ_FIRST(&images->list));
}

static bool plan_image_has(const struct plan_image *image, uint64_t attachment) {
	for (size_t i = 0; i < image->n_attachments; i++)
		if (image->attachments[i] == attachment)
			return true;
	return false;
}

void plan_images_forget(struct plan_images *images, uint64_t attachment) {
	struct plan_image *image, *next;

	for (image = TAILQ_FIRST(&images->list); image; image = next) {
		next = TAILQ_NEXT(image, link);
		if (!plan_image_has(image, attachment))
			continue;
		if (image->state == PLAN_IN_WORK || image->telling)
			image->doomed = true;
		else
			plan_image_free(images, image);
	}
}

/* Of all that are done, the one that was not used for the longest time among those of the payer who
 * has the most. NULL: none is. */
static struct plan_image *plan_images_surplus(const struct plan_images *images) {
	struct plan_image *image, *surplus = NULL;
	const struct plan_image *other;
	unsigned int n, most = 0;

	TAILQ_FOREACH(image, &images->list, link) {
		if (image->state == PLAN_IN_WORK || image->telling)
			continue;
		n = 0;
		TAILQ_FOREACH(other, &images->list, link)
			n += other->payer == image->payer;
		if (n >= most) { /* the last of them */
			surplus = image;
			most = n;
		}
	}
	return surplus;
}

static void plan_images_trim(struct plan_images *images) {
	struct plan_image *image;

	while (images->n > PLAN_IMAGES_MAX && (image = plan_images_surplus(images)))
		plan_image_free(images, image);
}

unsigned int plan_images_busy(const struct plan_images *images) {
	const struct plan_image *image;
	unsigned int n = 0;

	TAILQ_FOREACH(image, &images->list, link)
		n += image->state == PLAN_IN_WORK;
	return n;
}

struct plan_image *plan_image_find(struct image_context *context, uint32_t capability,
				   const uint64_t *attachments, size_t n) {
	struct plan_images *images = &context->plans;
	struct plan_image *image;

	TAILQ_FOREACH(image, &images->list, link) {
		if (image->doomed || image->capability != capability || image->n_attachments != n ||
		    memcmp(image->attachments, attachments, n * sizeof(*attachments)) != 0)
			continue;
		if (image->state == PLAN_FAILED && image->expires <= uv_now(context->loop)) {
			plan_image_free(images, image);
			return NULL;
		}
		TAILQ_REMOVE(&images->list, image, link);
		TAILQ_INSERT_HEAD(&images->list, image, link);
		return image;
	}
	return NULL;
}

uint32_t plan_data_size(const struct image_context *context, const uint64_t *attachments,
			size_t n) {
	size_t size = sizeof(struct patch_data);

	for (size_t i = 0; i < n; i++) {
		const struct attachment *attachment =
			registry_attachment(context->registry, attachments[i]);

		if (!attachment)
			return 0;
		size += sizeof(uint64_t) * attachment_patch_slots(attachment);
	}
	return (uint32_t)((size + 15) / 16 * 16);
}

/* ---- the job ---- */

/* Adds a copy of a descriptor as an input. 0 or -errno. */
static int plan_job_input(json_object *request, struct worker_task *task, const char *key,
			  int borrowed) {
	int index = worker_task_add_copy(task, borrowed);

	if (index < 0)
		return index;
	json_add_int(request, key, index);
	return 0;
}

/* One attachment and its program. 0 or -errno. */
static int plan_job_attachment(const struct plan_job *job, size_t i, struct worker_task *task,
			       json_object *programs, json_object *attachments) {
	const struct attachment *attachment =
		registry_attachment(job->context->registry, job->attachments[i]);
	const struct gpu_program *program = attachment_gpu(attachment);
	int index;

	if (!program || program->patch_fd < 0)
		return -ESTALE;
	index = worker_task_add_copy(task, program->patch_fd);
	if (index < 0)
		return index;
	json_append(programs, attachment_patch_json(attachment, index));
	json_append(attachments,
		    attachment_json(attachment, pass_set_spaces(&job->context->passes)));
	return 0;
}

int plan_job_task(struct worker_task **taskp, const struct plan_job *job, worker_task_fn fn,
		  void *userdata) {
	json_object *request = json_object_new_object(), *programs = json_object_new_array(),
		    *attachments = json_object_new_array();
	struct worker_task *task = worker_task_new(json_object_get(request), fn, userdata);
	int r;

	json_add_string(request, JOB_KEY_JOB, JOB_PATCH);
	json_add_int(request, JOB_KEY_CAPABILITY, (int)job->capability);
	json_add(request, JOB_KEY_PROGRAMS, programs);
	json_add(request, JOB_KEY_ATTACHMENTS, attachments);
	r = task ? worker_task_add_output(task, PLAN_SIZE_MAX) : -ENOMEM;
	if (r >= 0) {
		json_add_int(request, JOB_KEY_OUTPUT, r);
		r = 0;
	}
	if (r == 0 && job->names >= 0)
		r = plan_job_input(request, task, JOB_KEY_NAMES, job->names);
	if (r == 0 && job->patch >= 0)
		r = plan_job_input(request, task, JOB_KEY_PATCH, job->patch);
	for (size_t i = 0; r == 0 && i < job->n_attachments; i++)
		r = plan_job_attachment(job, i, task, programs, attachments);
	json_object_put(request);
	if (r < 0) {
		worker_task_free(task);
		return r;
	}
	*taskp = task;
	return 0;
}

/* ---- the reply ---- */

static uint32_t plan_number(json_object *object, const char *key) {
	int64_t value = json_int_of(object, key);

	return value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* What the worker says of the functions: only shown. */
static void plan_image_functions(struct plan_image *image, json_object *reply) {
	json_object *array;

	if (!json_get_array(reply, JOB_KEY_FUNCTIONS, SIZE_MAX, &array))
		return;
	for (size_t i = 0;
	     i < json_object_array_length(array) && image->n_functions < PLAN_FUNCTIONS_MAX; i++) {
		json_object *json = json_object_array_get_idx(array, i);

		if (!json_object_is_type(json, json_type_object))
			continue;
		image->functions[image->n_functions++] = (struct plan_function){
			.instruction = plan_number(json, JOB_KEY_INSTRUCTION),
			.registers = plan_number(json, JOB_KEY_REGISTERS),
			.spill_stores = plan_number(json, JOB_KEY_SPILL_STORES),
			.spill_loads = plan_number(json, JOB_KEY_SPILL_LOADS),
			.stack = plan_number(json, JOB_KEY_STACK),
		};
	}
}

/* Takes what the worker made. NULL, or what is wrong with it. */
static const char *plan_image_take(struct plan_image *image, struct worker_task *task,
				   json_object *reply) {
	const uint32_t data_size =
		plan_data_size(image->context, image->attachments, image->n_attachments);
	const uint64_t size = worker_task_output_size(task, PLAN_OUTPUT);
	const void *bytes;
	const char *why;
	uint64_t meant;
	int fd;

	if (!size || size != plan_number(reply, JOB_KEY_SIZE))
		return "worker sent a malformed reply";
	fd = worker_task_steal_fd(task, PLAN_OUTPUT);
	if (fd < 0 || memfd_map(fd, size, &bytes) < 0) {
		fd_close(fd);
		return "no memory for a patch";
	}
	why = plan_check(bytes, size, image->n_attachments, data_size, &meant);
	munmap((void *)bytes, size);
	if (why || meant) {
		fd_close(fd);
		return "worker sent a malformed plan";
	}
	image->fd = fd;
	plan_image_functions(image, reply);
	return NULL;
}

/* Whether the programs are at fault, and not the worker, the machine or the time. */
static bool plan_is_programs(int result, json_object *reply) {
	const int error = job_error_of(reply);

	return result == WORKER_POOL_E_REFUSED &&
	       (error == JOB_E_COMPILE || error == JOB_E_PROGRAM);
}

static void plan_image_on_task(struct worker_task *task, int result, json_object *reply,
			       const char *message, void *userdata) {
	struct plan_image *image = userdata;
	struct plan_images *images = &image->context->plans;
	const char *why = message;

	if (result == _WORKER_POOL_SUCCESS)
		why = image->doomed ? "an attachment went away meanwhile"
				    : plan_image_take(image, task, reply);
	image->task = NULL;
	image->state = why ? PLAN_FAILED : PLAN_READY;
	if (why) {
		worker_task_spoil(task);
		image->program_failed = plan_is_programs(result, reply);
		image->expires = image->program_failed
					 ? UINT64_MAX
					 : uv_now(image->context->loop) + PLAN_RETRY_MS;
		snprintf(image->reason, sizeof(image->reason), "%s", why);
	}
	image->telling = true;
	while (!LIST_EMPTY(&image->waiters)) {
		struct plan_waiter *waiter = LIST_FIRST(&image->waiters);

		plan_waiter_cancel(waiter);
		waiter->fn(waiter, image);
	}
	image->telling = false;
	if (image->doomed)
		plan_image_free(images, image);
	plan_images_trim(images);
}

int plan_image_get(struct plan_image **imagep, struct image_context *context, uid_t payer,
		   uint32_t capability, const uint64_t *attachments, size_t n) {
	struct plan_image *image = plan_image_find(context, capability, attachments, n);
	const struct plan_job job = {
		.context = context,
		.capability = capability,
		.attachments = attachments,
		.n_attachments = n,
		.names = -1,
		.patch = -1,
	};
	const struct attachment *first =
		n ? registry_attachment(context->registry, attachments[0]) : NULL;
	const struct job_cache_use use = { .uid = first ? first->object->owner : 0 };
	struct worker_task *task;
	int r;

	if (image) {
		if (image->task)
			worker_task_share(image->task, payer, PLAN_COMPILE_MS);
		*imagep = image;
		return 0;
	}
	image = calloc(1, sizeof(*image));
	if (!image)
		return -ENOMEM;
	r = plan_job_task(&task, &job, plan_image_on_task, image);
	if (r < 0) {
		free(image);
		return r;
	}
	worker_task_set_alone(task);
	worker_task_set_owner(task, payer);
	image->context = context;
	image->payer = payer;
	image->capability = capability;
	image->n_attachments = n;
	memcpy(image->attachments, attachments, n * sizeof(*attachments));
	image->task = task;
	image->fd = -1;
	LIST_INIT(&image->waiters);
	TAILQ_INSERT_HEAD(&context->plans.list, image, link);
	context->plans.n++;
	job_cache_submit(context->cache, context->image_pool, task, PLAN_COMPILE_MS, &use);
	*imagep = image;
	return 0;
}

void plan_image_wait(struct plan_image *image, struct plan_waiter *waiter) {
	LIST_INSERT_HEAD(&image->waiters, waiter, link);
	waiter->image = image;
}

void plan_waiter_cancel(struct plan_waiter *waiter) {
	if (waiter->image)
		LIST_REMOVE(waiter, link);
	waiter->image = NULL;
}
