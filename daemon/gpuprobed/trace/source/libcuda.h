/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that are libcuda.so.1: finding them, and the functions that they export. The files are
 * anybody's: nothing in them is believed. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define LIBCUDA_FUNCTIONS_MAX 3072
#define LIBCUDA_NAME_MAX 96

enum {
	_LIBCUDA_E_SUCCESS,
	LIBCUDA_E_INVALID, /* no ELF file of this machine, or one that exports no function of
			      libcuda */
};

struct libcuda_function {
	const char *name;
	uint64_t offset,
		entry; /* of the site in the file, and of the function's first instruction */
	bool stepped; /* there is no site that the kernel emulates */
};

/* A file. */
struct libcuda {
	uint64_t device, inode, size;
	struct timespec changed; /* ctime */
	int fd;
	char *path; /* as the one who mapped it sees it, printable: to be shown */
	size_t n;
	struct libcuda_function *functions; /* one for each site */
	char *names;
};

/* Reads the file. Takes the descriptor, also when it fails. */
int libcuda_new(struct libcuda **libraryp, int fd, const char *path);
struct libcuda *libcuda_free(struct libcuda *library);

/* Whether a descriptor (with what fstat(2) says of it) is that file: to the kernel's probes, which
 * are in the file below those of overlays. */
struct stat;
bool libcuda_is_file(const struct libcuda *library, int fd, const struct stat *status);

/* Finds the site of a function that is not exported. 0, LIBCUDA_E_INVALID: none begins there, or
 * negative errno. */
int libcuda_site(const struct libcuda *library, uint64_t entry, uint64_t *offsetp);

/* Whether a path's last part is the name of a libcuda. */
bool libcuda_path_matches(const char *path, size_t n);

/* One that was found: takes the descriptor. */
typedef void (*libcuda_found_fn)(void *userdata, int fd, const char *path);

/* What a process has mapped; returns how many, or -errno: -ETIMEDOUT or -EBUSY, it does not answer
 * (foreign.h). Files on FUSE, and on mounts that nobody knows, are left out: whoever serves them
 * could keep the daemon waiting. */
int libcuda_find_mapped(pid_t pid, libcuda_found_fn found, void *userdata);

/* Where the process's loader would find one: LD_LIBRARY_PATH of its environment, in its root. 0 or
 * -errno. */
int libcuda_find_environment(pid_t pid, libcuda_found_fn found, void *userdata);

/* Where this host's loader would find one: its cache, and the usual places. */
void libcuda_find_usual(libcuda_found_fn found, void *userdata);
