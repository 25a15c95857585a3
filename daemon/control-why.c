/* SPDX-License-Identifier: Apache-2.0 */

/* Why: what is remembered of images and kernels, and what the configuration says of a process. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "daemon.h"
#include "exclude.h"
#include "process-facts.h"

#define CONTROL_WHY_BYTES_MAX (4 * 1024 * 1024) /* of text; escapes may make it some times longer */

static json_object *control_outcome_json(const struct outcome *outcome) {
	json_object *json = json_object_new_object(), *attachments = json_object_new_array();

	control_add_int(json, "pid", outcome->pid);
	control_add_string(json, "comm", outcome->comm);
	control_add_int(json, "time", outcome->time);
	control_add_string(json, "kernel", outcome->kernel);
	control_add_string(json, "demangled", outcome->demangled);
	control_add_string(json, "outcome", outcome_kind_name(outcome->kind));
	control_add_string(json, "reason", outcome->reason);
	control_add_string(json, "engine", outcome_engine_name(outcome->engine));
	for (size_t i = 0; i < outcome->n_attachments; i++)
		json_object_array_add(attachments,
				      json_object_new_int64((int64_t)outcome->attachments[i]));
	json_object_object_add(json, "attachments", attachments);
	return json;
}

/* Outcomes are about processes: their user may see them, and so may who attached what was applied.
 */
static bool control_may_see_outcome(const struct daemon *daemon, const struct varlink_call *call,
				    const struct outcome *outcome) {
	if (control_may_see(call, outcome->uid))
		return true;
	for (size_t i = 0; i < outcome->n_attachments; i++) {
		const struct attachment *attachment =
			registry_attachment(&daemon->registry, outcome->attachments[i]);

		if (attachment && control_may_see(call, attachment->object->owner))
			return true;
	}
	return false;
}

/* A process that is excluded asks nothing, so nothing is remembered of it: what the configuration says of it now. NULL: it is not. */
static json_object *control_excluded_json(const struct daemon *daemon, const struct varlink_call *call, int64_t pid) {
	char none[] = "";
	struct outcome outcome = { .kind = OUTCOME_NOT_PROBED, .kernel = none, .demangled = none };
	struct process_facts facts;
	char reason[FILTER_EXE_SIZE + 64];
	struct timespec now;
	const char *rule;

	if (pid <= 0 || pid > INT32_MAX || process_facts_read(&facts, (pid_t)pid, -1) < 0 || !control_may_see(call, facts.uid))
		return NULL;
	rule = exclude_find(daemon->config, &facts);
	if (!rule)
		return NULL;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(reason, sizeof(reason), EXCLUDE_REASON, rule);
	outcome.pid = facts.pid;
	outcome.time = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
	outcome.reason = reason;
	memcpy(outcome.comm, facts.comm, sizeof(outcome.comm));
	outcome_clean(outcome.comm);
	outcome_clean(reason);
	return control_outcome_json(&outcome);
}

int control_why(struct varlink_call *call, json_object *parameters, void *userdata) {
	struct daemon *daemon = userdata;
	json_object *json = json_object_new_object(), *outcomes = json_object_new_array();
	json_object *pid = control_member(parameters, "pid");
	const char *kernel = control_string(parameters, "kernel");
	const struct outcome *outcome;
	json_object *excluded = pid ? control_excluded_json(daemon, call, json_object_get_int64(pid)) : NULL;
	size_t bytes = 0;

	if (excluded)
		json_object_array_add(outcomes, excluded);
	TAILQ_FOREACH(outcome, &daemon->outcomes.list, link) {
		/* a failure of a whole image may be about any kernel of it */
		bool means = !kernel || outcome_means(outcome, kernel) ||
			     (outcome->kind == OUTCOME_FAILED && !outcome->kernel[0]);

		if ((!pid || json_object_get_int64(pid) == outcome->pid) && means &&
		    control_may_see_outcome(daemon, call, outcome)) {
			bytes += 256 + strlen(outcome->kernel) + strlen(outcome->demangled) +
				 strlen(outcome->reason);
			if (bytes > CONTROL_WHY_BYTES_MAX)
				break; /* the oldest are left out */
			json_object_array_add(outcomes, control_outcome_json(outcome));
		}
	}
	json_object_object_add(json, "outcomes", outcomes);
	return varlink_call_reply(call, json);
}
