/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Replaces what cuGetProcAddress found by a trampoline, if it is a function of the driver. version,
 * flags: as cuGetProcAddress got them. by_driver: it was the driver's cuGetProcAddress, not one of
 * another interposer.
 */
void symbols_swap(const char *name, void **found, int version, uint64_t flags, int by_driver);

/*
 * Whom a program that links libcuda.so.1 would call if we were not there: the next library with
 * that symbol, else the driver. NULL if there is none.
 */
void *symbols_next(const char *name);

/* Does it lie in the driver that is loaded now? */
bool symbols_is_driver(const void *function);

/*
 * Whom a library outside of the global scope would call then, which has that function itself, or
 * brought it along. NULL if there is none, or it is ours.
 */
void *symbols_local(const char *name, const void *caller);
