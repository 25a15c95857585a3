/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sandbox: what a process that parses foreign bytes can still do once it is in.
 *
 * It can compute, allocate up to a limit, read and write the descriptors it holds or is sent, and
 * end. It cannot open a file (or, with read_files, only to read), make a socket, run a program,
 * make a process (or, with threads, only threads of its own), trace, or gain a privilege.
 *
 * With run_programs it is another one, for a process that runs a program which an operator has
 * named: that may read what the user may, write temporary files, start processes of its own, few,
 * and compute; it has no network, no privilege to gain, no process of others to look at or to
 * signal, and cannot open the daemon's files to others.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stat;

struct sandbox_options {
	uint64_t memory; /* bytes of address space */
	uint64_t file_size; /* bytes that a descriptor may be written to */
	uint32_t cpu_seconds; /* per job, see sandbox_job_begin(); 0: no limit */
	bool read_files; /* openat(2) for reading works; else it fails with EACCES */
	unsigned int threads; /* that it may make; 0: none */
	bool run_programs; /* see above */
	const int *keep; /* descriptors that stay open besides 0, 1, 2 */
	size_t n_keep;
};

/*
 * Enters the sandbox, for good. Threads that exist already get the same filter. Namespaces and the
 * like that the system does not grant are left out; privileges, limits and the system call filter
 * are not: any failure there is returned as -errno with *what naming the step.
 */
int sandbox_enter(const struct sandbox_options *options, const char **what);

/* fstat(2), in the sandbox, too: the C library's may be newfstatat(2), which is refused there. */
int sandbox_fstat(int fd, struct stat *status);

/* Starts the processor time of one job: SIGXCPU ends a process that uses more. 0 or -errno. */
int sandbox_job_begin(const struct sandbox_options *options);

/*
 * With run_programs, in the new process, a child of its supervisor: from now on it can neither
 * leave its process group nor send signals to processes older than its parent. 0 or -errno.
 */
int sandbox_stay_in_group(void);
