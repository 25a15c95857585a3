/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What is wrong with a request is the daemon's fault, so it is an `internal` error; an image that
 * cannot be mapped is too, as the daemon has checked its seals and size.
 */

#include "image-request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_MAX (16 << 20)

static int bad(struct json_object *reply, const char *what)
{
	int r = worker_reply_error(reply, NULL, "internal", "bad request: %s", what);

	return r ? r : 1;
}

static int read_program(struct image_request *request, const struct worker_job *job,
			struct json_object *object, struct json_object *reply)
{
	struct kprobe_entry_program *program = &request->programs[request->n_programs];
	const uint8_t *text;
	int64_t isa, target;
	size_t size;
	int fd;

	if (!json_object_is_type(object, json_type_object) ||
	    !worker_get_string(object, "name", &program->symbol) ||
	    !worker_get_int(object, "isa", 10, 999, &isa) ||
	    !worker_get_int(object, "target", 10, 999, &target))
		return bad(reply, "a program is not as it should be");
	fd = worker_get_fd(job, object, "fd");
	if (fd < 0)
		return bad(reply, "a program has no descriptor");
	if (worker_map(fd, PROGRAM_MAX, &text, &size))
		return bad(reply, "a program's descriptor is no sealed memfd of a fitting size");
	program->text = (const char *)text;
	program->length = size;
	program->isa = (uint32_t)isa;
	program->target = (uint32_t)target;
	request->n_programs++;
	return 0;
}

static int find_program(const struct image_request *request, const char *name, uint32_t *index)
{
	for (size_t i = 0; i < request->n_programs; i++) {
		if (!strcmp(request->programs[i].symbol, name)) {
			*index = (uint32_t)i;
			return 0;
		}
	}
	return -ENOENT;
}

static int read_attachment(struct image_request *request, struct json_object *object,
			   struct json_object *reply)
{
	struct image_attachment *attachment = &request->attachments[request->n_attachments];
	const char *point, *program;

	if (!json_object_is_type(object, json_type_object) ||
	    !worker_get_int(object, "id", INT64_MIN, INT64_MAX, &attachment->id) ||
	    !worker_get_string(object, "kernel", &attachment->kernel) ||
	    !worker_get_string(object, "point", &point) ||
	    !worker_get_string(object, "program", &program))
		return bad(reply, "an attachment is not as it should be");
	if (find_program(request, program, &attachment->program))
		return bad(reply, "an attachment names a program that is not there");
	attachment->supported = !strcmp(point, "entry");
	request->n_attachments++;
	return 0;
}

static int read_kind(const char *text, enum image_kind *kind)
{
	if (!strcmp(text, "fatbin"))
		*kind = IMAGE_FATBIN;
	else if (!strcmp(text, "ptx"))
		*kind = IMAGE_PTX;
	else if (!strcmp(text, "cubin"))
		*kind = IMAGE_CUBIN;
	else
		return -EINVAL;
	return 0;
}

static int read_lists(struct image_request *request, const struct worker_job *job,
		      struct json_object *reply)
{
	struct json_object *programs, *attachments;
	int r;

	if (!worker_get_array(job->request, "programs", IMAGE_PROGRAMS_MAX, &programs))
		return bad(reply, "no programs, or too many");
	if (!worker_get_array(job->request, "attachments", IMAGE_ATTACHMENTS_MAX, &attachments))
		return bad(reply, "no attachments, or too many");
	request->programs =
		calloc(json_object_array_length(programs) + 1, sizeof(*request->programs));
	request->attachments =
		calloc(json_object_array_length(attachments) + 1, sizeof(*request->attachments));
	if (!request->programs || !request->attachments)
		return -ENOMEM;
	for (size_t i = 0; i < json_object_array_length(programs); i++) {
		r = read_program(request, job, json_object_array_get_idx(programs, i), reply);
		if (r)
			return r;
	}
	for (size_t i = 0; i < json_object_array_length(attachments); i++) {
		r = read_attachment(request, json_object_array_get_idx(attachments, i), reply);
		if (r)
			return r;
	}
	return 0;
}

int image_request_read(struct image_request *request, const struct worker_job *job,
		       struct json_object *reply)
{
	int64_t capability;
	const char *kind;
	int input;

	*request = (struct image_request){};
	if (!worker_get_string(job->request, "kind", &kind) || read_kind(kind, &request->kind))
		return bad(reply, "kind is not fatbin, ptx or cubin");
	if (!worker_get_int(job->request, "flags", 0, UINT32_MAX, &request->flags) ||
	    !worker_get_int(job->request, "capability", 30, 999, &capability))
		return bad(reply, "flags or capability are missing or out of range");
	request->capability = (unsigned int)capability;
	input = worker_get_fd(job, job->request, "input");
	request->output = worker_get_fd(job, job->request, "output");
	if (input < 0 || request->output < 0 || input == request->output)
		return bad(reply, "input or output name no descriptor");
	if (worker_map(input, WORKER_INPUT_MAX, &request->data, &request->size))
		return bad(reply, "the input is no sealed memfd of a fitting size");
	return read_lists(request, job, reply);
}

void image_request_deinit(struct image_request *request)
{
	for (size_t i = 0; i < request->n_programs; i++)
		worker_unmap((const uint8_t *)request->programs[i].text,
			     request->programs[i].length);
	worker_unmap(request->data, request->size);
	free(request->programs);
	free(request->attachments);
	*request = (struct image_request){};
}
