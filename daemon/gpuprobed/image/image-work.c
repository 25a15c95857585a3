/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs the jobs for one image (image-work.h).
 *
 * The descriptors of a job: the image, the twin, the instructions, then what depends on
 * options and stage, then the programs. Programs of attachments that went away between two stages
 * cannot be sent any more: the work fails, which nobody misses, because what was asked for is no
 * longer wanted.
 */

#include "image-work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/registry/artifact.h"
#include "daemon/gpuprobed/registry/attachment-json.h"
#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "daemon/gpuprobed/base/closer.h"
#include "image-context.h"
#include "image-reply.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "lib/json.h"
#include "pass.h"
#include "plan-work.h"

#define IMAGE_INSTRUCTIONS_MAX (UINT64_C(64) << 20)
#define IMAGE_TEXT_MAX (UINT64_C(256) << 20)

static void image_work_free(struct image_work *work) {
	if (work->fd >= 0)
		closer_memory(work->context->closer, work->fd);
	free(work);
}

/* ---- requests ---- */

/* The members that are the same in all jobs of the work. */
static json_object *image_work_request(const struct image_work *work, enum job_stage stage) {
	json_object *request = json_object_new_object(), *stubs = json_object_new_array();

	json_add_string(request, JOB_KEY_JOB, JOB_IMAGE);
	json_add_string(request, JOB_KEY_KIND, job_image_kinds[work->kind]);
	json_add_int(request, JOB_KEY_CAPABILITY, work->capability);
	if (work->twins != JOB_TWINS_PTX)
		json_add_string(request, JOB_KEY_TWINS, job_twins[work->twins]);
	json_add_int(request, JOB_KEY_IMAGE, work->image);
	for (size_t i = 0; i < work->context->config->stubs.n; i++)
		json_append_string(stubs, work->context->config->stubs.items[i]);
	if (!work->context->config->stubs.n)
		pass_set_add_stubs(&work->context->passes, stubs);
	if (!json_object_array_length(stubs))
		json_append_string(stubs, DAEMON_STUB_DEFAULT);
	json_add(request, JOB_KEY_STUBS, stubs);
	json_add_bool(request, JOB_KEY_CALL, work->context->artifacts != NULL);
	json_add_string(request, JOB_KEY_STAGE, job_stages[stage]);
	if (work->isa) {
		json_add_int(request, JOB_KEY_ISA, work->isa);
		json_add_int(request, JOB_KEY_TARGET, work->target);
	}
	return request;
}

/* Adds a descriptor under a name. 0 or -errno. */
static int image_work_add_fd(json_object *request, const char *key, int index) {
	if (index < 0)
		return index;
	json_add_int(request, key, index);
	return 0;
}

/* Adds the programs and where they belong. 0 or -errno. */
static int image_work_add_programs(const struct image_work *work, struct worker_task *task,
				   json_object *request) {
	json_object *programs = json_object_new_array(), *attachments = json_object_new_array();
	uint32_t spaces = pass_set_spaces(&work->context->passes);

	json_add(request, JOB_KEY_PROGRAMS, programs);
	json_add(request, JOB_KEY_ATTACHMENTS, attachments);
	for (size_t i = 0; i < work->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(work->context->registry, work->attachments[i]);
		const struct gpu_program *program = attachment_gpu(attachment);
		int index;

		if (!program)
			return -ESTALE;
		index = worker_task_add_copy(task, program->fd);
		if (index < 0)
			return index;
		json_append(programs, attachment_program_json(attachment, index));
		json_append(attachments, attachment_json(attachment, spaces));
	}
	return 0;
}

void image_work_on_task(struct worker_task *task, int result, json_object *reply,
			const char *message, void *userdata) {
	struct image_work *work = userdata;
	json_object *request = worker_task_request(task);

	work->task = NULL;
	work->mixed |= worker_task_mixed(task);
	if (json_has(request, JOB_KEY_IMAGE)) /* another one, if it comes from the disk */
		work->image = (uint32_t)json_int_of(request, JOB_KEY_IMAGE);
	work->stage_fn(task, result, reply, message, work->stage_userdata);
}

/* One that comes after the deadline is overtime from its start. */
void image_work_submit_task(struct image_work *work, struct worker_task *task,
			    const struct job_cache_use *use, worker_task_fn fn, void *userdata) {
	uint64_t now = uv_now(work->context->loop);
	uint64_t deadline = work->deadline > now ? work->deadline : now;

	work->stage_fn = fn;
	work->stage_userdata = userdata;
	worker_task_set_owner(task, work->uid); /* job_cache_submit() does so, too */
	worker_task_set_retry(task);
	if (work->limit > deadline)
		worker_task_set_overtime(task, (unsigned int)(work->limit - deadline));
	work->task = task;
	if (use)
		job_cache_submit(work->context->cache, work->context->image_pool, task,
				 (unsigned int)(deadline - now), use);
	else
		worker_pool_submit(work->context->image_pool, task, (unsigned int)(deadline - now));
}

void image_work_compiles(void *userdata) {
	struct image_work *work = userdata;

	work->on_compile(work->userdata);
}

void image_work_cancel(struct image_work *work) {
	if (work->task)
		worker_task_cancel(work->task);
}

int image_work_submit(struct image_work *work, enum job_stage stage, int text, worker_task_fn fn,
		      void *userdata) {
	json_object *request = image_work_request(work, stage);
	const struct job_cache_use use = {
		.uid = work->uid,
		.missed = image_work_compiles,
		.missed_userdata = work,
		.number_taken = stage == JOB_STAGE_ALL || stage == JOB_STAGE_EDIT
					? image_number_taken
					: NULL,
		.userdata = work->context,
	};
	struct worker_task *task;
	int r;

	task = worker_task_new(json_object_get(request), image_work_on_task, work);
	if (!task) {
		json_object_put(request);
		fd_close(text);
		return -ENOMEM;
	}
	r = image_work_add_fd(request, JOB_KEY_INPUT, worker_task_add_copy(task, work->fd));
	if (r == 0)
		r = image_work_add_fd(request, JOB_KEY_OUTPUT,
				      worker_task_add_output(task, WIRE_IMAGE_SIZE_MAX));
	if (r == 0)
		r = image_work_add_fd(request, JOB_KEY_INSTRUCTIONS,
				      worker_task_add_output(task, IMAGE_INSTRUCTIONS_MAX));
	if (r == 0 && work->context->artifacts &&
	    (stage == JOB_STAGE_ALL || stage == JOB_STAGE_BUILD))
		r = image_work_add_fd(request, JOB_KEY_TEXT_OUTPUT,
				      worker_task_add_output(task, IMAGE_TEXT_MAX));
	if (r == 0 && text >= 0)
		r = image_work_add_fd(request, JOB_KEY_TEXT, worker_task_add_input(task, text));
	else
		fd_close(text);
	if (r == 0)
		r = image_work_add_programs(work, task, request);
	json_object_put(request);
	if (r < 0) {
		worker_task_free(task);
		return r;
	}
	if (work->context->artifacts)
		image_work_compiles(work);
	image_work_submit_task(work, task, work->context->artifacts ? NULL : &use, fn, userdata);
	return 0;
}

int image_work_start(struct image_work **workp, const struct image_work *template) {
	struct image_work *work = malloc(sizeof(*work));
	int r;

	if (!work)
		return -ENOMEM;
	*work = *template;
	work->fd = fcntl(template->fd, F_DUPFD_CLOEXEC, 3);
	if (work->fd < 0)
		r = -errno;
	else if (work->kind == WIRE_IMAGE_NAMES)
		r = plan_work_start(work);
	else if (pass_set_runs_programs(&work->context->passes))
		r = pass_start(work);
	else
		r = image_work_submit(work, JOB_STAGE_ALL, -1, image_work_take, work);
	if (r < 0) {
		image_work_free(work);
		return r;
	}
	*workp = work;
	return 0;
}

/* ---- replies ---- */

void image_work_end(struct image_work *work, struct image_result *result, uint64_t keep) {
	work->fn(result, work->mixed ? 0 : keep, work->userdata);
	image_work_free(work);
}

void image_work_fail(struct image_work *work, uint64_t keep, const char *format, ...) {
	struct image_result *result = NULL;
	char reason[sizeof(result->reason)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	if (image_result_new_own(&result, true, "%s", reason) < 0)
		result = NULL;
	else
		result->plan = work->kind == WIRE_IMAGE_NAMES;
	image_work_end(work, result, keep);
}

/* Keeps what was made for a curious person. */
static void image_work_keep(struct image_work *work, const struct image_result *result,
			    json_object *reply, struct worker_task *task) {
	int64_t size;
	struct artifact artifact = {
		.name = result->n_kernels ? result->kernels[0].name : "",
		.image = result->fd,
		.image_size = result->size,
		.text = -1,
	};
	const unsigned int text = IMAGE_REPLY_INSTRUCTIONS + 1;

	if (!work->context->artifacts || !result->made)
		return;
	if (json_get_int(reply, JOB_KEY_TEXT_SIZE, 1, INT64_MAX, &size) &&
	    (uint64_t)size == worker_task_output_size(task, text)) {
		artifact.text_size = worker_task_output_size(task, text);
		artifact.text = worker_task_steal_fd(task, text);
	}
	artifact_store_keep(work->context->artifacts, &artifact);
	fd_close(artifact.text);
}

void image_work_fail_job(struct image_work *work, int result, json_object *reply,
			 const char *message) {
	uint64_t keep;

	switch (result) {
	case WORKER_POOL_E_REFUSED:
		keep = job_error_of(reply) > JOB_E_INTERNAL ? IMAGE_KEEP_ALWAYS : 0;
		break;
	case WORKER_POOL_E_BUSY:
	case WORKER_POOL_E_UNAVAILABLE:
		keep = 0;
		break;
	default: /* an image that makes workers hang or crash does not get one at each load */
		keep = IMAGE_KEEP_BAD_MS;
	}
	image_work_fail(work, keep, "%s", message);
}

void image_work_take(struct worker_task *task, int result, json_object *reply, const char *message,
		     void *userdata) {
	struct image_work *work = userdata;
	const struct image_reply_request request = {
		.registry = work->context->registry,
		.attachments = work->attachments,
		.n_attachments = work->n_attachments,
		.image = work->image,
	};
	struct image_result *made = NULL;
	int r;

	if (result) {
		image_work_fail_job(work, result, reply, message);
		return;
	}
	r = image_reply_parse(&made, reply, task, &request);
	if (r > 0) {
		worker_task_spoil(task);
		image_work_fail(work, IMAGE_KEEP_BAD_MS, "worker sent a malformed reply");
		return;
	}
	if (r == 0)
		image_work_keep(work, made, reply, task);
	image_work_end(work, made, IMAGE_KEEP_ALWAYS);
}
