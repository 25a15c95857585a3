/* SPDX-License-Identifier: Apache-2.0 */

/* What allocates nothing: the shim has it, too. */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

ssize_t file_read(int fd, void *buffer, size_t size) {
	size_t n = 0;

	while (n < size) {
		ssize_t got = read(fd, (char *)buffer + n, size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

ssize_t file_read_text(int folder, const char *path, char *text, size_t size) {
	int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : file_read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n;
}
