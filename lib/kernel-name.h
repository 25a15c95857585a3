/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernel names as operators write them, and patterns that match kernels: "Kernel names" in job.md.
 */

#include <stdbool.h>
#include <stddef.h>

struct kernel_name {
	const char *mangled; /* borrowed */
	/* Owned; NULL if the name is not a mangled one. */
	char *demangled; /* vectorAdd(float const*, int) */
	char *untagged; /* the same without ABI tags; NULL: there are none */
	char *qualified; /* without parameters and return type: ns::kernel<float> */
	char *plain; /* without template arguments, and without the hash of a Rust name: ns::kernel
		      */
	bool tried;
};

/* The name is demangled when it is first needed. `mangled` must outlive *name. */
void kernel_name_init(struct kernel_name *name, const char *mangled);
void kernel_name_deinit(struct kernel_name *name);

/* Fills in what else the kernel is called. 0 or -ENOMEM. */
int kernel_name_demangle(struct kernel_name *name);

/* 1: the pattern means this kernel, 0: it does not, -ENOMEM. */
int kernel_name_match(struct kernel_name *name, const char *pattern);

/*
 * Writes a short name that matches this kernel (and others of its template): ns::kernel. Does not
 * demangle, which may take gigabytes. False: it would not fit into `size` bytes.
 */
bool kernel_name_short(const char *mangled, char *text, size_t size);
