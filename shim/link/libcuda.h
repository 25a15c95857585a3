/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Finds functions of the loaded driver itself, past the trampolines and every interposer. */

/* Its function of that number (trampoline.h); NULL: it has none. */
void *libcuda_function(int index);

/* The number of a function by its address, or TRAMPOLINE_NONE. */
int libcuda_index(const void *function);

/*
 * Looks for a driver that did not announce itself (arrival.c). For programs' calls of dlsym();
 * waits for a dlopen() that brings one.
 */
void libcuda_look(void);
