/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command shim: puts our library into every program, by /etc/ld.so.preload, takes it out, and
 * shows its status.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdi.h"
#include "check.h"
#include "preload.h"
#include "lib/json.h"

#define CHANGE_TRIES 20

static const char help[] =
	"Usage: gpuprobectl shim enable [--root=DIR] [LIBRARY]\n"
	"       gpuprobectl shim disable [--root=DIR]\n"
	"       gpuprobectl shim status [--root=DIR]\n"
	"       gpuprobectl shim cdi [--root=DIR] [LIBRARY]\n"
	"\n"
	"Puts the library that brings probes into CUDA programs into /etc/ld.so.preload, and so "
	"into every program that starts from then on; takes it out\n"
	"again; or says whether it is there and whether it is sound.\n"
	"\n"
	"enable refuses a library that is missing, that others than root can change, that not "
	"everybody can read, or with which programs do not run as they\n"
	"should. LIBRARY is the one that is installed (" LAUNCH_SHIM
	") unless given. disable works without the library.\n"
	"What else is in the file stays as it is. Exit status of status: 1 if a library of ours is "
	"enabled and not sound.\n"
	"\n"
	"cdi prints a specification (Container Device Interface) that gives containers the library "
	"and the daemon's sockets, for a file in /etc/cdi.\n"
	"Only for images with glibc 2.17 or later: in others no program starts with it.\n"
	"\n"
	"      --root=DIR  the system in this folder, not the one that runs\n";

struct shim {
	struct ctl *ctl;
	int root;
	const char *library; /* NULL: not given */
	struct preload preload;
};

/* Options and at most @max arguments. Returns -1 to go on, or the exit status. */
static int parse(struct shim *shim, int argc, char **argv, int max) {
	const char *root = "/";
	const struct ctl_option options[] = { { "root", .value = CTL_TEXT, .text = &root }, {} };
	struct ctl_command_line line = { .help = help, .options = options, .arguments = CTL_ANY };
	int r;

	r = ctl_parse(shim->ctl, argc, argv, &line);
	if (r >= 0)
		return r;
	if (optind + max < argc)
		return ctl_usage("%s: %s is too much", argv[0] + strlen(CTL_TITLE),
				 argv[optind + max]);
	shim->library = optind < argc ? argv[optind] : NULL;
	shim->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (shim->root < 0)
		return ctl_fail(errno == ENOENT ? CTL_NOT_FOUND : CTL_ERROR, "--root=%s: %s", root,
				strerror(errno));
	return -1;
}

/* Says what was done: a line, or
 * {"changed":true,"enabled":true,"file":"/etc/ld.so.preload","library":"..."}. */
static void report(const struct shim *shim, bool changed, const char *library, const char *line) {
	json_object *out;

	if (!shim->ctl->json) {
		puts(line);
		return;
	}
	out = json_object_new_object();
	json_add_bool(out, "changed", changed);
	json_add_bool(out, "enabled", library != NULL);
	json_add_string(out, "file", shim->preload.path);
	json_object_object_add(out, "library", library ? json_object_new_string(library) : NULL);
	ctl_print_json(shim->ctl, out);
	json_object_put(out);
}

/* Whether nothing but blanks is in a text. */
static bool is_blank(const char *text, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r\n:", text[i]) || !text[i])
			return false;
	return true;
}

/* Once. 0, the exit status, or PRELOAD_CHANGED. */
static int change_once(struct shim *shim, const char *library, const char **donep) {
	char *text = NULL;
	size_t n = 0;
	int r, differs;

	*donep = NULL;
	preload_deinit(&shim->preload);
	r = preload_read(&shim->preload, shim->root);
	differs = r ? 0 : preload_edit(&shim->preload, library, &text, &n);
	if (differs < 0)
		r = ctl_fail(CTL_ERROR, "%s", strerror(-differs));
	if (differs > 0) {
		/* no file costs programs less than an empty one; what a link names stays, for the
		 * link's sake */
		bool remove = !library && !shim->preload.linked && is_blank(text, n);

		r = preload_replace(&shim->preload, remove ? NULL : text, n);
		*donep = remove ? "; the file, which had nothing else in it, is gone" : "";
	}
	free(text);
	return r;
}

/* The file with our library as @library, or without (NULL), under the lock. 0, or the exit status.
 */
static int change(struct shim *shim, const char *library, const char **donep) {
	int lock, r, tries = 0;

	lock = preload_lock(shim->root);
	if (lock < 0)
		return -lock;
	do
		r = change_once(shim, library, donep);
	while (r == PRELOAD_CHANGED && ++tries < CHANGE_TRIES);
	if (r == PRELOAD_CHANGED)
		r = ctl_fail(CTL_ERROR,
			     "%s: somebody else changes it all the time; nothing is changed",
			     shim->preload.path);
	preload_unlock(shim->root, lock);
	return r;
}

/* Whether the file is to be changed at all: if not, nothing is written, so that it works on a disk
 * that cannot be written to. 0 or the exit status. */
static int needs_change(struct shim *shim, const char *library, bool *neededp) {
	char *text;
	size_t n;
	int r;

	r = preload_read(&shim->preload, shim->root);
	if (r)
		return r;
	r = preload_edit(&shim->preload, library, &text, &n);
	free(text);
	*neededp = r > 0;
	return r < 0 ? ctl_fail(CTL_ERROR, "%s", strerror(-r)) : 0;
}

/* A file that others can write to is a hole that we do not use. 0, or the exit status. */
static int check_owner(const struct preload *preload) {
	const struct stat *status = &preload->status;

	if (status->st_nlink && (status->st_uid != 0 || status->st_mode & 022))
		return ctl_fail(
			CTL_ERROR,
			"%s: others than root may write to it (user %u, mode %04o): not enabled",
			preload->path, status->st_uid, status->st_mode & 07777);
	return 0;
}

static int enable(struct shim *shim) {
	char resolved[4096], reason[CHECK_REASON_SIZE], line[9216], path[4096];
	const char *library = shim->library ? shim->library : LAUNCH_SHIM, *done, *name;
	bool needed;
	int r;

	if (*library != '/') { /* a path of ours, seen from where we are */
		if (!realpath(library, path))
			return ctl_fail(errno == ENOENT ? CTL_NOT_FOUND : CTL_ERROR,
					"%s: %s: not enabled", library, strerror(errno));
		library = path;
	}
	r = (int)check_library(shim->root, library, resolved, reason);
	if (r)
		return ctl_fail((enum ctl_exit)r, "%s: not enabled", reason);
	name = strrchr(resolved, '/') + 1;
	if (strcmp(name, PRELOAD_LIBRARY))
		return ctl_fail(CTL_ERROR,
				"%s: is not named " PRELOAD_LIBRARY
				", by which it is found again: not enabled",
				resolved);
	r = needs_change(shim, resolved, &needed);
	if (r == 0 && needed)
		r = check_owner(&shim->preload);
	if (r)
		return r;
	if (!needed) {
		snprintf(line, sizeof(line), "%s is in %s already", resolved, shim->preload.path);
		report(shim, false, resolved, line);
		return CTL_OK;
	}
	r = change(shim, resolved, &done);
	if (r)
		return r;
	snprintf(line, sizeof(line), "%s is in %s: programs that start from now on have it",
		 resolved, shim->preload.path);
	report(shim, done != NULL, resolved, line);
	return CTL_OK;
}

static int disable(struct shim *shim) {
	char line[9216];
	const char *done;
	bool needed;
	int r;

	r = needs_change(shim, NULL, &needed);
	if (r)
		return r;
	if (!needed) {
		snprintf(line, sizeof(line), PRELOAD_LIBRARY " is not in %s", shim->preload.path);
		report(shim, false, NULL, line);
		return CTL_OK;
	}
	r = change(shim, NULL, &done);
	if (r)
		return r;
	snprintf(line, sizeof(line), PRELOAD_LIBRARY " is out of %s%s", shim->preload.path,
		 done ? done : "");
	report(shim, done != NULL, NULL, line);
	return CTL_OK;
}

struct listing {
	const struct shim *shim;
	json_object *ours, *others;
	bool sound;
};

static json_object *describe(const struct shim *shim, const char *path, bool *soundp) {
	char resolved[4096], reason[CHECK_REASON_SIZE] = "";
	json_object *library = json_object_new_object();

	*soundp = check_library(shim->root, path, resolved, reason) == CTL_OK;
	json_add_string(library, "path", path);
	json_add_bool(library, "sound", *soundp);
	json_object_object_add(library, "reason", *soundp ? NULL : json_object_new_string(reason));
	return library;
}

static void list(const char *path, size_t n, bool ours, void *userdata) {
	struct listing *listing = userdata;
	char *copy;
	bool sound;

	if (!ours) {
		json_append(listing->others, json_object_new_string_len(path, (int)n));
		return;
	}
	copy = strndup(path, n);
	if (!copy)
		return;
	json_append(listing->ours, describe(listing->shim, copy, &sound));
	listing->sound = listing->sound && sound;
	free(copy);
}

static void print_libraries(json_object *libraries, const char *what) {
	for (size_t i = 0; i < json_object_array_length(libraries); i++) {
		json_object *library = json_object_array_get_idx(libraries, i);

		printf("%s: ", what);
		if (json_member(library, "reason"))
			ctl_print_text(ctl_string(library, "reason"));
		else
			ctl_print_text(ctl_string(library, "path"));
		puts(json_member(library, "reason") ? ": not sound" : ": sound");
	}
}

static int status(struct shim *shim) {
	struct listing listing = { .shim = shim, .sound = true };
	json_object *out = json_object_new_object(), *installed = json_object_new_array();
	bool enabled, sound;
	int r;

	r = preload_read(&shim->preload, shim->root);
	if (r) {
		json_object_put(out);
		json_object_put(installed);
		return r;
	}
	listing.ours = json_object_new_array();
	listing.others = json_object_new_array();
	preload_each(&shim->preload, list, &listing);
	enabled = json_object_array_length(listing.ours) > 0;
	json_append(installed, describe(shim, LAUNCH_SHIM, &sound));
	if (!shim->ctl->json) {
		printf("%s in %s\n", enabled ? "enabled" : "not enabled", shim->preload.path);
		print_libraries(listing.ours, "enabled");
		print_libraries(installed, "installed");
	}
	json_add_bool(out, "enabled", enabled);
	json_add_string(out, "file", shim->preload.path);
	json_add(out, "libraries", listing.ours);
	json_add(out, "installed", json_object_get(json_object_array_get_idx(installed, 0)));
	json_add(out, "others", listing.others);
	if (shim->ctl->json)
		ctl_print_json(shim->ctl, out);
	json_object_put(out);
	json_object_put(installed);
	return listing.sound ? CTL_OK : CTL_ERROR;
}

static int cdi(struct shim *shim) {
	return cdi_print(shim->ctl, shim->root, shim->library ?: LAUNCH_SHIM);
}

static int run(struct ctl *ctl, int argc, char **argv, int max, int (*verb)(struct shim *shim)) {
	struct shim shim = { .ctl = ctl, .root = -1 };
	int r;

	r = parse(&shim, argc, argv, max);
	if (r < 0)
		r = verb(&shim);
	preload_deinit(&shim.preload);
	if (shim.root >= 0)
		close(shim.root);
	return r;
}

static int shim_enable(struct ctl *ctl, int argc, char **argv) {
	return run(ctl, argc, argv, 1, enable);
}

static int shim_disable(struct ctl *ctl, int argc, char **argv) {
	return run(ctl, argc, argv, 0, disable);
}

static int shim_status(struct ctl *ctl, int argc, char **argv) {
	return run(ctl, argc, argv, 0, status);
}

static int shim_cdi(struct ctl *ctl, int argc, char **argv) {
	return run(ctl, argc, argv, 1, cdi);
}

int command_shim(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "enable", shim_enable },
		{ "disable", shim_disable },
		{ "status", shim_status },
		{ "cdi", shim_cdi },
		{},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
