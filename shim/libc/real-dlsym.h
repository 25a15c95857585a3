/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

typedef void *dlsym_function(void *handle, const char *name);

/*
 * The dlsym() of libc, or of the next library that has one. NULL: the process has no libdl.so.2,
 * and none can be loaded.
 */
dlsym_function *dlsym_find(void);

/* Calls it: the shim is the caller, on which RTLD_NEXT and RTLD_DEFAULT depend. */
void *dlsym_real(void *handle, const char *name);

/*
 * A function of libc by its name, where a program would find it first, or in the libraries that
 * were libc's parts before glibc 2.34, in whatever scope they are. NULL: the process does not have
 * it, or not yet; then dlerror() may speak of it.
 */
void *dlsym_libc(const char *name);

/* 31 for glibc 2.31. */
int libc_minor(void);
