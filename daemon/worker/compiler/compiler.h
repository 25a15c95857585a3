/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CUDA compiler in this process, loaded at run time, because a machine may have none.
 *
 * nvPTXCompiler: ptxas as a library. NVIDIA gives it away as a static library, so it comes as a
 * module of ours (libgpuprobe-ptxcompiler.so), which is built where that library is. It compiles
 * whole programs.
 *
 * nvJitLink: in every toolkit and in PyTorch's wheels. It compiles PTX as relocatable code,
 * whatever it is told: a probe that is called is then called by the full convention (24 registers
 * and a stack), and is never inlined. So it is the second choice.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum compiler_error {
	_COMPILER_E_SUCCESS,
	COMPILER_E_NONE, /* there is no such compiler on this machine */
	COMPILER_E_NEWER, /* it does not know this architecture, or PTX of this version */
	COMPILER_E_OPTION, /* it does not take one of the options */
	COMPILER_E_SOURCE, /* it does not take the PTX: see the log */
	COMPILER_E_INTERNAL, /* it failed for a reason of its own */
};

struct compiler; /* private */

#define COMPILER_SPLIT "--split-compile" /* option: the number of threads */

/*
 * Loads a compiler. `which` is "auto", "nvptxcompiler", "nvjitlink" or "none" (anything else:
 * -EINVAL). nvJitLink is looked for by its name, then in `toolkit` (may be NULL); the module in
 * `modules` (may be NULL).
 */
int compiler_new(struct compiler **out, const char *which, const char *modules,
		 const char *toolkit);
struct compiler *compiler_free(struct compiler *compiler);

/* Can it make patches for the sanitizer engine? nvJitLink cannot: what it compiles is always to be
 * linked. */
bool compiler_makes_patches(const struct compiler *compiler);

/*
 * Sets the number of threads that compile large texts; 1 at first. Returns the number before.
 * nvPTXCompiler aborts the process if a thread other than the caller's fails to make code.
 */
unsigned int compiler_use_threads(struct compiler *compiler, unsigned int threads);

/* "nvJitLink 13.0" */
const char *compiler_name(const struct compiler *compiler);

/*
 * PTX text (a NUL follows it) to a cubin for `arch` ("sm_90a"). Options are ptxas's long ones:
 * "--maxrregcount=32". *cubin and *log are the caller's to free(); *log (the compiler's words, or
 * NULL) is set on failure too; what "--verbose" tells of is in it on success.
 */
int compiler_compile(struct compiler *compiler, const char *ptx, size_t length, const char *arch,
		     const char *const *options, size_t n_options, uint8_t **cubin, size_t *size,
		     char **log);
