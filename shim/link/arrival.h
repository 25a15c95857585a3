/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define LIBCUDA "libcuda.so.1"

/*
 * libcuda.so.1 is in the process, relocated, and no object that uses it has begun: its functions
 * become ours (libcuda.c). The caller has ld.so's lock of dlopen(), or the program is just
 * starting. Keeps errno.
 */
void libcuda_arrived(void);
