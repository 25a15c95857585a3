/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads, writes and deletes the files of the cache's folder (store.h). Runs in threads.
 *
 * A file is written under another name and renamed: a reader finds all of it or nothing, whatever
 * happens to the writer, and of two daemons that write the same entry one wins, with the same
 * content. Nothing is synced: after a power failure a file may be empty or cut, which its size and
 * checksum show, and then it is made again; waiting for the disk would buy nothing. A writer holds
 * a lock on its file, so that those of writers that died are known by having none.
 *
 * The time of last modification is that of last use, set by us: other than the time of access it
 * does not depend on how the disk is mounted, and no backup changes it.
 *
 * The folder is opened, and looked at, each time: it may have been removed, or mounted, since.
 */

#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"

#define STORE_NAME_SIZE (10 + 1 + CACHE_KEY_TEXT_SIZE)
#define STORE_NEW_PREFIX ".new-"
#define STORE_NEW_SIZE (sizeof(STORE_NEW_PREFIX) + 16)
#define STORE_BLOCK 4096
#define STORE_AHEAD 60 /* seconds that clocks, as of a file server, may differ */

/* A file of the folder. */
struct store_file {
	char name[STORE_NAME_SIZE];
	uint32_t uid;
	uint64_t bytes;
	int64_t used; /* nanoseconds */
	bool gone;
};

struct store_scan {
	struct store_file *files;
	size_t n, max;
};

/* ---- the folder ---- */

/* Its descriptor, CACHE_STORE_E_UNSAFE as -EPERM, or -errno. */
static int store_open(const char *folder) {
	struct stat status;
	int fd;

	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) < 0 || status.st_uid != geteuid() ||
	    status.st_mode & (S_IWGRP | S_IWOTH)) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

/* The same; made if it is not there. */
static int store_open_or_make(const char *folder) {
	int fd = store_open(folder);

	if (fd != -ENOENT)
		return fd;
	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return -errno;
	return store_open(folder);
}

static int store_result(int r) {
	return r == -EPERM ? CACHE_STORE_E_UNSAFE : r;
}

int cache_store_prepare(const char *folder) {
	int fd = store_open_or_make(folder);

	if (fd < 0)
		return store_result(fd);
	fd_close(fd);
	return 0;
}

static void store_name(char name[static STORE_NAME_SIZE], const struct cache_key *key, uid_t uid) {
	char text[CACHE_KEY_TEXT_SIZE];

	cache_key_text(key, text);
	snprintf(name, STORE_NAME_SIZE, "%u-%s", (unsigned)uid, text);
}

/* Whether this is the name of an entry, and whose. */
static bool store_parse_name(const char *name, uint32_t *uid) {
	char *end;
	unsigned long long n;

	if (*name < '0' || *name > '9')
		return false;
	n = strtoull(name, &end, 10);
	if (n >= UINT32_MAX || *end != '-' ||
	    strspn(end + 1, "0123456789abcdef") != 2 * CACHE_KEY_SIZE ||
	    end[1 + 2 * CACHE_KEY_SIZE])
		return false;
	*uid = (uint32_t)n;
	return true;
}

/* An entry's file, to read. -EINVAL: it is not one that we have written. */
static int store_open_file(int folder, const char *name) {
	struct stat status;
	int fd;

	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -EINVAL : -errno;
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
	    status.st_mode & (S_IWGRP | S_IWOTH)) {
		fd_close(fd);
		return -EINVAL;
	}
	return fd;
}

static void store_remove(int folder, const char *name) {
	if (unlinkat(folder, name, 0) < 0 && errno == EISDIR)
		unlinkat(folder, name, AT_REMOVEDIR);
}

/* ---- one entry ---- */

int cache_store_get(const char *folder, const struct cache_key *key, uid_t uid,
		    struct cache_entry *entry) {
	static const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT },
						{ .tv_nsec = UTIME_NOW } };
	_cleanup_fd int dir = -1, fd = -1;
	char name[STORE_NAME_SIZE];
	int r;

	dir = store_open(folder);
	if (dir < 0)
		return dir == -ENOENT ? CACHE_STORE_E_MISS : store_result(dir);
	store_name(name, key, uid);
	fd = store_open_file(dir, name);
	if (fd == -ENOENT)
		return CACHE_STORE_E_MISS;
	if (fd < 0 && fd != -EINVAL)
		return fd;
	r = fd < 0 ? CACHE_ENTRY_E_INVALID : cache_entry_read(entry, fd, key, uid);
	if (r == CACHE_ENTRY_E_INVALID ||
	    r == -EIO) { /* a disk that cannot read it now will not tomorrow */
		store_remove(dir, name);
		return CACHE_STORE_E_INVALID;
	}
	if (r == 0)
		futimens(fd, now);
	return r;
}

void cache_store_drop(const char *folder, const struct cache_key *key, uid_t uid) {
	_cleanup_fd int dir = store_open(folder);
	char name[STORE_NAME_SIZE];

	store_name(name, key, uid);
	if (dir >= 0)
		store_remove(dir, name);
}

/*
 * A new file that is locked, and its name. -errno: there is none. Whoever looks through the folder
 * may have taken it for a dead writer's before it was locked: then it is gone, and there is
 * another.
 */
static int store_create(int dir, char name[static STORE_NEW_SIZE]) {
	struct stat status;
	uint64_t random;
	int fd, r;

	for (;;) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		snprintf(name, STORE_NEW_SIZE, STORE_NEW_PREFIX "%016llx",
			 (unsigned long long)random);
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		r = flock(fd, LOCK_EX) < 0 || fstat(fd, &status) < 0 ? -errno : 0;
		if (r == 0 && status.st_nlink)
			return fd;
		fd_close(fd);
		if (r < 0 && r != -EINTR) {
			unlinkat(dir, name, 0);
			return r;
		}
	}
}

int cache_store_put(const char *folder, const struct cache_entry *entry) {
	char name[STORE_NAME_SIZE], new[STORE_NEW_SIZE];
	_cleanup_fd int dir = -1;
	int fd, r;

	dir = store_open_or_make(folder);
	if (dir < 0)
		return store_result(dir);
	fd = store_create(dir, new);
	if (fd < 0)
		return fd;
	store_name(name, &entry->key, entry->uid);
	r = cache_entry_write(entry, fd);
	if (r == 0 && renameat(dir, new, dir, name) < 0) {
		r = -errno;
		if (r == -EISDIR || r == -ENOTEMPTY) /* somebody has put a folder there */
			store_remove(dir, name);
	}
	if (r < 0)
		unlinkat(dir, new, 0);
	if (close(fd) < 0 && r == 0) { /* a quota may only show here */
		r = -errno;
		store_remove(dir, name);
	}
	return r;
}

/* ---- all entries ---- */

/* What a writer has not completed, if it is dead. */
static void store_clear_new(int folder, const char *name) {
	_cleanup_fd int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		unlinkat(folder, name, 0);
}

/* When a file was used. A time to come is one of a clock that has been set back: nobody knows, and
 * it goes before what is made from now on. */
static int64_t store_used(const struct stat *status) {
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (status->st_mtim.tv_sec > now.tv_sec + STORE_AHEAD)
		return 0;
	return status->st_mtim.tv_sec * INT64_C(1000000000) + status->st_mtim.tv_nsec;
}

/* Remembers a file. 0 or -ENOMEM. */
static int store_scan_add(struct store_scan *scan, const char *name, uint32_t uid,
			  const struct stat *status) {
	struct store_file *grown;

	if (scan->n == scan->max) {
		scan->max = scan->max ? 2 * scan->max : 256;
		grown = reallocarray(scan->files, scan->max, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		scan->files = grown;
	}
	scan->files[scan->n] = (struct store_file){
		.uid = uid,
		.bytes = ((uint64_t)status->st_size + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK,
		.used = store_used(status),
	};
	strcpy(scan->files[scan->n++].name, name);
	return 0;
}

/* All entries of a uid. More than there may be of them go at once: nobody keeps so many. 0 or
 * -errno. */
static int store_scan(struct store_scan *scan, int folder, uint32_t uid) {
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *item;
	struct stat status;
	uint32_t owner;

	if (!dir) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r == 0 && (item = readdir(dir))) {
		if (strncmp(item->d_name, STORE_NEW_PREFIX, strlen(STORE_NEW_PREFIX)) == 0)
			store_clear_new(folder, item->d_name);
		if (!store_parse_name(item->d_name, &owner) ||
		    (uid != CACHE_STORE_ANYBODY && owner != uid) ||
		    fstatat(folder, item->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (scan->n < 4 * CACHE_STORE_ENTRIES_MAX)
			r = store_scan_add(scan, item->d_name, owner, &status);
		else
			store_remove(folder, item->d_name);
	}
	closedir(dir);
	return r;
}

static int store_compare(const void *a, const void *b) {
	const struct store_file *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used ? 1 : strcmp(x->name, y->name);
}

/* The uid that has most of what is left. */
static uint32_t store_largest(const struct store_scan *scan) {
	struct share {
		uint32_t uid;
		uint64_t bytes;
	} shares[64] = {},
	  *largest = shares; /* those who come later are no victims before one of these has gone */
	size_t n = 0;

	for (size_t i = 0, k; i < scan->n; i++) {
		if (scan->files[i].gone)
			continue;
		for (k = 0; k < n && shares[k].uid != scan->files[i].uid; k++)
			;
		if (k == sizeof(shares) / sizeof(*shares))
			continue;
		if (k == n)
			shares[n++].uid = scan->files[i].uid;
		shares[k].bytes += scan->files[i].bytes;
	}
	for (size_t k = 1; k < n; k++)
		if (shares[k].bytes > largest->bytes)
			largest = &shares[k];
	return largest->uid;
}

/* Removes the oldest of the uid that has most, until no more than so many bytes and entries are
 * left. */
static void store_evict(struct store_scan *scan, int folder, uint64_t bytes, uint64_t entries,
			struct cache_usage *usage) {
	while (usage->entries && (usage->bytes > bytes || usage->entries > entries)) {
		const uint32_t uid = store_largest(scan);
		unsigned int batch = 64; /* before shares are counted again */

		for (size_t i = 0;
		     i < scan->n && batch && (usage->bytes > bytes || usage->entries > entries);
		     i++) {
			struct store_file *file = &scan->files[i];

			if (file->gone || file->uid != uid)
				continue;
			unlinkat(folder, file->name, 0);
			file->gone = true;
			usage->bytes -= file->bytes;
			usage->entries--;
			usage->removed++;
			batch = usage->entries > 1024 ? batch - 1 : 0;
		}
	}
}

/* The entries of a uid, oldest first, and what they take. 0 or -errno. */
static int store_collect(const char *folder, uint32_t uid, struct store_scan *scan,
			 struct cache_usage *usage, int *dirp) {
	int dir = store_open(folder), r;

	*usage = (struct cache_usage){};
	if (dir < 0)
		return dir;
	r = store_scan(scan, dir, uid);
	if (r < 0) {
		fd_close(dir);
		return r;
	}
	if (scan->n)
		qsort(scan->files, scan->n, sizeof(*scan->files), store_compare);
	usage->entries = scan->n;
	for (size_t i = 0; i < scan->n; i++)
		usage->bytes += scan->files[i].bytes;
	*dirp = dir;
	return 0;
}

int cache_store_trim(const char *folder, uint64_t limit, struct cache_usage *usage) {
	struct store_scan scan = {};
	_cleanup_fd int dir = -1;
	int r;

	r = store_collect(folder, CACHE_STORE_ANYBODY, &scan, usage, &dir);
	if (r == 0 && (usage->bytes > limit || usage->entries > CACHE_STORE_ENTRIES_MAX))
		store_evict(&scan, dir, limit - limit / 10, CACHE_STORE_ENTRIES_MAX / 10 * 9,
			    usage);
	free(scan.files);
	return r == -ENOENT ? 0 : store_result(r);
}

int cache_store_clear(const char *folder, uint32_t uid, struct cache_usage *usage) {
	struct store_scan scan = {};
	_cleanup_fd int dir = -1;
	int r;

	r = store_collect(folder, uid, &scan, usage, &dir);
	for (size_t i = 0; r == 0 && i < scan.n; i++)
		store_remove(dir, scan.files[i].name);
	usage->removed = usage->entries;
	free(scan.files);
	return r == -ENOENT ? 0 : store_result(r);
}

int cache_store_list(const char *folder, uint32_t uid, size_t max, struct cache_item **itemsp,
		     size_t *np, struct cache_usage *usage) {
	struct store_scan scan = {};
	_cleanup_fd int dir = -1;
	struct cache_item *items = calloc(max ? max : 1, sizeof(*items));
	size_t n = 0;
	int r;

	r = items ? store_collect(folder, uid, &scan, usage, &dir) : -ENOMEM;
	for (size_t i = scan.n; r == 0 && i > 0 && n < max; i--) {
		const struct store_file *file = &scan.files[i - 1];
		_cleanup_fd int fd = store_open_file(dir, file->name);

		if (fd < 0 || cache_entry_read_header(&items[n].header, fd) ||
		    items[n].header.uid != file->uid)
			continue;
		items[n].bytes = file->bytes;
		items[n++].used = file->used / 1000000000;
	}
	free(scan.files);
	if (r < 0 && r != -ENOENT) {
		free(items);
		return store_result(r);
	}
	*itemsp = items;
	*np = n;
	return 0;
}
