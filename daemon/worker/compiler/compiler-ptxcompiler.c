/* SPDX-License-Identifier: Apache-2.0 */

/* The backend of compiler.c that uses nvPTXCompiler, through libgpuprobe-ptxcompiler.so. */

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler-backend.h"
#include "ptxcompiler-module.h"

static int load(void **library, void **state, unsigned int *major, unsigned int *minor,
		const char *modules, const char *toolkit) {
	const struct ptxcompiler_table *table;
	struct ptxcompiler_table *copy;
	char path[4096];
	void *opened;

	if (!modules)
		return COMPILER_E_NONE;
	snprintf(path, sizeof(path), "%s/%s", modules, PTXCOMPILER_MODULE);
	opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!opened)
		return COMPILER_E_NONE;
	table = dlsym(opened, PTXCOMPILER_TABLE);
	copy = malloc(sizeof(*copy));
	if (!table || !copy || table->get_version(major, minor)) {
		free(copy);
		dlclose(opened);
		return copy ? COMPILER_E_NONE : -ENOMEM;
	}
	*copy = *table;
	*library = opened;
	*state = copy;
	return 0;
}

/* The words about what went wrong, or about what was made. */
static char *read_log(const struct ptxcompiler_table *table, nvPTXCompilerHandle handle,
		      bool failed) {
	size_t size = 0;
	char *log;

	if ((failed ? table->get_log_size : table->get_info_size)(handle, &size) || !size ||
	    size > COMPILER_LOG_MAX)
		return NULL;
	log = calloc(1, size + 1);
	if (log && (failed ? table->get_log : table->get_info)(handle, log)) {
		free(log);
		log = NULL;
	}
	return log;
}

static int read_program(const struct ptxcompiler_table *table, nvPTXCompilerHandle handle,
			struct compiler_request *request) {
	uint8_t *program;
	size_t size;

	if (table->get_program_size(handle, &size) || !size)
		return COMPILER_E_INTERNAL;
	program = malloc(size);
	if (!program)
		return -ENOMEM;
	if (table->get_program(handle, program)) {
		free(program);
		return COMPILER_E_INTERNAL;
	}
	request->cubin = program;
	request->size = size;
	return 0;
}

/* An unknown architecture is a wrong value of an option to it, and newer PTX a wrong text, known by
 * their words alone. */
static int from_result(int result, const char *log) {
	switch (result) {
	case NVPTXCOMPILE_SUCCESS:
		return 0;
	case NVPTXCOMPILE_ERROR_COMPILATION_FAILURE:
		return log && (strstr(log, "'gpu-name'") || strstr(log, COMPILER_NEWER_PTX))
			       ? COMPILER_E_NEWER
			       : COMPILER_E_SOURCE;
	case NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION:
		return COMPILER_E_NEWER;
	case NVPTXCOMPILE_ERROR_INVALID_INPUT:
		return COMPILER_E_SOURCE;
	case NVPTXCOMPILE_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	}
	return COMPILER_E_INTERNAL;
}

static int compile(void *state, struct compiler_request *request) {
	const struct ptxcompiler_table *table = state;
	const char *options[COMPILER_OPTIONS_MAX];
	nvPTXCompilerHandle handle;
	char arch[48];
	int r;

	snprintf(arch, sizeof(arch), "--gpu-name=%s", request->arch);
	options[0] = arch;
	for (size_t i = 0; i < request->n_options; i++)
		options[i + 1] = request->options[i];
	r = from_result(table->create(&handle, request->length, request->ptx), NULL);
	if (r)
		return r;
	r = table->compile(handle, (int)request->n_options + 1, options);
	request->log = read_log(table, handle, r);
	r = from_result(r, request->log);
	if (!r)
		r = read_program(table, handle, request);
	table->destroy(&handle);
	return r;
}

const struct compiler_backend compiler_backend_ptxcompiler = {
	.which = "nvptxcompiler",
	.name = "nvPTXCompiler",
	.load = load,
	.compile = compile,
};
