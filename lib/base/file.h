/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files that are read whole. Sizes that the system tells are only a hint: files of /proc have none,
 * and others may change meanwhile. Errors are negative errno.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads to the end of the file, at most `size` bytes. Returns how many, or -errno. Allocates
 * nothing, as does file_read_text(). */
ssize_t file_read(int fd, void *buffer, size_t size);

/* Reads a small file in a folder (or AT_FDCWD) as text: its first size - 1 bytes at most, and a NUL
 * behind them, even if it cannot be read. Returns the length, or -errno. */
ssize_t file_read_text(int folder, const char *path, char *text, size_t size);

/* Reads to the end of the file. A NUL is behind the bytes; free *bytesp. 0; -EFBIG: there are more
 * than `max`; -ENOMEM; -errno. */
int file_load(int fd, size_t max, char **bytesp, size_t *np);

/* The same, of a file in a folder (or AT_FDCWD). -ENOTSUP: it is to be a regular one and is not. */
int file_load_path(int folder, const char *path, bool regular, size_t max, char **bytesp,
		   size_t *np);

/* Reads the first `max` bytes, or all that there are. 0 or as file_load(). */
int file_load_start(int fd, size_t max, char **bytesp, size_t *np);
