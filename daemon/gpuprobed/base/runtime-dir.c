/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the daemon's runtime directory and locks it (runtime-dir.h).
 *
 * A lock file, not the sockets, says whether a daemon runs: the kernel gives the lock back however
 * the daemon ends, so what a killed one left behind is simply replaced. The file is removed at the
 * end while the lock is held; whoever waited for it sees that the file it locked has no name any
 * more, and starts over.
 */

#include "runtime-dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memfd.h"
#include "proto/paths.h"

#define RUNTIME_DIR_LOCK "lock"
#define RUNTIME_DIR_STATE "state"
#define LOCK_TRIES 50
#define LOCK_PAUSE_US 20000

struct runtime_dir {
	char path[128];
	char lock_path[192], control[192], shim[192], interest[192], state[192];
	int lock;
	bool private;
	bool keep_control, keep_shim, handed_over;
};

bool runtime_dir_session_name_valid(const char *name) {
	size_t n = strlen(name);

	return n >= 1 && n <= PATHS_SESSION_NAME_MAX &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

int runtime_dir_session_path(char path[static 128], uid_t uid, const char *name) {
	char user_dir[64];
	struct stat status;
	int n;

	if (name && *name && !runtime_dir_session_name_valid(name))
		return RUNTIME_DIR_E_NAME;
	snprintf(user_dir, sizeof(user_dir), PATHS_USER_DIR, (unsigned)uid);
	if (stat(user_dir, &status) == 0 && S_ISDIR(status.st_mode))
		n = snprintf(path, 128, PATHS_SESSION_IN_USER_DIR, (unsigned)uid);
	else
		n = snprintf(path, 128, PATHS_SESSION_IN_TMP, (unsigned)uid);
	if (name && *name)
		snprintf(path + n, 128 - (size_t)n, "-%s", name);
	return 0;
}

/*
 * Opens and locks the lock file. The descriptor, -EAGAIN if another holds it, -errno. What a daemon
 * that was killed just now was about to start has the lock, too, until it has executed its program:
 * that is waited for.
 */
static int runtime_dir_lock(const char *path) {
	for (unsigned int tries = 1;;) {
		_cleanup_fd int fd = -1;
		struct stat status;
		int r;

		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return -errno;
			if (tries++ == LOCK_TRIES)
				return -EAGAIN;
			usleep(LOCK_PAUSE_US);
			continue;
		}
		if (fstat(fd, &status) < 0)
			return -errno;
		if (status.st_nlink == 0)
			continue; /* the one before us removed it */
		r = fd;
		fd = -1;
		return r;
	}
}

int runtime_dir_new(struct runtime_dir **dirp, const char *path, mode_t mode, bool private) {
	struct runtime_dir *dir;
	struct stat status;
	int lock;

	if (strlen(path) >= sizeof(dir->path))
		return -ENAMETOOLONG;
	if (mkdir(path, mode) < 0) {
		if (errno != EEXIST)
			return -errno;
	} else if (chmod(path, mode) < 0) { /* whatever the umask is */
		return -errno;
	}
	if (lstat(path, &status) < 0)
		return -errno;
	if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) ||
	    (private && (status.st_mode & 07777) != 0700))
		return RUNTIME_DIR_E_UNSAFE;

	dir = calloc(1, sizeof(*dir));
	if (!dir)
		return -ENOMEM;
	strcpy(dir->path, path);
	snprintf(dir->lock_path, sizeof(dir->lock_path), "%s/" RUNTIME_DIR_LOCK, path);
	snprintf(dir->control, sizeof(dir->control), "%s/" PATHS_CONTROL_SOCKET, path);
	snprintf(dir->shim, sizeof(dir->shim), "%s/" PATHS_SHIM_SOCKET, path);
	snprintf(dir->interest, sizeof(dir->interest), "%s/" PATHS_INTEREST_PAGE, path);
	snprintf(dir->state, sizeof(dir->state), "%s/" RUNTIME_DIR_STATE, path);
	dir->private = private;
	lock = runtime_dir_lock(dir->lock_path);
	if (lock < 0) {
		free(dir);
		return lock == -EAGAIN ? RUNTIME_DIR_E_RUNNING : lock;
	}
	dir->lock = lock;
	*dirp = dir;
	return 0;
}

void runtime_dir_keep(struct runtime_dir *dir, bool control, bool shim) {
	dir->keep_control = control;
	dir->keep_shim = shim;
}

void runtime_dir_hand_over(struct runtime_dir *dir) {
	dir->handed_over = true;
}

struct runtime_dir *runtime_dir_free(struct runtime_dir *dir) {
	if (!dir)
		return NULL;
	if (!dir->keep_control)
		unlink(dir->control);
	if (!dir->keep_shim)
		unlink(dir->shim);
	if (dir->private &&
	    !dir->handed_over) /* the system's stays: who maps it waits for the next */
		unlink(dir->interest);
	unlink(dir->lock_path);
	if (dir->private && !dir->handed_over)
		rmdir(dir->path);
	fd_close(dir->lock);
	free(dir);
	return NULL;
}

const char *runtime_dir_control(const struct runtime_dir *dir) {
	return dir->control;
}

const char *runtime_dir_shim(const struct runtime_dir *dir) {
	return dir->shim;
}

const char *runtime_dir_interest(const struct runtime_dir *dir) {
	return dir->interest;
}

const char *runtime_dir_state(const struct runtime_dir *dir) {
	return dir->state;
}

const char *runtime_dir_path(const struct runtime_dir *dir) {
	return dir->path;
}
