/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads and checks the request of the job `image` (image-request.h). The daemon writes it, so a
 * mistake in it is an `internal` error. So is an image that cannot be mapped, because the daemon
 * has checked its seals and size.
 */

#include "image-request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kernel-name.h"
#include "lib/json.h"
#include "proto/wire.h"

#define PROGRAM_MAX (16 << 20)

static int bad(struct json_object *reply, const char *what) {
	int r = worker_reply_error(reply, NULL, JOB_E_INTERNAL, "bad request: %s", what);

	return r ? r : 1;
}

/* "context": offsets, multiples of 8. False if it is there and not that. */
static bool read_context(struct probe_program *program, struct json_object *object) {
	struct json_object *array;
	uint16_t *context;

	if (!json_has(object, JOB_KEY_CONTEXT))
		return true;
	if (!json_get_array(object, JOB_KEY_CONTEXT, IMAGE_CONTEXT_MAX, &array))
		return false;
	context = calloc(json_object_array_length(array) + 1, sizeof(*context));
	if (!context)
		return false;
	program->context = context;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		int64_t offset;

		if (!json_int_at(array, i, 0, UINT16_MAX, &offset) || offset % 8 ||
		    (offset >= 8 * POINT_FIELDS && !point_is_thread((uint32_t)offset)))
			return false;
		context[program->context_count++] = (uint16_t)offset;
	}
	return true;
}

int image_request_read_program(struct image_request *request, const struct worker_job *job,
			       struct json_object *object, bool bare, struct json_object *reply) {
	struct probe_program *program = &request->programs[request->n_programs];
	const uint8_t *text = NULL;
	int64_t isa, target;
	size_t size = 0;
	int fd;

	if (!json_object_is_type(object, json_type_object) ||
	    !json_get_string(object, JOB_KEY_NAME, &program->symbol) ||
	    (json_has(object, JOB_KEY_LABEL) &&
	     !json_get_string(object, JOB_KEY_LABEL, &program->label)) ||
	    !json_get_int(object, JOB_KEY_ISA, 10, 999, &isa) ||
	    !json_get_int(object, JOB_KEY_TARGET, 10, 999, &target))
		return bad(reply, "a program is not as it should be");
	fd = worker_get_fd(job, object, JOB_KEY_FD);
	if (fd < 0 && (!bare || json_has(object, JOB_KEY_FD)))
		return bad(reply, "a program has no descriptor");
	if (fd >= 0 && worker_map(fd, PROGRAM_MAX, &text, &size))
		return bad(reply, "a program's descriptor is no sealed memfd of a fitting size");
	program->text = (const char *)text;
	program->length = size;
	program->isa = (uint32_t)isa;
	program->target = (uint32_t)target;
	request->n_programs++; /* from here on it is freed with the others */
	if (!read_context(program, object))
		return bad(reply, "a program's context is no list of offsets");
	return 0;
}

int image_request_find_program(const struct image_request *request, const char *name,
			       uint32_t *index) {
	for (size_t i = 0; i < request->n_programs; i++) {
		if (!strcmp(request->programs[i].symbol, name)) {
			*index = (uint32_t)i;
			return 0;
		}
	}
	return -ENOENT;
}

bool image_request_read_spaces(struct probe_use *use, struct json_object *object) {
	struct json_object *array;

	use->spaces = POINT_SPACES_DEFAULT;
	if (!json_has(object, JOB_KEY_SPACES))
		return true;
	if (!json_get_array(object, JOB_KEY_SPACES, POINT_SPACES, &array))
		return false;
	use->spaces = 0;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		uint32_t space = point_space(json_string_at(array, i));

		if (!space)
			return false;
		use->spaces |= space;
	}
	return use->spaces;
}

/* What "point" says, with the members that belong to it. */
static bool read_point(struct probe_use *use, struct json_object *object) {
	const struct point *point = point_find(json_string_of(object, JOB_KEY_POINT));

	if (!point || !(point->engines & POINT_ON_PTX))
		return false;
	use->point = point->kind;
	switch (use->point) {
	case POINT_MEMORY:
		return image_request_read_spaces(use, object);
	case POINT_LINE:
		return json_get_string(object, JOB_KEY_FILE, &use->file) && *use->file &&
		       json_get_u32(object, JOB_KEY_LINE, 1, UINT32_MAX, &use->line);
	case POINT_BLOCK:
		return json_get_u32(object, JOB_KEY_BLOCK, 0, UINT32_MAX - 1, &use->block);
	default:
		return true;
	}
}

bool image_request_read_prefixed(struct image_attachment *attachment, struct json_object *object) {
	return !json_has(object, JOB_KEY_PREFIXED) ||
	       (json_get_bool(object, JOB_KEY_PREFIXED, &attachment->prefixed) &&
		(!attachment->prefixed ||
		 !strncmp(attachment->kernel, IMAGE_PREFIX, strlen(IMAGE_PREFIX))));
}

bool image_request_prefixed(const struct image_request *request) {
	for (size_t i = 0; i < request->n_attachments; i++)
		if (request->attachments[i].prefixed)
			return true;
	return false;
}

int image_request_prefix_seen(struct image_request *request, const char *mangled) {
	struct kernel_name name;
	int r = 0;

	kernel_name_init(&name, mangled);
	for (size_t i = 0; r >= 0 && i < request->n_attachments; i++) {
		struct image_attachment *attachment = &request->attachments[i];

		if (!attachment->prefixed || attachment->literal)
			continue;
		r = kernel_name_match(&name, attachment->kernel);
		attachment->literal = r > 0;
	}
	kernel_name_deinit(&name);
	return r < 0 ? r : 0;
}

void image_request_prefix_decide(struct image_request *request) {
	for (size_t i = 0; i < request->n_attachments; i++)
		if (request->attachments[i].prefixed && !request->attachments[i].literal)
			request->attachments[i].kernel += strlen(IMAGE_PREFIX);
}

static int read_attachment(struct image_request *request, struct json_object *object,
			   struct json_object *reply) {
	struct image_attachment *attachment = &request->attachments[request->n_attachments];
	const char *program;

	if (!json_object_is_type(object, json_type_object) ||
	    !json_get_int(object, JOB_KEY_ID, INT64_MIN, INT64_MAX, &attachment->id) ||
	    !json_get_string(object, JOB_KEY_KERNEL, &attachment->kernel) ||
	    !image_request_read_prefixed(attachment, object) ||
	    !json_get_string(object, JOB_KEY_PROGRAM, &program) ||
	    (json_has(object, JOB_KEY_DEVICE_FUNCTION) &&
	     !json_get_bool(object, JOB_KEY_DEVICE_FUNCTION, &attachment->device_function)))
		return bad(reply, "an attachment is not as it should be");
	if (!read_point(&attachment->use, object))
		return bad(reply, "an attachment's point is none that there is");
	if (json_has(object, JOB_KEY_PTX) &&
	    !json_get_bool(object, JOB_KEY_PTX, &attachment->use.ptx))
		return bad(reply, "an attachment is not as it should be");
	if (image_request_find_program(request, program, &attachment->use.program))
		return bad(reply, "an attachment names a program that is not there");
	request->n_attachments++;
	return 0;
}

static int read_stubs(struct image_request *request, struct json_object *object,
		      struct json_object *reply) {
	struct json_object *array;
	const char **stubs;

	if (!json_has(object, JOB_KEY_STUBS))
		return 0;
	if (!json_get_array(object, JOB_KEY_STUBS, IMAGE_STUBS_MAX, &array))
		return bad(reply, "stubs is no list, or too long");
	stubs = calloc(json_object_array_length(array) + 1, sizeof(*stubs));
	if (!stubs)
		return -ENOMEM;
	request->options.stubs = stubs;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		stubs[i] = json_string_at(array, i);
		if (!stubs[i])
			return bad(reply, "a stub is no name");
		request->options.n_stubs++;
	}
	return 0;
}

static int read_lists(struct image_request *request, const struct worker_job *job,
		      struct json_object *reply) {
	struct json_object *programs, *attachments;
	int r;

	if (!json_get_array(job->request, JOB_KEY_PROGRAMS, JOB_FDS_MAX, &programs))
		return bad(reply, "no programs, or too many");
	if (!json_get_array(job->request, JOB_KEY_ATTACHMENTS, IMAGE_ATTACHMENTS_MAX, &attachments))
		return bad(reply, "no attachments, or too many");
	request->programs =
		calloc(json_object_array_length(programs) + 1, sizeof(*request->programs));
	request->attachments =
		calloc(json_object_array_length(attachments) + 1, sizeof(*request->attachments));
	if (!request->programs || !request->attachments)
		return -ENOMEM;
	for (size_t i = 0; i < json_object_array_length(programs); i++) {
		r = image_request_read_program(request, job, json_object_array_get_idx(programs, i),
					       false, reply);
		if (r)
			return r;
	}
	for (size_t i = 0; i < json_object_array_length(attachments); i++) {
		r = read_attachment(request, json_object_array_get_idx(attachments, i), reply);
		if (r)
			return r;
	}
	return read_stubs(request, job->request, reply);
}

/* A descriptor that may be absent. False if it is named and not there. */
static bool read_optional_fd(const struct worker_job *job, const char *key, int *fd) {
	*fd = json_has(job->request, key) ? worker_get_fd(job, job->request, key) : -1;
	return *fd >= 0 || !json_has(job->request, key);
}

static int read_words(struct image_request *request, const struct worker_job *job,
		      struct json_object *reply) {
	int kind = JOB_WORD(job_image_kinds, json_string_of(job->request, JOB_KEY_KIND)),
	    stage = JOB_STAGE_ALL, twins = JOB_TWINS_PTX;
	int64_t capability, image = 0, isa = 0, target = 0;

	if (kind < 0)
		return bad(reply, "kind is not fatbin, ptx or cubin");
	if (json_has(job->request, JOB_KEY_STAGE))
		stage = JOB_WORD(job_stages, json_string_of(job->request, JOB_KEY_STAGE));
	if (stage < 0)
		return bad(reply, "stage is none that there is");
	if (json_has(job->request, JOB_KEY_TWINS))
		twins = JOB_WORD(job_twins, json_string_of(job->request, JOB_KEY_TWINS));
	if (twins < 0)
		return bad(reply, "twins is none of the ways to make them");
	if (!json_get_int(job->request, JOB_KEY_CAPABILITY, 30, 999, &capability))
		return bad(reply, "capability is missing or out of range");
	if ((json_has(job->request, JOB_KEY_IMAGE) &&
	     !json_get_int(job->request, JOB_KEY_IMAGE, 0, INT32_MAX, &image)) ||
	    (json_has(job->request, JOB_KEY_CALL) &&
	     !json_get_bool(job->request, JOB_KEY_CALL, &request->options.call)) ||
	    (json_has(job->request, JOB_KEY_ONE_THREAD) &&
	     !json_get_bool(job->request, JOB_KEY_ONE_THREAD, &request->one_thread)) ||
	    (json_has(job->request, JOB_KEY_ISA) &&
	     !json_get_int(job->request, JOB_KEY_ISA, 10, 999, &isa)) ||
	    (json_has(job->request, JOB_KEY_TARGET) &&
	     !json_get_int(job->request, JOB_KEY_TARGET, 10, 999, &target)))
		return bad(reply, "image, call, one_thread, isa or target are out of range");
	request->kind = (enum wire_image_kind)kind;
	request->stage = (enum job_stage)stage;
	request->twins = (enum job_twins)twins;
	request->capability = (unsigned int)capability;
	request->options.capability = request->capability;
	request->options.image = (uint32_t)image;
	request->options.launch = true;
	request->isa = (uint32_t)isa;
	request->target = (uint32_t)target;
	return 0;
}

int image_request_read(struct image_request *request, const struct worker_job *job,
		       struct json_object *reply) {
	int input, text, r;

	*request = (struct image_request){ .output = -1 };
	r = read_words(request, job, reply);
	if (r)
		return r;
	input = worker_get_fd(job, job->request, JOB_KEY_INPUT);
	request->output = worker_get_fd(job, job->request, JOB_KEY_OUTPUT);
	if (input < 0 || input == request->output ||
	    (request->output < 0 && !image_request_checks(request)))
		return bad(reply, "input or output name no descriptor");
	if (!read_optional_fd(job, JOB_KEY_TEXT_OUTPUT, &request->text_output) ||
	    !read_optional_fd(job, JOB_KEY_INSTRUCTIONS, &request->instructions))
		return bad(reply, "text_output or instructions name no descriptor");
	if (worker_map(input, WORKER_INPUT_MAX, &request->data, &request->size))
		return bad(reply, "the input is no sealed memfd of a fitting size");
	if (request->stage >= JOB_STAGE_CHECK) {
		text = worker_get_fd(job, job->request, JOB_KEY_TEXT);
		if (text < 0 ||
		    worker_map(text, WORKER_INPUT_MAX, &request->text, &request->text_size))
			return bad(reply, "the text is no sealed memfd of a fitting size");
	}
	return read_lists(request, job, reply);
}

void image_request_deinit(struct image_request *request) {
	for (size_t i = 0; i < request->n_programs; i++) {
		worker_unmap((const uint8_t *)request->programs[i].text,
			     request->programs[i].length);
		free((void *)request->programs[i].context);
	}
	worker_unmap(request->data, request->size);
	worker_unmap(request->text, request->text_size);
	free(request->programs);
	free(request->attachments);
	free((void *)request->options.stubs);
	*request = (struct image_request){};
}

bool image_request_checks(const struct image_request *request) {
	return request->stage == JOB_STAGE_CHECK || request->stage == JOB_STAGE_CHECK_EDITED;
}

bool image_request_device_functions(const struct image_request *request) {
	for (size_t i = 0; i < request->n_attachments; i++)
		if (request->attachments[i].device_function)
			return true;
	return false;
}
