/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handles the job `image` of the image worker (job.md).
 *
 * First, which kernels would run on this device: those of the machine code that the driver would
 * take, else those of the PTX that it would compile (image-select.c). Then, which attachments mean
 * which of them (image-target.c); device functions are looked for in the PTX, as machine code does
 * not name them. Only if some do, the PTX that stands for that code is parsed, checked to have all
 * its kernels, edited (image-edit.c), cut down to those that are meant (image-twin.c), compiled and
 * put into the image of a twin (image-build.c).
 *
 * Where passes of the user take part, this is done in stages, each a job of its own that starts
 * from the image; what comes from such a pass is believed as little as the image (image-check.c).
 *
 * Whatever is not an error but does not lead to a twin is `own` with a reason of one line:
 * operators read it.
 */

#include "image-job.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/compiler/cubin.h"
#include "image-build.h"
#include "image-edit.h"
#include "image-machine.h"
#include "image-request.h"
#include "image-select.h"
#include "image-twin.h"
#include "lib/kernel-name.h"
#include "proto/wire.h"
#include "lib/json.h"

#define PAYLOAD_MAX PTX_SOURCE_MAX
#define NO_PTX "no PTX for sm_%u in this image: "
#define NAMED_MAX 3 /* kernels that nobody means, by name */
#define NAMED_SIZE 49

/* PTX and what it says. */
struct source {
	char *text; /* owned; a NUL follows */
	size_t length;
	struct ptx_module module;
	bool parsed;
};

struct job {
	struct image_request request;
	struct json_object *reply;
	/* The image. */
	struct fatbin fatbin;
	/* Machine code that would run; NULL: the driver would compile `entry`. */
	const struct fatbin_entry *code;
	/* PTX entry; NULL if there is none, or the image is PTX text. */
	const struct fatbin_entry *entry;
	uint8_t *code_bytes; /* owned */
	uint64_t code_size;
	struct cubin cubin;
	struct source original;
	struct source loaded; /* as the driver compiles it, if `original` was changed */
	struct source foreign; /* that a pass of the user made of it */
	/* What would run. */
	char **names; /* owned, of all kernels */
	size_t n_names;
	char **device_names; /* owned, of functions that attachments may mean */
	size_t n_device_names;
	struct image_targets targets;
	bool edited; /* what the targets' uses say about sites is true */
	struct compiler *compiler; /* NULL: there is none */
};

static int finish(int r) {
	return r ? r : 1;
}

/* A reply is ready: these return 1, or -ENOMEM. */
__attribute__((format(printf, 3, 4))) static int reply_error(struct job *job, enum job_error error,
							     const char *format, ...) {
	char message[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	return finish(worker_reply_error(job->reply, NULL, error, "%s", message));
}

static int add_kernels(struct job *job) {
	int r;

	r = image_targets_add_kernels(&job->targets, &job->request, job->reply, job->edited);
	json_add_int(job->reply, JOB_KEY_KERNEL_COUNT, job->n_names);
	return finish(r);
}

__attribute__((format(printf, 2, 3))) static int reply_own(struct job *job, const char *format,
							   ...) {
	char reason[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	json_add_string(job->reply, JOB_KEY_STATUS, job_statuses[JOB_OWN]);
	worker_add_line(job->reply, JOB_KEY_REASON, reason);
	return add_kernels(job);
}

static int add_name(char ***names, size_t *count, const char *name, size_t length) {
	if (!(*count & (*count - 1))) {
		char **more = reallocarray(*names, *count ? 2 * *count : 1, sizeof(*more));

		if (!more)
			return -ENOMEM;
		*names = more;
	}
	(*names)[*count] = strndup(name, length);
	return (*names)[(*count)++] ? 0 : -ENOMEM;
}

/* Reads the machine code `data`, which has to stay, and takes its kernels' names. */
static int read_code(struct job *job, const uint8_t *data, size_t size) {
	int r;

	r = cubin_parse(&job->cubin, data, size);
	if (r > 0)
		return reply_error(job, JOB_E_IMAGE,
				   "malformed machine code: no cubin, or its tables lie outside");
	for (size_t i = 0; !r && i < job->cubin.n_kernels; i++)
		r = add_name(&job->names, &job->n_names, job->cubin.kernels[i],
			     strlen(job->cubin.kernels[i]));
	return r;
}

static int parse(struct source *source, struct ptx_error *error) {
	int r = ptx_module_parse(&source->module, source->text, source->length, error);

	source->parsed = !r;
	return r;
}

static void source_deinit(struct source *source) {
	if (source->parsed)
		ptx_module_deinit(&source->module);
	free(source->text);
}

/* Parses the PTX of the image. */
static int read_ptx(struct job *job) {
	char reason[IMAGE_TWIN_REASON_MAX];
	struct source changed = {};
	struct ptx_error error = {};
	int r;

	r = image_twin_constants(&changed.text, &changed.length, job->original.text,
				 job->original.length, reason);
	if (r)
		return r < 0 ? r : reply_own(job, IMAGE_TWIN_NONE "%s", reason);
	if (changed.text) {
		job->loaded = job->original;
		job->original = changed;
	}
	r = parse(&job->original, &error);
	if (r > 0)
		return reply_error(job, JOB_E_IMAGE, "PTX line %u: %s", error.line, error.message);
	return r;
}

/* See below. */
static int without_ptx(struct job *job, bool none, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int read_ptx_entry(struct job *job) {
	int r;

	r = fatbin_entry_ptx(job->entry, PAYLOAD_MAX, &job->original.text, &job->original.length);
	if (r == FATBIN_E_OPAQUE)
		return without_ptx(job, false, "the PTX in this image is scrambled");
	if (r > 0)
		return reply_error(job, JOB_E_IMAGE, "PTX entry: %s", fatbin_strerror(r));
	return r ? r : read_ptx(job);
}

static int take_ptx_names(struct job *job) {
	const struct ptx_module *module = &job->original.module;
	const struct ptx_function *kernel = NULL;
	int r = 0;

	while (!r && (kernel = ptx_module_next_kernel(module, kernel)))
		if (kernel->body.length)
			r = add_name(&job->names, &job->n_names, module->text + kernel->name.offset,
				     kernel->name.length);
	return r;
}

static int read_fatbin(struct job *job) {
	const struct image_request *request = &job->request;
	int r;

	r = fatbin_parse(&job->fatbin, request->data, request->size);
	if (r > 0)
		return reply_error(job, JOB_E_IMAGE, "malformed fatbin: %s", fatbin_strerror(r));
	if (r)
		return r;
	job->code = image_select_code(&job->fatbin, request->capability);
	if (!job->code) {
		job->entry = image_select_ptx(&job->fatbin, request->capability);
		if (!job->entry)
			return reply_own(job, "no code for sm_%u in this image",
					 request->capability);
		r = read_ptx_entry(job);
		return r ? r : take_ptx_names(job);
	}
	r = fatbin_entry_decompress(job->code, PAYLOAD_MAX, &job->code_bytes, &job->code_size);
	if (r == FATBIN_E_OPAQUE)
		return reply_own(job, "the machine code in this image is scrambled");
	if (r > 0)
		return reply_error(job, JOB_E_IMAGE, "machine code entry: %s", fatbin_strerror(r));
	return r ? r : read_code(job, job->code_bytes, job->code_size);
}

/* Takes a copy of PTX text; NULs at its end are the sender's. */
static int copy_text(struct source *source, const uint8_t *data, size_t length) {
	while (length && !data[length - 1])
		length--;
	source->text = malloc(length + 1);
	if (!source->text)
		return -ENOMEM;
	memcpy(source->text, data, length);
	source->text[length] = '\0';
	source->length = length;
	return 0;
}

static int read_text(struct job *job) {
	const struct image_request *request = &job->request;
	const struct ptx_target *target = &job->original.module.target;
	int r;

	r = copy_text(&job->original, request->data, request->size);
	if (!r)
		r = read_ptx(job);
	if (r)
		return r;
	if (target->number > request->capability ||
	    (target->suffix == 'a' && target->number != request->capability))
		return reply_own(job, "no code for sm_%u in this image: its PTX is for %.*s",
				 request->capability, (int)target->range.length,
				 job->original.text + target->range.offset);
	return take_ptx_names(job);
}

/* Reads the image: what would run, and which kernels that has. */
static int read_image(struct job *job) {
	switch (job->request.kind) {
	case WIRE_IMAGE_FATBIN:
		return read_fatbin(job);
	case WIRE_IMAGE_PTX:
		return read_text(job);
	case WIRE_IMAGE_CUBIN:
		return read_code(job, job->request.data, job->request.size);
	case WIRE_IMAGE_NAMES: /* no image */
		break;
	}
	return -EINVAL;
}

/* Writes an output that the request names (fd -1: it does not) and its size into the reply. */
static int deliver(struct job *job, int fd, const char *what, const void *data, size_t size) {
	int r;

	if (fd < 0)
		return 0;
	r = worker_write(fd, data, size, 0);
	if (r)
		return reply_error(job, JOB_E_INTERNAL,
				   "cannot write the output of %zu bytes (%s): %s", size, what,
				   strerror(-r));
	json_add_int(job->reply, what, size);
	return 0;
}

/* The end of every reply that is no error and not `own`. */
static int reply(struct job *job, enum job_status status) {
	int r = 0;

	json_add_string(job->reply, JOB_KEY_STATUS, job_statuses[status]);
	if (job->edited)
		r = image_targets_add_applied(&job->targets, &job->request, job->reply);
	return r ? r : add_kernels(job);
}

/* The compiler did not take a text: `what` it is. */
static int reply_not_compiled(struct job *job, const char *what, const char *log) {
	const char *line = log ?: "";

	return finish(worker_reply_error(job->reply, log, JOB_E_COMPILE,
					 "%s does not compile the %s for sm_%u: %.*s",
					 compiler_name(job->compiler), what,
					 job->request.capability, (int)strcspn(line, "\n"), line));
}

/* Writes the image of a twin, and the text that was compiled for it. */
static int deliver_twin(struct job *job, const struct image_built *result, const char *text,
			size_t length, enum job_twins twins) {
	int r;

	r = deliver(job, job->request.text_output, JOB_KEY_TEXT_SIZE, text, length);
	if (!r)
		r = deliver(job, job->request.output, JOB_KEY_SIZE, result->data, result->size);
	if (r)
		return r;
	json_add_int(job->reply, "compile_us", result->compile_us);
	json_add_string(job->reply, JOB_KEY_TWIN, job_twins[twins]);
	return 0;
}

/*
 * Makes the twin from machine code and replies. all: of each kernel that is meant, or not at all.
 * 0: there is none, and `reason` says why; nothing has been replied.
 */
static int try_machine(struct job *job, bool all, char reason[IMAGE_MACHINE_REASON_MAX]) {
	const bool is_cubin = job->request.kind == WIRE_IMAGE_CUBIN;
	const struct image_machine_source source = {
		.request = &job->request,
		.code = is_cubin ? job->request.data : job->code_bytes,
		.size = is_cubin ? job->request.size : job->code_size,
		.all = all,
	};
	struct image_built result = {};
	int r = IMAGE_MACHINE_E_NONE;

	snprintf(reason, IMAGE_MACHINE_REASON_MAX, "the image has no machine code for sm_%u",
		 job->request.capability);
	if (source.code)
		r = image_machine_build(&result, &source, &job->targets, job->compiler, reason);
	switch (r) {
	case 0:
		job->edited = true;
		r = deliver_twin(job, &result, result.text, result.text_length,
				 JOB_TWINS_MACHINE_CODE);
		if (!r)
			r = reply(job, JOB_MADE);
		break;
	case IMAGE_MACHINE_E_NONE:
		r = 0;
		break;
	case IMAGE_MACHINE_E_TRANSFORM:
		r = reply_error(job, JOB_E_TRANSFORM, "%s", reason);
		break;
	case IMAGE_MACHINE_E_COMPILE:
		r = reply_not_compiled(job, "programs", result.log);
		break;
	}
	image_built_deinit(&result);
	return r;
}

/* May the twin be made from machine code where the PTX cannot be used? */
static bool takes_machine_code(const struct job *job) {
	if (job->request.stage != JOB_STAGE_ALL)
		return false;
	switch (job->request.twins) {
	case JOB_TWINS_PTX:
		return false;
	case JOB_TWINS_PTX_FIRST:
		return image_machine_has_run(job->request.capability);
	case JOB_TWINS_MACHINE_CODE_FIRST:
	case JOB_TWINS_MACHINE_CODE:
		break;
	}
	return true;
}

/*
 * There is machine code, and the PTX that it was made from cannot be used, or (none) is not there:
 * says why, unless the twin can be made from machine code. The daemon knows an image without PTX by
 * its cause.
 */
static int without_ptx(struct job *job, bool none, const char *format, ...) {
	const bool tried = takes_machine_code(job);
	char why[256], reason[IMAGE_MACHINE_REASON_MAX];
	va_list arguments;
	int r;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	r = tried ? try_machine(job, false, reason) : 0;
	if (r)
		return r;
	if (none)
		json_add_string(job->reply, JOB_KEY_CAUSE, job_causes[JOB_CAUSE_NO_PTX]);
	return tried ? reply_own(job, IMAGE_TWIN_NONE "%.200s (%.100s)", reason, why)
		     : reply_own(job, "%s", why);
}

/* The twin from machine code, where that is wanted first or alone. */
static int machine_first(struct job *job) {
	const bool alone = job->request.twins == JOB_TWINS_MACHINE_CODE;
	char reason[IMAGE_MACHINE_REASON_MAX];
	int r;

	if (!takes_machine_code(job) || job->request.twins == JOB_TWINS_PTX_FIRST)
		return 0;
	r = try_machine(job, !alone, reason);
	return r || !alone ? r : reply_own(job, IMAGE_TWIN_NONE "%s", reason);
}

/* There is machine code: finds, parses and checks the PTX that it was made from. */
static int find_source(struct job *job) {
	const struct fatbin_entry *any;
	uint32_t virtual_sm;
	int r;

	if (job->request.kind == WIRE_IMAGE_CUBIN)
		return without_ptx(job, true, NO_PTX "SASS only", job->request.capability);
	if (job->cubin.relocatable)
		return reply_own(job, "relocatable code (-rdc=true), to be linked before it runs");
	virtual_sm = job->cubin.virtual_sm ? job->cubin.virtual_sm : job->code->sm;
	job->entry =
		image_select_source(&job->fatbin, job->request.capability, job->code, virtual_sm);
	if (!job->entry) {
		any = image_select_ptx(&job->fatbin, job->request.capability);
		if (!any)
			return without_ptx(job, true, NO_PTX "SASS only", job->request.capability);
		return without_ptx(job, true,
				   NO_PTX
				   "its SASS for sm_%u%s was made from compute_%u%s, its PTX is "
				   "compute_%u%s",
				   job->request.capability, job->code->sm,
				   image_entry_suffix(job->code), virtual_sm,
				   image_entry_suffix(job->code), any->sm, image_entry_suffix(any));
	}
	r = read_ptx_entry(job);
	for (size_t i = 0; !r && i < job->n_names; i++) {
		const struct ptx_function *kernel;

		kernel = ptx_module_find_function(&job->original.module, job->names[i],
						  strlen(job->names[i]));
		if (!kernel || !kernel->entry || !kernel->body.length)
			return without_ptx(job, false,
					   "the PTX of this image lacks kernel %.120s of its SASS",
					   job->names[i]);
	}
	return r;
}

/* Nobody means any of the image's kernels: what could have been meant, as the name may be mistyped.
 */
static int reply_no_match(struct job *job) {
	char names[NAMED_MAX][NAMED_SIZE], name[NAMED_SIZE],
		text[NAMED_MAX * (NAMED_SIZE + 2)] = "";
	size_t n = 0, length = 0;
	bool more = false;

	for (size_t i = 0; i < job->n_names && !more; i++) {
		bool known = false;

		if (!kernel_name_short(job->names[i], name, sizeof(name)))
			continue;
		for (size_t j = 0; j < n; j++) /* of one template */
			known |= !strcmp(names[j], name);
		more = !known && n == NAMED_MAX;
		if (known || more)
			continue;
		strcpy(names[n], name);
		length += (size_t)sprintf(text + length, "%s%s", n++ ? ", " : "", name);
	}
	return reply_own(job, n ? "no kernel matches; it has %s%s" : "no kernel matches", text,
			 more ? ", ..." : "");
}

/* Finds the kernels that attachments mean; without any there is no need to look at PTX. */
static int match_kernels(struct job *job) {
	int r = 0;

	for (size_t i = 0; !r && image_request_prefixed(&job->request) && i < job->n_names; i++)
		r = image_request_prefix_seen(&job->request, job->names[i]);
	image_request_prefix_decide(&job->request);
	for (size_t i = 0; !r && i < job->n_names; i++)
		r = image_targets_match(&job->targets, &job->request, job->names[i], false);
	if (r || job->targets.n || image_request_device_functions(&job->request) ||
	    image_request_checks(&job->request))
		return r;
	return reply_no_match(job);
}

static int match_device_functions(struct job *job) {
	const struct ptx_module *module = &job->original.module;
	int r = 0;

	if (!image_request_device_functions(&job->request))
		return 0;
	for (uint32_t i = 0; !r && i < module->function_count; i++) {
		const struct ptx_function *function = &module->functions[i];

		if (!function->entry && function->body.length)
			r = add_name(&job->device_names, &job->n_device_names,
				     module->text + function->name.offset, function->name.length);
	}
	for (size_t i = 0; !r && i < job->n_device_names; i++)
		r = image_targets_match(&job->targets, &job->request, job->device_names[i], true);
	if (r || job->targets.n || image_request_checks(&job->request))
		return r;
	return reply_own(job, "no kernel and no device function matches");
}

/* The text that a pass of the user made, if the stage has one. */
static int read_foreign(struct job *job) {
	const struct image_targets none = {};
	const bool edited = job->request.stage >= JOB_STAGE_CHECK_EDITED;
	struct ptx_error error = {};
	int r;

	if (job->request.stage < JOB_STAGE_CHECK)
		return 0;
	r = copy_text(&job->foreign, job->request.text, job->request.text_size);
	if (r)
		return r;
	r = parse(&job->foreign, &error);
	if (r > 0)
		return reply_error(job, JOB_E_TRANSFORM, "PTX line %u: %s", error.line,
				   error.message);
	if (!r)
		r = image_check(&job->foreign.module, &job->original.module, &job->request,
				edited ? &job->targets : &none, &error);
	return r > 0 ? reply_error(job, JOB_E_TRANSFORM, "%s", error.message) : r;
}

static int deliver_instructions(struct job *job, const struct image_edited *edited,
				const struct ptx_module *module) {
	size_t length;
	char *text;
	int r;

	if (job->request.instructions < 0)
		return 0;
	r = image_instructions_write(&edited->probes, module, &text, &length);
	if (r)
		return r;
	r = deliver(job, job->request.instructions, JOB_KEY_INSTRUCTIONS_SIZE, text, length);
	free(text);
	return r;
}

/* No program found a place: says so for the first one. */
static int reply_no_point(struct job *job) {
	struct image_target *target = &job->targets.targets[0];
	char point[192];
	int r;

	r = kernel_name_demangle(&target->name);
	if (r)
		return r;
	job->edited = false; /* all that were meant are named */
	image_point_format(&target->uses[0], point, sizeof(point));
	return reply_own(job, "no such point in %s %.200s: %s%s",
			 target->device_function ? "device function" : "kernel",
			 target->name.plain ? target->name.plain : target->name.mangled, point,
			 job->targets.n > 1 || target->count > 1 ? ", and others" : "");
}

/* Edits `module`; what is said about it goes into the reply. */
static int edit(struct job *job, const struct ptx_module *module, struct source *out) {
	struct ptx_error error = {};
	struct image_edited edited;
	int r;

	r = image_edit(&edited, module, &job->request, &job->targets, &error);
	if (r > 0)
		r = reply_error(job, JOB_E_TRANSFORM, "%s", error.message);
	job->edited = true;
	if (!r && !image_targets_sites(&job->targets))
		r = reply_no_point(job);
	if (!r)
		r = deliver_instructions(job, &edited, module);
	if (!r) {
		out->text = edited.text;
		out->length = edited.length;
		edited.text = NULL;
		r = parse(out, &error);
		if (r > 0)
			r = reply_error(job, JOB_E_TRANSFORM, "the edited text, line %u: %s",
					error.line, error.message);
	}
	image_edited_deinit(&edited);
	return r;
}

/* Makes a twin's image of a built one. Replies where that cannot be. */
static int finish_twin(struct job *job, const struct source *edited, struct image_built *result) {
	char reason[IMAGE_TWIN_REASON_MAX];
	int r;

	r = image_twin_finish(result, &job->original.module, &edited->module, reason);
	return r > 0 ? reply_own(job, IMAGE_TWIN_NONE "%s", reason) : r;
}

/* The twin's text without probes, as the driver would compile it where there is no machine code.
 * NULL: how many registers the original has is known, or stays unknown. */
static int read_unedited(struct job *job, struct source *unedited,
			 const struct ptx_module **module) {
	struct source *loaded = job->loaded.text ? &job->loaded : &job->original;
	char reason[IMAGE_TWIN_REASON_MAX];
	struct ptx_error error;
	int r = 0;

	*module = NULL;
	if (job->code)
		return 0;
	if (!loaded->parsed)
		r = parse(loaded, &error);
	if (!r)
		r = image_twin_cut(&loaded->module, &job->original.module, &job->targets,
				   &unedited->text, &unedited->length, reason);
	if (!r)
		r = parse(unedited, &error);
	if (!r)
		*module = &unedited->module;
	return r < 0 ? r : 0;
}

/* Compiles, makes the twin's image, replies. */
static int build_from(struct job *job, const struct source *edited) {
	struct image_source source = {
		.entry = job->entry,
		.module = &edited->module,
		.code = job->code_bytes,
		.code_size = job->code_size,
		.capability = job->request.capability,
	};
	struct source unedited = {};
	struct image_built result;
	int r;

	r = read_unedited(job, &unedited, &source.unedited);
	if (r) {
		source_deinit(&unedited);
		return r;
	}
	r = image_build(&result, &source, job->compiler);
	source_deinit(&unedited);
	if (r == IMAGE_BUILD_E_COMPILE)
		r = reply_not_compiled(job, "edited PTX", result.log);
	if (!r)
		r = finish_twin(job, edited, &result);
	if (!r)
		r = deliver_twin(job, &result, result.text ? result.text : edited->text,
				 result.text ? result.text_length : edited->length, JOB_TWINS_PTX);
	image_built_deinit(&result);
	return r;
}

/* The same of what is meant alone. */
static int build(struct job *job, const struct source *edited) {
	char reason[IMAGE_TWIN_REASON_MAX];
	struct source cut = {};
	struct ptx_error error = {};
	int r;

	r = image_twin_cut(&edited->module, &job->original.module, &job->targets, &cut.text,
			   &cut.length, reason);
	if (r)
		return r < 0 ? r : reply_own(job, IMAGE_TWIN_NONE "%s", reason);
	r = parse(&cut, &error);
	if (r > 0)
		r = reply_error(job, JOB_E_TRANSFORM, "the text of the twin, line %u: %s",
				error.line, error.message);
	if (!r)
		r = build_from(job, &cut);
	source_deinit(&cut);
	return r;
}

static int stage_edit(struct job *job) {
	struct source edited = {};
	int r;

	r = edit(job, &job->foreign.module, &edited);
	if (!r)
		r = deliver(job, job->request.text_output, JOB_KEY_TEXT_SIZE, edited.text,
			    edited.length);
	if (!r)
		r = deliver(job, job->request.output, JOB_KEY_SIZE, edited.text, edited.length);
	if (!r) {
		json_add_int(job->reply, JOB_KEY_ISA, edited.module.isa);
		json_add_int(job->reply, JOB_KEY_TARGET, edited.module.target.number);
	}
	source_deinit(&edited);
	return r ? r : reply(job, JOB_TEXT);
}

static int stage_all(struct job *job) {
	struct source edited = {};
	int r;

	r = edit(job, &job->original.module, &edited);
	if (!r)
		r = build(job, &edited);
	source_deinit(&edited);
	return r ? r : reply(job, JOB_MADE);
}

/* Can there be a twin? */
static int check_twin(struct job *job) {
	char reason[IMAGE_TWIN_REASON_MAX];

	if (image_twin_possible(&job->original.module, reason))
		return 0;
	return reply_own(job, IMAGE_TWIN_NONE "%s", reason);
}

/* What cannot be in the twin is not meant any more, and replies say so. */
static int leave_out(struct job *job) {
	int r;

	r = image_twin_leave_out(&job->targets, &job->original.module);
	if (r || job->targets.n || !job->targets.n_left || image_request_checks(&job->request))
		return r;
	return reply_own(job, "%s", job->targets.left[0].reason);
}

/* What is asked for, once the PTX is there. */
static int run_stage(struct job *job) {
	int r;

	switch (job->request.stage) {
	case JOB_STAGE_EXTRACT:
		r = deliver(job, job->request.output, JOB_KEY_SIZE, job->original.text,
			    job->original.length);
		return r ? r : reply(job, JOB_TEXT);
	case JOB_STAGE_CHECK:
	case JOB_STAGE_CHECK_EDITED:
		return reply(job, JOB_TEXT);
	case JOB_STAGE_EDIT:
		return stage_edit(job);
	case JOB_STAGE_BUILD:
		r = build(job, &job->foreign);
		return r ? r : reply(job, JOB_MADE);
	case JOB_STAGE_ALL:
		return stage_all(job);
	}
	return -EINVAL;
}

static void names_free(char **names, size_t count) {
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

static void job_deinit(struct job *job) {
	image_targets_deinit(&job->targets);
	names_free(job->names, job->n_names);
	names_free(job->device_names, job->n_device_names);
	source_deinit(&job->foreign);
	source_deinit(&job->loaded);
	source_deinit(&job->original);
	cubin_deinit(&job->cubin);
	free(job->code_bytes);
	fatbin_deinit(&job->fatbin);
	image_request_deinit(&job->request);
}

int image_job(const struct worker_job *worker_job, struct json_object *json, void *userdata) {
	struct image_worker *worker = userdata;
	struct job job = { .reply = json, .compiler = worker->compiler };
	unsigned int threads = 0;
	int r;

	r = image_request_read(&job.request, worker_job, json);
	if (!r && job.compiler && job.request.one_thread)
		threads = compiler_use_threads(job.compiler, 1);
	if (!r)
		r = read_image(&job);
	if (!r)
		r = match_kernels(&job);
	if (!r)
		r = machine_first(&job);
	if (!r && !job.original.parsed)
		r = find_source(&job);
	if (!r)
		r = check_twin(&job);
	if (!r)
		r = match_device_functions(&job);
	if (!r)
		r = leave_out(&job);
	if (!r)
		r = read_foreign(&job);
	if (!r)
		r = run_stage(&job);
	if (threads)
		compiler_use_threads(job.compiler, threads);
	/* Everything above ends in a reply (1) or a failure; running out of memory is the image's
	 * fault, not ours. */
	if (r < 0)
		r = finish(worker_reply_error(json, NULL, JOB_E_INTERNAL, "%s", strerror(-r)));
	job_deinit(&job);
	return r > 0 ? 0 : r;
}
