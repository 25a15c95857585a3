/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles the job `patch` of the image worker (job.md).
 *
 * The job `patch`: which kernels are meant (patch-match.c), an image of functions that the patching
 * library calls (patch-compose.c, then the compiler), and both as a plan (patch-plan.c). The image
 * is that of an earlier plan where the request has one: then a list of names costs no compilation.
 */

#include "patch-job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/image/image-build.h"
#include "patch-compose.h"
#include "patch-match.h"
#include "patch-plan.h"
#include "patch-report.h"
#include "lib/json.h"

struct job {
	struct patch_request request;
	struct json_object *reply;
	struct patch_matches matches;
	struct patch_text text;
	struct ptx_module module;
	bool parsed;
	struct image_built result;
	struct patch_plan_parts parts;
};

static int finish(int r) {
	return r ? r : 1;
}

/* Takes image and points of the plan that the request has. */
static int take_earlier(struct job *job) {
	const struct patch_request *request = &job->request;
	uint32_t classes = 0;

	if (patch_plan_read(request->earlier, request->earlier_size, &job->parts))
		for (uint32_t i = 0; i < job->parts.n_points; i++)
			if (job->parts.points[i].instruction < PATCH_CLASSES_MAX)
				classes |= 1u << job->parts.points[i].instruction;
	if (classes != request->classes || job->parts.data_size != request->data_size)
		return finish(worker_reply_error(job->reply, NULL, JOB_E_INTERNAL,
						 "bad request: patch is no plan for these programs "
						 "and attachments"));
	return 0;
}

static int compose(struct job *job) {
	struct ptx_error error = {};
	int r;

	r = patch_compose(&job->text, &job->request, &error);
	if (!r) {
		r = ptx_module_parse(&job->module, job->text.text, job->text.length, &error);
		job->parsed = !r;
	}
	return r > 0 ? finish(worker_reply_error(job->reply, NULL, JOB_E_COMPILE, "%s",
						 error.message))
		     : r;
}

/* What the compiler says about each function: "functions" of the reply. */
static int add_functions(struct job *job) {
	struct json_object *functions = json_add_array(job->reply, JOB_KEY_FUNCTIONS);
	struct fatbin fatbin;
	int r;

	r = fatbin_parse(&fatbin, job->result.data, job->result.size);
	if (r)
		return r < 0 ? r : -EINVAL; /* it is ours */
	for (uint32_t i = 0; i < job->text.n_points; i++) {
		const struct patch_point *point = &job->text.points[i];
		struct json_object *object = json_append_object(functions);
		struct patch_report report;

		patch_report_read(&report, point->symbol, fatbin.entries[0].payload,
				  fatbin.entries[0].payload_size, job->result.log);
		json_add_int(object, JOB_KEY_INSTRUCTION, point->instruction);
		json_add_int(object, JOB_KEY_REGISTERS, report.registers);
		json_add_int(object, JOB_KEY_SPILL_STORES, report.spill_stores);
		json_add_int(object, JOB_KEY_SPILL_LOADS, report.spill_loads);
		json_add_int(object, JOB_KEY_STACK, report.stack);
	}
	fatbin_deinit(&fatbin);
	return 0;
}

/*
 * Compiles the composed text: a fatbin with the cubin, and the text for drivers that take nothing
 * else.
 */
static int build(struct job *job, struct compiler *patcher) {
	const struct image_request *image = &job->request.image;
	const struct image_source source = {
		.module = &job->module,
		.capability = image->capability,
		.patch = true,
	};
	int r;

	r = image_build(&job->result, &source, patcher);
	if (r > 0 || (!r && !job->result.data))
		return finish(worker_reply_error(job->reply, job->result.log, JOB_E_COMPILE,
						 r > 0 ? "%s does not compile the patches for sm_%u"
						       : "%s does not know sm_%u",
						 compiler_name(patcher), image->capability));
	if (r)
		return r;
	job->parts = (struct patch_plan_parts){
		.image = job->result.data,
		.image_size = job->result.size,
		.image_id = job->text.image_id,
		.points = job->text.points,
		.n_points = job->text.n_points,
		.data_size = job->request.data_size,
	};
	return add_functions(job);
}

static int make_image(struct job *job, struct compiler *patcher) {
	int r;

	if (job->request.earlier)
		return take_earlier(job);
	if (!patcher)
		return finish(worker_reply_error(
			job->reply, NULL, JOB_E_UNSUPPORTED,
			"no compiler that makes patches: gpuprobed was built without nvPTXCompiler "
			"(libnvptxcompiler_static.a of a CUDA toolkit, or the wheel "
			"nvidia-nvptxcompiler)"));
	r = compose(job);
	return r ? r : build(job, patcher);
}

static int match(struct job *job) {
	const char *what;
	int r;

	r = patch_match(&job->matches, &job->request, &what);
	return r > 0 ? finish(worker_reply_error(job->reply, NULL, JOB_E_IMAGE,
						 "malformed list of names: %s", what))
		     : r;
}

/* Writes the plan, and the reply. */
static int deliver(struct job *job) {
	const struct patch_request *request = &job->request;
	struct patch_matches *matches = &job->matches;
	uint64_t image_offset;
	uint8_t *plan;
	size_t size;
	int r;

	job->parts.kernels = matches->kernels;
	job->parts.n_kernels = matches->n;
	r = patch_plan_make(&job->parts, &plan, &size, &image_offset);
	if (r)
		return r;
	r = worker_write(request->image.output, plan, size, 0);
	free(plan);
	if (r)
		return r;
	json_add_string(job->reply, JOB_KEY_STATUS, job_statuses[JOB_PLANNED]);
	json_add_int(job->reply, JOB_KEY_SIZE, size);
	json_add_int(job->reply, "image_size", job->parts.image_size);
	json_add_int(job->reply, "image_offset", image_offset);
	json_add_int(job->reply, "compile_us", job->result.compile_us);
	r = image_targets_add_kernels(&matches->targets, &request->image, job->reply, false);
	json_add_int(job->reply, JOB_KEY_KERNEL_COUNT, matches->names);
	json_add_int(job->reply, "matched", matches->n);
	return r;
}

static void job_deinit(struct job *job) {
	patch_matches_deinit(&job->matches);
	image_built_deinit(&job->result);
	if (job->parsed)
		ptx_module_deinit(&job->module);
	patch_text_deinit(&job->text);
	patch_request_deinit(&job->request);
}

int patch_job(const struct worker_job *worker_job, struct json_object *reply, void *userdata) {
	struct image_worker *worker = userdata;
	struct job job = { .reply = reply };
	int r;

	r = patch_request_read(&job.request, worker_job, reply);
	if (!r)
		r = match(&job);
	if (!r)
		r = make_image(&job, worker->patcher);
	if (!r)
		r = deliver(&job);
	/* 1: the reply is an error already. Memory that runs out is the list's fault, not ours. */
	if (r < 0)
		r = finish(worker_reply_error(reply, NULL, JOB_E_INTERNAL, "%s", strerror(-r)));
	job_deinit(&job);
	return r > 0 ? 0 : r;
}
