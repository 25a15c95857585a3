/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on the service: its systemd units, its sockets, and who may use
 * it.
 */

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"
#include "proto/paths.h"

#define GROUP "gpuprobe"

/* ---- units ---- */

static const char *const units[] = { "gpuprobed.service", "gpuprobed.socket",
				     "gpuprobed-shim.socket" };

/* Where systemd finds a unit, the first of its places. */
static bool find_unit(const struct doctor *doctor, const char *unit, char path[static 256]) {
	static const char *const folders[] = { "/etc/systemd/system", "/run/systemd/system",
					       "/usr/local/lib/systemd/system",
					       "/usr/lib/systemd/system", "/lib/systemd/system" };
	char target[4096];

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, 256, "%s/%s", folders[i], unit);
		if (doctor_exists(doctor, path) || doctor_link(doctor, path, target))
			return true;
	}
	return false;
}

static void look_units(const struct doctor *doctor, struct finding *finding) {
	char path[256], target[4096];
	const char *missing = NULL;
	size_t n = 0;

	for (size_t i = 0; i < 3; i++) {
		if (!find_unit(doctor, units[i], path)) {
			missing = missing ?: units[i];
			continue;
		}
		n++;
		if (doctor_link(doctor, path, target) && !strcmp(target, "/dev/null")) {
			doctor_say(finding, DOCTOR_FAILED,
				   "systemctl unmask gpuprobed.service gpuprobed.socket "
				   "gpuprobed-shim.socket",
				   "%s is masked (%s)", units[i], path);
			return;
		}
	}
	if (!missing)
		doctor_say(finding, DOCTOR_OK, NULL, "%.*s", (int)(strrchr(path, '/') - path),
			   path);
	else if (n)
		doctor_say(finding, DOCTOR_FAILED, "reinstall the package gpuprobed",
			   "%s is not installed, others are", missing);
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "install the package gpuprobed, or try: gpuprobed --session",
			   "not installed");
}

static void look_enabled(const struct doctor *doctor, struct finding *finding) {
	static const char *const wants[] = {
		"/etc/systemd/system/multi-user.target.wants/gpuprobed.service",
		"/etc/systemd/system/sockets.target.wants/gpuprobed.socket",
		"/etc/systemd/system/sockets.target.wants/gpuprobed-shim.socket"
	};
	char target[4096];
	size_t n = 0;

	for (size_t i = 0; i < 3; i++)
		n += doctor_link(doctor, wants[i], target);
	if (n == 3)
		doctor_say(finding, DOCTOR_OK, NULL, "service and sockets start at boot");
	else
		doctor_say(finding, DOCTOR_WARNING, "systemctl enable --now gpuprobed", "%s",
			   n ? "in part: not all of service and sockets start at boot"
			     : "it does not start at boot");
}

/* What a program says, at most size - 1 bytes. False: it could not be run. */
static bool output_of(char *const *arguments, char *text, size_t size) {
	posix_spawn_file_actions_t actions;
	int pipes[2], status = -1;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(pipes) < 0)
		return false;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
	posix_spawn_file_actions_addclose(&actions, pipes[0]);
	posix_spawn_file_actions_addclose(&actions, pipes[1]);
	if (posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ))
		pid = -1;
	posix_spawn_file_actions_destroy(&actions);
	close(pipes[1]);
	while (pid > 0 && n < size - 1 && (got = read(pipes[0], text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(pipes[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The value of a line KEY=VALUE. */
static const char *property(const char *text, const char *key, char value[static 64]) {
	size_t n = strlen(key);

	*value = '\0';
	for (const char *line = text; line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (!strncmp(line, key, n) && line[n] == '=')
			snprintf(value, 64, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
	return value;
}

static void look_active(const struct doctor *doctor, struct finding *finding) {
	char *arguments[] = { (char *)"systemctl", (char *)"show",
			      (char *)"--property=ActiveState,SubState,Result,NRestarts",
			      (char *)"gpuprobed.service", NULL };
	char text[512], active[64], result[64], restarts[64];

	if (!doctor->live) {
		doctor_say(finding, DOCTOR_SKIPPED, NULL, "that system does not run");
		return;
	}
	if (!output_of(arguments, text, sizeof(text))) {
		doctor_say(finding, DOCTOR_SKIPPED, NULL,
			   doctor_exists(doctor, "/run/systemd/system")
				   ? "systemctl does not answer this user (is D-Bus there?)"
				   : "systemd does not run here");
		return;
	}
	property(text, "ActiveState", active);
	property(text, "Result", result);
	property(text, "NRestarts", restarts);
	if (!strcmp(active, "active") && strcmp(restarts, "0"))
		doctor_say(finding, DOCTOR_WARNING, "its log says why: journalctl -u gpuprobed",
			   "active, started again %s times since it was asked to run", restarts);
	else if (!strcmp(active, "active"))
		doctor_say(finding, DOCTOR_OK, NULL, "active");
	else if (!strcmp(active, "failed") || (*result && strcmp(result, "success")))
		doctor_say(finding, DOCTOR_FAILED,
			   "its log says why: journalctl -u gpuprobed; then: systemctl "
			   "reset-failed gpuprobed; systemctl start gpuprobed",
			   "%s (%s)", active, result);
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "systemctl enable --now gpuprobed; or only its sockets, which start it "
			   "when somebody asks",
			   "%s", active);
}

/* ---- sockets ---- */

/* Looks at a socket of the system's daemon, and its mode. */
static void look_socket(const struct doctor *doctor, struct finding *finding, const char *path) {
	struct stat folder, status;

	if (!doctor_stat(doctor, PATHS_SYSTEM_DIR, &folder)) {
		doctor_say(finding, DOCTOR_WARNING, "systemctl enable --now gpuprobed",
			   "no " PATHS_SYSTEM_DIR ": no daemon of the system has run");
		return;
	}
	if (!S_ISDIR(folder.st_mode) || folder.st_mode & 022 || (folder.st_mode & 0555) != 0555) {
		doctor_say(finding, DOCTOR_FAILED,
			   "systemctl stop gpuprobed; rm -r " PATHS_SYSTEM_DIR
			   "; systemd-tmpfiles --create gpuprobed.conf; systemctl start gpuprobed",
			   PATHS_SYSTEM_DIR ": mode %04o, and it should be a folder with mode 0755",
			   folder.st_mode & 07777);
		return;
	}
	if (!doctor_stat(doctor, path, &status))
		doctor_say(finding, DOCTOR_WARNING, "systemctl enable --now gpuprobed",
			   "%s is not there: no daemon of the system runs", path);
	else if (!S_ISSOCK(status.st_mode))
		doctor_say(finding, DOCTOR_FAILED,
			   "remove it, and: systemctl restart gpuprobed.socket "
			   "gpuprobed-shim.socket gpuprobed",
			   "%s is not a socket", path);
	else if ((status.st_mode & 0666) != 0666)
		doctor_say(finding, DOCTOR_FAILED,
			   "systemctl restart gpuprobed.socket gpuprobed-shim.socket gpuprobed",
			   "%s: mode %04o, so not everybody reaches it; it should be 0666", path,
			   status.st_mode & 07777);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%s", path);
}

static void look_control(const struct doctor *doctor, struct finding *finding) {
	look_socket(doctor, finding, PATHS_SYSTEM_DIR "/" PATHS_CONTROL_SOCKET);
}

static void look_shim(const struct doctor *doctor, struct finding *finding) {
	look_socket(doctor, finding, PATHS_SYSTEM_DIR "/" PATHS_SHIM_SOCKET);
}

/* ---- the caller ---- */

/* The line of /etc/group for a group, in text; its members begin behind the third colon. */
static const char *group_members(const char *text, gid_t *group) {
	size_t n = strlen(GROUP);

	for (const char *line = text; line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *number =
			strncmp(line, GROUP ":", n + 1) ? NULL : strchr(line + n + 1, ':');

		if (!number)
			continue;
		*group = (gid_t)strtoul(number + 1, NULL, 10);
		return strchr(number + 1, ':');
	}
	return NULL;
}

static bool is_member(const char *members, const char *name) {
	size_t n = strlen(name);

	for (members++; *members && *members != '\n';
	     members += strcspn(members, ",\n"), members += *members == ',')
		if (strcspn(members, ",\n") == n && !memcmp(members, name, n))
			return true;
	return false;
}

static bool process_has(gid_t group) {
	gid_t groups[1024];
	int n = getgroups(1024, groups);

	for (int i = 0; i < n; i++)
		if (groups[i] == group)
			return true;
	return getegid() == group;
}

static void look_group(const struct doctor *doctor, struct finding *finding) {
	struct passwd *user = getpwuid(getuid());
	const char *name = user ? user->pw_name : "?", *members;
	char *text = doctor_read(doctor, "/etc/group"), todo[256];
	gid_t group = 0;

	members = text ? group_members(text, &group) : NULL;
	if (!members)
		doctor_say(finding, DOCTOR_WARNING,
			   "systemd-sysusers gpuprobed.conf, or install the package gpuprobed",
			   "there is no group " GROUP
			   ": only root may attach to the daemon of the system");
	else if (geteuid() == 0)
		doctor_say(finding, DOCTOR_OK, NULL,
			   "root may do everything; the group " GROUP " is there");
	else if (process_has(group))
		doctor_say(finding, DOCTOR_OK, NULL, "%s is in the group " GROUP ", and may attach",
			   name);
	else if (is_member(members, name))
		doctor_say(finding, DOCTOR_WARNING, "log in again, or: newgrp " GROUP,
			   "%s is in the group " GROUP ", but this session began before", name);
	else {
		snprintf(todo, sizeof(todo),
			 "usermod -a -G " GROUP " %.64s, and log in again; a member may see what "
			 "probes see in all processes",
			 name);
		doctor_say(finding, DOCTOR_WARNING, todo,
			   "%s is not in the group " GROUP ": what is his alone can be seen", name);
	}
	free(text);
}

const struct doctor_check doctor_service_checks[] = {
	{ "service.units", "units of systemd", look_units },
	{ "service.enabled", "start at boot", look_enabled },
	{ "service.active", "service", look_active },
	{ "socket.control", "socket for gpuprobectl", look_control },
	{ "socket.shim", "socket for CUDA processes", look_shim },
	{ "caller.group", "rights of the caller", look_group },
	{},
};
