/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of wrappers share. */

#include "driver.h"
#include "symbols.h"
#include "trampoline.h"

/* Finds what a wrapper calls; keeps errno. */
void entry_find_real(void **real, const char *name);

/*
 * Declares shim_NAME, which the trampoline of the function calls, and real_NAME, a function pointer
 * that is found when it is first used, by several threads perhaps, which find the same, for programs
 * that link libcuda.so.1. If there is no such function the wrapper answers CUDA_ERROR_NOT_FOUND.
 * It is read by REAL(NAME); an _Atomic one would be a barrier in each launch.
 */
#define REAL(name) __atomic_load_n(&real_##name, __ATOMIC_RELAXED)
#define WRAP(name, ...)                                                    \
	static driver_result shim_##name(__VA_ARGS__);                     \
	static driver_result (*real_##name)(__VA_ARGS__);                  \
	static inline __attribute__((always_inline)) int have_##name(void) \
	{                                                                  \
		if (__builtin_expect(!REAL(name), 0))                      \
			entry_find_real((void **)&real_##name, #name);     \
		return REAL(name) != NULL;                                 \
	}                                                                  \
	static driver_result shim_##name(__VA_ARGS__)

/* A row of a table of wrappers (trampoline.h). */
#define ENTRY(name) { FUNCTION_##name, (void *)shim_##name, (void **)&real_##name }
