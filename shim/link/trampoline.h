/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One trampoline for each function of the driver (driver/functions.h). Programs find them under the
 * functions' names (libcuda.c).
 *
 * If the process is not traced, a trampoline jumps to its target: our wrapper of that function,
 * else the driver's. It changes only one scratch register. If the process is traced it goes through
 * trace_call, which makes a frame of its own around the call (trace/trace-frame.h).
 */

#include "shim/driver/functions.h"

#if defined(__x86_64__)
#define TRAMPOLINE_STRIDE 64
#else
#define TRAMPOLINE_STRIDE 128
#endif

#ifndef __ASSEMBLER__

#include <stdbool.h>

/* Where the trampolines jump to. NULL: no driver has come yet, and no program has a trampoline. */
extern void *trampoline_targets[DRIVER_FUNCTION_COUNT] __attribute__((visibility("hidden")));

/* What programs call. */
void *trampoline_function(int index);
bool trampoline_is_ours(const void *function);

/* Does it call a wrapper of ours? */
bool trampoline_has_wrapper(int index);

/* What the driver has of that function, NULL for none: it is what is called from now on. */
void trampoline_set(int index, void *function);

#endif
