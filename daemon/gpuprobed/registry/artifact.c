/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes what workers made of images into a folder, for people (artifact.h).
 *
 * The files are written into a hidden folder that gets its name when they are complete. All is
 * relative to a descriptor of the store's folder, so that nobody who may rename that folder leads
 * us elsewhere.
 */

#include "artifact.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/log.h"
#include "daemon/gpuprobed/base/memfd.h"

#define ARTIFACT_NAME_MAX 64 /* bytes of a kernel's name */

struct artifact_store {
	uv_loop_t *loop;
	int folder;
	uint64_t last;
	bool warned;
};

/* What the thread works on. */
struct artifact_work {
	uv_work_t work;
	struct artifact_store *store;
	int text, image;
	uint64_t text_size, image_size;
	char hidden[40], name[40 + ARTIFACT_NAME_MAX];
	int result;
};

static void artifact_remove(int store, int folder, const char *name) {
	unlinkat(folder, "main.ptx", 0);
	unlinkat(folder, "out.fatbin", 0);
	unlinkat(store, name, AT_REMOVEDIR);
}

/* Removes what a daemon that was killed had not completed. */
static void artifact_clear(int store, const char *name) {
	const char *end = name + 1 + strspn(name + 1, "0123456789");
	_cleanup_fd int folder = -1;

	if (name[0] != '.' || end == name + 1 || strcmp(end, ".new") != 0)
		return;
	folder = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder >= 0)
		artifact_remove(store, folder, name);
}

/* The highest number of what is there already; what is not complete is removed. */
static uint64_t artifact_last(int folder) {
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint64_t last = 0;

	if (!dir) {
		fd_close(fd);
		return 0;
	}
	while ((entry = readdir(dir))) {
		char *end;
		unsigned long long n = strtoull(entry->d_name, &end, 10);

		if (isdigit((unsigned char)entry->d_name[0]) && *end == '-' && n > last &&
		    n < UINT32_MAX)
			last = n;
		artifact_clear(folder, entry->d_name);
	}
	closedir(dir);
	return last;
}

int artifact_store_new(struct artifact_store **storep, uv_loop_t *loop, const char *folder) {
	struct artifact_store *store;
	int fd;

	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	store = calloc(1, sizeof(*store));
	if (!store) {
		fd_close(fd);
		return -ENOMEM;
	}
	store->loop = loop;
	store->folder = fd;
	store->last = artifact_last(fd);
	*storep = store;
	return 0;
}

struct artifact_store *artifact_store_free(struct artifact_store *store) {
	if (!store)
		return NULL;
	fd_close(store->folder);
	free(store);
	return NULL;
}

/* A sealed memfd becomes a file. 0 or -errno. */
static int artifact_write(int folder, const char *name, int source, uint64_t size) {
	_cleanup_fd int fd = -1;
	const char *data;
	uint64_t done = 0;
	int r;

	fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = memfd_map(source, (size_t)size, (const void **)&data);
	if (r < 0)
		return r;
	while (r == 0 && done < size) {
		ssize_t n = write(fd, data + done, (size_t)(size - done));

		if (n >= 0)
			done += (uint64_t)n;
		else if (errno != EINTR)
			r = -errno;
	}
	munmap((void *)data, (size_t)size);
	if (r == 0 && close(fd) < 0) /* a quota may only show here */
		r = -errno;
	else if (r < 0)
		close(fd);
	fd = -1;
	return r;
}

static void artifact_on_work(uv_work_t *handle) {
	struct artifact_work *work = handle->data;
	int store = work->store->folder, r = 0;
	_cleanup_fd int folder = -1;

	if (mkdirat(store, work->hidden, 0700) == 0)
		folder = openat(store, work->hidden,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0) {
		work->result = -errno;
		return;
	}
	if (work->text >= 0)
		r = artifact_write(folder, "main.ptx", work->text, work->text_size);
	if (r == 0)
		r = artifact_write(folder, "out.fatbin", work->image, work->image_size);
	if (r == 0 && renameat(store, work->hidden, store, work->name) < 0)
		r = -errno;
	if (r < 0)
		artifact_remove(store, folder, work->hidden);
	work->result = r;
}

static void artifact_on_worked(uv_work_t *handle, int status) {
	struct artifact_work *work = handle->data;

	if (work->result < 0 && !work->store->warned)
		log_warning("artifacts cannot be kept: %s: %s", work->name,
			    strerror(-work->result));
	work->store->warned = work->result < 0;
	fd_close(work->text);
	fd_close(work->image);
	free(work);
}

void artifact_store_keep(struct artifact_store *store, const struct artifact *artifact) {
	struct artifact_work *work = calloc(1, sizeof(*work));
	char name[ARTIFACT_NAME_MAX + 1];

	if (!work)
		return;
	snprintf(name, sizeof(name), "%s", artifact->name[0] ? artifact->name : "image");
	for (char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
			*c = '_';
	store->last++;
	snprintf(work->hidden, sizeof(work->hidden), ".%llu.new", (unsigned long long)store->last);
	snprintf(work->name, sizeof(work->name), "%llu-%s", (unsigned long long)store->last, name);
	work->store = store;
	work->work.data = work;
	work->text_size = artifact->text_size;
	work->image_size = artifact->image_size;
	work->text = artifact->text < 0 ? -1 : fcntl(artifact->text, F_DUPFD_CLOEXEC, 3);
	work->image = fcntl(artifact->image, F_DUPFD_CLOEXEC, 3);
	if (work->image < 0 ||
	    uv_queue_work(store->loop, &work->work, artifact_on_work, artifact_on_worked) < 0) {
		fd_close(work->text);
		fd_close(work->image);
		free(work);
	}
}
