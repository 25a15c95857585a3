/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The last stages of an attach (attach-private.h): compile (a worker), register, prepare (workers
 * make patch images, so that no first launch waits for a compiler), announce. What the sanitizer
 * engine cannot have is known before any process is told.
 */

#include "attach-private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach-compiled.h"
#include "attach-register.h"
#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "daemon/gpuprobed/workers/cache/key.h"
#include "daemon/gpuprobed/verify/host.h"
#include "daemon/gpuprobed/keep/keep.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/image/plan-prepare.h"
#include "lib/json.h"
#include "proto/job.h"

#define ATTACH_COMPILE_MS 30000
#define ATTACH_PTX_MAX (UINT64_C(16) << 20)
#define ATTACH_PREPARE_MS 5000
#define ATTACH_PATCHES_MAX \
	31 /* programs of an object that all fit into one job with their patch forms */
#define ATTACH_OUTPUTS_MAX 63 /* of a job with one input */

/* ---- register ---- */

/* The object, if it is still there: somebody may have detached it meanwhile. */
static struct object *attach_object(const struct attach *attach) {
	return registry_object(attach->context->image->registry, attach->object_id);
}

/* Takes back what is in the registry already. */
static void attach_undo(struct attach *attach) {
	struct attachment *attachment, *next;

	for (attachment = TAILQ_FIRST(&attach->context->image->registry->attachments); attachment;
	     attachment = next) {
		next = TAILQ_NEXT(attachment, link);
		if (attachment->object->id == attach->object_id)
			attach_detach(attach->context, attachment);
	}
}

/* What cannot be compiled to patches: no attachment of the object is had by the sanitizer engine.
 */
static void attach_drop_patches(struct attach *attach, const struct object *object,
				const char *why) {
	struct attachment *attachment;

	TAILQ_FOREACH(attachment, &attach->context->image->registry->attachments, link)
		if (attachment->object == object && attachment_on_sass(attachment)) {
			struct gpu_program *program = &attachment->of.gpu;

			snprintf(program->patch_reason, sizeof(program->patch_reason), "%s", why);
			program->patch_fd = fd_close(program->patch_fd);
		}
}

/* Whether some attachment of the object can be had by the sanitizer engine alone. */
static bool attach_needs_sass(const struct attach *attach, const struct object *object) {
	const struct attachment *attachment;

	TAILQ_FOREACH(attachment, &attach->context->image->registry->attachments, link)
		if (attachment->object == object && attachment_on_sass(attachment) &&
		    !attachment_on_ptx(attachment))
			return true;
	return false;
}

/* The patches are made, or the time is up: tells all processes. A plan_prepare_fn. */
static void attach_announce(void *userdata) {
	struct attach *attach = userdata;
	struct object *object = attach_object(attach);
	struct attach_outcome outcome = { .object = object };
	char reason[256];
	const char *why;

	if (attach->cancelled || attach->context->image->stopping) {
		if (!attach->context->image->stopping)
			attach_undo(attach);
		attach_free(attach);
		return;
	}
	if (!outcome.object) {
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL,
			    "detached before it was attached");
		return;
	}
	why = plan_trouble(attach->context->image, outcome.object);
	if (why && attach_needs_sass(attach, outcome.object)) {
		snprintf(reason, sizeof(reason), "%s", why);
		attach_undo(attach);
		attach_fail(attach, ATTACH_E_COMPILE, "", NULL,
			    "the sanitizer engine cannot have it: %s", reason);
		return;
	}
	why = plan_programs_trouble(attach->context->image, outcome.object);
	if (why)
		attach_drop_patches(attach, outcome.object, why);
	keep_object(attach->context->client->keep, object);
	registry_announce(attach->context->image->registry, attach->context->interest);
	attach_finish(attach, &outcome);
}

/* Puts all into the registry. Ends the attach if that fails, or there is nothing to wait for. */
static void attach_commit(struct attach *attach, struct compiled *compiled) {
	struct object *object = NULL;
	int r;

	r = attach_register(attach, compiled, &object);
	switch (r) {
	case 0:
		if (plan_prepare(attach->context->image, object, &attach->filter, ATTACH_PREPARE_MS,
				 attach_announce, attach))
			attach_announce(attach);
		return;
	case ATTACH_REGISTER_E_LIMIT:
		attach_fail_limit(attach,
				  "attachments of all users (the last are for users who have few, "
				  "and for root)",
				  REGISTRY_ATTACHMENTS_MAX);
		return;
	case ATTACH_REGISTER_E_QUOTA:
		attach_fail_limit(attach, "attachments of one user (quota-attachments)",
				  attach->context->image->config->quota_attachments);
		return;
	case ATTACH_REGISTER_E_MAP_QUOTA:
		attach_fail_limit(attach, "bytes of the maps of one user (quota-map-bytes)",
				  attach->context->image->config->quota_map_bytes);
		return;
	case ATTACH_REGISTER_E_MAP:
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, NULL, NULL,
			    "a map of the object is larger than a map may be, or of another shape");
		return;
	case ATTACH_REGISTER_E_HOST:
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, NULL, NULL, "%s",
			    attach->host_report.reason);
		return;
	default:
		attach_fail_errno(attach, r);
	}
}

/* ---- compile ---- */

/* Whether program i can be had where it is to stand, by the engine that is to have it. 0, or not
 * with a line in error. */
static int attach_check_program(const struct attach *attach, size_t i, struct gpu_program *program,
				const char *name, char error[static COMPILED_ERROR_SIZE]) {
	const struct attach_choice *choice = &attach->choices.programs[i];
	const struct section *section = &choice->section;
	int r;

	for (size_t k = 0; k < program->n_context; k++)
		program->context[k] =
			(uint16_t)point_field(point_context_of(section->point),
					      attach->linked->programs[choice->program].context,
					      program->context[k]);
	r = compiled_check_context(program, name, section->point, error);
	if (!r)
		r = compiled_check_thread(program, name, section, error);
	if (r)
		return r;
	compiled_check_patch(program, section, attach->wish.spaces ?: POINT_SPACES_DEFAULT);
	if (program->patch_fd >= 0 ||
	    (attach->wish.engine != ENGINE_SANITIZER && !section_needs_sass(section)))
		return 0;
	snprintf(error, COMPILED_ERROR_SIZE,
		 "the sanitizer engine cannot have program %.48s: %.160s", name,
		 program->patch_reason);
	return COMPILED_E_INVALID;
}

static void attach_on_compiled(struct worker_task *task, int result, json_object *reply,
			       const char *message, void *userdata) {
	struct attach *attach = userdata;
	struct compiled *compiled = NULL;
	struct compiled_request request;
	char error[COMPILED_ERROR_SIZE];
	int r;

	if (attach->cancelled) {
		attach_free(attach);
		return;
	}
	if (result) {
		attach_fail_job(attach, result, ATTACH_E_COMPILE, reply, message);
		return;
	}
	request = (struct compiled_request){
		.prefix = attach->prefix->text,
		.n_maps = attach->linked->n_maps,
		.shapes = attach->shapes,
		.n_chosen = attach->choices.n,
		.chosen = attach->chosen,
		.n_patches = attach->n_patches,
		.no_patch = attach->wish.engine == ENGINE_PTX
				    ? "engine ptx"
				    : "too many programs in one object: attach some of them with "
				      "--program",
	};
	r = compiled_from_json(&compiled, reply, task, &request, error);
	if (r) {
		worker_task_spoil(task);
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "%s",
			    r > 0 ? error : strerror(-r));
		return;
	}
	for (size_t i = 0; i < compiled->n_programs; i++) {
		const char *name = attach->linked->programs[attach->chosen[i]].name;

		if (attach_check_program(attach, i, &compiled->programs[i], name, error)) {
			attach_fail(attach, ATTACH_E_COMPILE, name, NULL, "%s", error);
			compiled_free(compiled);
			return;
		}
	}
	attach_commit(attach, compiled);
	compiled_free(compiled);
}

/* What the maps are to be like, and what the worker needs to know of that. */
static void attach_shape(struct attach *attach, json_object *maps) {
	for (size_t i = 0; i < attach->linked->n_maps; i++) {
		const struct linked_map *linked = &attach->linked->maps[i];
		json_object *map = json_object_array_get_idx(maps, i);
		struct map_shape *shape = &attach->shapes[i];

		*shape = (struct map_shape){
			.type = linked->type,
			.key_size = linked->key_size,
			.value_size = linked->value_size,
			.max_entries = linked->max_entries,
			.place = attach->host && host_map_shared(attach->host, i) ? MAP_PLACE_KERNEL
				 : attach->shared                                 ? MAP_PLACE_HOST
						  : MAP_PLACE_DEVICE,
			.threads = attach->threads,
			.ring_bytes = attach->ring_bytes,
		};
		json_add_int(map, "place", (int)shape->place);
		json_add_int(map, "threads", shape->threads);
		json_add_int(map, "ring_bytes", shape->ring_bytes);
	}
}

/* Puts the maps and chosen programs of the linked object into the job. 0 or -errno. */
static int attach_compile_request(struct attach *attach, struct worker_task *task,
				  json_object *job) {
	json_object *described = json_object_new_object(), *maps = NULL, *programs = NULL,
		    *chosen = json_object_new_array();
	int r;

	r = linked_to_json(attach->linked, described);
	if (r == 0 && (!json_get_array(described, JOB_KEY_MAPS, SIZE_MAX, &maps) ||
		       !json_get_array(described, JOB_KEY_PROGRAMS, SIZE_MAX, &programs)))
		r = -EINVAL;
	if (r == 0)
		attach_shape(attach, maps);
	attach->n_patches = attach->wish.engine == ENGINE_PTX ? 0
			    : 2 * attach->choices.n <= ATTACH_OUTPUTS_MAX
				    ? attach->choices.n
				    : ATTACH_OUTPUTS_MAX - attach->choices.n;
	for (size_t i = 0; r == 0 && i < attach->choices.n; i++) {
		json_object *program = json_object_array_get_idx(programs, attach->chosen[i]);
		int output = worker_task_add_output(task, ATTACH_PTX_MAX);

		if (output < 0) {
			r = output;
			break;
		}
		json_add_int(program, JOB_KEY_INDEX, (int)attach->chosen[i]);
		json_add_int(program, JOB_KEY_OUTPUT, output);
		json_append(chosen, json_object_get(program));
	}
	for (size_t i = 0; r == 0 && i < attach->n_patches; i++) { /* behind all others */
		int output = worker_task_add_output(task, ATTACH_PTX_MAX);

		if (output < 0)
			r = output;
		else
			json_add_int(json_object_array_get_idx(programs, attach->chosen[i]),
				     JOB_KEY_PATCH_OUTPUT, output);
	}
	if (r == 0) {
		json_add(job, "btf", json_object_get(json_object_object_get(described, "btf")));
		json_add_int(job, "thread", attach->linked->thread);
		json_add(job, JOB_KEY_MAPS, json_object_get(maps));
		json_add(job, JOB_KEY_PROGRAMS, json_object_get(chosen));
	}
	json_object_put(chosen);
	json_object_put(described);
	return r;
}

/* Hashes all that the compiler is to know, symbols aside. 0 or -errno. */
static int attach_hash(const struct attach *attach, json_object *job, struct cache_key *key) {
	struct cache_hash *hash;
	int r;

	r = cache_hash_new(&hash);
	if (r < 0)
		return r;
	cache_hash_add_text(hash, json_object_to_json_string_ext(job, JSON_C_TO_STRING_PLAIN));
	cache_hash_add(hash, attach->blob, attach->linked->size);
	cache_hash_finish(hash, key);
	cache_hash_free(hash);
	return 0;
}

/*
 * Gives the object its symbols. They come from its content, not from when it was attached: so the
 * same object has the same PTX again, and the images that were made with it are found
 * (cache/job-cache.h). 0 or -errno.
 */
static int attach_name(struct attach *attach, json_object *job) {
	char text[CACHE_KEY_TEXT_SIZE], base[REGISTRY_PREFIX_SIZE], symbol[REGISTRY_SYMBOL_SIZE];
	json_object *maps = NULL;
	struct cache_key key;
	int r;

	r = attach_hash(attach, job, &key);
	if (r < 0)
		return r;
	cache_key_text(&key, text);
	snprintf(base, sizeof(base), "__gpuprobe_o%.24s", text);
	r = registry_prefix_new(attach->context->image->registry, base, &attach->prefix);
	if (r < 0)
		return r;
	json_add_string(job, JOB_KEY_PREFIX, attach->prefix->text);
	maps = json_member(job, JOB_KEY_MAPS);
	for (size_t i = 0; i < attach->linked->n_maps; i++) {
		compiled_slot_symbol(symbol, attach->prefix->text, i);
		json_add_string(json_object_array_get_idx(maps, i), JOB_KEY_SLOT_SYMBOL, symbol);
	}
	return 0;
}

/* Whether some program was asked for where only the sanitizer engine can have it. */
static bool attach_wants_sass(const struct attach *attach) {
	for (size_t i = 0; i < attach->choices.n; i++)
		if (section_needs_sass(&attach->choices.programs[i].section))
			return true;
	return attach->wish.engine == ENGINE_SANITIZER;
}

/* Compiles the programs. */
static void attach_compile_start(struct attach *attach) {
	json_object *job = json_object_new_object();
	const struct job_cache_use use = { .uid = attach->owner };
	struct worker_task *task;
	int r;

	json_add_string(job, JOB_KEY_JOB, JOB_COMPILE);
	task = worker_task_new(json_object_get(job), attach_on_compiled, attach);
	if (!task) {
		json_object_put(job);
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "no memory");
		return;
	}
	r = worker_task_add_copy(task, attach->blob_fd);
	if (r >= 0) {
		json_add_int(job, JOB_KEY_INPUT, r);
		r = attach_compile_request(attach, task, job);
	}
	if (r == 0)
		r = attach_name(attach, job);
	json_object_put(job);
	if (r < 0) {
		worker_task_free(task);
		attach_fail_errno(attach, r);
		return;
	}
	job_cache_submit(attach->context->image->cache, attach->context->program_pool, task,
			 ATTACH_COMPILE_MS, &use);
}

void attach_compile(struct attach *attach) {
	if (!engine_rules_any_sanitizer(&attach->context->image->config->engines) &&
	    attach_wants_sass(attach))
		attach_fail(
			attach, ATTACH_E_UNAVAILABLE, NULL, NULL,
			"this daemon gives no process the sanitizer engine: start gpuprobed with "
			"--engine=sanitizer, or for some "
			"processes with --engine=sanitizer:exe=PATH");
	else if (attach->wish.engine == ENGINE_SANITIZER && attach->choices.n > ATTACH_PATCHES_MAX)
		attach_fail_limit(attach, "programs of one object for the sanitizer engine",
				  ATTACH_PATCHES_MAX);
	else
		attach_compile_start(attach);
}
