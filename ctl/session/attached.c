/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An object that is attached only as long as a command runs (session.h). It is detached whatever
 * happens: by the main thread, or by the one that ends a process which is stuck.
 */

#include <pthread.h>
#include <string.h>

#include "lib/json.h"
#include "lib/varlink/varlink-json.h"
#include "session.h"

#define LEAVE_MS 2000
#define WHY_LINES 3

/* What is to be detached, and the path of the daemon. The main thread may be at it, too. */
static struct {
	pthread_mutex_t lock;
	const char *path;
	json_object *attachments; /* borrowed; NULL: nothing */
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep_for_end(const char *path, json_object *attachments) {
	pthread_mutex_lock(&kept.lock);
	kept.path = path;
	kept.attachments = attachments;
	pthread_mutex_unlock(&kept.lock);
}

static json_object *detach_parameters(json_object *attachments, size_t i) {
	json_object *id = json_member(json_object_array_get_idx(attachments, i), "id");

	return varlink_json_pack("id", json_object_new_int64(json_object_get_int64(id)), NULL);
}

void attached_end(void) {
	struct varlink_client *client = NULL;
	struct varlink_reply reply;
	int r = 0;

	pthread_mutex_lock(&kept.lock);
	if (kept.attachments)
		r = varlink_client_connect(&client, kept.path, LEAVE_MS);
	for (size_t i = 0; client && r >= 0 && i < json_length_of(kept.attachments); i++) {
		r = varlink_client_call(client, "io.gpuprobe.control.Detach",
					detach_parameters(kept.attachments, i), &reply);
		if (r >= 0)
			varlink_reply_deinit(&reply);
	}
	varlink_client_free(client);
	pthread_mutex_unlock(&kept.lock);
}

int attached_new(struct ctl *ctl, json_object *consume_parameters, const char *subject,
		 json_object **attachedp) {
	struct varlink_reply reply;
	int r;

	*attachedp = NULL;
	/* the daemon answers when all is verified and compiled, which may take its time */
	r = ctl_call(ctl, "Attach", consume_parameters, subject, -1, &reply);
	if (r)
		return r;
	*attachedp = json_object_get(reply.parameters);
	varlink_reply_deinit(&reply);
	keep_for_end(ctl->path, json_member(*attachedp, "attachments"));
	return CTL_OK;
}

int attached_free(struct ctl *ctl, json_object *attached) {
	json_object *attachments = json_member(attached, "attachments");
	struct varlink_reply reply;
	int result = CTL_OK, r;

	for (size_t i = 0; ctl && result != CTL_UNREACHABLE && i < json_length_of(attachments);
	     i++) {
		r = ctl_call(ctl, "Detach", detach_parameters(attachments, i),
			     ctl_string(json_object_array_get_idx(attachments, i), "id"),
			     CTL_TIMEOUT_MS, &reply);
		if (!r)
			varlink_reply_deinit(&reply);
		result = result ?: r;
	}
	keep_for_end(NULL, NULL);
	json_object_put(attached);
	return result;
}

/* ---- what became of it ---- */

int64_t attached_seen(struct ctl *ctl) {
	json_object *list;
	struct varlink_reply reply;
	int64_t seen = -1;

	if (ctl_call(ctl, "Status", NULL, "", CTL_TIMEOUT_MS, &reply))
		return -1;
	list = json_member(reply.parameters, "statistics");
	for (size_t i = 0; i < json_length_of(list); i++) {
		json_object *statistic = json_object_array_get_idx(list, i);

		if (!strcmp(ctl_string(statistic, "group"), "processes") &&
		    !strcmp(ctl_string(statistic, "name"), "seen"))
			seen = json_int_of(statistic, "value");
	}
	varlink_reply_deinit(&reply);
	return seen;
}

static void tell_reason(json_object *outcome) {
	const char *name = ctl_string(outcome, "demangled");

	name = *name ? name : ctl_string(outcome, "kernel");
	ctl_tell("not probed: %s%s%s", name, *name ? ": " : "", ctl_string(outcome, "reason"));
}

static bool is_outcome(json_object *outcome, const char *name) {
	return !strcmp(ctl_string(outcome, "outcome"), name);
}

/* Returns how many there were, and whether something was probed. */
static int tell_reasons(json_object *outcomes, bool *probedp) {
	int told = 0;

	*probedp = false;
	for (size_t i = 0; i < json_length_of(outcomes); i++)
		*probedp |= is_outcome(json_object_array_get_idx(outcomes, i), "probed");
	for (size_t i = 0; i < json_length_of(outcomes); i++) {
		json_object *outcome = json_object_array_get_idx(outcomes, i);

		if (!is_outcome(outcome, "failed") &&
		    (!is_outcome(outcome, "not-probed") ||
		     (*probedp && !*ctl_string(outcome, "kernel"))))
			continue;
		if (told++ < WHY_LINES)
			tell_reason(outcome);
	}
	if (told > WHY_LINES)
		ctl_tell("not probed: %d more", told - WHY_LINES);
	return told;
}

void attached_tell_unprobed(struct ctl *ctl, pid_t pid, int64_t seen) {
	json_object *parameters = json_object_new_object();
	struct varlink_reply reply;
	bool probed;
	int told;

	if (pid)
		json_add_int(parameters, "pid", pid);
	if (ctl_call(ctl, "Why", parameters, "", CTL_TIMEOUT_MS, &reply))
		return;
	told = tell_reasons(json_member(reply.parameters, "outcomes"), &probed);
	varlink_reply_deinit(&reply);
	if (probed || told)
		return;
	if (seen >= 0 && attached_seen(ctl) == seen)
		ctl_tell("no process with CUDA was seen: the program made no call of CUDA%s, or "
			 "runs without the shim, such as with a cleaned environment",
			 pid ? " itself (what it starts is not probed)" : "");
	else
		ctl_tell("no kernel was probed: none of the program's matches");
}
