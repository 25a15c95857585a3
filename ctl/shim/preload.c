/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads and edits /etc/ld.so.preload (preload.h), with a lock file and a new file beside it.
 *
 * ld.so splits the file at blanks, tabs, line ends and colons, and a # hides what follows it in its
 * line, wherever it stands. So do we: what is edited is what ld.so would load, and everything else
 * stays as it is, byte for byte.
 *
 * But the ld.so of glibc looks for each further # from the file's beginning on, in as many bytes as
 * are left behind the one before, and so misses many: it loads names that it should not see. So a
 * name of ours in any comment but the first is taken out, as one that may be loaded, and it is not
 * what brings the library into programs.
 *
 * A file that is broken for a moment breaks every program that starts in that moment, and one that
 * is broken after a crash breaks the next boot. So the new text is written beside it, is on the
 * disk before it gets the name, and gets it in one step. Others edit the file, too, who know no
 * lock: whether it still is what was read is looked at last.
 *
 * The lock is a file of its own, because whoever may read a file may lock it: this one is root's
 * alone. Its name goes with the lock; who has waited for it sees that, and starts over.
 */

#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/file.h"

#define ETC "etc"
#define FILE_NAME "ld.so.preload"
#define LOCK_NAME ".ld.so.preload.lock"
#define NEW_NAME ".ld.so.preload.new"
#define SEPARATORS " \t\n:"
#define SIZE_MAX_FILE (1 << 20)
#define LOCK_SECONDS 10

int preload_open_in_root(int root, const char *path, int flags) {
	struct open_how how = { .flags = (unsigned int)flags | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT };
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static enum ctl_exit exit_of(int error) {
	return error == EACCES || error == EPERM ? CTL_PERMISSION : CTL_ERROR;
}

static int fail(const struct preload *preload, const char *what, int error) {
	return ctl_fail(exit_of(error), "%s: %s: %s", preload->path, what, strerror(error));
}

/* ---- reading ---- */

/* Where a descriptor's file is, as folder and name. 0 or -errno. */
static int find(struct preload *preload, int fd) {
	char link[64], path[sizeof(preload->folder)], *slash;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	if (n < 0)
		return -errno;
	if (n == sizeof(path))
		return -ENAMETOOLONG;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || strlen(slash + 1) >= sizeof(preload->name))
		return -ENAMETOOLONG;
	strcpy(preload->name, slash + 1);
	*slash = '\0';
	strcpy(preload->folder, path);
	snprintf(preload->path, sizeof(preload->path), "%s/%s", preload->folder, preload->name);
	return 0;
}

/* The folder etc, as the place of a file that is not there. 0, or the exit status. */
static int find_folder(struct preload *preload) {
	struct stat status;
	int fd, r;

	fd = preload_open_in_root(preload->root, ETC, O_PATH | O_DIRECTORY);
	r = fd < 0 ? fd : find(preload, fd);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return ctl_fail(exit_of(-r), "/" ETC ": %s", strerror(-r));
	}
	if (fstatat(fd, FILE_NAME, &status, AT_SYMLINK_NOFOLLOW) == 0)
		preload->linked = S_ISLNK(status.st_mode);
	close(fd);
	snprintf(preload->folder + strlen(preload->folder),
		 sizeof(preload->folder) - strlen(preload->folder), "/%s", preload->name);
	strcpy(preload->name, FILE_NAME);
	snprintf(preload->path, sizeof(preload->path), "%s/%s", preload->folder, preload->name);
	return 0;
}

int preload_read(struct preload *preload, int root) {
	int fd, r;

	*preload = (struct preload){ .root = root };
	r = find_folder(preload);
	if (r)
		return r;
	fd = preload_open_in_root(root, ETC "/" FILE_NAME, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd == -ENOENT && preload->linked)
		return ctl_fail(CTL_ERROR,
				"%s: is a link that leads nowhere; remove it or make what it names",
				preload->path);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fail(preload, "cannot open", -fd);
	r = fstat(fd, &preload->status) < 0 ? -errno : preload->linked ? find(preload, fd) : 0;
	if (r == 0 &&
	    (!S_ISREG(preload->status.st_mode) || preload->status.st_size > SIZE_MAX_FILE)) {
		close(fd);
		return ctl_fail(CTL_ERROR, "%s: is not a file of at most 1 MiB: left alone",
				preload->path);
	}
	if (r == 0)
		r = file_load(fd, SIZE_MAX_FILE, &preload->text, &preload->n);
	close(fd);
	if (r < 0) {
		preload_deinit(preload);
		return fail(preload, "cannot read", -r);
	}
	return 0;
}

void preload_deinit(struct preload *preload) {
	free(preload->text);
	preload->text = NULL;
	preload->n = 0;
}

/* ---- the text ---- */

static bool separates(char c) {
	return c && strchr(SEPARATORS, c);
}

static bool in_comment(const char *text, size_t at) {
	while (at && text[at - 1] != '\n' && text[at - 1] != '#')
		at--;
	return at && text[at - 1] == '#';
}

/* The next library from @at on: where it begins and ends, and whether it is in a comment, which
 * ld.so may not see. False: there is none. */
static bool next_library(const struct preload *preload, size_t at, size_t *beginp, size_t *endp,
			 bool *hiddenp) {
	const char *text = preload->text,
		   *first = preload->n ? memchr(text, '#', preload->n) : NULL;
	size_t n = preload->n;

	for (;;) {
		while (at < n && (separates(text[at]) || (text[at] == '#' && text + at != first)))
			at++;
		if (at == n)
			return false;
		if (text + at != first)
			break;
		while (at < n && text[at] != '\n')
			at++;
	}
	*hiddenp = in_comment(text, at);
	*beginp = at;
	while (at < n && !separates(text[at]) && text[at] != '#')
		at++;
	*endp = at;
	return true;
}

static bool is_ours(const char *path, size_t n) {
	size_t name = strlen(PRELOAD_LIBRARY);

	return n >= name && !memcmp(path + n - name, PRELOAD_LIBRARY, name) &&
	       (n == name || path[n - name - 1] == '/');
}

void preload_each(const struct preload *preload,
		  void (*take)(const char *path, size_t n, bool ours, void *userdata),
		  void *userdata) {
	size_t begin, end = 0;
	bool hidden, ours;

	while (next_library(preload, end, &begin, &end, &hidden)) {
		ours = is_ours(preload->text + begin, end - begin);
		if (ours || !hidden)
			take(preload->text + begin, end - begin, ours, userdata);
	}
}

/* A library goes with the blanks before or behind it; with its whole line if it is alone there. */
static void widen(const struct preload *preload, size_t *beginp, size_t *endp) {
	const char *text = preload->text;
	size_t begin = *beginp, end = *endp;
	bool first, last;

	while (begin && separates(text[begin - 1]) && text[begin - 1] != '\n')
		begin--;
	while (end < preload->n && separates(text[end]) && text[end] != '\n')
		end++;
	first = !begin || text[begin - 1] == '\n';
	last = end == preload->n || text[end] == '\n';
	if (first || last)
		*beginp = begin;
	*endp = first && last && end < preload->n ? end + 1 : end;
}

int preload_edit(const struct preload *preload, const char *library, char **textp, size_t *np) {
	size_t n = library ? strlen(library) : 0, kept = 0, begin, end = 0;
	bool hidden, there = false, here;
	FILE *file;

	*textp = NULL;
	file = open_memstream(textp, np);
	if (!file)
		return -ENOMEM;
	while (next_library(preload, end, &begin, &end, &hidden)) {
		if (!is_ours(preload->text + begin, end - begin))
			continue;
		here = library && !hidden && !there;
		if (!here)
			widen(preload, &begin, &end);
		fwrite(preload->text + kept, 1, begin > kept ? begin - kept : 0, file);
		if (here)
			fwrite(library, 1, n, file);
		there = there || here;
		kept = end;
	}
	if (kept < preload->n)
		fwrite(preload->text + kept, 1, preload->n - kept, file);
	if (!there && library)
		fprintf(file, "%s%s\n",
			preload->n && preload->text[preload->n - 1] != '\n' ? "\n" : "", library);
	if (fclose(file)) {
		free(*textp);
		*textp = NULL;
		return -ENOMEM;
	}
	return *np != preload->n || (preload->n && memcmp(*textp, preload->text, preload->n));
}

/* ---- writing ---- */

static int write_all(int fd, const char *text, size_t n) {
	while (n) {
		ssize_t written = write(fd, text, n);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		text += written;
		n -= (size_t)written;
	}
	return 0;
}

/* Labels and access lists of the old file, as far as the file system has such. 0 or -errno. */
static int copy_attributes(const struct preload *preload, int folder, int fd) {
	char names[4096], value[4096];
	ssize_t n, size;
	int old, r = 0;

	old = openat(folder, preload->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (old < 0)
		return -errno;
	n = flistxattr(old, names, sizeof(names));
	if (n < 0)
		r = errno == ENOTSUP ? 0 : -errno;
	for (ssize_t at = 0; at < n && r == 0; at += (ssize_t)strlen(names + at) + 1) {
		size = fgetxattr(old, names + at, value, sizeof(value));
		if (size < 0 || fsetxattr(fd, names + at, value, (size_t)size, 0) < 0)
			r = -errno;
	}
	close(old);
	return r;
}

/* Makes the file beside the old one. 0 or -errno. */
static int write_new(const struct preload *preload, int folder, const char *text, size_t n) {
	bool exists = preload->status.st_nlink;
	int fd, r;

	/* what a crash has left; nobody else writes there while we have the lock */
	if (unlinkat(folder, NEW_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(folder, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, n);
	if (r == 0 && exists && fchown(fd, preload->status.st_uid, preload->status.st_gid) < 0)
		r = -errno;
	if (r == 0 && exists)
		r = copy_attributes(preload, folder, fd);
	if (r == 0 && fchmod(fd, exists ? preload->status.st_mode & 07777 : 0644) < 0)
		r = -errno;
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

/* Whether nobody else has changed the file since it was read. */
static bool is_as_read(const struct preload *preload, int folder) {
	const struct stat *read = &preload->status;
	struct stat now;

	if (fstatat(folder, preload->name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT && !read->st_nlink;
	return read->st_nlink && now.st_dev == read->st_dev && now.st_ino == read->st_ino &&
	       now.st_size == read->st_size && now.st_mtim.tv_sec == read->st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == read->st_mtim.tv_nsec &&
	       now.st_ctim.tv_sec == read->st_ctim.tv_sec &&
	       now.st_ctim.tv_nsec == read->st_ctim.tv_nsec;
}

int preload_replace(const struct preload *preload, const char *text, size_t n) {
	int folder, r = 0;

	folder = open(preload->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return ctl_fail(exit_of(errno), "%s: %s", preload->folder, strerror(errno));
	if (text)
		r = write_new(preload, folder, text, n);
	if (r == 0 && !is_as_read(preload, folder)) {
		unlinkat(folder, NEW_NAME, 0);
		close(folder);
		return PRELOAD_CHANGED;
	}
	if (r == 0 && (text ? renameat(folder, NEW_NAME, folder, preload->name)
			    : unlinkat(folder, preload->name, 0)) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(folder, NEW_NAME, 0);
		close(folder);
		return fail(preload, "cannot be replaced, and is as it was", -r);
	}
	if (fsync(folder) < 0)
		r = -errno;
	close(folder);
	return r ? fail(preload, "is changed, but may not be so after a loss of power", -r) : 0;
}

/* ---- the lock ---- */

/* Takes the lock if it is free. A descriptor or -errno. */
static int try_lock(int folder) {
	struct stat ours, named;
	int fd, r;

	fd = openat(folder, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &ours) < 0)
		r = errno == EWOULDBLOCK ? -EAGAIN : -errno;
	else if (fstatat(folder, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
		 named.st_ino != ours.st_ino || named.st_dev != ours.st_dev)
		r = -EAGAIN; /* the one before us has removed it */
	else
		return fd;
	close(fd);
	return r;
}

int preload_lock(int root) {
	static const struct timespec pause = { .tv_nsec = 10000000 };
	struct timespec now, end;
	int folder, lock;

	folder = preload_open_in_root(root, ETC, O_RDONLY | O_DIRECTORY);
	if (folder < 0)
		return -(int)ctl_fail(exit_of(-folder), "/" ETC ": %s", strerror(-folder));
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += LOCK_SECONDS;
	do {
		lock = try_lock(folder);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (lock == -EAGAIN && now.tv_sec < end.tv_sec && nanosleep(&pause, NULL) == 0);
	close(folder);
	if (lock == -EAGAIN)
		return -(int)ctl_fail(CTL_ERROR, "another gpuprobectl edits /" ETC "/" FILE_NAME
						 "; nothing is changed");
	if (lock < 0)
		return -(int)ctl_fail(exit_of(-lock),
				      "/" ETC "/" LOCK_NAME ": %s; nothing is changed",
				      strerror(-lock));
	return lock;
}

void preload_unlock(int root, int lock) {
	int folder = preload_open_in_root(root, ETC, O_RDONLY | O_DIRECTORY);

	if (folder >= 0) {
		unlinkat(folder, LOCK_NAME, 0);
		close(folder);
	}
	close(lock);
}
