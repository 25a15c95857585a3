/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What libgpuprobe-ptxcompiler.so exports: the functions of nvPTXCompiler that we use, in one
 * table. */

#include <stddef.h>

typedef struct nvPTXCompiler *nvPTXCompilerHandle;

enum {
	NVPTXCOMPILE_SUCCESS = 0,
	NVPTXCOMPILE_ERROR_INVALID_INPUT = 2,
	NVPTXCOMPILE_ERROR_COMPILATION_FAILURE = 3,
	NVPTXCOMPILE_ERROR_OUT_OF_MEMORY = 5,
	NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION = 7,
};

#define PTXCOMPILER_MODULE "libgpuprobe-ptxcompiler.so"
#define PTXCOMPILER_TABLE "gpuprobe_ptxcompiler"

struct ptxcompiler_table {
	int (*get_version)(unsigned int *major, unsigned int *minor);
	int (*create)(nvPTXCompilerHandle *compiler, size_t length, const char *ptx);
	int (*destroy)(nvPTXCompilerHandle *compiler);
	int (*compile)(nvPTXCompilerHandle compiler, int n_options, const char *const *options);
	int (*get_program_size)(nvPTXCompilerHandle compiler, size_t *size);
	int (*get_program)(nvPTXCompilerHandle compiler, void *program);
	int (*get_log_size)(nvPTXCompilerHandle compiler, size_t *size);
	int (*get_log)(nvPTXCompilerHandle compiler, char *log);
	int (*get_info_size)(nvPTXCompilerHandle compiler, size_t *size);
	int (*get_info)(nvPTXCompilerHandle compiler, char *info);
};
