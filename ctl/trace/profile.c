/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Profiles: named sets of options of a trace. A profile is a file with one option a line, without
 * its dashes, such as `events launch,memory` or `stacks`. The options stand in place of --profile:
 * later ones on the command line are added to them, or replace them.
 */

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

#define PROFILE_SIZE_MAX 65536

static const char *const folders[] = { "/etc/gpuprobe/profiles", PROFILE_FOLDER };

/* The names of all profiles that there are, in one text; the caller's to free, NULL without any. */
static char *list_profiles(void) {
	char *names = NULL, pattern[512];
	glob_t found = {};

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(pattern, sizeof(pattern), "%s/*.conf", folders[i]);
		glob(pattern, i && found.gl_pathc ? GLOB_APPEND : 0, NULL, &found);
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *name = strrchr(found.gl_pathv[i], '/') + 1;
		char *longer;

		if (asprintf(&longer, "%s%s%.*s", names ?: "", names ? ", " : "",
			     (int)(strlen(name) - strlen(".conf")), name) < 0)
			break;
		free(names);
		names = longer;
	}
	globfree(&found);
	return names;
}

/* Opens a profile by its name, or by a path, which has a slash. */
static FILE *open_profile(const char *name, char path[static 512]) {
	FILE *file = NULL;

	if (strchr(name, '/')) {
		snprintf(path, 512, "%s", name);
		return fopen(path, "re");
	}
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders) && !file; i++) {
		snprintf(path, 512, "%s/%s.conf", folders[i], name);
		file = fopen(path, "re");
		if (!file && errno != ENOENT)
			return NULL;
	}
	return file;
}

/* One line. Returns -1 to go on, or the exit status. */
static int take_line(struct trace_command *trace, const char *path, int number, char *line,
		     trace_profile_option_fn take) {
	char *name = line + strspn(line, " \t"), *value;
	int r;

	name[strcspn(name, "\r\n")] = '\0';
	if (!*name || *name == '#')
		return -1;
	name += strncmp(name, "--", 2) ? 0 : 2;
	value = name + strcspn(name, " \t=");
	if (*value) {
		*value++ = '\0';
		value += strspn(value, " \t=");
	}
	for (size_t n = strlen(value); n && strchr(" \t", value[n - 1]);)
		value[--n] = '\0';
	r = take(trace, name, *value ? value : NULL);
	if (r == TRACE_PROFILE_E_OPTION)
		return ctl_usage("%s: line %d: %s is no option of a profile, or has a value that "
				 "it should not, or lacks one",
				 path, number, name);
	if (r >= 0)
		ctl_tell("that is in %s, line %d", path, number);
	return r;
}

int trace_profile(struct trace_command *trace, const char *name, trace_profile_option_fn take) {
	char path[512], *text, *rest, *line;
	FILE *file = *name ? open_profile(name, path) : NULL;
	size_t n;
	int r = -1;

	if (!file) {
		const int error = errno;
		char *names = list_profiles();

		r = *name && (strchr(name, '/') || error != ENOENT)
			    ? ctl_fail(error == EACCES ? CTL_PERMISSION : CTL_NOT_FOUND,
				       "--profile: %s: %s", path, strerror(error))
			    : ctl_fail(CTL_NOT_FOUND,
				       "--profile: there is no profile %s; there are: %s",
				       *name ? name : "\"\"", names ?: "none");
		free(names);
		return r;
	}
	if (trace->n_profiles == TRACE_PROFILES_MAX) {
		fclose(file);
		return ctl_usage("--profile: at most %d", TRACE_PROFILES_MAX);
	}
	text = calloc(1, PROFILE_SIZE_MAX + 1);
	n = text ? fread(text, 1, PROFILE_SIZE_MAX, file) : 0;
	if (!text)
		r = ctl_fail(CTL_ERROR, "out of memory");
	else if (ferror(file))
		r = ctl_fail(CTL_ERROR, "--profile: %s: %s", path, strerror(errno));
	else if (n == PROFILE_SIZE_MAX || strlen(text) != n)
		r = ctl_fail(CTL_ERROR, "--profile: %s: it is too long, or no text", path);
	fclose(file);
	if (r >= 0) {
		free(text);
		return r;
	}
	trace->profiles[trace->n_profiles++] = rest = text; /* values of options point into it */
	for (int number = 1; r < 0 && (line = strsep(&rest, "\n")); number++)
		r = take_line(trace, path, number, line, take);
	return r;
}
