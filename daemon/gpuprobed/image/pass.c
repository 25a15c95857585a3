/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs users' passes on an image's PTX (pass.h).
 *
 * A drive has a plan, a list of runs (pass-plan.h). They happen one after the other, each in a
 * fresh pass worker, the text going from hand to hand as a sealed memfd. The deadline of the image
 * holds for all of it; half of the time is for passes, so that one that hangs leaves enough to do
 * without it. When the deadline is over, nobody waits any more: then passes have half of the time
 * that is left until the limit of the work.
 *
 *     EXTRACT -> (run, CHECK)* -> EDIT -> (run, CHECK_EDITED)* -> BUILD
 *
 * If the whole of it cannot be edited or compiled, the image is made without any pass of the user.
 */

#include "pass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "image-context.h"
#include "image-reply.h"
#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/registry/outcome.h"
#include "lib/base/text.h"
#include "lib/json.h"
#include "pass-plan.h"

#define PASS_MS_MIN 20 /* below that a pass is not started */
#define PASS_GRACE_MS 2000 /* for its worker */
#define PASS_OUTPUT_INDEX 1

struct pass_drive {
	struct image_work *work;
	struct pass_plan plan;
	size_t next; /* step */
	uint64_t passes_until; /* uv_now: the rest of the time is for the image workers */
	bool edited;
	int text; /* sealed; what stands for the PTX now */
	int candidate; /* sealed; what the last pass made of it; -1: none */
	int instructions; /* that EDIT found; -1: none */
	uint64_t n_instructions;
	json_object *reply; /* of EDIT */
	char note[192];
};

static void pass_next(struct pass_drive *drive);

static void pass_drive_free(struct pass_drive *drive) {
	pass_plan_deinit(&drive->plan);
	fd_close(drive->text);
	fd_close(drive->candidate);
	fd_close(drive->instructions);
	json_object_put(drive->reply);
	free(drive);
}

/* Remembers what went wrong first; printf-like. */
__attribute__((format(printf, 2, 3))) static void pass_note(struct pass_drive *drive,
							    const char *format, ...) {
	va_list arguments;

	if (*drive->note)
		return;
	va_start(arguments, format);
	vsnprintf(drive->note, sizeof(drive->note), format, arguments);
	va_end(arguments);
	text_make_printable(drive->note);
}

/* ---- the end ---- */

/* The last stage has answered. */
static void pass_finish(struct pass_drive *drive, struct worker_task *task, int result,
			json_object *reply, const char *message) {
	struct image_work *work = drive->work;

	if (reply && *drive->note)
		json_add_string(reply, "note", drive->note);
	pass_drive_free(drive);
	image_work_take(task, result, reply, message, work);
}

/* No stage can be asked for any more. */
static void pass_fail(struct pass_drive *drive, int r) {
	struct image_work *work = drive->work;

	pass_drive_free(drive);
	image_work_fail(work, 0, "passes: %s", strerror(-r));
}

/* The pools are going: true if that was the end. */
static bool pass_stopped(struct pass_drive *drive) {
	if (!drive->work->context->stopping)
		return false;
	pass_fail(drive, -ECANCELED);
	return true;
}

static void pass_on_plain(struct worker_task *task, int result, json_object *reply,
			  const char *message, void *userdata) {
	pass_finish(userdata, task, result, reply, message);
}

/* Without any pass of the user. */
static void pass_give_up(struct pass_drive *drive, const char *why) {
	int r;

	if (pass_stopped(drive))
		return;
	pass_note(drive, "without the user's passes: %s", why);
	drive->work->isa = drive->work->target = 0;
	r = image_work_submit(drive->work, JOB_STAGE_ALL, -1, pass_on_plain, drive);
	if (r < 0)
		pass_fail(drive, r);
}

/* A copy of the text for a stage, or -errno. */
static int pass_text(int fd) {
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : copy;
}

static uint32_t pass_number(json_object *reply, const char *key) {
	return (uint32_t)json_int_of(reply, key);
}

/* ---- stages ---- */

/* What EDIT has said about the attachments goes into the reply of BUILD. */
static void pass_merge(struct pass_drive *drive, struct worker_task *task, json_object *reply) {
	static const char *const members[] = { JOB_KEY_APPLIED, JOB_KEY_KERNELS, JOB_KEY_TRUNCATED,
					       JOB_KEY_KERNEL_COUNT, JOB_KEY_INSTRUCTIONS_SIZE };

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		json_object *member = json_member(drive->reply, members[i]);

		json_object_object_del(reply, members[i]);
		if (member)
			json_add(reply, members[i], json_object_get(member));
	}
	worker_task_replace_output(task, IMAGE_REPLY_INSTRUCTIONS, drive->instructions,
				   drive->n_instructions);
	drive->instructions = -1;
}

static void pass_on_built(struct worker_task *task, int result, json_object *reply,
			  const char *message, void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == WORKER_POOL_E_REFUSED) {
		pass_give_up(drive, message);
		return;
	}
	if (result == _WORKER_POOL_SUCCESS && job_status_of(reply) == JOB_MADE)
		pass_merge(drive, task, reply);
	pass_finish(drive, task, result, reply, message);
}

static void pass_on_edited(struct worker_task *task, int result, json_object *reply,
			   const char *message, void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == WORKER_POOL_E_REFUSED) {
		pass_give_up(drive, message);
		return;
	}
	if (result != _WORKER_POOL_SUCCESS || job_status_of(reply) != JOB_TEXT) {
		pass_finish(drive, task, result, reply, message);
		return;
	}
	fd_close(drive->text);
	drive->text = worker_task_steal_fd(task, IMAGE_REPLY_OUTPUT);
	drive->n_instructions = worker_task_output_size(task, IMAGE_REPLY_INSTRUCTIONS);
	drive->instructions = worker_task_steal_fd(task, IMAGE_REPLY_INSTRUCTIONS);
	drive->reply = json_object_get(reply);
	drive->edited = true;
	drive->work->isa = pass_number(reply, JOB_KEY_ISA);
	drive->work->target = pass_number(reply, JOB_KEY_TARGET);
	pass_next(drive);
}

static void pass_on_checked(struct worker_task *task, int result, json_object *reply,
			    const char *message, void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == _WORKER_POOL_SUCCESS) {
		fd_close(drive->text);
		drive->text = drive->candidate;
	} else {
		pass_note(drive, "without pass %s: %s",
			  drive->plan.steps[drive->next].definition->name, message);
		fd_close(drive->candidate);
	}
	drive->candidate = -1;
	drive->next++;
	pass_next(drive);
}

/* ---- a run ---- */

static void pass_on_run(struct worker_task *task, int result, json_object *reply,
			const char *message, void *userdata) {
	struct pass_drive *drive = userdata;
	const struct pass_step *step = &drive->plan.steps[drive->next];
	int r;

	if (pass_stopped(drive))
		return;
	if (result != _WORKER_POOL_SUCCESS || job_status_of(reply) != JOB_PASSED) {
		pass_note(drive, "without pass %s: %s", step->definition->name,
			  *message ? message : "no answer");
	} else if (json_bool_of(reply, JOB_KEY_MODIFIED)) {
		drive->candidate = worker_task_steal_fd(task, PASS_OUTPUT_INDEX);
		r = pass_text(drive->candidate);
		if (r >= 0)
			r = image_work_submit(drive->work,
					      drive->edited ? JOB_STAGE_CHECK_EDITED
							    : JOB_STAGE_CHECK,
					      r, pass_on_checked, drive);
		if (r < 0)
			pass_fail(drive, r);
		return;
	}
	drive->next++;
	pass_next(drive);
}

static json_object *pass_request(const struct pass_step *step, unsigned int timeout) {
	const struct pass_definition *definition = step->definition;
	json_object *request = json_object_new_object(), *symbols = json_object_new_array();

	json_add_string(request, JOB_KEY_JOB, JOB_PASS);
	json_add_string(request, JOB_KEY_EXECUTABLE, definition->executable);
	json_add_string(request, JOB_KEY_ATTACH_POINT, step->attach_point);
	if (step->kernel)
		json_add_string(request, JOB_KEY_KERNEL, step->kernel);
	if (definition->parameters)
		json_add(request, JOB_KEY_PARAMETERS, json_object_get(definition->parameters));
	json_add_int(request, JOB_KEY_MAX_OUTPUT, definition->max_output_bytes);
	json_add_int(request, JOB_KEY_TIMEOUT, timeout);
	json_add_int(request, JOB_KEY_MEMORY, definition->memory_mib);
	for (size_t i = 0; i < definition->required_symbols.n; i++)
		json_append_string(symbols, definition->required_symbols.strings[i]);
	json_add(request, JOB_KEY_REQUIRED_SYMBOLS, symbols);
	return request;
}

/* Milliseconds that are left for passes. */
static unsigned int pass_left(const struct pass_drive *drive) {
	const struct image_work *work = drive->work;
	uint64_t now = uv_now(work->context->loop);

	if (now >= work->deadline)
		return work->limit > now ? (unsigned int)(work->limit - now) / 2 : 0;
	return drive->passes_until > now ? (unsigned int)(drive->passes_until - now) : 0;
}

/* Starts one run. 0 or -errno. */
static int pass_run_step(struct pass_drive *drive, const struct pass_step *step,
			 unsigned int timeout) {
	json_object *request = pass_request(step, timeout);
	const struct job_cache_use use = {
		.uid = drive->work->uid,
		.executable = step->definition->executable,
		.missed = image_work_compiles,
		.missed_userdata = drive->work,
	};
	struct worker_task *task;
	int r;

	task = worker_task_new(json_object_get(request), pass_on_run, drive);
	r = task ? worker_task_add_copy(task, drive->text) : -ENOMEM;
	if (r >= 0) {
		json_add_int(request, JOB_KEY_INPUT, r);
		r = worker_task_add_output(task, step->definition->max_output_bytes);
	}
	if (r >= 0)
		json_add_int(request, JOB_KEY_OUTPUT, r);
	json_object_put(request);
	if (r < 0) {
		worker_task_free(task);
		return r;
	}
	job_cache_submit(drive->work->context->cache, drive->work->context->pass_pool, task,
			 timeout + PASS_GRACE_MS, &use);
	return 0;
}

/* The next run; or, when those before or after EDIT are through, what comes then. */
static void pass_next(struct pass_drive *drive) {
	const size_t end = drive->edited ? drive->plan.n_steps : drive->plan.n_before;
	int r;

	if (pass_stopped(drive))
		return;
	while (drive->next < end) {
		const struct pass_step *step = &drive->plan.steps[drive->next];
		unsigned int left = pass_left(drive);
		unsigned int timeout =
			step->definition->timeout_ms < left ? step->definition->timeout_ms : left;

		if (timeout < PASS_MS_MIN) {
			pass_note(drive, "without pass %s: no time was left for it",
				  step->definition->name);
			drive->next++;
			continue;
		}
		r = pass_run_step(drive, step, timeout);
		if (r < 0)
			pass_fail(drive, r);
		return;
	}
	r = pass_text(drive->text);
	if (r >= 0)
		r = image_work_submit(drive->work, drive->edited ? JOB_STAGE_BUILD : JOB_STAGE_EDIT,
				      r, drive->edited ? pass_on_built : pass_on_edited, drive);
	if (r < 0)
		pass_fail(drive, r);
}

/* ---- the start ---- */

static void pass_on_extracted(struct worker_task *task, int result, json_object *reply,
			      const char *message, void *userdata) {
	struct pass_drive *drive = userdata;
	const struct image_context *context = drive->work->context;
	int r;

	if (result != _WORKER_POOL_SUCCESS || job_status_of(reply) != JOB_TEXT) {
		pass_finish(drive, task, result, reply, message);
		return;
	}
	drive->text = worker_task_steal_fd(task, IMAGE_REPLY_OUTPUT);
	r = pass_plan_make(&drive->plan, &context->passes, context->registry, reply);
	if (drive->plan.truncated)
		pass_note(drive, "passes run at most %d times on an image", PASS_RUNS_MAX);
	if (r == 0 && drive->plan.n_steps) {
		pass_next(drive);
		return;
	}
	/* No pass of the user means these kernels. */
	if (r == 0)
		r = image_work_submit(drive->work, JOB_STAGE_ALL, -1, pass_on_plain, drive);
	if (r < 0)
		pass_fail(drive, r);
}

int pass_start(struct image_work *work) {
	struct pass_drive *drive = calloc(1, sizeof(*drive));
	uint64_t now;
	int r;

	if (!drive)
		return -ENOMEM;
	drive->work = work;
	now = uv_now(work->context->loop);
	drive->passes_until = work->deadline > now ? now + (work->deadline - now) / 2 : now;
	drive->text = drive->candidate = drive->instructions = -1;
	r = image_work_submit(work, JOB_STAGE_EXTRACT, -1, pass_on_extracted, drive);
	if (r < 0)
		pass_drive_free(drive);
	return r;
}
