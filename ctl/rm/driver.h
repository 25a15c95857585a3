/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system calls that a client of the driver makes, as a table: tests answer them themselves, the
 * diagnostic prints them. */

#include <stddef.h>

struct rm_driver {
	/* All return what the system call does, or negative errno. */
	int (*open)(void *userdata, const char *path);
	int (*close)(void *userdata, int fd);
	int (*ioctl)(void *userdata, int fd, unsigned long command, void *argument);
	/* Reads only, shared. NULL and errno: failed. */
	void *(*map)(void *userdata, int fd, size_t size);
	void (*unmap)(void *userdata, void *address, size_t size);
	void *userdata;
};

extern const struct rm_driver rm_driver_kernel;
