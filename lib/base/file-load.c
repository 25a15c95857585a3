/* SPDX-License-Identifier: Apache-2.0 */

/* A buffer grows with what was read, not with what is expected: /proc/sys refuses to be asked for
 * more than the kernel could allocate. */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_SIZE ((size_t)4096)

/* Room for what the system says there is, and for one byte more: without it the end is not seen. */
static size_t first_size(int fd, size_t max) {
	struct stat status;
	size_t size = FIRST_SIZE;

	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
		size = (uint64_t)status.st_size < max ? (size_t)status.st_size + 1 : max;
	return size < max ? size : max;
}

int file_load_start(int fd, size_t max, char **bytesp, size_t *np) {
	size_t size = first_size(fd, max), n = 0;
	char *bytes = NULL, *grown;
	ssize_t got;

	for (;;) {
		grown = realloc(bytes, size + 1);
		got = grown ? file_read(fd, grown + n, size - n) : -ENOMEM;
		bytes = grown ?: bytes;
		if (got < 0) {
			free(bytes);
			return (int)got;
		}
		n += (size_t)got;
		if (n < size || size == max)
			break;
		size = size < max / 2 ? 2 * size : max;
	}
	bytes[n] = '\0';
	*bytesp = bytes;
	*np = n;
	return 0;
}

int file_load(int fd, size_t max, char **bytesp, size_t *np) {
	char *bytes;
	size_t n;
	int r;

	r = file_load_start(fd, max + 1, &bytes, &n);
	if (r < 0)
		return r;
	if (n > max) {
		free(bytes);
		return -EFBIG;
	}
	*bytesp = bytes;
	*np = n;
	return 0;
}

int file_load_path(int folder, const char *path, bool regular, size_t max, char **bytesp,
		   size_t *np) {
	int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0)), r = 0;
	struct stat status;

	if (fd < 0)
		return -errno;
	if (regular && fstat(fd, &status) < 0)
		r = -errno;
	else if (regular && !S_ISREG(status.st_mode))
		r = -ENOTSUP;
	else
		r = file_load(fd, max, bytesp, np);
	close(fd);
	return r;
}
