/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that travels between processes: sealed memfds. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The seals of a memfd that no process can change any more. */
#define MEMFD_SEALS_FINAL (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
/* What a foreign memfd must carry at least before its bytes are looked at. */
#define MEMFD_SEALS_INPUT (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Errors are negative errno. fd_close() accepts -1 and always returns -1. */
int fd_close(int fd);

/* A cleanup attribute: _cleanup_fd int fd = -1; */
static inline void fd_cleanup(int *fdp) {
	fd_close(*fdp);
}
#define _cleanup_fd __attribute__((cleanup(fd_cleanup)))

/* A new empty memfd. The descriptor, or -errno. */
int memfd_new(const char *name);

/* A new memfd with these bytes, sealed for good. The descriptor, or -errno. */
int memfd_new_sealed(const char *name, const void *data, size_t size);

/*
 * Seals a memfd that another process filled, for good. 0; -EBUSY if it is still mapped writable; or
 * -errno.
 */
int memfd_seal(int fd);

/*
 * Whether fd is a memfd of exactly this size that nobody can change. 0, or -EINVAL with one line in
 * *whyp, which is constant.
 */
int memfd_check(int fd, uint64_t size, const char **whyp);

/*
 * Whether the memfd has holes: bytes without memory behind them. Reading a hole through a mapping
 * allocates memory, charged to the reader, until the last descriptor is closed. So call this before
 * you map a memfd that another user sent. The answer stays true for a sealed memfd. The time that
 * it takes grows with the size.
 */
bool memfd_has_holes(int fd, uint64_t size);

/* Size in bytes. 0 or -errno. */
int memfd_size(int fd, uint64_t *sizep);

/* Maps a sealed memfd to read; munmap() takes it back. 0 or -errno. */
int memfd_map(int fd, size_t size, const void **datap);
