/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Describes attachments in the JSON of the worker jobs `image` and `patch` (attachment-json.h). It
 * only reads the registry.
 */

#include "attachment-json.h"

#include <limits.h>

#include "registry.h"
#include "lib/json.h"
#include "proto/job.h"

json_object *attachment_program_json(const struct attachment *attachment, int fd) {
	const struct gpu_program *program = attachment_gpu(attachment);
	json_object *json = json_object_new_object(), *context;

	json_add_string(json, JOB_KEY_NAME, program->symbol);
	json_add_string(json, JOB_KEY_LABEL, attachment->program);
	json_add_int(json, JOB_KEY_FD, fd);
	json_add_int(json, JOB_KEY_ISA, program->isa);
	json_add_int(json, JOB_KEY_TARGET, program->target);
	context = json_add_array(json, JOB_KEY_CONTEXT);
	for (size_t i = 0; i < program->n_context; i++)
		json_append_int(context, program->context[i]);
	return json;
}

json_object *attachment_patch_json(const struct attachment *attachment, int fd) {
	const struct gpu_program *program = attachment_gpu(attachment);
	json_object *json = attachment_program_json(attachment, fd);

	/* slots are loaded as PTX can from sm_70 on */
	json_add_int(json, JOB_KEY_TARGET, program->target > 70 ? program->target : 70);
	json_add_int(json, JOB_KEY_MAPS, attachment_patch_slots(attachment));
	json_add_bool(json, JOB_KEY_PROCESS, true);
	return json;
}

json_object *attachment_json(const struct attachment *attachment, uint32_t default_spaces) {
	const struct section *section = &attachment->section;
	uint32_t wanted =
		attachment->spaces == POINT_SPACES_DEFAULT ? default_spaces : attachment->spaces;
	json_object *json = json_object_new_object(), *spaces;

	json_add_int(json, JOB_KEY_ID, attachment->id);
	json_add_string(json, JOB_KEY_KERNEL, section->kernel);
	if (section_prefixed(section, attachment->section_text))
		json_add_bool(json, JOB_KEY_PREFIXED, true);
	json_add_bool(json, JOB_KEY_DEVICE_FUNCTION, section->device_function);
	json_add_string(json, JOB_KEY_POINT, section_point(section)->name);
	if (attachment_gpu(attachment)->engine == ENGINE_PTX)
		json_add_bool(json, JOB_KEY_PTX, true);
	json_add_string(json, JOB_KEY_PROGRAM, attachment_gpu(attachment)->symbol);
	if (section->point == POINT_LINE) {
		json_add_string(json, JOB_KEY_FILE, section->file);
		json_add_int(json, JOB_KEY_LINE, section->line);
	} else if (section->point == POINT_BLOCK) {
		json_add_int(json, JOB_KEY_BLOCK, section->block);
	} else if (section->point == POINT_MEMORY && wanted != POINT_SPACES_DEFAULT) {
		spaces = json_add_array(json, JOB_KEY_SPACES);
		for (unsigned int i = 0; i < POINT_SPACES; i++)
			if (wanted >> i & 1)
				json_append_string(spaces, point_spaces[i]);
	}
	return json;
}

json_object *filter_json(const struct filter *filter, bool whole) {
	json_object *json = json_object_new_object();

	if (filter->has_pid)
		json_add_int(json, "pid", filter->pid);
	if (whole && filter->start_time)
		json_add_int(json, "start_time", filter->start_time);
	if (filter->has_uid)
		json_add_int(json, "uid", filter->uid);
	if (whole && filter->own)
		json_add_bool(json, "own", true);
	if (filter->has_comm)
		json_add_string(json, "comm", filter->comm);
	if (filter->has_exe)
		json_add_string(json, "exe", filter->exe);
	if (whole && filter->has_cgroup)
		json_add_string(json, "cgroup", filter->cgroup);
	return json;
}

/*
 * Whether the filter has that condition. Callers may send null for none; the state file never has
 * null, and a condition that is lost there would make the filter mean more processes.
 */
static bool filter_has(json_object *json, const char *key, bool whole) {
	return whole ? json_has(json, key) : json_member(json, key) != NULL;
}

const char *filter_from_json(struct filter *filter, json_object *json, bool whole) {
	static const struct {
		const char *key;
		bool (*set)(struct filter *filter, const char *text);
	} patterns[] = {
		{ "comm", filter_set_comm },
		{ "exe", filter_set_exe },
		{ "cgroup", filter_set_cgroup },
	};
	int64_t pid = 0, uid = 0, start = 0;

	*filter = (struct filter){
		.has_pid = filter_has(json, "pid", whole),
		.has_uid = filter_has(json, "uid", whole),
	};
	if (filter->has_pid && !json_get_int(json, "pid", 1, INT_MAX, &pid))
		return "pid";
	if (filter->has_uid && !json_get_int(json, "uid", 0, UINT32_MAX - 1, &uid))
		return "uid";
	if (whole && json_has(json, "start_time") &&
	    !json_get_int(json, "start_time", 0, INT64_MAX, &start))
		return "start_time";
	filter->pid = (pid_t)pid;
	filter->uid = (uid_t)uid;
	filter->start_time = (uint64_t)start;
	filter->own = whole && json_bool_of(json, "own");
	for (size_t i = 0; i < (whole ? 3 : 2); i++) {
		const char *text = json_string_of(json, patterns[i].key);

		if (filter_has(json, patterns[i].key, whole) &&
		    (!text || !patterns[i].set(filter, text)))
			return patterns[i].key;
	}
	return NULL;
}
