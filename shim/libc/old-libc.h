/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Binds functions that glibc has in another library, or under another version, since some release
 * after 2.17 (old-libc.c).
 */

/* The version of all that glibc had when it came to the architecture. */
#if defined(__x86_64__)
#define OLDEST_VERSION "GLIBC_2.2.5"
#else
#define OLDEST_VERSION "GLIBC_2.17"
#endif

#define OLDEST(name) __asm__(".symver " #name ", " #name "@" OLDEST_VERSION)

/*
 * To any library of the process that has the function, or NULL. With a version the loader would
 * look in libc.so.6 alone, and glibc before 2.30 would end the program if it is not there, weak or
 * not.
 */
#define UNVERSIONED(name) __asm__(".symver " #name ", " #name "@")
