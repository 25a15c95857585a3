/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The job `image`.
 *
 * First, which kernels would run on this device: those of the machine code that the driver would
 * take, else those of the PTX that it would compile (image-select.c). Then, which attachments mean
 * which of them. Only if some do, the PTX that stands for that code is parsed, checked to have all
 * its kernels, edited, compiled and put into a new image (image-build.c).
 *
 * Whatever is not an error but does not lead to a new image is `own` with a reason of one line:
 * operators read it.
 */

#include "image-job.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "image-build.h"
#include "image-request.h"
#include "image-select.h"
#include "kernel-name.h"

#define PAYLOAD_MAX PTX_SOURCE_MAX
#define KERNELS_MAX 500 /* that a reply lists */
#define KERNELS_BYTES_MAX (96 * 1024) /* of their names and numbers in the reply */

/* A kernel that attachments mean. */
struct target {
	struct kernel_name name;
	uint32_t *attachments; /* owned: indexes, in calling order */
	uint32_t *programs; /* owned: of each attachment */
	uint32_t n_attachments;
	bool applied;
};

struct job {
	struct image_request request;
	struct json_object *reply;
	/* The image. */
	struct fatbin fatbin;
	/* Machine code that would run; NULL: the driver would compile `source`. */
	const struct fatbin_entry *code;
	/* PTX entry; NULL if there is none, or the image is PTX text. */
	const struct fatbin_entry *source;
	uint8_t *code_bytes; /* owned */
	struct cubin cubin;
	char *text; /* owned: the PTX */
	size_t length;
	struct ptx_module module;
	bool has_module;
	/* What would run. */
	char **names; /* owned, of all kernels */
	size_t n_names;
	struct target *targets; /* owned */
	size_t n_targets;
	bool unsupported; /* an attachment means a kernel at a point that we do not have */
};

static int finish(int r)
{
	return r ? r : 1;
}

/* A reply is ready: these return 1, or -ENOMEM. */
__attribute__((format(printf, 3, 4)))
static int reply_error(struct job *job, const char *error, const char *format, ...)
{
	char message[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	return finish(worker_reply_error(job->reply, NULL, error, "%s", message));
}

/* One member of "kernels"; *bytes counts what it takes. */
static int add_target(struct job *job, struct json_object *kernels, struct target *target,
		      size_t *bytes)
{
	struct json_object *object, *list;
	const char *demangled;
	int r;

	r = kernel_name_demangle(&target->name);
	if (r)
		return r;
	demangled = target->name.demangled ? target->name.demangled : target->name.mangled;
	/* Quotes and the like double at most what compilers write. */
	*bytes += 2 * (strlen(target->name.mangled) + strlen(demangled)) + 64 +
		  21 * (size_t)target->n_attachments;
	if (*bytes > KERNELS_BYTES_MAX)
		return 1;
	object = json_object_new_object();
	list = json_object_new_array();
	r = object && list ? 0 : -ENOMEM;
	if (!r)
		r = worker_add_string(object, "name", target->name.mangled);
	if (!r)
		r = worker_add_string(object, "demangled", demangled);
	for (uint32_t i = 0; !r && i < target->n_attachments; i++) {
		struct json_object *id =
			json_object_new_int64(job->request.attachments[target->attachments[i]].id);

		if (!id || json_object_array_add(list, id)) {
			json_object_put(id);
			r = -ENOMEM;
		}
	}
	if (!r)
		r = worker_add_object(object, "attachments", json_object_get(list));
	if (!r && json_object_array_add(kernels, json_object_get(object))) {
		json_object_put(object);
		r = -ENOMEM;
	}
	json_object_put(list);
	json_object_put(object);
	return r;
}

static int add_kernels(struct job *job)
{
	struct json_object *kernels;
	bool truncated = false;
	size_t bytes = 0;
	int r;

	kernels = json_object_new_array();
	r = worker_add_object(job->reply, "kernels", kernels);
	for (size_t i = 0; !r && i < job->n_targets && !truncated; i++) {
		r = i == KERNELS_MAX ? 1 : add_target(job, kernels, &job->targets[i], &bytes);
		truncated = r > 0;
	}
	if (truncated)
		r = worker_add_bool(job->reply, "truncated", true);
	return r ? r : worker_add_int(job->reply, "kernel_count", (int64_t)job->n_names);
}

__attribute__((format(printf, 2, 3)))
static int reply_own(struct job *job, const char *format, ...)
{
	char reason[400];
	va_list arguments;
	int r;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	r = worker_reply_status(job->reply, "own");
	if (!r)
		r = worker_add_line(job->reply, "reason", reason);
	return finish(r ? r : add_kernels(job));
}

static void own_device(const struct job *job, char *text, size_t size)
{
	snprintf(text, size, "sm_%u", job->request.capability);
}

static int add_name(struct job *job, const char *name, size_t length)
{
	if (!(job->n_names & (job->n_names - 1))) {
		size_t n = job->n_names ? 2 * job->n_names : 1;
		char **names = reallocarray(job->names, n, sizeof(*names));

		if (!names)
			return -ENOMEM;
		job->names = names;
	}
	job->names[job->n_names] = strndup(name, length);
	return job->names[job->n_names++] ? 0 : -ENOMEM;
}

/* Reads the machine code `data`, which has to stay, and takes its kernels' names. */
static int read_code(struct job *job, const uint8_t *data, size_t size)
{
	int r;

	r = cubin_parse(&job->cubin, data, size);
	if (r > 0)
		return reply_error(job, "image",
				   "malformed machine code: no cubin, or its tables lie outside");
	for (size_t i = 0; !r && i < job->cubin.n_kernels; i++)
		r = add_name(job, job->cubin.kernels[i], strlen(job->cubin.kernels[i]));
	return r;
}

/* Parses job->text. */
static int read_ptx(struct job *job)
{
	struct ptx_error error = {};
	int r;

	r = ptx_module_parse(&job->module, job->text, job->length, &error);
	if (r > 0)
		return reply_error(job, "image", "PTX line %u: %s", error.line, error.message);
	if (!r)
		job->has_module = true;
	return r;
}

static int read_ptx_entry(struct job *job)
{
	int r;

	r = fatbin_entry_ptx(job->source, PAYLOAD_MAX, &job->text, &job->length);
	if (r == FATBIN_E_OPAQUE)
		return reply_own(job, "the PTX in this image is scrambled");
	if (r > 0)
		return reply_error(job, "image", "PTX entry: %s", fatbin_strerror(r));
	return r ? r : read_ptx(job);
}

static int take_ptx_names(struct job *job)
{
	const struct ptx_function *kernel = NULL;
	int r = 0;

	while (!r && (kernel = ptx_module_next_kernel(&job->module, kernel)))
		if (kernel->body.length)
			r = add_name(job, job->text + kernel->name.offset, kernel->name.length);
	return r;
}

static int read_fatbin(struct job *job)
{
	const struct image_request *request = &job->request;
	uint64_t size;
	char device[16];
	int r;

	r = fatbin_parse(&job->fatbin, request->data, request->size);
	if (r > 0)
		return reply_error(job, "image", "malformed fatbin: %s", fatbin_strerror(r));
	if (r)
		return r;
	own_device(job, device, sizeof(device));
	job->code = image_select_code(&job->fatbin, request->capability);
	if (!job->code) {
		job->source = image_select_ptx(&job->fatbin, request->capability);
		if (!job->source)
			return reply_own(job, "no code for %s in this image", device);
		r = read_ptx_entry(job);
		return r ? r : take_ptx_names(job);
	}
	r = fatbin_entry_decompress(job->code, PAYLOAD_MAX, &job->code_bytes, &size);
	if (r == FATBIN_E_OPAQUE)
		return reply_own(job, "the machine code in this image is scrambled");
	if (r > 0)
		return reply_error(job, "image", "machine code entry: %s", fatbin_strerror(r));
	return r ? r : read_code(job, job->code_bytes, size);
}

/* PTX text; NULs at its end are the sender's. */
static int read_text(struct job *job)
{
	const struct image_request *request = &job->request;
	size_t length = request->size;
	int r;

	while (length && !request->data[length - 1])
		length--;
	job->text = malloc(length + 1);
	if (!job->text)
		return -ENOMEM;
	memcpy(job->text, request->data, length);
	job->text[length] = '\0';
	job->length = length;
	r = read_ptx(job);
	if (r)
		return r;
	if (job->module.target.number > request->capability ||
	    (job->module.target.suffix == 'a' && job->module.target.number != request->capability))
		return reply_own(job, "no code for sm_%u in this image: its PTX is for %.*s",
				 request->capability, (int)job->module.target.range.length,
				 job->text + job->module.target.range.offset);
	return take_ptx_names(job);
}

static int match_kernel(struct job *job, const char *mangled)
{
	const struct image_request *request = &job->request;
	struct target target = {}, *targets;
	int r = 0;

	kernel_name_init(&target.name, mangled);
	for (size_t i = 0; r >= 0 && i < request->n_attachments; i++) {
		r = kernel_name_match(&target.name, request->attachments[i].kernel);
		if (r > 0 && !request->attachments[i].supported)
			job->unsupported = true;
		if (r <= 0 || !request->attachments[i].supported)
			continue;
		if (!target.attachments) {
			target.attachments =
				calloc(request->n_attachments, sizeof(*target.attachments));
			target.programs = calloc(request->n_attachments, sizeof(*target.programs));
			if (!target.attachments || !target.programs) {
				r = -ENOMEM;
				break;
			}
		}
		target.attachments[target.n_attachments] = (uint32_t)i;
		target.programs[target.n_attachments++] = request->attachments[i].program;
	}
	if (r >= 0 && target.n_attachments) {
		targets = reallocarray(job->targets, job->n_targets + 1, sizeof(*targets));
		if (targets) {
			job->targets = targets;
			job->targets[job->n_targets++] = target;
			return 0;
		}
		r = -ENOMEM;
	}
	kernel_name_deinit(&target.name);
	free(target.attachments);
	free(target.programs);
	return r < 0 ? r : 0;
}

/* Finds the kernels that attachments mean. */
static int match(struct job *job)
{
	for (size_t i = 0; i < job->n_names; i++) {
		int r = match_kernel(job, job->names[i]);

		if (r)
			return r;
	}
	if (job->n_targets)
		return 0;
	if (job->unsupported)
		return reply_own(job, "the PTX engine has no such attach point");
	return reply_own(job, "no kernel matches");
}

/* There is machine code: finds, parses and checks the PTX that it was made from. */
static int find_source(struct job *job)
{
	const struct fatbin_entry *any;
	uint32_t virtual_sm;
	char device[16];
	int r;

	own_device(job, device, sizeof(device));
	if (job->request.kind == IMAGE_CUBIN)
		return reply_own(job, "no PTX for %s in this image: SASS only", device);
	if (job->cubin.relocatable)
		return reply_own(job, "relocatable code (-rdc=true), to be linked before it runs");
	virtual_sm = job->cubin.virtual_sm ? job->cubin.virtual_sm : job->code->sm;
	job->source =
		image_select_source(&job->fatbin, job->request.capability, job->code, virtual_sm);
	if (!job->source) {
		any = image_select_ptx(&job->fatbin, job->request.capability);
		if (!any)
			return reply_own(job, "no PTX for %s in this image: SASS only", device);
		return reply_own(job,
				 "no PTX for %s in this image: its SASS for sm_%u%s was made from "
				 "compute_%u%s, "
				 "its PTX is compute_%u%s",
				 device, job->code->sm, image_entry_suffix(job->code), virtual_sm,
				 image_entry_suffix(job->code), any->sm, image_entry_suffix(any));
	}
	r = read_ptx_entry(job);
	for (size_t i = 0; !r && i < job->n_names; i++) {
		const struct ptx_function *kernel;

		kernel = ptx_module_find_function(&job->module, job->names[i],
						  strlen(job->names[i]));
		if (!kernel || !kernel->entry || !kernel->body.length)
			return reply_own(job,
					 "the PTX of this image lacks kernel %.120s of its SASS",
					 job->names[i]);
	}
	return r;
}

static int reply_replaced(struct job *job, const struct image_result *result)
{
	struct json_object *applied = json_object_new_array();
	int r;

	r = worker_reply_status(job->reply, "replaced");
	if (!r)
		r = worker_add_int(job->reply, "size", (int64_t)result->size);
	if (!r)
		r = worker_add_object(job->reply, "applied", json_object_get(applied));
	for (size_t i = 0; !r && i < job->request.n_attachments; i++) {
		bool found = false;

		for (size_t j = 0; j < job->n_targets && !found; j++)
			for (uint32_t k = 0; k < job->targets[j].n_attachments && !found; k++)
				found = job->targets[j].applied &&
					job->targets[j].attachments[k] == i;
		if (found &&
		    json_object_array_add(applied,
					  json_object_new_int64(job->request.attachments[i].id)))
			r = -ENOMEM;
	}
	json_object_put(applied);
	if (!r)
		r = add_kernels(job);
	if (!r)
		r = worker_add_int(job->reply, "compile_us", result->compile_us);
	if (!r)
		r = worker_add_string(job->reply, "format", result->machine_code ? "cubin" : "ptx");
	return finish(r);
}

static int deliver(struct job *job, const struct image_result *result)
{
	int r;

	r = worker_write(job->request.output, result->data, result->size, 0);
	if (r)
		return reply_error(job, "internal", "cannot write the new image of %zu bytes: %s",
				   result->size, strerror(-r));
	return reply_replaced(job, result);
}

static int build(struct job *job, struct compiler *compiler)
{
	struct image_source source = {
		.fatbin = job->request.kind == IMAGE_FATBIN ? &job->fatbin : NULL,
		.entry = job->source,
		.module = &job->module,
		.capability = job->request.capability,
		.programs = job->request.programs,
		.n_programs = job->request.n_programs,
		.n_kernels = job->n_targets,
	};
	struct image_result result = {};
	int r;

	source.kernels = calloc(job->n_targets, sizeof(*source.kernels));
	if (!source.kernels)
		return -ENOMEM;
	for (size_t i = 0; i < job->n_targets; i++) {
		const struct target *target = &job->targets[i];

		source.kernels[i] = (struct kprobe_entry_kernel){
			.kernel = ptx_module_find_function(&job->module, target->name.mangled,
							   strlen(target->name.mangled)),
			.programs = target->programs,
			.program_count = target->n_attachments,
			.inlined = true,
		};
	}
	r = image_build(&result, &source, compiler);
	for (size_t i = 0; i < job->n_targets; i++)
		job->targets[i].applied = source.kernels[i].applied;
	free(source.kernels);
	if (r == IMAGE_BUILD_E_TRANSFORM)
		r = reply_error(job, "transform", "%s", result.error.message);
	else if (r == IMAGE_BUILD_E_COMPILE)
		r = finish(worker_reply_error(job->reply, result.log, "compile",
					      "%s does not compile the edited PTX for sm_%u",
					      compiler_name(compiler), job->request.capability));
	else if (!r)
		r = deliver(job, &result);
	image_result_deinit(&result);
	return r;
}

static void job_deinit(struct job *job)
{
	for (size_t i = 0; i < job->n_targets; i++) {
		kernel_name_deinit(&job->targets[i].name);
		free(job->targets[i].attachments);
		free(job->targets[i].programs);
	}
	free(job->targets);
	for (size_t i = 0; i < job->n_names; i++)
		free(job->names[i]);
	free(job->names);
	if (job->has_module)
		ptx_module_deinit(&job->module);
	free(job->text);
	cubin_deinit(&job->cubin);
	free(job->code_bytes);
	fatbin_deinit(&job->fatbin);
	image_request_deinit(&job->request);
}

int image_job(const struct worker_job *worker_job, struct json_object *reply, void *userdata)
{
	struct image_worker *worker = userdata;
	struct job job = { .reply = reply };
	int r;

	r = image_request_read(&job.request, worker_job, reply);
	if (!r && job.request.kind == IMAGE_FATBIN)
		r = read_fatbin(&job);
	else if (!r && job.request.kind == IMAGE_PTX)
		r = read_text(&job);
	else if (!r)
		r = read_code(&job, job.request.data, job.request.size);
	if (!r)
		r = match(&job);
	if (!r && !job.has_module)
		r = find_source(&job);
	if (!r)
		r = build(&job, worker->compiler);
	/* Everything above ends in a reply (1) or a failure; running out of memory is the image's
	 * fault, not ours. */
	if (r < 0)
		r = finish(worker_reply_error(reply, NULL, "internal", "%s", strerror(-r)));
	job_deinit(&job);
	return r > 0 ? 0 : r;
}
