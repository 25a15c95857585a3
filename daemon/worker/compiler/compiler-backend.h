/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What compiler.c and its backends share. */

#include "compiler.h"

#define COMPILER_OPTIONS_MAX 64
#define COMPILER_LOG_MAX (1024 * 1024)
#define COMPILER_NEWER_PTX \
	"Unsupported .version" /* in the log, of PTX that is newer than the compiler */

struct compiler_request {
	const char *ptx;
	size_t length;
	const char *arch;
	const char *const *options;
	size_t n_options; /* < COMPILER_OPTIONS_MAX */
	/* Out. */
	uint8_t *cubin;
	size_t size;
	char *log;
};

struct compiler_backend {
	const char *which; /* "nvjitlink" */
	const char *name; /* "nvJitLink" */
	/* Loads the library and fills in *state (one malloc()ed block, freed by the caller), or
	 * COMPILER_E_NONE. */
	int (*load)(void **library, void **state, unsigned int *major, unsigned int *minor,
		    const char *modules, const char *toolkit);
	int (*compile)(void *state, struct compiler_request *request);
};

extern const struct compiler_backend compiler_backend_ptxcompiler;
extern const struct compiler_backend compiler_backend_jitlink;
