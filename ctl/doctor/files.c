/* SPDX-License-Identifier: Apache-2.0 */

/* Reads files for `gpuprobectl doctor` below the root folder that it examines. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/shim/preload.h"
#include "doctor.h"

#define READ_MAX ((size_t)16 << 20) /* more than the mappings of a process are */
#define READ_STEP   \
	((size_t)64 \
	 << 10) /* at a time: /proc/sys refuses to be asked for more than it could allocate */

void doctor_say(struct finding *finding, enum doctor_state state, const char *todo,
		const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->found, sizeof(finding->found), format, arguments);
	va_end(arguments);
	snprintf(finding->todo, sizeof(finding->todo), "%s", todo ?: "");
	finding->state = state;
}

static int open_in(const struct doctor *doctor, const char *path, int flags) {
	int fd = preload_open_in_root(doctor->root, path, flags);

	if (fd < 0)
		errno = -fd;
	return fd;
}

char *doctor_read(const struct doctor *doctor, const char *path) {
	int fd = open_in(doctor, path, O_RDONLY | O_NONBLOCK | O_NOCTTY), error = 0;
	char *text = fd < 0 ? NULL : malloc(READ_MAX + 2);
	ssize_t n = 0;
	size_t at = 0;

	if (fd < 0)
		return NULL;
	while (text && at < READ_MAX &&
	       (n = read(fd, text + at, READ_MAX - at < READ_STEP ? READ_MAX - at : READ_STEP)) > 0)
		at += (size_t)n;
	if (n < 0)
		error = errno;
	close(fd);
	if (!text || error) {
		free(text);
		errno = error ?: ENOMEM;
		return NULL;
	}
	text[at] = text[at + 1] = '\0';
	return text;
}

bool doctor_number(const struct doctor *doctor, const char *path, long *number) {
	char *text = doctor_read(doctor, path), *end = text;

	if (text) {
		errno = 0;
		*number = strtol(text, &end, 10);
	}
	free(text);
	return text && end != text;
}

bool doctor_stat(const struct doctor *doctor, const char *path, struct stat *status) {
	int fd = open_in(doctor, path, O_PATH), r;

	if (fd < 0)
		return false;
	r = fstat(fd, status);
	close(fd);
	return r == 0;
}

bool doctor_exists(const struct doctor *doctor, const char *path) {
	struct stat status;

	return doctor_stat(doctor, path, &status);
}

bool doctor_link(const struct doctor *doctor, const char *path, char target[static 4096]) {
	int fd = open_in(doctor, path, O_PATH | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, 4095);

	if (fd >= 0)
		close(fd);
	if (n < 1)
		return false;
	target[n] = '\0';
	return true;
}

void doctor_folder(const struct doctor *doctor, const char *path,
		   bool (*take)(const char *name, void *userdata), void *userdata) {
	int fd = open_in(doctor, path, O_RDONLY | O_DIRECTORY);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && !take(entry->d_name, userdata))
			break;
	if (folder)
		closedir(folder);
	else if (fd >= 0)
		close(fd);
}

/* The name of a file without links. */
static bool real_name(const struct doctor *doctor, const char *path, char name[static 256]) {
	int fd = open_in(doctor, path, O_PATH);
	char link[64], target[4096];
	ssize_t n;

	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, target, sizeof(target) - 1);
	close(fd);
	if (n < 1)
		return false;
	target[n] = '\0';
	snprintf(name, 256, "%.255s", strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	return true;
}

/* A path of the dynamic linker's cache that ends with /library: whatever its format, paths are
 * texts in it that end with a NUL. */
static bool find_cached(const struct doctor *doctor, const char *library, char path[static 4096],
			char name[static 256]) {
	int fd = open_in(doctor, "/etc/ld.so.cache", O_RDONLY);
	size_t n = 0, n_library = strlen(library) + 1;
	char *cache = fd < 0 ? NULL : malloc(READ_MAX + 1), *at;
	bool found = false;
	ssize_t got;

	while (cache && n < READ_MAX && (got = read(fd, cache + n, READ_MAX - n)) > 0)
		n += (size_t)got;
	if (fd >= 0)
		close(fd);
	if (!cache)
		return false;
	cache[n] = '\0';
	for (at = cache; !found && (at = memmem(at, n - (size_t)(at - cache), library, n_library));
	     at++) {
		const char *begin = memrchr(cache, '\0', (size_t)(at - cache));

		if (at == cache || at[-1] != '/' || !begin || begin[1] != '/')
			continue;
		snprintf(path, 4096, "%s", begin + 1);
		found = real_name(doctor, path, name);
	}
	free(cache);
	return found;
}

bool doctor_library(const struct doctor *doctor, const char *library, char path[static 4096],
		    char name[static 256]) {
	static const char *const folders[] = {
#ifdef __x86_64__
		"/usr/lib/x86_64-linux-gnu",
		"/lib/x86_64-linux-gnu",
#else
		"/usr/lib/aarch64-linux-gnu",
		"/lib/aarch64-linux-gnu",
#endif
		"/usr/lib64",
		"/lib64",
		"/usr/lib",
		"/lib",
		"/usr/local/nvidia/lib64",
		"/usr/lib/wsl/lib",
	};

	if (find_cached(doctor, library, path, name))
		return true;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, 4096, "%s/%s", folders[i], library);
		if (real_name(doctor, path, name))
			return true;
	}
	return false;
}

bool doctor_toolkit(const struct doctor *doctor, const char *file, char path[static 4096]) {
	const char *folders[] = { getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda",
				  "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit" };

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		if (!folders[i] || folders[i][0] != '/')
			continue;
		snprintf(path, 4096, "%s/%s", folders[i], file);
		if (doctor_exists(doctor, path))
			return true;
	}
	return false;
}
