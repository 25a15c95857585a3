/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the libcuda.so.1 that a process has mapped or would load (libcuda.h).
 *
 * A mapped file is opened through /proc/PID/map_files: that is the very file, whatever its path
 * means by now, in whichever container, deleted or hidden. Without the right to do that, by its
 * path in the process's root, if it is still the same inode. First as a path only: a FIFO or a
 * device would act on being opened.
 */

#include "libcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/file.h"

#include "daemon/gpuprobed/trace/sink/foreign.h"

#define ENVIRONMENT_MAX ((size_t)1 << 20)
#define CACHE_MAX ((size_t)16 << 20) /* /etc/ld.so.cache */
#define DELETED " (deleted)"
#define FOLDERS_MAX 64

bool libcuda_path_matches(const char *path, size_t n) {
	const char *slash = memrchr(path, '/', n);

	if (slash) {
		n -= (size_t)(slash + 1 - path);
		path = slash + 1;
	}
	return n >= strlen("libcuda.so") && !memcmp(path, "libcuda.so", strlen("libcuda.so")) &&
	       (n == strlen("libcuda.so") || path[strlen("libcuda.so")] == '.');
}

enum mount_kind {
	MOUNT_UNKNOWN,
	MOUNT_PLAIN,
	MOUNT_FUSE,
};

/* What a process (0: this one) knows of the mount that a file is on, or of another one of the same
 * device. */
static enum mount_kind find_mount(pid_t pid, const struct statx *status) {
	enum mount_kind kind = MOUNT_UNKNOWN;
	char path[64], *line = NULL;
	bool done = false;
	size_t size = 0;
	FILE *file;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	file = fopen(pid ? path : "/proc/self/mountinfo", "re");
	/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue" */
	while (file && !done && getline(&line, &size, file) > 0) {
		const char *type = strstr(line, " - ");
		unsigned int device_major, device_minor;
		uint64_t id;

		if (!type ||
		    sscanf(line, "%" SCNu64 " %*u %u:%u", &id, &device_major, &device_minor) != 3)
			continue;
		done = status->stx_mask & STATX_MNT_ID && id == status->stx_mnt_id;
		if (done || (device_major == status->stx_dev_major &&
			     device_minor == status->stx_dev_minor))
			kind = strncmp(type + 3, "fuse", 4) ? MOUNT_PLAIN : MOUNT_FUSE;
	}
	free(line);
	if (file)
		fclose(file);
	return kind;
}

/* Whether somebody may serve the file, for whose answers one would wait: also if nobody knows its
 * mount any more, as it was removed while in use. */
static bool is_served(pid_t pid, const struct statx *status) {
	enum mount_kind kind = find_mount(pid, status);

	if (kind == MOUNT_UNKNOWN && pid) /* of who has changed its root there is no list */
		kind = find_mount(0, status);
	return kind != MOUNT_PLAIN;
}

/* Opens for reading what a descriptor of a path (consumed) means, if it is a regular file that
 * nobody serves. */
static int reopen(int path_fd, pid_t pid) {
	struct statx status;
	char path[64];
	int fd = -1;

	if (path_fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	if (statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_INO | STATX_MNT_ID, &status) == 0 &&
	    S_ISREG(status.stx_mode) && !is_served(pid, &status))
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	close(path_fd);
	return fd;
}

/* Opens a path as a process would resolve it. */
static int open_in_root(pid_t pid, const char *path) {
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	char root_path[64];
	int root, fd;

	snprintf(root_path, sizeof(root_path), "/proc/%d/root", (int)pid);
	root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -1;
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	close(root);
	return reopen(fd, pid);
}

/* Opens a mapped file. */
static int open_mapped(pid_t pid, const struct foreign_mapping *mapping) {
	struct stat status;
	char link[96];
	int fd;

	snprintf(link, sizeof(link), "/proc/%d/map_files/%lx-%lx", (int)pid, mapping->start,
		 mapping->end);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd >= 0)
		return reopen(fd, pid);
	fd = open_in_root(pid, mapping->path);
	if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_ino != mapping->inode)) {
		close(fd);
		return -1;
	}
	return fd;
}

struct finding {
	pid_t pid;
	uint64_t last_inode; /* neighbours are one file's */
	int n;
	libcuda_found_fn found;
	void *userdata;
};

static bool find_in_mapping(void *userdata, const struct foreign_mapping *mapping) {
	struct finding *finding = userdata;
	char *path = mapping->path;
	size_t n = strlen(path);
	int fd;

	if (n > strlen(DELETED) && !strcmp(path + n - strlen(DELETED), DELETED))
		path[n -= strlen(DELETED)] = '\0';
	if (*path != '/' || !libcuda_path_matches(path, n) || mapping->inode == finding->last_inode)
		return true;
	finding->last_inode = mapping->inode;
	finding->n++;
	fd = open_mapped(finding->pid, mapping);
	if (fd >= 0)
		finding->found(finding->userdata, fd, path);
	return true;
}

int libcuda_find_mapped(pid_t pid, libcuda_found_fn found, void *userdata) {
	struct finding finding = { .pid = pid, .found = found, .userdata = userdata };

	return foreign_each_mapping(pid, find_in_mapping, &finding) ?: finding.n;
}

/* Looks into the folders of a search path. */
static void find_in_folders(pid_t pid, char *folders, libcuda_found_fn found, void *userdata) {
	char path[PATH_MAX], *save = NULL;
	size_t n = 0;

	for (const char *folder = strtok_r(folders, ":;", &save); folder && n < FOLDERS_MAX;
	     folder = strtok_r(NULL, ":;", &save), n++) {
		int fd;

		if (folder[0] != '/' ||
		    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder) >= (int)sizeof(path))
			continue;
		fd = open_in_root(pid, path);
		if (fd >= 0)
			found(userdata, fd, path);
	}
}

int libcuda_find_environment(pid_t pid, libcuda_found_fn found, void *userdata) {
	char *bytes;
	size_t n;

	bytes = foreign_read(pid, "environ", ENVIRONMENT_MAX, &n);
	if (!bytes)
		return -errno;
	for (size_t at = 0; at < n; at += strlen(bytes + at) + 1)
		if (!strncmp(bytes + at, "LD_LIBRARY_PATH=", strlen("LD_LIBRARY_PATH="))) {
			find_in_folders(pid, bytes + at + strlen("LD_LIBRARY_PATH="), found,
					userdata);
			break;
		}
	free(bytes);
	return 0;
}

static void find_path(const char *path, libcuda_found_fn found, void *userdata) {
	int fd = reopen(open(path, O_PATH | O_CLOEXEC), 0);

	if (fd >= 0)
		found(userdata, fd, path);
}

void libcuda_find_usual(libcuda_found_fn found, void *userdata) {
	static const char *const usual[] = {
#ifdef __x86_64__
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
#else
		"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
		"/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
		"/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
#endif
		"/usr/lib64/libcuda.so.1",
		"/usr/lib/libcuda.so.1",
		"/usr/local/lib/libcuda.so.1",
		"/usr/local/nvidia/lib64/libcuda.so.1",
		"/usr/local/cuda/compat/libcuda.so.1",
		"/usr/lib/wsl/lib/libcuda.so.1",
		"/run/opengl-driver/lib/libcuda.so.1",
	};
	char *cache = NULL;
	size_t n = 0;

	file_load_path(AT_FDCWD, "/etc/ld.so.cache", true, CACHE_MAX, &cache, &n);

	/* The cache's paths are NUL-terminated texts, whatever its format. */
	for (char *at = cache, *name;
	     cache && (name = memmem(at, n - (size_t)(at - cache), "/libcuda.so.1",
				     sizeof("/libcuda.so.1")));
	     at = name + 1) {
		const char *start = memrchr(cache, '\0', (size_t)(name - cache));

		if (start && start[1] == '/')
			find_path(start + 1, found, userdata);
	}
	free(cache);
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		find_path(usual[i], found, userdata);
}
