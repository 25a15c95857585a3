/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The connection of gpuprobectl to the daemon.
 *
 * The way to the daemon: which socket, calls, and what its errors mean to the user.
 *
 * Which daemon is decided as in proto/paths.h. A session directory that is not the user's own is
 * not looked at, since anyone can make one in /tmp. Every answer is checked against the interface
 * file that we were built with before a command looks at it, so commands need not; members that a
 * later daemon adds are passed over.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl.h"
#include "proto/paths.h"
#include "suggest.h"
#include "lib/varlink/varlink-idl.h"
#include "lib/varlink/varlink-interfaces.h"
#include "lib/json.h"

#define INTERFACE "io.gpuprobe.control"
#define SERVICE "org.varlink.service"

/*
 * Writes the path of the session's socket. False if its directory is not there or not private to
 * the user.
 */
static bool session_socket(const char *name, char *path, size_t n_path, const char **whyp) {
	char directory[128];
	struct stat st;
	uid_t uid = getuid();
	int n;

	snprintf(directory, sizeof(directory), PATHS_USER_DIR, uid);
	if (stat(directory, &st) >= 0 && S_ISDIR(st.st_mode))
		n = snprintf(directory, sizeof(directory), PATHS_SESSION_IN_USER_DIR, uid);
	else
		n = snprintf(directory, sizeof(directory), PATHS_SESSION_IN_TMP, uid);
	if (name && *name)
		snprintf(directory + n, sizeof(directory) - n, "-%s", name);
	snprintf(path, n_path, "%s/%s", directory, PATHS_CONTROL_SOCKET);
	if (lstat(directory, &st) < 0)
		*whyp = strerror(errno);
	else if (!S_ISDIR(st.st_mode) || st.st_uid != uid || (st.st_mode & 07777) != 0700)
		*whyp = "its directory is not one of yours with mode 0700";
	else
		return true;
	return false;
}

/* Connects to ctl->path. Returns 0 or negative errno. */
static int dial(struct ctl *ctl, int timeout_ms) {
	return varlink_client_connect(&ctl->client, ctl->path, timeout_ms);
}

/* Says why there is no connection to ctl->path. */
static int unreachable(struct ctl *ctl, int error) {
	const bool denied = error == EACCES || error == EPERM;

	if (ctl->seeking &&
	    (error == ENOENT || error == ECONNREFUSED || (denied && !ctl->socket && !ctl->session)))
		return CTL_UNREACHABLE;
	if (denied)
		return ctl_fail(CTL_PERMISSION, "%s: %s: you may not talk to this daemon; try sudo",
				ctl->path, strerror(error));
	if (error == ENAMETOOLONG)
		return ctl_fail(CTL_USAGE, "%s: too long for a socket", ctl->path);
	if (ctl->socket)
		return ctl_fail(CTL_UNREACHABLE, "%s: no daemon answers there: %s", ctl->path,
				strerror(error));
	if (ctl->session)
		return ctl_fail(
			CTL_UNREACHABLE,
			"no session daemon at %s: %s; start one with: gpuprobed --session%s%s",
			ctl->path, strerror(error),
			ctl->session_name && *ctl->session_name ? "=" : "",
			ctl->session_name ?: "");
	return ctl_fail(CTL_UNREACHABLE,
			"no daemon at %s: %s; start it with: systemctl start gpuprobed, or try: "
			"gpuprobed --session",
			ctl->path, strerror(error));
}

/* Connects to the daemon that is meant, unless connected. Returns the exit status. */
static int ctl_connect(struct ctl *ctl, int timeout_ms) {
	const char *variable = getenv(PATHS_SESSION_VARIABLE), *why;
	struct varlink_fault fault;
	int r;

	if (ctl->client)
		return CTL_OK;
	if (!ctl->interface &&
	    varlink_interface_new(&ctl->interface, varlink_io_gpuprobe_control, &fault))
		return ctl_fail(CTL_ERROR, "out of memory");
	if (!ctl->session && !ctl->socket && variable) {
		ctl->session = true;
		ctl->session_name = variable;
		if (strspn(variable,
			   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") !=
			    strlen(variable) ||
		    strlen(variable) > PATHS_SESSION_NAME_MAX)
			return ctl_fail(
				CTL_USAGE,
				PATHS_SESSION_VARIABLE
				"=%s: the name of a session has letters, digits and _, at most %d",
				variable, PATHS_SESSION_NAME_MAX);
	}
	if (ctl->socket) {
		if (snprintf(ctl->path, sizeof(ctl->path), "%s", ctl->socket) >=
		    (int)sizeof(ctl->path))
			return ctl_fail(CTL_USAGE, "--socket: too long for a socket");
		r = dial(ctl, timeout_ms);
		return r ? unreachable(ctl, -r) : CTL_OK;
	}
	if (session_socket(ctl->session_name, ctl->path, sizeof(ctl->path), &why)) {
		r = dial(ctl, timeout_ms);
		if (!r)
			return CTL_OK;
		if (ctl->session || (r != -ENOENT && r != -ECONNREFUSED))
			return unreachable(ctl, -r);
	} else if (ctl->session) {
		if (ctl->seeking)
			return CTL_UNREACHABLE;
		return ctl_fail(
			CTL_UNREACHABLE,
			"no session daemon at %s: %s; start one with: gpuprobed --session%s%s",
			ctl->path, why, ctl->session_name && *ctl->session_name ? "=" : "",
			ctl->session_name ?: "");
	}
	snprintf(ctl->path, sizeof(ctl->path), "%s/%s", PATHS_SYSTEM_DIR, PATHS_CONTROL_SOCKET);
	r = dial(ctl, timeout_ms);
	return r ? unreachable(ctl, -r) : CTL_OK;
}

int ctl_seek(struct ctl *ctl) {
	int r;

	ctl->seeking = true;
	r = ctl_connect(ctl, CTL_TIMEOUT_MS);
	ctl->seeking = false;
	return r;
}

/*
 * The daemon hung up, perhaps because it is being restarted: systemd holds its socket meanwhile, so
 * who connects waits in the queue. False: nobody listens any more.
 */
bool ctl_connect_again(struct ctl *ctl) {
	ctl->client = varlink_client_free(ctl->client);
	if (dial(ctl, CTL_TIMEOUT_MS))
		return false;
	ctl->n_reconnects++;
	return true;
}

const char *ctl_log_place(const struct ctl *ctl) {
	return strcmp(ctl->path, PATHS_SYSTEM_DIR "/" PATHS_CONTROL_SOCKET)
		       ? "standard error of gpuprobed"
		       : "journalctl -u gpuprobed";
}

/* The connection broke. */
static int broken(struct ctl *ctl, int error) {
	switch (error) {
	case ECONNRESET:
		if (ctl->quiet)
			return CTL_UNREACHABLE;
		return ctl_fail(CTL_UNREACHABLE, "%s: the daemon hung up; its log says why: %s",
				ctl->path, ctl_log_place(ctl));
	case ETIMEDOUT:
		return ctl_fail(CTL_UNREACHABLE, "%s: the daemon does not answer", ctl->path);
	case EBADMSG:
		return ctl_fail(CTL_ERROR, "%s: what answers there does not talk varlink",
				ctl->path);
	case EILSEQ:
		return ctl_fail(CTL_USAGE, "a name or a path on the command line is not UTF-8");
	case EMSGSIZE:
		return ctl_fail(CTL_ERROR, "the call is longer than a message may be");
	default:
		return ctl_fail(CTL_ERROR, "%s: %s", ctl->path, strerror(error));
	}
}

bool ctl_ask(struct varlink_client *client, const char *method, json_object *consume_parameters,
	     struct varlink_reply *reply) {
	char name[64];
	int r;

	snprintf(name, sizeof(name), INTERFACE ".%s", method);
	r = varlink_client_call(client, name, consume_parameters, reply);
	if (r > 0)
		varlink_reply_deinit(reply);
	return r == 0;
}

/* "; did you mean NAME?", of the names that a method lists; or "". */
static const char *did_you_mean(struct ctl *ctl, const char *wanted, const char *method,
				const char *list, const char *key) {
	struct suggestion suggestion = { .wanted = wanted };
	struct varlink_reply reply;

	if (ctl_ask(ctl->client, method, NULL, &reply)) {
		suggest_add_members(&suggestion, json_member(reply.parameters, list), key);
		varlink_reply_deinit(&reply);
	}
	return suggest_text(&suggestion);
}

/* @what is what the daemon missed; the user knows an attachment or a map as @subject. */
static int not_found(struct ctl *ctl, const char *method, const char *subject, const char *what) {
	if (!strcmp(method, "Attach") && !strncmp(what, "process ", strlen("process ")))
		return ctl_fail(CTL_NOT_FOUND, "there is no %s", what);
	if (!strcmp(method, "Attach"))
		return ctl_fail(CTL_NOT_FOUND, "%s: there is no program %s in it", subject, what);
	if (!strcmp(what, "an element with that key"))
		return ctl_fail(CTL_NOT_FOUND, "the map %s has no such element", subject);
	if (!strcmp(method, "Detach"))
		return ctl_fail(CTL_NOT_FOUND,
				"there is no attachment %s; gpuprobectl list shows them", subject);
	if (!strcmp(method, "ReadLog"))
		return ctl_fail(CTL_NOT_FOUND, "there is no object %s; gpuprobectl list shows them",
				subject);
	if (!strcmp(method, "ShowKernel"))
		return ctl_fail(CTL_NOT_FOUND,
				"there is no %s with memory probes now; gpuprobectl kernel list "
				"shows what there is%s",
				what, did_you_mean(ctl, subject, "ListKernels", "kernels", "name"));
	if (!strcmp(method, "Trace"))
		return ctl_fail(CTL_NOT_FOUND, "there is no %s", what);
	if (!strcmp(method, "ShowProgram"))
		return ctl_fail(CTL_NOT_FOUND,
				"there is no program %s on the GPU; gpuprobectl list shows what is "
				"attached%s",
				subject,
				did_you_mean(ctl, subject, "List", "attachments", "program"));
	if (!strcmp(method, "UnexportMap") && !strncmp(what, "an export", strlen("an export")))
		return ctl_fail(
			CTL_NOT_FOUND,
			"the map %s is not exported; gpuprobectl map exports shows which are",
			subject);
	if (strstr(what, "detached meanwhile"))
		return ctl_fail(CTL_NOT_FOUND, "the map %s was detached meanwhile", subject);
	return ctl_fail(CTL_NOT_FOUND, "there is no map %s; gpuprobectl map list shows them%s",
			subject, did_you_mean(ctl, subject, "ListMaps", "maps", "name"));
}

static int ambiguous(json_object *parameters) {
	json_object *ids = json_member(parameters, "ids");
	char text[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(ids) && n < sizeof(text) - 24; i++)
		n += snprintf(text + n, sizeof(text) - n, "%s%lld", i ? ", " : "",
			      (long long)json_object_get_int64(json_object_array_get_idx(ids, i)));
	return ctl_fail(CTL_ERROR, "several maps have the name %s; say which by its id: %s",
			ctl_string(parameters, "what"), text);
}

/* The same of Trace, whose options have other names. */
static int invalid_trace_argument(const char *parameter, const char *reason) {
	static const struct {
		const char *parameter, *option;
	} options[] = { { "calls", "-e" },          { "hooks", "-e, --kernel" },
			{ "pids", "-p" },           { "probes", "--probe" },
			{ "sources", "--backend" }, { "min_duration", "--min-dur" },
			{ "duration", "-d" } };

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		if (!strcmp(parameter, options[i].parameter))
			return ctl_fail(CTL_USAGE, "%s: %s", options[i].option, reason);
	return ctl_fail(CTL_USAGE, "--%s: %s", parameter, reason);
}

/* The option of map export that stands for a parameter of another name. */
static const char *export_option(const char *parameter) {
	static const struct {
		const char *parameter, *option;
	} options[] = { { "name", "as" },
			{ "help", "help-text" },
			{ "kind", "type" },
			{ "labels", "label" },
			{ "per_sm", "sm" } };

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		if (!strcmp(parameter, options[i].parameter))
			return options[i].option;
	return parameter;
}

/* A parameter that makes no sense, named as the user gave it: filter.ring_size is --ring-size. */
static int invalid_argument(const char *method, const char *subject, json_object *parameters) {
	const char *parameter = ctl_string(parameters, "parameter"), *dot = strrchr(parameter, '.'),
		   *reason = ctl_string(parameters, "reason");
	char option[64];

	if (!strcmp(parameter, "map") || !strcmp(parameter, "object") ||
	    !strcmp(parameter, "pattern"))
		return ctl_fail(CTL_ERROR, "%s: %s", subject, reason);
	if (!strcmp(method, "Trace"))
		return invalid_trace_argument(parameter, reason);
	if (!strcmp(method, "UpdateMap") ||
	    !strcmp(method, "DeleteMap")) /* no options, and the command line was checked here */
		return ctl_fail(CTL_ERROR, "the %s for the map %s: %s", parameter, subject, reason);
	if (!strncmp(parameter, "host_targets", strlen("host_targets")))
		parameter = "host-target";
	if (!strcmp(method, "ExportMap"))
		parameter = export_option(parameter);
	snprintf(option, sizeof(option), "--%s", dot ? dot + 1 : parameter);
	for (char *p = option; *p; p++)
		if (*p == '_')
			*p = '-';
	if (!strcmp(method, "ShowKernel") && !strcmp(parameter, "kernel"))
		return ctl_fail(CTL_ERROR, "%s: %s", subject, reason);
	return ctl_fail(CTL_USAGE, "%s: %s", option, reason);
}

/* An error of the control interface. */
static int control_error(struct ctl *ctl, const char *method, const char *subject,
			 const char *error, json_object *parameters) {
	const char *program = ctl_string(parameters, "program"),
		   *reason = ctl_string(parameters, "reason");
	int r;

	if (!strcmp(error, "NotFound"))
		return not_found(ctl, method, subject, ctl_string(parameters, "what"));
	if (!strcmp(error, "Ambiguous"))
		return ambiguous(parameters);
	if (!strcmp(error, "PermissionDenied"))
		return ctl_fail(CTL_PERMISSION, "not permitted: %s", reason);
	if (!strcmp(error, "LimitExceeded"))
		return ctl_fail(CTL_ERROR, "too many: %s; the limit is %lld",
				ctl_string(parameters, "what"),
				(long long)json_int_of(parameters, "limit"));
	if (!strcmp(error, "InvalidArgument"))
		return invalid_argument(method, subject, parameters);
	if (!strcmp(error, "Unavailable"))
		return ctl_fail(CTL_ERROR, "%s", reason);
	if (!strcmp(error, "Internal"))
		return ctl_fail(CTL_ERROR, "the daemon has a problem: %s", reason);

	if (!strcmp(error, "VerificationFailed"))
		r = ctl_fail(CTL_VERIFIER, "%s: the verifier refused program %s: %s", subject,
			     program, reason);
	else if (!strcmp(error, "CompileFailed") && *program)
		r = ctl_fail(CTL_ERROR, "%s: program %s cannot run on a GPU: %s", subject, program,
			     reason);
	else if (!strcmp(error, "CompileFailed"))
		r = ctl_fail(CTL_ERROR, "%s cannot run on a GPU: %s", subject, reason);
	else
		r = ctl_fail(CTL_ERROR, "%s: not usable: %s", subject, reason);
	ctl_tell_log(ctl_string(
		parameters,
		"log")); /* of libbpf or the verifier, below the line that says what is wrong */
	return r;
}

/* An error that any service may give. */
static int service_error(struct ctl *ctl, const char *error, json_object *parameters) {
	json_object *parameter = json_member(parameters, "parameter");

	if (!strcmp(error, "PermissionDenied"))
		return ctl_fail(
			CTL_PERMISSION,
			"not permitted; try sudo, or become a member of the group gpuprobe");
	if (!strcmp(error, "InvalidParameter") && json_object_is_type(parameter, json_type_string))
		return ctl_fail(
			CTL_ERROR,
			"%s: the daemon does not take %s as we gave it: is it of another version?",
			ctl->path, json_object_get_string(parameter));
	return ctl_fail(CTL_ERROR,
			"%s: the daemon does not offer this (%s): is it of another version?",
			ctl->path, error);
}

/*
 * Tells what an error of the daemon means. @subject: what the user asked about, a file or a name.
 */
static int explain(struct ctl *ctl, const char *method, const char *subject,
		   const struct varlink_reply *reply) {
	const struct varlink_member *member = NULL;
	struct varlink_fault fault;

	if (!strncmp(reply->error, SERVICE ".", strlen(SERVICE ".")))
		return service_error(ctl, reply->error + strlen(SERVICE "."), reply->parameters);
	if (!strncmp(reply->error, INTERFACE ".", strlen(INTERFACE ".")))
		member = varlink_interface_find(ctl->interface, VARLINK_MEMBER_ERROR,
						reply->error + strlen(INTERFACE "."));
	if (!member || varlink_type_validate_open(member->type, reply->parameters, &fault))
		return ctl_fail(CTL_ERROR, "%s: unknown error %s %s", ctl->path, reply->error,
				json_object_to_json_string_ext(reply->parameters,
							       JSON_C_TO_STRING_PLAIN));
	return control_error(ctl, method, subject, member->name, reply->parameters);
}

/*
 * Judges what a call gave. Returns the exit status; the reply is the caller's only if that is
 * CTL_OK.
 */
static int check(struct ctl *ctl, const char *method, const char *subject, int r,
		 struct varlink_reply *reply) {
	struct varlink_fault fault;

	if (r < 0)
		return broken(ctl, -r);
	if (r > 0)
		r = explain(ctl, method, subject, reply);
	else if (varlink_type_validate_open(varlink_interface_find(ctl->interface,
								   VARLINK_MEMBER_METHOD, method)
						    ->reply,
					    reply->parameters, &fault))
		r = ctl_fail(CTL_ERROR,
			     "%s: the daemon's answer to %s is not understood (%s: %s): is it of "
			     "another version?",
			     ctl->path, method, fault.field, fault.reason);
	if (r)
		varlink_reply_deinit(reply);
	return r;
}

/* What is not called again after the daemon hung up, as it may have been done: a second time it
 * would be another attachment, or an error. NULL: it is. */
static const char *look_instead(const char *method) {
	if (!strcmp(method, "Attach") || !strcmp(method, "Detach"))
		return "gpuprobectl list";
	return strcmp(method, "UnexportMap") == 0 ? "gpuprobectl map exports" : NULL;
}

/*
 * Calls a method of the control interface, by its short name. Takes the parameters in any case.
 * Errors are told to the user, with @subject as what they are about. Returns the exit status; on
 * CTL_OK *@reply is valid and the caller's.
 */
int ctl_call(struct ctl *ctl, const char *method, json_object *consume_parameters,
	     const char *subject, int timeout_ms, struct varlink_reply *reply) {
	const char *instead = look_instead(method);
	char name[64];
	int r;

	r = ctl_connect(ctl, timeout_ms);
	if (r) {
		json_object_put(consume_parameters);
		return r;
	}
	snprintf(name, sizeof(name), INTERFACE ".%s", method);
	r = varlink_client_call(ctl->client, name, json_object_get(consume_parameters), reply);
	if (r == -ECONNRESET && !instead && ctl_connect_again(ctl))
		r = varlink_client_call(ctl->client, name, json_object_get(consume_parameters),
					reply);
	json_object_put(consume_parameters);
	if (r == -ECONNRESET && instead)
		return ctl_fail(CTL_UNREACHABLE,
				"%s: the daemon hung up; %s shows whether it had done it, and its "
				"log why: %s",
				ctl->path, instead, ctl_log_place(ctl));
	return check(ctl, method, subject, r, reply);
}

/* Sends a call with `more`. 0 or -errno. */
static int send_more(struct ctl *ctl, const char *method, json_object *parameters) {
	char name[64];

	snprintf(name, sizeof(name), INTERFACE ".%s", method);
	return varlink_client_call_more(ctl->client, name, json_object_get(parameters));
}

/* Calls with `more`; replies come from ctl_next(). Returns the exit status. What only looks is
 * called again if the daemon hangs up before its first reply. */
int ctl_call_more(struct ctl *ctl, const char *method, json_object *consume_parameters) {
	const bool again = !strcmp(method, "DumpMap") || !strcmp(method, "ListKernels");
	int r;

	r = ctl_connect(ctl, CTL_TIMEOUT_MS);
	if (r) {
		json_object_put(consume_parameters);
		return r;
	}
	r = send_more(ctl, method, consume_parameters);
	if (r == -ECONNRESET && again && ctl_connect_again(ctl))
		r = send_more(ctl, method, consume_parameters);
	if (r < 0 || !again) {
		json_object_put(consume_parameters);
		return r < 0 ? broken(ctl, -r) : CTL_OK;
	}
	json_object_put(ctl->unanswered);
	ctl->unanswered = consume_parameters;
	return CTL_OK;
}

/* The next reply, as from ctl_call(). */
int ctl_next(struct ctl *ctl, const char *method, const char *subject,
	     struct varlink_reply *reply) {
	int r;

	r = varlink_client_next(ctl->client, reply);
	if (r == -ECONNRESET && ctl->unanswered && ctl_connect_again(ctl)) {
		r = send_more(ctl, method, ctl->unanswered);
		if (r >= 0)
			r = varlink_client_next(ctl->client, reply);
	}
	json_object_put(ctl->unanswered);
	ctl->unanswered = NULL;
	return check(ctl, method, subject, r, reply);
}

int ctl_query(struct ctl *ctl, int argc, char **argv, const char *help, const char *method,
	      struct varlink_reply *reply) {
	int r;

	r = ctl_no_options(ctl, argc, argv, help);
	if (r >= 0)
		return r;
	r = ctl_call(ctl, method, NULL, "", CTL_TIMEOUT_MS, reply);
	if (r)
		return r;
	if (!ctl->json)
		return -1;
	ctl_print_json(ctl, reply->parameters);
	varlink_reply_deinit(reply);
	return CTL_OK;
}
