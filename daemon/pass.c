/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A drive has a list of runs, made of the definitions and of the kernels that the attachments mean: one run is one pass on
 * one kernel. They happen one after the other, each in a fresh pass worker, the text going from hand to hand as a sealed
 * memfd. The deadline of the image holds for all of it.
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

#include "daemon.h"
#include "image-reply.h"
#include "log.h"
#include "memfd.h"
#include "outcome.h"

#define PASS_RUNS_MAX 16 /* in one image */
#define PASS_MS_MIN 20	 /* below that a pass is not started */
#define PASS_GRACE_MS 2000 /* for its worker */
#define PASS_OUTPUT_INDEX 1
#define PASS_STUBS_MAX 64 /* that a job can carry */

struct pass_step {
	const struct pass_definition *definition;
	char *attach_point;
	char *kernel; /* mangled; NULL: an attach point that no kernel stands for */
};

struct pass_drive {
	struct image_work *work;
	struct pass_step steps[PASS_RUNS_MAX];
	size_t n_steps, n_before; /* the first n_before work on what is not edited yet */
	size_t next;
	bool edited;
	int text;	/* sealed; what stands for the PTX now */
	int candidate;	/* sealed; what the last pass made of it; -1: none */
	int instructions;	  /* that EDIT found; -1: none */
	uint64_t n_instructions;
	json_object *reply; /* of EDIT */
	char note[192];
};

static void pass_next(struct pass_drive *drive);

static void pass_drive_free(struct pass_drive *drive) {
	for (size_t i = 0; i < drive->n_steps; i++) {
		free(drive->steps[i].attach_point);
		free(drive->steps[i].kernel);
	}
	fd_close(drive->text);
	fd_close(drive->candidate);
	fd_close(drive->instructions);
	json_object_put(drive->reply);
	free(drive);
}

/* Remembers what went wrong first; printf-like. */
__attribute__((format(printf, 2, 3)))
static void pass_note(struct pass_drive *drive, const char *format, ...) {
	va_list arguments;

	if (*drive->note)
		return;
	va_start(arguments, format);
	vsnprintf(drive->note, sizeof(drive->note), format, arguments);
	va_end(arguments);
	outcome_clean(drive->note);
}

/* ---- the end ---- */

/* The last stage has answered. */
static void pass_finish(struct pass_drive *drive, struct worker_task *task, int result, json_object *reply,
			const char *message) {
	struct image_work *work = drive->work;

	if (reply && *drive->note)
		json_object_object_add(reply, "note", json_object_new_string(drive->note));
	pass_drive_free(drive);
	image_work_take(task, result, reply, message, work);
}

/* No stage can be asked for any more. */
static void pass_fail(struct pass_drive *drive, int r) {
	struct image_work *work = drive->work;

	pass_drive_free(drive);
	image_work_fail(work, 0, "passes: %s", strerror(-r));
}

static void pass_on_plain(struct worker_task *task, int result, json_object *reply, const char *message,
			  void *userdata) {
	pass_finish(userdata, task, result, reply, message);
}

/* Without any pass of the user. */
static void pass_give_up(struct pass_drive *drive, const char *why) {
	int r;

	pass_note(drive, "without the user's passes: %s", why);
	drive->work->isa = drive->work->target = 0;
	r = image_work_submit(drive->work, IMAGE_STAGE_ALL, -1, pass_on_plain, drive);
	if (r < 0)
		pass_fail(drive, r);
}

/* A copy of the text for a stage, or -errno. */
static int pass_text(int fd) {
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : copy;
}

/* Does the reply have this status? */
static bool pass_is(json_object *reply, const char *status) {
	json_object *member = NULL;

	return json_object_object_get_ex(reply, "status", &member) && json_object_is_type(member, json_type_string) &&
	       !strcmp(json_object_get_string(member), status);
}

static uint32_t pass_number(json_object *reply, const char *key) {
	json_object *member = NULL;

	return json_object_object_get_ex(reply, key, &member) ? (uint32_t)json_object_get_int(member) : 0;
}

/* ---- stages ---- */

/* What EDIT has said about the attachments goes into the reply of BUILD. */
static void pass_merge(struct pass_drive *drive, struct worker_task *task, json_object *reply) {
	static const char *const members[] = { "applied", "kernels", "truncated", "kernel_count", "instructions_size" };

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		json_object *member = NULL;

		json_object_object_del(reply, members[i]);
		if (json_object_object_get_ex(drive->reply, members[i], &member))
			json_object_object_add(reply, members[i], json_object_get(member));
	}
	worker_task_replace_output(task, IMAGE_REPLY_INSTRUCTIONS, drive->instructions, drive->n_instructions);
	drive->instructions = -1;
}

static void pass_on_built(struct worker_task *task, int result, json_object *reply, const char *message,
			  void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == WORKER_POOL_E_REFUSED) {
		pass_give_up(drive, message);
		return;
	}
	if (result == _WORKER_POOL_SUCCESS && pass_is(reply, "replaced"))
		pass_merge(drive, task, reply);
	pass_finish(drive, task, result, reply, message);
}

static void pass_on_edited(struct worker_task *task, int result, json_object *reply, const char *message,
			   void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == WORKER_POOL_E_REFUSED) {
		pass_give_up(drive, message);
		return;
	}
	if (result != _WORKER_POOL_SUCCESS || !pass_is(reply, "text")) {
		pass_finish(drive, task, result, reply, message);
		return;
	}
	fd_close(drive->text);
	drive->text = worker_task_steal_fd(task, IMAGE_REPLY_OUTPUT);
	drive->n_instructions = worker_task_output_size(task, IMAGE_REPLY_INSTRUCTIONS);
	drive->instructions = worker_task_steal_fd(task, IMAGE_REPLY_INSTRUCTIONS);
	drive->reply = json_object_get(reply);
	drive->edited = true;
	drive->work->isa = pass_number(reply, "isa");
	drive->work->target = pass_number(reply, "target");
	pass_next(drive);
}

static void pass_on_checked(struct worker_task *task, int result, json_object *reply, const char *message,
			    void *userdata) {
	struct pass_drive *drive = userdata;

	if (result == _WORKER_POOL_SUCCESS) {
		fd_close(drive->text);
		drive->text = drive->candidate;
	} else {
		pass_note(drive, "without pass %s: %s", drive->steps[drive->next].definition->name, message);
		fd_close(drive->candidate);
	}
	drive->candidate = -1;
	drive->next++;
	pass_next(drive);
}

/* ---- a run ---- */

static void pass_on_run(struct worker_task *task, int result, json_object *reply, const char *message,
			void *userdata) {
	struct pass_drive *drive = userdata;
	const struct pass_step *step = &drive->steps[drive->next];
	json_object *modified = NULL;
	int r;

	if (result != _WORKER_POOL_SUCCESS || !pass_is(reply, "passed")) {
		pass_note(drive, "without pass %s: %s", step->definition->name, *message ? message : "no answer");
	} else if (json_object_object_get_ex(reply, "modified", &modified) && json_object_get_boolean(modified)) {
		drive->candidate = worker_task_steal_fd(task, PASS_OUTPUT_INDEX);
		r = pass_text(drive->candidate);
		if (r >= 0)
			r = image_work_submit(drive->work,
					      drive->edited ? IMAGE_STAGE_CHECK_EDITED : IMAGE_STAGE_CHECK, r,
					      pass_on_checked, drive);
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

	json_object_object_add(request, "job", json_object_new_string("pass"));
	json_object_object_add(request, "executable", json_object_new_string(definition->executable));
	json_object_object_add(request, "attach_point", json_object_new_string(step->attach_point));
	if (step->kernel)
		json_object_object_add(request, "kernel", json_object_new_string(step->kernel));
	if (definition->parameters)
		json_object_object_add(request, "parameters", json_object_get(definition->parameters));
	json_object_object_add(request, "max_output_bytes",
			       json_object_new_int64((int64_t)definition->max_output_bytes));
	json_object_object_add(request, "timeout_ms", json_object_new_int64(timeout));
	json_object_object_add(request, "memory_mib", json_object_new_int64(definition->memory_mib));
	for (size_t i = 0; i < definition->required_symbols.n; i++)
		json_object_array_add(symbols, json_object_new_string(definition->required_symbols.strings[i]));
	json_object_object_add(request, "required_symbols", symbols);
	return request;
}

/* Milliseconds that are left of the image's deadline. */
static unsigned int pass_left(const struct pass_drive *drive) {
	uint64_t now = uv_now(drive->work->daemon->loop);

	return drive->work->deadline > now ? (unsigned int)(drive->work->deadline - now) : 0;
}

/* Starts one run. 0 or -errno. */
static int pass_run_step(struct pass_drive *drive, const struct pass_step *step, unsigned int timeout) {
	json_object *request = pass_request(step, timeout);
	struct worker_task *task;
	int r;

	task = worker_task_new(json_object_get(request), pass_on_run, drive);
	r = task ? pass_text(drive->text) : -ENOMEM;
	if (r >= 0)
		r = worker_task_add_input(task, r);
	if (r >= 0) {
		json_object_object_add(request, "input", json_object_new_int(r));
		r = worker_task_add_output(task, step->definition->max_output_bytes);
	}
	if (r >= 0)
		json_object_object_add(request, "output", json_object_new_int(r));
	json_object_put(request);
	if (r < 0) {
		worker_task_free(task);
		return r;
	}
	worker_pool_submit(drive->work->daemon->pass_pool, task, timeout + PASS_GRACE_MS);
	return 0;
}

/* The next run; or, when those before or after EDIT are through, what comes then. */
static void pass_next(struct pass_drive *drive) {
	const size_t end = drive->edited ? drive->n_steps : drive->n_before;
	int r;

	while (drive->next < end) {
		const struct pass_step *step = &drive->steps[drive->next];
		unsigned int left = pass_left(drive);
		unsigned int timeout = step->definition->timeout_ms < left ? step->definition->timeout_ms : left;

		if (timeout < PASS_MS_MIN) {
			pass_note(drive, "without pass %s: no time was left for it", step->definition->name);
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
		r = image_work_submit(drive->work, drive->edited ? IMAGE_STAGE_BUILD : IMAGE_STAGE_EDIT, r,
				      drive->edited ? pass_on_built : pass_on_edited, drive);
	if (r < 0)
		pass_fail(drive, r);
}

/* ---- which runs ---- */

static const char *pass_prefix(enum section_point point) {
	return point == SECTION_RETURN ? "kretprobe" : point == SECTION_MEMORY ? "memcapture" : "kprobe";
}

/* Does one of the globs mean the kernel, by any of its names? */
static bool pass_globs_mean(const struct pass_strings *globs, const char *prefix, const char *kernel,
			    const char *demangled) {
	size_t length = strlen(prefix);

	for (size_t i = 0; i < globs->n; i++)
		if (!strncmp(globs->strings[i], prefix, length) && globs->strings[i][length] == '/' &&
		    outcome_kernel_means(kernel, demangled, globs->strings[i] + length + 1))
			return true;
	return false;
}

static bool pass_means(const struct pass_definition *definition, const struct attachment *attachment,
		       const char *kernel, const char *demangled) {
	static const enum pass_attach_type types[] = {
		[SECTION_ENTRY] = PASS_ATTACH_KPROBE,	   [SECTION_LINE] = PASS_ATTACH_KPROBE,
		[SECTION_BLOCK] = PASS_ATTACH_KPROBE,	   [SECTION_RETURN] = PASS_ATTACH_KRETPROBE,
		[SECTION_MEMORY] = PASS_ATTACH_MEMCAPTURE,
	};
	const char *prefix = pass_prefix(attachment->section.point);

	if (definition->attach_type != PASS_ATTACH_ANY &&
	    definition->attach_type != types[attachment->section.point])
		return false;
	if (pass_globs_mean(&definition->exclude, prefix, kernel, demangled))
		return false;
	return pass_definition_means(definition, attachment->section_text) ||
	       pass_globs_mean(&definition->include, prefix, kernel, demangled);
}

/* One run more, unless the same is there. 0 or -ENOMEM. */
static int pass_add_step(struct pass_drive *drive, const struct pass_definition *definition, const char *prefix,
			 const char *kernel, bool device_function) {
	struct pass_step *step = &drive->steps[drive->n_steps];
	char *attach_point;

	if (asprintf(&attach_point, "%s/%s%s", prefix, device_function ? "dev:" : "", kernel) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < drive->n_steps; i++)
		if (drive->steps[i].definition == definition && !strcmp(drive->steps[i].attach_point, attach_point)) {
			free(attach_point);
			return 0;
		}
	if (drive->n_steps == PASS_RUNS_MAX) {
		pass_note(drive, "passes run at most %d times on an image", PASS_RUNS_MAX);
		free(attach_point);
		return 0;
	}
	step->definition = definition;
	step->attach_point = attach_point;
	step->kernel = strdup(kernel);
	drive->n_steps++;
	return step->kernel ? 0 : -ENOMEM;
}

/* The runs of a definition on one member of "kernels". */
static int pass_plan_kernel(struct pass_drive *drive, const struct pass_definition *definition, json_object *kernel) {
	json_object *name = NULL, *demangled = NULL, *ids = NULL, *device = NULL;
	int r = 0;

	if (!json_object_object_get_ex(kernel, "name", &name) || !json_object_is_type(name, json_type_string) ||
	    !json_object_object_get_ex(kernel, "demangled", &demangled) ||
	    !json_object_is_type(demangled, json_type_string) ||
	    !json_object_object_get_ex(kernel, "attachments", &ids) || !json_object_is_type(ids, json_type_array))
		return 0;
	json_object_object_get_ex(kernel, "device_function", &device);
	for (size_t i = 0; r == 0 && i < json_object_array_length(ids); i++) {
		const struct attachment *attachment = registry_attachment(
			&drive->work->daemon->registry,
			(uint64_t)json_object_get_int64(json_object_array_get_idx(ids, i)));

		if (attachment && pass_means(definition, attachment, json_object_get_string(name),
					     json_object_get_string(demangled)))
			r = pass_add_step(drive, definition, pass_prefix(attachment->section.point),
					  json_object_get_string(name), device && json_object_get_boolean(device));
	}
	return r;
}

static int pass_plan(struct pass_drive *drive, json_object *reply) {
	const struct pass_set *set = &drive->work->daemon->passes;
	json_object *kernels = NULL;
	bool ours = false;
	int r = 0;

	if (!json_object_object_get_ex(reply, "kernels", &kernels) || !json_object_is_type(kernels, json_type_array))
		return 0;
	for (size_t i = 0; i < set->n && r == 0; i++) {
		const struct pass_definition *definition = set->definitions[i];

		if (!definition->executable && !ours) {
			ours = true;
			drive->n_before = drive->n_steps;
		}
		for (size_t k = 0; definition->executable && r == 0 && k < json_object_array_length(kernels); k++)
			r = pass_plan_kernel(drive, definition, json_object_array_get_idx(kernels, k));
	}
	if (!ours)
		drive->n_before = drive->n_steps;
	return r;
}

static void pass_on_extracted(struct worker_task *task, int result, json_object *reply, const char *message,
			      void *userdata) {
	struct pass_drive *drive = userdata;
	int r;

	if (result != _WORKER_POOL_SUCCESS || !pass_is(reply, "text")) {
		pass_finish(drive, task, result, reply, message);
		return;
	}
	drive->text = worker_task_steal_fd(task, IMAGE_REPLY_OUTPUT);
	r = pass_plan(drive, reply);
	if (r == 0 && drive->n_steps) {
		pass_next(drive);
		return;
	}
	/* No pass of the user means these kernels. */
	if (r == 0)
		r = image_work_submit(drive->work, IMAGE_STAGE_ALL, -1, pass_on_plain, drive);
	if (r < 0)
		pass_fail(drive, r);
}

int pass_start(struct image_work *work) {
	struct pass_drive *drive = calloc(1, sizeof(*drive));
	int r;

	if (!drive)
		return -ENOMEM;
	drive->work = work;
	drive->text = drive->candidate = drive->instructions = -1;
	r = image_work_submit(work, IMAGE_STAGE_EXTRACT, -1, pass_on_extracted, drive);
	if (r < 0)
		pass_drive_free(drive);
	return r;
}

bool pass_set_runs_programs(const struct pass_set *set) {
	for (size_t i = 0; i < set->n; i++)
		if (set->definitions[i]->executable)
			return true;
	return false;
}

const struct pass_definition *pass_set_builtin(const struct pass_set *set, const struct section *section,
					       const char *section_text) {
	const char *prefix = pass_prefix(section->point);

	for (size_t i = 0; i < set->n; i++) {
		const struct pass_definition *definition = set->definitions[i];
		char plain[SECTION_KERNEL_SIZE + 32];

		if (definition->executable)
			continue;
		/* A program in a section of another kind is at the entry. */
		snprintf(plain, sizeof(plain), "%s/%s%s", prefix, section->device_function ? "dev:" : "",
			 section->kernel);
		if (pass_definition_means(definition, section_text) || pass_definition_means(definition, plain))
			return definition;
	}
	return NULL;
}

/* A parameter of a pass that is built in: an array, or NULL. */
static json_object *pass_parameter(const struct pass_set *set, const char *name, const char *parameter) {
	const struct pass_definition *definition = pass_set_find(set, name);
	json_object *array = NULL;

	if (definition && !definition->executable && definition->parameters &&
	    json_object_object_get_ex(definition->parameters, parameter, &array) &&
	    json_object_is_type(array, json_type_array))
		return array;
	return NULL;
}

void pass_set_add_stubs(const struct pass_set *set, json_object *array) {
	json_object *stubs = pass_parameter(set, "kprobe_entry", "stubs");

	for (size_t i = 0; stubs && i < json_object_array_length(stubs); i++) {
		json_object *stub = json_object_array_get_idx(stubs, i);
		bool there = !json_object_is_type(stub, json_type_string) ||
			     json_object_array_length(array) >= PASS_STUBS_MAX;

		for (size_t j = 0; !there && j < json_object_array_length(array); j++)
			there = !strcmp(json_object_get_string(json_object_array_get_idx(array, j)),
					json_object_get_string(stub));
		if (!there)
			json_object_array_add(array, json_object_get(stub));
	}
}

uint32_t pass_set_spaces(const struct pass_set *set) {
	json_object *names = pass_parameter(set, "kprobe_memcapture", "spaces");
	uint32_t spaces = 0;

	for (size_t i = 0; names && i < json_object_array_length(names); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(names, i));

		spaces |= name ? section_space(name) : 0;
	}
	return spaces ? spaces : SECTION_SPACES_DEFAULT;
}
