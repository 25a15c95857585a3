/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of driver.h with real system calls: opens NVIDIA's device files, and calls ioctl() and
 * mmap() on them.
 */

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define TRIES 1000

static int kernel_open(void *userdata, const char *path) {
	const int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int kernel_close(void *userdata, int fd) {
	return close(fd);
}

/* The driver's calls may be interrupted, and are made again; one that is so for ever has failed. */
static int kernel_ioctl(void *userdata, int fd, unsigned long command, void *argument) {
	int r, tries = 0;

	do
		r = ioctl(fd, command, argument);
	while (r < 0 && (errno == EINTR || errno == EAGAIN) && ++tries < TRIES);
	return r < 0 ? -errno : r;
}

static void *kernel_map(void *userdata, int fd, size_t size) {
	void *address = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	return address == MAP_FAILED ? NULL : address;
}

static void kernel_unmap(void *userdata, void *address, size_t size) {
	munmap(address, size);
}

const struct rm_driver rm_driver_kernel = { kernel_open, kernel_close, kernel_ioctl,
					    kernel_map,  kernel_unmap, NULL };
