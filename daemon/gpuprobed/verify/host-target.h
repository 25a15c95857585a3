/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where a program on the host is attached, if its section does not say it, or says it relative to
 * the caller's folder. */

#include <stdbool.h>
#include <stddef.h>

struct bpf_link;
struct bpf_program;

#define HOST_TARGET_ERROR_SIZE 256

/*
 * The target of a program in `section` that the caller gives (NULL: none), with paths made absolute
 * by the caller's folder (NULL: unknown). 0 with *targetp, which is the caller's to free() and NULL
 * where libbpf is to do as the section says; 1 with one line in error; -ENOMEM.
 */
int host_target_resolve(const char *program, const char *section, const char *target,
			const char *folder, char **targetp,
			char error[static HOST_TARGET_ERROR_SIZE]);

/* Before the program is loaded: for kinds whose target the kernel has to know then. 0 or -errno. */
int host_target_prepare(struct bpf_program *program, const char *section, const char *target);

/* Attaches the program to the target, in place of bpf_program__attach(). NULL with errno. */
struct bpf_link *host_target_attach(struct bpf_program *program, const char *section,
				    const char *target);
