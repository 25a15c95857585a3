/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The CUDA compiler as the workers use it (compiler.h): chooses a backend, compiler-jitlink.c or
 * compiler-ptxcompiler.c, and passes calls to it.
 */

#include "compiler-backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Threads cost memory and a little time of their own. The code is the same, so no cache needs to
 * know. */
#define SPLIT_LENGTH (64 * 1024)

struct compiler {
	const struct compiler_backend *backend;
	void *library;
	void *state; /* owned */
	unsigned int threads;
	char name[48];
};

static const struct compiler_backend *const backends[] = { &compiler_backend_ptxcompiler,
							   &compiler_backend_jitlink };

int compiler_new(struct compiler **out, const char *which, const char *modules,
		 const char *toolkit) {
	const int automatic = !strcmp(which, "auto");
	int known = automatic || !strcmp(which, "none");
	struct compiler *compiler;

	compiler = calloc(1, sizeof(*compiler));
	if (!compiler)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
		unsigned int major, minor;
		int r;

		if (!automatic && strcmp(which, backends[i]->which))
			continue;
		known = 1;
		r = backends[i]->load(&compiler->library, &compiler->state, &major, &minor, modules,
				      toolkit);
		if (r < 0) {
			free(compiler);
			return r;
		}
		if (r)
			continue;
		compiler->backend = backends[i];
		snprintf(compiler->name, sizeof(compiler->name), "%s %u.%u", backends[i]->name,
			 major, minor);
		*out = compiler;
		return 0;
	}
	free(compiler);
	return known ? COMPILER_E_NONE : -EINVAL;
}

struct compiler *compiler_free(struct compiler *compiler) {
	if (!compiler)
		return NULL;
	free(compiler->state);
	dlclose(compiler->library);
	free(compiler);
	return NULL;
}

unsigned int compiler_use_threads(struct compiler *compiler, unsigned int threads) {
	unsigned int before = compiler->threads;

	compiler->threads = threads;
	return before;
}

const char *compiler_name(const struct compiler *compiler) {
	return compiler->name;
}

bool compiler_makes_patches(const struct compiler *compiler) {
	return compiler->backend == &compiler_backend_ptxcompiler;
}

int compiler_compile(struct compiler *compiler, const char *ptx, size_t length, const char *arch,
		     const char *const *options, size_t n_options, uint8_t **cubin, size_t *size,
		     char **log) {
	const char *all[COMPILER_OPTIONS_MAX];
	struct compiler_request request = {
		.ptx = ptx,
		.length = length,
		.arch = arch,
		.options = all,
		.n_options = n_options,
	};
	char split[32];
	int r;

	*log = NULL;
	if (n_options + 1 >= COMPILER_OPTIONS_MAX)
		return COMPILER_E_OPTION;
	if (n_options)
		memcpy(all, options, n_options * sizeof(*all));
	if (compiler->threads > 1 && length >= SPLIT_LENGTH) {
		snprintf(split, sizeof(split), COMPILER_SPLIT "=%u", compiler->threads);
		all[request.n_options++] = split;
	}
	r = compiler->backend->compile(compiler->state, &request);
	*log = request.log;
	if (r)
		return r;
	*cubin = request.cubin;
	*size = request.size;
	return 0;
}
