/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes patch images before a process asks for them (plan-prepare.h).
 *
 * An object's attachments are compiled alone first: what cannot be compiled is then no trouble of
 * anybody who has attached something else. A process whose shim has not asked for anything yet is
 * not known to the daemon; for it, what is made is what the filter says it will need.
 *
 * What devices there are is known from the machine, or from processes of root or the daemon's own
 * user. What other processes say of theirs is as true as they want: it counts for what they ask
 * for, and for what their own user attaches.
 */

#include "plan-prepare.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "image-context.h"
#include "image-match.h"
#include "plan-image.h"
#include "proto/job.h"

struct plan_prepare_waiter {
	struct plan_waiter waiter; /* first */
	struct plan_prepare *prepare;
};

struct plan_prepare {
	uv_timer_t timer;
	plan_prepare_fn fn;
	void *userdata;
	size_t n, n_open;
	struct plan_prepare_waiter waiters[PLAN_PREPARE_MAX];
};

void plan_note_capability(struct image_context *context, uint32_t capability) {
	for (unsigned int i = 0; i < context->n_capabilities; i++)
		if (context->capabilities[i] == capability)
			return;
	if (context->n_capabilities < PLAN_CAPABILITIES_MAX)
		context->capabilities[context->n_capabilities++] = capability;
}

/* The attachments of the object that the sanitizer engine can have. */
static size_t plan_ids_of(const struct image_context *context, const struct object *object,
			  uint64_t ids[static JOB_IMAGE_PROGRAMS_MAX]) {
	const struct attachment *attachment;
	size_t n = 0;

	TAILQ_FOREACH(attachment, &context->registry->attachments, link)
		if (attachment->object == object && attachment_on_sass(attachment) &&
		    n < JOB_IMAGE_PROGRAMS_MAX)
			ids[n++] = attachment->id;
	return n;
}

#define PLAN_DEVICES_MAX (PLAN_CAPABILITIES_MAX + PROCESS_CAPABILITIES_MAX)

static bool plan_has_device(const uint32_t *devices, size_t n, uint32_t capability) {
	for (size_t i = 0; i < n; i++)
		if (devices[i] == capability)
			return true;
	return false;
}

/* Devices that an object is made for: of the machine, and of its owner's processes. How many. */
static size_t plan_devices(const struct image_context *context, const struct object *object,
			   uint32_t devices[static PLAN_DEVICES_MAX]) {
	const struct process *process;
	size_t n = context->n_capabilities;

	memcpy(devices, context->capabilities, n * sizeof(*devices));
	LIST_FOREACH(process, &context->processes->list, link)
		for (unsigned int i = 0;
		     process->uid == object->owner && i < process->n_capabilities; i++)
			if (n < PLAN_DEVICES_MAX &&
			    !plan_has_device(devices, n, process->capabilities[i]))
				devices[n++] = process->capabilities[i];
	return n;
}

/*
 * The failed image of the object alone, if it failed for all devices: processes say what they have,
 * and one that names a device that nobody can compile for is not to spoil what others attach.
 */
static const struct plan_image *plan_failed(struct image_context *context,
					    const struct object *object) {
	uint64_t ids[JOB_IMAGE_PROGRAMS_MAX];
	const size_t n = plan_ids_of(context, object, ids);
	const struct plan_image *failed = NULL;
	uint32_t devices[PLAN_DEVICES_MAX];
	const size_t n_devices = plan_devices(context, object, devices);

	for (size_t i = 0; n && i < n_devices; i++) {
		const struct plan_image *image = plan_image_find(context, devices[i], ids, n);

		if (!image || image->state != PLAN_FAILED)
			return NULL;
		if (!failed || !image->program_failed)
			failed = image;
	}
	return failed;
}

const char *plan_programs_trouble(struct image_context *context, const struct object *object) {
	const struct plan_image *image = plan_failed(context, object);

	return image && image->program_failed ? image->reason : NULL;
}

const char *plan_trouble(struct image_context *context, const struct object *object) {
	const struct plan_image *image = plan_failed(context, object);

	return image ? image->reason : NULL;
}

static void plan_prepare_closed(uv_handle_t *handle) {
	free(handle->data);
}

static void plan_prepare_on_timer(uv_timer_t *timer) {
	struct plan_prepare *prepare = timer->data;

	for (size_t i = 0; i < prepare->n; i++)
		plan_waiter_cancel(&prepare->waiters[i].waiter);
	prepare->fn(prepare->userdata);
	uv_close((uv_handle_t *)timer, plan_prepare_closed);
}

/* One image is there: the last one ends the waiting, from the loop. */
static void plan_prepare_on_image(struct plan_waiter *waiter, const struct plan_image *image) {
	struct plan_prepare *prepare = ((struct plan_prepare_waiter *)waiter)->prepare;

	if (--prepare->n_open == 0)
		uv_timer_start(&prepare->timer, plan_prepare_on_timer, 0, 0);
}

/* Starts one, unless it is there; prepare (or NULL) waits for it. */
static void plan_prepare_one(struct plan_prepare *prepare, struct image_context *context,
			     uid_t payer, uint32_t capability, const uint64_t *ids, size_t n) {
	struct plan_prepare_waiter *waiter;
	struct plan_image *image;

	if (!n || (prepare ? prepare->n : plan_images_busy(&context->plans)) >= PLAN_PREPARE_MAX ||
	    plan_image_get(&image, context, payer, capability, ids, n) < 0 ||
	    image->state != PLAN_IN_WORK || !prepare)
		return;
	for (size_t i = 0; i < prepare->n; i++)
		if (prepare->waiters[i].waiter.image == image)
			return;
	waiter = &prepare->waiters[prepare->n++];
	prepare->n_open++;
	waiter->prepare = prepare;
	waiter->waiter.fn = plan_prepare_on_image;
	plan_image_wait(image, &waiter->waiter);
}

/* Whether the match has an attachment of the object. */
static bool plan_concerns(const struct image_context *context, const struct image_match *match,
			  const struct object *object) {
	for (size_t i = 0; i < match->n; i++)
		if (registry_attachment(context->registry, match->ids[i])->object == object)
			return true;
	return false;
}

/* What the processes that are connected will ask for; object: if it has attachments of that. Nobody
 * waits for a device that only they say they have. */
static void plan_prepare_processes(struct plan_prepare *prepare, struct image_context *context,
				   const struct object *object) {
	uint32_t devices[PLAN_DEVICES_MAX];
	const size_t n_devices = object ? plan_devices(context, object, devices) : 0;
	const struct process *process;
	struct image_match match;

	LIST_FOREACH(process, &context->processes->list, link) {
		if (engine_rules_find(&context->config->engines, &process->facts) !=
		    ENGINE_SANITIZER)
			continue;
		image_match(&match, context, &process->facts, true);
		if (object && !plan_concerns(context, &match, object))
			continue;
		for (unsigned int i = 0; i < process->n_capabilities; i++)
			plan_prepare_one(plan_has_device(devices, n_devices,
							 process->capabilities[i])
						 ? prepare
						 : NULL,
					 context, process->uid, process->capabilities[i], match.ids,
					 match.n);
	}
}

int plan_prepare(struct image_context *context, const struct object *object,
		 const struct filter *filter, unsigned int timeout_ms, plan_prepare_fn fn,
		 void *userdata) {
	uint64_t ids[JOB_IMAGE_PROGRAMS_MAX];
	const size_t n = plan_ids_of(context, object, ids);
	uint32_t devices[PLAN_DEVICES_MAX];
	const size_t n_devices = plan_devices(context, object, devices);
	struct plan_prepare *prepare;
	struct image_match match;

	if (!n || !engine_rules_any_sanitizer(&context->config->engines))
		return 1;
	prepare = calloc(1, sizeof(*prepare));
	if (!prepare)
		return -ENOMEM;
	for (size_t i = 0; i < n_devices; i++)
		plan_prepare_one(prepare, context, object->owner, devices[i], ids, n);
	image_match_filter(&match, context, filter);
	for (size_t i = 0; i < n_devices; i++)
		plan_prepare_one(prepare, context, object->owner, devices[i], match.ids, match.n);
	plan_prepare_processes(prepare, context, object);
	if (!prepare->n) {
		free(prepare);
		return 1;
	}
	prepare->fn = fn;
	prepare->userdata = userdata;
	uv_timer_init(context->loop, &prepare->timer);
	prepare->timer.data = prepare;
	uv_timer_start(&prepare->timer, plan_prepare_on_timer, timeout_ms, 0);
	return 0;
}

void plan_prepare_again(struct image_context *context) {
	if (!context->stopping)
		plan_prepare_processes(NULL, context, NULL);
}
