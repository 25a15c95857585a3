/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What gpuprobectl doctor looks at. A check is an id, a title, and a function that looks and says
 * what it has found; those of one subject are a table in a file. Everything is looked at as it is
 * seen in the folder doctor->root, so that a system that does not run, or one made for a test, can
 * be examined.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "ctl/base/ctl.h"

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARNING, /* a part is missing that one can do without */
	DOCTOR_FAILED,
	DOCTOR_SKIPPED, /* not looked at */
	DOCTOR_UNKNOWN, /* looked at in vain */
	_DOCTOR_STATES,
};

struct doctor {
	struct ctl *ctl;
	int root; /* descriptor */
	bool live; /* it is the system that runs */
	const char *only; /* a glob of ids, or NULL */
};

struct finding {
	enum doctor_state state;
	char found[1024], todo[1024]; /* a line each; todo may be empty */
};

struct doctor_check {
	const char *id, *title;
	void (*look)(const struct doctor *doctor, struct finding *finding);
};

/* In the order in which they are printed; each ends with a check without id. */
extern const struct doctor_check doctor_kernel_checks[], doctor_bpf_checks[],
	doctor_service_checks[], doctor_preload_checks[], doctor_driver_checks[],
	doctor_toolkit_checks[], doctor_reach_checks[];

/* daemon.c: what the daemon says of itself: an array of checks as of Examine, with one for the
 * daemon itself in front. */
json_object *doctor_daemon(const struct doctor *doctor);

/* What a check has found, and (todo, unless NULL) what to do about it. */
void doctor_say(struct finding *finding, enum doctor_state state, const char *todo,
		const char *format, ...) __attribute__((format(printf, 4, 5)));

/* files.c: a file in the root as text of at most a mebibyte, with two NULs behind it; free it. NULL
 * and errno. */
char *doctor_read(const struct doctor *doctor, const char *path);
/* The number that a file begins with. False: there is none. */
bool doctor_number(const struct doctor *doctor, const char *path, long *number);
bool doctor_stat(const struct doctor *doctor, const char *path, struct stat *status);
bool doctor_exists(const struct doctor *doctor, const char *path);
/* What a link names, as it is. */
bool doctor_link(const struct doctor *doctor, const char *path, char target[static 4096]);
/* Calls take() with the name of each entry of a folder until it returns false. */
void doctor_folder(const struct doctor *doctor, const char *path,
		   bool (*take)(const char *name, void *userdata), void *userdata);
/* A library as the dynamic linker finds it: its cache, and the usual folders. name is the file's,
 * without links. */
bool doctor_library(const struct doctor *doctor, const char *library, char path[static 4096],
		    char name[static 256]);
/* The first of the folders of toolkits that has this file. */
bool doctor_toolkit(const struct doctor *doctor, const char *file, char path[static 4096]);
