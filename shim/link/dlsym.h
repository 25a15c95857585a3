/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* libc's, or that of the next library. To it the shim calls, which RTLD_NEXT and RTLD_DEFAULT
 * depend on. */
void *dlsym_real(void *handle, const char *name);

/*
 * A function of libc by its name, where a program would find it first, or in the libraries that
 * were libc's parts before glibc 2.34, in whatever scope they are. NULL: the process has it not, or
 * not yet; dlerror() may speak of it.
 */
void *dlsym_libc(const char *name);

/* 31 for glibc 2.31. */
int libc_minor(void);

/* A name that may be a function's of the driver: "cu" and a capital letter. */
int dlsym_is_of_interest(const char *name);
