/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directory with the daemon's sockets (proto/paths.h), and a lock in it that is held while a
 * daemon runs there. */

#include <stdbool.h>
#include <sys/types.h>

enum {
	_RUNTIME_DIR_E_SUCCESS,
	RUNTIME_DIR_E_RUNNING, /* another daemon runs there */
	RUNTIME_DIR_E_UNSAFE, /* the directory is not ours, or open to others */
	RUNTIME_DIR_E_NAME, /* no session name */
};

struct runtime_dir;

bool runtime_dir_session_name_valid(const char *name);

/* The path of a session's directory; name may be NULL or empty. 0 or RUNTIME_DIR_E_NAME. */
int runtime_dir_session_path(char path[static 128], uid_t uid, const char *name);

/*
 * Makes the directory (mode) if it is not there, checks it, takes the lock. A private one must be
 * ours and 0700. 0, RUNTIME_DIR_E_*, or -errno.
 */
int runtime_dir_new(struct runtime_dir **dirp, const char *path, mode_t mode, bool private);

/* Does not remove these sockets at the end: the service manager made them. */
void runtime_dir_keep(struct runtime_dir *dir, bool control, bool shim);

/* Another daemon takes over: keeps all files that it needs. */
void runtime_dir_hand_over(struct runtime_dir *dir);

/* Removes the daemon's files, but for the interest page of one that is not private; and the
 * directory if it is private. NULL is fine. */
struct runtime_dir *runtime_dir_free(struct runtime_dir *dir);

/* "<directory>/<name>"; the result lives as long as dir, name is one of paths.h. */
const char *runtime_dir_control(const struct runtime_dir *dir);
const char *runtime_dir_shim(const struct runtime_dir *dir);
const char *runtime_dir_interest(const struct runtime_dir *dir);
const char *runtime_dir_state(const struct runtime_dir *dir);
const char *runtime_dir_path(const struct runtime_dir *dir);
