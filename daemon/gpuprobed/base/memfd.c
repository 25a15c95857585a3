/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes, seals and checks memfds (memfd.h). Foreign memory is read only if its seals say that it
 * can neither shrink (SIGBUS) nor change (the bytes that were checked are the bytes that are used).
 * Only memfds have seals, so this check also excludes devices, sockets and files on slow disks.
 */

#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int fd_close(int fd) {
	if (fd >= 0) {
		int saved = errno;

		close(fd);
		errno = saved;
	}
	return -1;
}

int memfd_new(const char *name) {
	int fd;

	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

int memfd_new_sealed(const char *name, const void *data, size_t size) {
	_cleanup_fd int fd = -1;
	size_t done = 0;
	int r;

	fd = memfd_new(name);
	if (fd < 0)
		return fd;
	while (done < size) {
		ssize_t n = pwrite(fd, (const char *)data + done, size - done, (off_t)done);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		done += (size_t)n;
	}
	r = memfd_seal(fd);
	if (r < 0)
		return r;
	r = fd;
	fd = -1;
	return r;
}

int memfd_seal(int fd) {
	return fcntl(fd, F_ADD_SEALS, MEMFD_SEALS_FINAL) < 0 ? -errno : 0;
}

int memfd_check(int fd, uint64_t size, const char **whyp) {
	struct statfs system;
	struct stat status;
	int seals;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0) {
		*whyp = "the descriptor is not a memfd";
		return -EINVAL;
	}
	if ((seals & MEMFD_SEALS_INPUT) != MEMFD_SEALS_INPUT) {
		*whyp = "the memfd is not sealed";
		return -EINVAL;
	}
	if (fstatfs(fd, &system) < 0 || system.f_type != TMPFS_MAGIC) {
		*whyp = "the memfd is of huge pages";
		return -EINVAL;
	}
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
	    (uint64_t)status.st_size != size) {
		*whyp = "the memfd has another size than the message says";
		return -EINVAL;
	}
	return 0;
}

bool memfd_has_holes(int fd, uint64_t size) {
	return lseek(fd, 0, SEEK_HOLE) != (off_t)size;
}

int memfd_size(int fd, uint64_t *sizep) {
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	*sizep = (uint64_t)status.st_size;
	return 0;
}

int memfd_map(int fd, size_t size, const void **datap) {
	void *data;

	data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	*datap = data;
	return 0;
}
