/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of wrappers share. */

#include "shim/driver/driver.h"
#include "shim/driver/functions.h"

/* A driver function that has more than a trampoline: what is called in the driver's place. */
struct wrapper {
	int index;
	void *function; /* ours */
	void **real; /* what it calls: NULL if the driver does not have it */
};

/*
 * Defines shim_NAME, which the trampoline of the function calls, declares real_NAME, a pointer to
 * the driver's, and puts both into the section `wrappers` (link/trampoline.c). real_NAME is NULL if
 * the driver has no such function: then nobody calls shim_NAME. It is read by REAL(NAME); an
 * _Atomic one would be a barrier in each launch.
 */
#define REAL(name) __atomic_load_n(&real_##name, __ATOMIC_RELAXED)
#define WRAP(name, ...)                                                                 \
	static driver_result shim_##name(__VA_ARGS__);                                  \
	static driver_result (*real_##name)(__VA_ARGS__);                               \
	static const struct wrapper wrapper_##name WRAPPER = { FUNCTION_##name,         \
							       (void *)shim_##name,     \
							       (void **)&real_##name }; \
	static driver_result shim_##name(__VA_ARGS__)
/* One lies behind the other: with an alignment of its own none is moved to a larger one. */
#define WRAPPER __attribute__((used, section("wrappers"), aligned(__alignof__(struct wrapper))))
