/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The method Why: what the daemon remembers about images and kernels, and what the configuration
 * says about a process.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "daemon/gpuprobed/settings/exclude.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/json.h"

#define CONTROL_WHY_PART UINT64_C(1000000) /* nanoseconds of a turn of the loop */
#define CONTROL_WHY_BYTES_MAX                                               \
	(4 * 1024 * 1024) /* of text; escapes may make it some times longer \
			   */

static json_object *control_outcome_json(const struct outcome *outcome) {
	json_object *json = json_object_new_object(), *attachments = json_object_new_array();

	json_add_int(json, "pid", outcome->pid);
	json_add_text(json, "comm", outcome->comm);
	json_add_int(json, "time", outcome->time);
	json_add_text(json, "kernel", outcome->kernel);
	json_add_text(json, "demangled", outcome->demangled);
	json_add_text(json, "outcome", outcome_kind_name(outcome->kind));
	json_add_text(json, "reason", outcome->reason);
	json_add_text(json, "engine", outcome_engine_name(outcome->engine));
	for (size_t i = 0; i < outcome->n_attachments; i++)
		json_append_int(attachments, outcome->attachments[i]);
	json_add(json, "attachments", attachments);
	return json;
}

/* Outcomes are about processes: their user may see them, and so may who attached what was applied.
 */
static bool control_may_see_outcome(const struct control_context *context,
				    const struct varlink_call *call,
				    const struct outcome *outcome) {
	if (control_may_see(call, outcome->uid))
		return true;
	for (size_t i = 0; i < outcome->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(context->image->registry, outcome->attachments[i]);

		if (attachment && control_may_see(call, attachment->object->owner))
			return true;
	}
	return false;
}

/* A process that is excluded asks nothing, so nothing is remembered of it: what the configuration
 * says of it now. NULL: it is not. */
static json_object *control_excluded_json(const struct control_context *context,
					  const struct varlink_call *call, int64_t pid) {
	char none[] = "";
	struct outcome outcome = { .kind = OUTCOME_NOT_PROBED, .kernel = none, .demangled = none };
	struct process_facts facts;
	char reason[FILTER_EXE_SIZE + 64];
	const char *rule;

	if (pid <= 0 || pid > INT32_MAX || process_facts_read(&facts, (pid_t)pid, -1) < 0 ||
	    !control_may_see(call, facts.uid))
		return NULL;
	rule = exclude_find(context->image->config, &facts);
	if (!rule)
		return NULL;
	snprintf(reason, sizeof(reason), EXCLUDE_REASON, rule);
	outcome.pid = facts.pid;
	outcome.time = clock_us(CLOCK_REALTIME);
	outcome.reason = reason;
	memcpy(outcome.comm, facts.comm, sizeof(outcome.comm));
	text_make_printable(outcome.comm);
	text_make_printable(reason);
	return control_outcome_json(&outcome);
}

/*
 * A call on its way. A glob can take milliseconds for each name that is made for it, so what is
 * remembered is gone over in parts; meanwhile some of it may be forgotten, and what is new is left
 * out.
 */
struct control_why {
	struct control_work work;
	struct control_context *context;
	const char *kernel; /* the call's, or NULL */
	bool has_pid;
	int64_t pid;
	json_object *outcomes;
	uint64_t last; /* number of the outcome that was looked at last */
	size_t bytes;
};

static void control_why_free(void *userdata) {
	struct control_why *why = userdata;

	json_object_put(why->outcomes);
	free(why);
}

/* Whether it is about all kernels of an image or module: that it failed, or is left alone.
 */
static bool control_why_is_whole(const struct outcome *outcome) {
	return !outcome->kernel[0] &&
	       (outcome->kind == OUTCOME_FAILED || outcome_is_left_alone(outcome->reason));
}

/* Whether the caller asked for it and may see it: what takes time comes last. */
static bool control_why_means(const struct control_why *why, const struct outcome *outcome) {
	if ((why->has_pid && why->pid != outcome->pid) ||
	    !control_may_see_outcome(why->context, why->work.call, outcome))
		return false;
	return !why->kernel || control_why_is_whole(outcome) || outcome_means(outcome, why->kernel);
}

static int control_why_end(struct control_why *why) {
	json_object *json = json_object_new_object();

	json_add(json, "outcomes", why->outcomes);
	why->outcomes = NULL;
	return control_work_end(&why->work, varlink_call_reply(why->work.call, json));
}

/* A part. */
static int control_why_turn(struct varlink_call *call, void *userdata) {
	struct control_why *why = userdata;
	const uint64_t end = uv_hrtime() + CONTROL_WHY_PART;
	const struct outcome *outcome;

	TAILQ_FOREACH(outcome, &why->context->image->outcomes->list, link) {
		if (outcome->number >= why->last)
			continue;
		if (control_why_means(why, outcome)) {
			why->bytes += 256 + strlen(outcome->kernel) + strlen(outcome->demangled) +
				      strlen(outcome->reason);
			if (why->bytes > CONTROL_WHY_BYTES_MAX)
				break; /* the oldest are left out */
			json_append(why->outcomes, control_outcome_json(outcome));
		}
		why->last = outcome->number;
		if (uv_hrtime() >= end)
			return VARLINK_PRODUCE_AGAIN;
	}
	return control_why_end(why);
}

int control_why(struct varlink_call *call, json_object *parameters, void *userdata) {
	json_object *pid = json_member(parameters, "pid"), *excluded;
	const char *kernel = json_string_of(parameters, "kernel");
	struct control_why *why;

	if (kernel && !control_name_valid(kernel))
		return control_error_argument(call, "kernel", CONTROL_KERNEL_REASON);
	why = calloc(1, sizeof(*why));
	if (!why)
		return -ENOMEM;
	why->context = userdata;
	control_work_begin(&why->work, call, control_why_free);
	why->kernel = kernel;
	why->has_pid = pid;
	why->pid = json_object_get_int64(pid);
	why->last = UINT64_MAX;
	why->outcomes = json_object_new_array();
	excluded = pid ? control_excluded_json(why->context, call, why->pid) : NULL;
	if (excluded)
		json_append(why->outcomes, excluded);
	control_work_run(&why->work, varlink_call_work, control_why_turn);
	return 0;
}
