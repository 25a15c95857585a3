/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads and checks the request of the job `patch` (patch-request.h). The daemon writes it, so a
 * mistake in it is an `internal` error. What a program cannot have on this engine is reported to
 * its author: error `program`.
 */

#include "patch-request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/worker/base/sandbox.h"
#include "lib/json.h"

#define EARLIER_MAX (UINT64_C(1) << 30)

static int finish(int r) {
	return r ? r : 1;
}

static int bad(struct json_object *reply, const char *what) {
	return finish(worker_reply_error(reply, NULL, JOB_E_INTERNAL, "bad request: %s", what));
}

/*
 * Maps what a member names, if it is there; an empty memfd is as none. False: it is not as it
 * should be.
 */
static bool map_optional(const struct worker_job *job, const char *key, uint64_t max,
			 const uint8_t **data, size_t *size) {
	struct stat status;
	int fd;

	if (!json_has(job->request, key))
		return true;
	fd = worker_get_fd(job, job->request, key);
	if (fd < 0 || sandbox_fstat(fd, &status))
		return false;
	return !status.st_size || !worker_map(fd, max, data, size);
}

/* The programs, and where the slots of each are. */
static int read_programs(struct patch_request *request, const struct worker_job *job,
			 struct json_object *reply) {
	struct json_object *programs;
	uint64_t end = sizeof(struct patch_data);
	size_t n;

	if (!json_get_array(job->request, JOB_KEY_PROGRAMS, JOB_FDS_MAX, &programs))
		return bad(reply, "no programs, or too many");
	n = json_object_array_length(programs);
	request->image.programs = calloc(n + 1, sizeof(*request->image.programs));
	request->slots = calloc(n + 1, sizeof(*request->slots));
	if (!request->image.programs || !request->slots)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct json_object *object = json_object_array_get_idx(programs, i);
		int64_t maps;
		int r;

		r = image_request_read_program(&request->image, job, object, request->earlier,
					       reply);
		if (r)
			return r;
		if (!json_get_int(object, JOB_KEY_MAPS, 0, UINT16_MAX, &maps))
			return bad(reply, "a program does not say how many slots it has");
		request->slots[i] = (uint32_t)end;
		end += 8 * (uint64_t)maps;
	}
	end = (end + 15) & ~UINT64_C(15);
	if (end > PATCH_DATA_MAX)
		return finish(worker_reply_error(
			reply, NULL, JOB_E_PROGRAM,
			"the programs use too many maps together: %llu slots, a kernel has room "
			"for %zu",
			(unsigned long long)(end - sizeof(struct patch_data)) / 8,
			(PATCH_DATA_MAX - sizeof(struct patch_data)) / 8));
	request->data_size = (uint32_t)end;
	return 0;
}

/* Has the context of this point what the program reads? */
static int check_context(const struct patch_request *request,
			 const struct image_attachment *attachment,
			 const struct patch_meaning *meaning, struct json_object *reply) {
	const struct probe_program *program = &request->image.programs[attachment->use.program];
	char field[48];

	for (uint32_t i = 0; i < program->context_count; i++) {
		if (patch_context_has(meaning->context, program->context[i]))
			continue;
		patch_context_format(meaning->context, program->context[i], field, sizeof(field));
		return finish(worker_reply_error(reply, NULL, JOB_E_PROGRAM,
						 "attachment %lld: program %.80s reads %s of its "
						 "context, which point %s does "
						 "not have on the sanitizer engine",
						 (long long)attachment->id,
						 probe_program_label(program), field,
						 meaning->point));
	}
	return 0;
}

static int read_point(struct patch_request *request, struct image_attachment *attachment,
		      struct patch_meaning *meaning, struct json_object *object,
		      struct json_object *reply) {
	const struct point *point;

	if (!json_get_string(object, JOB_KEY_POINT, &meaning->point) ||
	    !image_request_read_spaces(&attachment->use, object))
		return bad(reply, "an attachment's point is none that there is");
	point = point_find(meaning->point);
	if (!point || !(point->engines & POINT_ON_SASS))
		return finish(worker_reply_error(
			reply, NULL, JOB_E_PROGRAM,
			"attachment %lld: the sanitizer engine has no point %.40s",
			(long long)attachment->id, meaning->point));
	meaning->context = point->context;
	meaning->classes = patch_point_classes(point, attachment->use.spaces);
	if (!meaning->classes)
		return finish(worker_reply_error(reply, NULL, JOB_E_PROGRAM,
						 "attachment %lld: the sanitizer engine does not "
						 "see accesses to these spaces "
						 "at point %s",
						 (long long)attachment->id, meaning->point));
	request->classes |= meaning->classes;
	return 0;
}

static int read_attachment(struct patch_request *request, struct json_object *object,
			   struct json_object *reply) {
	const size_t index = request->image.n_attachments;
	struct image_attachment *attachment = &request->image.attachments[index];
	struct patch_meaning *meaning = &request->meanings[index];
	const char *program;
	int r;

	if (!json_object_is_type(object, json_type_object) ||
	    !json_get_int(object, JOB_KEY_ID, INT64_MIN, INT64_MAX, &attachment->id) ||
	    !json_get_string(object, JOB_KEY_KERNEL, &attachment->kernel) ||
	    !image_request_read_prefixed(attachment, object) ||
	    !json_get_string(object, JOB_KEY_PROGRAM, &program))
		return bad(reply, "an attachment is not as it should be");
	if (image_request_find_program(&request->image, program, &attachment->use.program))
		return bad(reply, "an attachment names a program that is not there");
	request->image.n_attachments++;
	r = read_point(request, attachment, meaning, object, reply);
	return r ? r : check_context(request, attachment, meaning, reply);
}

static int read_attachments(struct patch_request *request, const struct worker_job *job,
			    struct json_object *reply) {
	struct json_object *attachments;
	int r = 0;
	size_t n;

	if (!json_get_array(job->request, JOB_KEY_ATTACHMENTS, PATCH_ATTACHMENTS_MAX,
			    &attachments) ||
	    !json_object_array_length(attachments))
		return bad(reply, "no attachments, or too many");
	n = json_object_array_length(attachments);
	request->image.attachments = calloc(n, sizeof(*request->image.attachments));
	request->meanings = calloc(n, sizeof(*request->meanings));
	if (!request->image.attachments || !request->meanings)
		return -ENOMEM;
	for (size_t i = 0; !r && i < n; i++)
		r = read_attachment(request, json_object_array_get_idx(attachments, i), reply);
	return r;
}

int patch_request_read(struct patch_request *request, const struct worker_job *job,
		       struct json_object *reply) {
	int64_t capability;
	int r;

	*request = (struct patch_request){ .image.output = -1 };
	if (!json_get_int(job->request, JOB_KEY_CAPABILITY, 30, 999, &capability))
		return bad(reply, "capability is missing or out of range");
	request->image.capability = (unsigned int)capability;
	request->image.output = worker_get_fd(job, job->request, JOB_KEY_OUTPUT);
	if (request->image.output < 0)
		return bad(reply, "output names no descriptor");
	if (!map_optional(job, JOB_KEY_NAMES, PATCH_NAMES_SIZE_MAX, &request->names,
			  &request->names_size))
		return bad(reply, "names is no sealed memfd of a fitting size");
	if (!map_optional(job, JOB_KEY_PATCH, EARLIER_MAX, &request->earlier,
			  &request->earlier_size))
		return bad(reply, "patch is no sealed memfd of a fitting size");
	r = read_programs(request, job, reply);
	return r ? r : read_attachments(request, job, reply);
}

void patch_request_deinit(struct patch_request *request) {
	free(request->meanings);
	free(request->slots);
	worker_unmap(request->names, request->names_size);
	worker_unmap(request->earlier, request->earlier_size);
	image_request_deinit(&request->image);
	*request = (struct patch_request){};
}
