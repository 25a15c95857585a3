/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of wrappers share. */

#include "shim/link/driver.h"
#include "shim/link/symbols.h"
#include "shim/link/trampoline.h"

/*
 * Declares shim_NAME, which the trampoline of the function calls, and real_NAME, a pointer to the
 * driver's. That is NULL if the driver has no such function: then nobody calls shim_NAME
 * (trampoline_set()). It is read by REAL(NAME); an _Atomic one would be a barrier in each launch.
 */
#define REAL(name) __atomic_load_n(&real_##name, __ATOMIC_RELAXED)
#define WRAP(name, ...)                                   \
	static driver_result shim_##name(__VA_ARGS__);    \
	static driver_result (*real_##name)(__VA_ARGS__); \
	static driver_result shim_##name(__VA_ARGS__)

/* A row of a table of wrappers (trampoline.h). */
#define ENTRY(name) { FUNCTION_##name, (void *)shim_##name, (void **)&real_##name }
