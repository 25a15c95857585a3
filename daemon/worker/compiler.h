/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CUDA compiler in this process: nvJitLink, loaded at run time, because a machine may have none. What is used of its
 * interface is declared in compiler.c.
 */

#include <stddef.h>
#include <stdint.h>

enum compiler_error {
	_COMPILER_E_SUCCESS,
	COMPILER_E_NONE, /* there is no nvJitLink on this machine */
	COMPILER_E_ARCH, /* it does not know this architecture */
	COMPILER_E_OPTION, /* it does not take one of the options */
	COMPILER_E_SOURCE, /* it does not take the PTX: see the log */
	COMPILER_E_INTERNAL, /* it failed for a reason of its own */
};

struct compiler; /* private */

/*
 * Loads the library: by its name, then from `toolkit` (may be NULL), lib64. *why (static, or the linker's words) says
 * what was missing if the result is COMPILER_E_NONE.
 */
int compiler_new(struct compiler **out, const char *toolkit, const char **why);
struct compiler *compiler_free(struct compiler *compiler);

/* nvJitLink's version, 1300 for 13.0. */
unsigned int compiler_version(const struct compiler *compiler);

/*
 * PTX text to a cubin for `arch` ("sm_90a"). *cubin and *log are the caller's to free(); *log (the compiler's words, or
 * NULL) is set on failure too.
 */
int compiler_compile(struct compiler *compiler, const char *ptx, size_t length, const char *arch,
		     const char *const *options, size_t n_options, uint8_t **cubin, size_t *size, char **log);
