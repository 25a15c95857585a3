/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attaches an eBPF object (attach.h): handles the call Attach from its beginning to its reply.
 *
 * One struct attach goes through the stages below, each of which ends in a callback that starts the
 * next. Two of them are jobs of fresh workers; verification runs in a thread, on bytes that nobody
 * can change any more. Nothing is visible to others before the last stage, so giving up is freeing
 * the struct: cancelled ones do so at the next callback.
 *
 *     link (worker) -> choose -> verify (attach-verify.c: thread) -> compile (attach-compile.c)
 *
 * Programs of the object that run on the host are loaded in the thread, too, so that it is known
 * which arrays they share with the others, and attached at the end. (attach-register.c)
 */

#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/gpuprobed/settings/account.h"
#include "attach-private.h"
#include "daemon/gpuprobed/workers/cache/job-cache.h"
#include "daemon/gpuprobed/verify/host.h"
#include "daemon/gpuprobed/verify/host-target.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/image/pass.h"
#include "daemon/gpuprobed/verify/verify.h"
#include "lib/json.h"
#include "proto/job.h"

#define ATTACH_LINK_MS 10000

void attach_free(struct attach *attach) {
	attach_choices_deinit(&attach->choices);
	if (attach->blob)
		munmap((void *)attach->blob, attach->linked->size);
	fd_close(attach->blob_fd);
	free(attach->linked);
	verify_report_deinit(&attach->report);
	verify_report_deinit(&attach->host_report);
	host_free(attach->host);
	prefix_free(attach->prefix);
	free(attach->elf);
	free(attach->only_program);
	free(attach->kernel);
	free(attach->point);
	free(attach->folder);
	json_object_put(attach->wish.host_targets);
	for (size_t i = 0; i < LINKED_PROGRAMS_MAX; i++)
		free(attach->host_targets[i]);
	if (attach->account)
		account_discharge_attach(attach->account);
	account_unref(attach->account);
	pthread_mutex_destroy(&attach->lock);
	free(attach);
}

void attach_cancel(struct attach *attach) {
	attach->cancelled = true;
	if (attach_verify_cancel(attach))
		attach_free(attach);
}

void attach_finish(struct attach *attach, const struct attach_outcome *outcome) {
	if (!attach->cancelled)
		attach->fn(outcome, attach->userdata);
	attach_free(attach);
}

void attach_fail(struct attach *attach, enum attach_error error, const char *program,
		 const char *log, const char *format, ...) {
	struct attach_outcome outcome = { .error = error, .program = program, .log = log };
	char reason[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	outcome.reason = reason;
	attach_finish(attach, &outcome);
}

void attach_fail_errno(struct attach *attach, int error) {
	attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "%s", strerror(-error));
}

void attach_fail_limit(struct attach *attach, const char *what, uint64_t limit) {
	struct attach_outcome outcome = {
		.error = ATTACH_E_LIMIT, .program = what, .reason = what, .limit = limit
	};

	attach_finish(attach, &outcome);
}

void attach_fail_job(struct attach *attach, int result, enum attach_error refused,
		     json_object *reply, const char *message) {
	if (result != WORKER_POOL_E_REFUSED) {
		attach_fail(attach,
			    result == WORKER_POOL_E_UNAVAILABLE ? ATTACH_E_UNAVAILABLE
								: ATTACH_E_INTERNAL,
			    NULL, NULL, "%s", message);
		return;
	}
	attach_fail(attach, job_error_of(reply) == JOB_E_INTERNAL ? ATTACH_E_INTERNAL : refused, "",
		    json_string_of(reply, JOB_KEY_LOG), "%s", message);
}

/* ---- verify ---- */

/* The programs on the host are loaded, or not. */
static void attach_on_hosts(struct attach *attach) {
	const struct verify_report *report = &attach->host_report;
	const char *program = report->program < attach->linked->n_programs
				      ? attach->linked->programs[report->program].name
				      : NULL;
	enum attach_error error = ATTACH_E_INVALID_OBJECT;

	switch (attach->host_result) {
	case _HOST_SUCCESS:
		attach_compile(attach);
		return;
	case HOST_E_REFUSED:
		error = ATTACH_E_VERIFICATION;
		break;
	case HOST_E_NOT_PERMITTED:
		error = ATTACH_E_UNAVAILABLE;
		break;
	case HOST_E_INVALID:
	case HOST_E_ATTACH:
		break;
	default:
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "programs on the host: %s",
			    strerror(-attach->host_result));
		return;
	}
	attach_fail(attach, error, program, report->log, "%s", report->reason);
}

void attach_verified(struct attach *attach) {
	const struct verify_report *report = &attach->report;
	const char *reason = report->reason ?: "no reason given", *program = "";

	if (report->program < attach->linked->n_programs)
		program = attach->linked->programs[report->program].name;
	switch (attach->verify_result) {
	case _VERIFY_SUCCESS:
		attach_on_hosts(attach);
		return;
	case VERIFY_E_REFUSED:
		attach_fail(attach, ATTACH_E_VERIFICATION, program, report->log, "%s", reason);
		return;
	case VERIFY_E_NOT_PERMITTED:
		attach_fail(attach, ATTACH_E_UNAVAILABLE, NULL, NULL, "%s", reason);
		return;
	case VERIFY_E_INVALID:
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, NULL, report->log, "%s", reason);
		return;
	default:
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL, "verification: %s",
			    strerror(-attach->verify_result));
		return;
	}
}

/* ---- choose ---- */

/*
 * Programs of the object that run on the host, by their indices (choices.hosts). False: the attach
 * has failed and is gone. A program that may be meant for the GPU is told from one that cannot be.
 */
static bool attach_hosts(struct attach *attach) {
	const struct attach_choices *choices = &attach->choices;
	const struct linked_program *program;

	if (!choices->n_hosts)
		return true;
	program = &attach->linked->programs[choices->hosts[0]];
	if (choices->n && (!attach->owner || attach->owner == geteuid()))
		return true;
	if (choices->n)
		attach_fail(attach, ATTACH_E_PERMISSION, NULL, NULL,
			    "program %s (section \"%s\") runs on the host, where it sees all that "
			    "happens: only root "
			    "may attach it; choose a GPU program of the object with --program",
			    program->name, program->section);
	else if (strcmp(program->section, ".text") == 0)
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, program->name, NULL,
			    "no program in the object: function %s is in no section of its own; "
			    "write SEC(\"kprobe/KERNEL\") before it",
			    program->name);
	else
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, program->name, NULL,
			    program->insns.count ? "program %s (section \"%s\") is not marked as a "
						   "GPU program: begin its name with "
						   "cuda__, or name the kernel with --kernel"
						 : "program %s (section \"%s\") runs on the host, "
						   "and the object has none for the GPU: "
						   "load it with bpftool or bpftrace",
			    program->name, program->section);
	return false;
}

/* Whether a program of that name is among those that run on the host. */
static bool attach_has_host(const struct attach *attach, const char *name) {
	for (size_t i = 0; i < attach->choices.n_hosts; i++)
		if (strcmp(attach->linked->programs[attach->choices.hosts[i]].name, name) == 0)
			return true;
	return false;
}

/* Where programs on the host are attached. False: the attach has failed and is gone. */
static bool attach_find_targets(struct attach *attach) {
	char error[HOST_TARGET_ERROR_SIZE];
	json_object *target = NULL;

	if (attach->wish.host_targets) {
		json_object_object_foreach(attach->wish.host_targets, name, value) {
			(void)value;
			if (attach_has_host(attach, name))
				continue;
			attach_fail(
				attach, ATTACH_E_ARGUMENT, "host_targets", NULL,
				"%.100s is no program of the object that is attached on the host",
				name);
			return false;
		}
	}
	for (size_t i = 0; i < attach->choices.n_hosts; i++) {
		const size_t index = attach->choices.hosts[i];
		const struct linked_program *program = &attach->linked->programs[index];
		int r;

		target = NULL;
		if (attach->wish.host_targets)
			json_object_object_get_ex(attach->wish.host_targets, program->name,
						  &target);
		r = host_target_resolve(program->name, program->section,
					target ? json_object_get_string(target) : NULL,
					attach->wish.folder, &attach->host_targets[index], error);
		if (r < 0)
			attach_fail_errno(attach, r);
		else if (r)
			attach_fail(attach, target ? ATTACH_E_ARGUMENT : ATTACH_E_INVALID_OBJECT,
				    target ? "host_targets" : program->name, NULL, "%s", error);
		if (r)
			return false;
	}
	return true;
}

/* False: the attach has failed and is gone. */
static bool attach_choose_programs(struct attach *attach) {
	struct attach_outcome outcome = {};
	struct attach_trouble trouble;
	int r;

	r = attach_choose(&attach->choices, attach->linked, &attach->wish, &trouble);
	switch (r) {
	case 0:
		for (size_t i = 0; i < attach->choices.n; i++) {
			const struct attach_choice *choice = &attach->choices.programs[i];

			attach->chosen[i] = choice->program;
			if (attach->wish.engine != ENGINE_SANITIZER &&
			    !section_needs_sass(&choice->section) &&
			    !pass_set_builtin(&attach->context->image->passes, &choice->section,
					      choice->text)) {
				attach_fail(attach, ATTACH_E_ARGUMENT, "point", NULL,
					    "%.128s: the definitions of passes have none for this "
					    "point (gpuprobectl pass list)",
					    choice->text);
				return false;
			}
		}
		return attach_hosts(attach) && attach_find_targets(attach);
	case ATTACH_CHOOSE_E_NOT_FOUND:
		outcome = (struct attach_outcome){ .error = ATTACH_E_NOT_FOUND,
						   .program = trouble.reason };
		attach_finish(attach, &outcome);
		break;
	case ATTACH_CHOOSE_E_OBJECT:
		attach_fail(attach, ATTACH_E_INVALID_OBJECT, trouble.program, NULL, "%s",
			    trouble.reason);
		break;
	case ATTACH_CHOOSE_E_ARGUMENT:
		attach_fail(attach, ATTACH_E_ARGUMENT, trouble.parameter, NULL, "%s",
			    trouble.reason);
		break;
	case ATTACH_CHOOSE_E_LIMIT:
		attach_fail_limit(attach, trouble.reason, JOB_COMPILE_PROGRAMS_MAX);
		break;
	default:
		attach_fail_errno(attach, r);
	}
	return false;
}

/* ---- link ---- */

static void attach_on_linked(struct worker_task *task, int result, json_object *reply,
			     const char *message, void *userdata) {
	struct attach *attach = userdata;
	char error[192] = "";
	int r;

	if (attach->cancelled) {
		attach_free(attach);
		return;
	}
	if (result) {
		attach_fail_job(attach, result, ATTACH_E_INVALID_OBJECT, reply, message);
		return;
	}
	r = linked_from_json(&attach->linked, reply, error);
	if (r == 0 && attach->linked->size != worker_task_output_size(task, 1)) {
		snprintf(error, sizeof(error), "the size of its output");
		r = LINKED_E_INVALID;
	}
	if (r) {
		worker_task_spoil(task);
		attach_fail(attach, ATTACH_E_INTERNAL, NULL, NULL,
			    "worker sent a malformed reply: %s", r > 0 ? error : strerror(-r));
		return;
	}
	if (!attach->linked->n_programs ||
	    !attach->linked->size) { /* none of the name that was asked for, or none with
					instructions: the choice says so */
		attach_choose_programs(attach);
		return;
	}
	attach->blob_fd = worker_task_steal_fd(task, 1);
	r = memfd_map(attach->blob_fd, attach->linked->size, &attach->blob);
	if (r < 0) {
		attach_fail_errno(attach, r);
		return;
	}
	if (!attach_choose_programs(attach))
		return;
	attach->verify = attach->context->image->config->verify;
	attach->allow_exit = attach->context->image->config->allow_exit;
	attach_verify(attach);
}

/* A copy of a text that may be NULL. */
static bool attach_copy(char **copyp, const char *text) {
	*copyp = text ? strdup(text) : NULL;
	return !text || *copyp;
}

/* The attach without its job. NULL: no memory. */
static struct attach *attach_alloc(struct attach_context *context,
				   const struct attach_options *options, attach_fn fn,
				   void *userdata) {
	struct attach *attach = calloc(1, sizeof(*attach));

	if (!attach)
		return NULL;
	pthread_mutex_init(&attach->lock, NULL);
	attach->blob_fd = -1;
	attach->context = context;
	attach->fn = fn;
	attach->userdata = userdata;
	attach->owner = options->owner;
	attach->filter = *options->filter;
	attach->threads = options->threads;
	attach->ring_bytes = options->ring_bytes;
	attach->shared = options->shared;
	attach->n_elf = options->n_object;
	attach->elf = malloc(options->n_object ? options->n_object : 1);
	if (attach->elf)
		memcpy(attach->elf, options->object, options->n_object);
	if (!attach->elf || !attach_copy(&attach->only_program, options->wish.program) ||
	    !attach_copy(&attach->kernel, options->wish.kernel) ||
	    !attach_copy(&attach->point, options->wish.point) ||
	    !attach_copy(&attach->folder, options->wish.folder)) {
		attach_free(attach);
		return NULL;
	}
	attach->wish = (struct attach_wish){
		.program = attach->only_program,
		.kernel = attach->kernel,
		.point = attach->point,
		.spaces = options->wish.spaces,
		.engine = options->wish.engine,
		.host_targets = json_object_get(options->wish.host_targets),
		.folder = attach->folder,
	};
	return attach;
}

/* Counts it as one in work. As attach_new(). */
static int attach_charge(struct attach *attach, unsigned int max) {
	struct account *account;
	int r;

	r = account_get(attach->context->accounts, attach->owner, &account);
	if (r < 0)
		return r;
	if (account_charge_attach(account, max)) {
		account_unref(account);
		return ATTACH_E_LIMIT;
	}
	attach->account = account;
	return 0;
}

int attach_new(struct attach **attachp, struct attach_context *context,
	       const struct attach_options *options, attach_fn fn, void *userdata) {
	json_object *job;
	struct worker_task *task;
	struct attach *attach;
	int input, output, r;

	attach = attach_alloc(context, options, fn, userdata);
	r = attach ? attach_charge(attach, options->max) : -ENOMEM;
	if (r) {
		if (attach)
			attach_free(attach);
		return r;
	}
	job = json_object_new_object();
	task = worker_task_new(json_object_get(job), attach_on_linked, attach);
	if (!task) {
		json_object_put(job);
		attach_free(attach);
		return -ENOMEM;
	}
	attach->object_id = ++context->image->registry->last_object;
	input = memfd_new_sealed("gpuprobe-object", options->object, options->n_object);
	if (input >= 0)
		input = worker_task_add_input(task, input);
	output = worker_task_add_output(task, LINKED_BLOB_MAX);
	json_add_string(job, JOB_KEY_JOB, JOB_LINK);
	json_add_int(job, JOB_KEY_INPUT, input);
	json_add_int(job, JOB_KEY_OUTPUT, output);
	if (attach->only_program)
		json_add_string(job, JOB_KEY_PROGRAM, attach->only_program);
	json_object_put(job);
	if (input < 0 || output < 0) {
		worker_task_free(task);
		attach_free(attach);
		return input < 0 ? input : output;
	}
	job_cache_submit(context->image->cache, context->program_pool, task, ATTACH_LINK_MS,
			 &(struct job_cache_use){ .uid = options->owner });
	*attachp = attach;
	return 0;
}
