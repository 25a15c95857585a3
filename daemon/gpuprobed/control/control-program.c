/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method ShowProgram. What it says about patches is what the compiler said about their
 * functions: those that were made for the object alone, if there are any, else those with the
 * fewest other programs in them.
 */

#include "control.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bpf/btf-check.h"
#include "lib/bpf/thread-section.h"
#include "lib/json.h"
#include "proto/patch.h"

/* What instructions that are patched are called: as their point, those of memory by their kind. */
static const char *control_instruction_name(uint32_t instruction) {
	static const char *const memory[] = {
		[PATCH_GLOBAL_MEMORY] = "global",
		[PATCH_SHARED_MEMORY] = "shared",
		[PATCH_LOCAL_MEMORY] = "local",
		[PATCH_REMOTE_SHARED_MEMORY] = "remote",
	};
	const struct point *point = point_of_instruction(instruction);

	if (!point)
		return NULL;
	return point->kind == POINT_MEMORY ? memory[instruction] : point->name;
}

/* Whether a function for such instructions has to do with the attachment's point. */
static bool control_is_of_point(const struct section *section, uint32_t instruction) {
	return point_is(point_of_instruction(instruction), section_point(section));
}

/* The image of that capability with the attachment and fewest others. */
static const struct plan_image *control_patch(const struct control_context *context,
					      uint32_t capability, uint64_t attachment) {
	const struct plan_image *image, *best = NULL;

	TAILQ_FOREACH(image, &context->image->plans.list, link) {
		bool has = false;

		for (size_t i = 0; i < image->n_attachments; i++)
			has = has || image->attachments[i] == attachment;
		if (has && image->state == PLAN_READY && image->capability == capability &&
		    (!best || image->n_attachments < best->n_attachments))
			best = image;
	}
	return best;
}

static json_object *control_patches_json(const struct control_context *context,
					 const struct attachment *attachment) {
	json_object *array = json_object_new_array();

	for (unsigned int c = 0; c < context->image->n_capabilities; c++) {
		const struct plan_image *image =
			control_patch(context, context->image->capabilities[c], attachment->id);

		for (size_t i = 0; image && i < image->n_functions; i++) {
			const struct plan_function *function = &image->functions[i];
			const char *name = control_instruction_name(function->instruction);
			json_object *json;

			if (!name ||
			    !control_is_of_point(&attachment->section, function->instruction))
				continue;
			json = json_object_new_object();
			json_add_text(json, "instruction", name);
			json_add_int(json, "capability", image->capability);
			json_add_int(json, "registers", function->registers);
			json_add_int(json, "spill_stores", function->spill_stores);
			json_add_int(json, "spill_loads", function->spill_loads);
			json_add_int(json, "stack", function->stack);
			json_append(array, json);
		}
	}
	return array;
}

/* The variables of a thread that lie in these words, by the object's types. */
static json_object *control_thread_json(const struct object *object, uint32_t words) {
	json_object *array = json_object_new_array();
	struct thread_variables variables;
	char why[BTF_CHECK_ERROR_SIZE];
	struct btf *btf;

	if (!words || btf_open(&btf, object->btf, object->n_btf, why))
		return array;
	thread_variables_read(&variables, btf);
	btf__free(btf);
	for (size_t i = 0; i < variables.n; i++) {
		const struct thread_variable *variable = &variables.variables[i];
		bool used = false;

		for (uint32_t word = 0; word < POINT_THREAD_WORDS; word++)
			used = used || (words >> word & 1 && variable->offset < 8 * (word + 1) &&
					variable->offset + variable->size > 8 * word);
		if (used)
			json_append_string(array, variable->name);
	}
	return array;
}

static json_object *control_program_json(const struct control_context *context,
					 const struct attachment *attachment) {
	json_object *json = json_object_new_object(), *maps = json_object_new_array();
	const struct gpu_program *program = attachment_gpu(attachment);
	const struct object *object = attachment->object;

	json_add(json, "attachment", control_attachment_json(attachment));
	json_add_text(json, "symbol", program->symbol);
	json_add_int(json, "ptx_size", program->size);
	json_add_int(json, "local_bytes", program->local_bytes);
	json_add_int(json, "isa", program->isa);
	json_add_int(json, "target", program->target);
	for (size_t i = 0; i < object->n_maps; i++)
		if (program->maps >> i & 1 && object->maps[i])
			json_append_string(maps, object->maps[i]->spec.name);
	json_add(json, "maps", maps);
	json_add(json, "thread", control_thread_json(object, gpu_program_words(program)));
	json_add_text(json, "sanitizer", program->patch_fd >= 0 ? "" : program->patch_reason);
	json_add(json, "patches", control_patches_json(context, attachment));
	return json;
}

/* Whether the argument means the attachment: its number, or the name of its program. */
static bool control_means_program(const char *program, const struct attachment *attachment) {
	char *end;
	uint64_t id;

	errno = 0;
	id = strtoull(program, &end, 10);
	if (*program >= '0' && *program <= '9' && !*end)
		return !errno && id == attachment->id;
	return strcmp(program, attachment->program) == 0;
}

int control_show_program(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct control_context *context = userdata;
	const char *program = json_string_of(parameters, "program");
	json_object *json, *programs = json_object_new_array();
	const struct attachment *attachment;

	process_table_count(context->image->processes, context->image->registry);
	TAILQ_FOREACH(attachment, &context->image->registry->attachments, link)
		if (attachment_gpu(attachment) &&
		    control_may_see(call, attachment->object->owner) &&
		    control_means_program(program, attachment))
			json_append(programs, control_program_json(context, attachment));
	if (!json_object_array_length(programs)) {
		json_object_put(programs);
		return control_error_not_found(call, "%s", program);
	}
	json = json_object_new_object();
	json_add(json, "programs", programs);
	return varlink_call_reply(call, json);
}
