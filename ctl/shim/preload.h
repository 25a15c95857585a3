/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* /etc/ld.so.preload, what the dynamic linker loads into every program, and our library in it. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "ctl/base/ctl.h"

#define PRELOAD_LIBRARY "libgpuprobe-shim.so"

/* Opens a path as it is seen in the folder `root`: no link and no ".." leads out. A descriptor, or
 * -errno. */
int preload_open_in_root(int root, const char *path, int flags);

struct preload {
	int root; /* descriptor; borrowed */
	char folder[4096]; /* that has the file, as seen here */
	char name[256]; /* of the file in it: another one if ld.so.preload is a link */
	char path[4352]; /* of both, for messages */
	bool linked;
	struct stat status; /* of the file; st_nlink 0: there is none */
	char *text;
	size_t n;
};

/* Reads the file; none is an empty one. 0, or the exit status, and said why. */
int preload_read(struct preload *preload, int root);
void preload_deinit(struct preload *preload);

/* Calls take() for each library in the file, in order; ours: it has the name of our library, and
 * may be in a comment that ld.so does not see. */
void preload_each(const struct preload *preload,
		  void (*take)(const char *path, size_t n, bool ours, void *userdata),
		  void *userdata);

/*
 * What the file should be: our library once, as @library, or not at all (NULL), and the rest as it
 * is. 0: it is that already; 1: it is not; -ENOMEM. The text is allocated.
 */
int preload_edit(const struct preload *preload, const char *library, char **textp, size_t *np);

#define PRELOAD_CHANGED \
	(-1) /* another program changed the file after it was read: nothing was done */

/* Puts a text in place of the file, or removes the file (NULL): whatever happens, there is the old
 * one or the new one. 0, the exit status, or PRELOAD_CHANGED. */
int preload_replace(const struct preload *preload, const char *text, size_t n);

/* One gpuprobectl edits at a time. A descriptor, or minus the exit status. Unlocked with
 * preload_unlock(). */
int preload_lock(int root);
void preload_unlock(int root, int lock);
