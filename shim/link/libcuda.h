/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* The driver that is loaded, as it is: past our trampolines and every interposer. */

/* Its function of that number (trampoline.h); NULL: it has none. */
void *libcuda_function(int index);

/* The number of a function by its address, or TRAMPOLINE_NONE. */
int libcuda_index(const void *function);

/* Looks for a driver of which nobody has told (arrival.c). For programs' calls of dlsym(); waits
 * for a dlopen() that brings one. */
void libcuda_look(void);
