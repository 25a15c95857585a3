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
 * To whichever library of the process has it, or NULL. Where the loader knows of a function that it
 * is libc.so.6's, glibc before 2.30 ends the program that does not find it there, be it weak or
 * not; so of no version, and then of no library.
 */
#define UNVERSIONED(name) __asm__(".symver " #name ", " #name "@")
