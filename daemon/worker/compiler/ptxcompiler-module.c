/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuprobe-ptxcompiler.so: NVIDIA's static library behind a table of functions. It is a file of
 * its own so that the worker does not depend on how it was built. The functions are declared here
 * because the header may be elsewhere.
 */

#include "ptxcompiler-module.h"

int nvPTXCompilerGetVersion(unsigned int *major, unsigned int *minor);
int nvPTXCompilerCreate(nvPTXCompilerHandle *compiler, size_t length, const char *ptx);
int nvPTXCompilerDestroy(nvPTXCompilerHandle *compiler);
int nvPTXCompilerCompile(nvPTXCompilerHandle compiler, int n_options, const char *const *options);
int nvPTXCompilerGetCompiledProgramSize(nvPTXCompilerHandle compiler, size_t *size);
int nvPTXCompilerGetCompiledProgram(nvPTXCompilerHandle compiler, void *program);
int nvPTXCompilerGetErrorLogSize(nvPTXCompilerHandle compiler, size_t *size);
int nvPTXCompilerGetErrorLog(nvPTXCompilerHandle compiler, char *log);
int nvPTXCompilerGetInfoLogSize(nvPTXCompilerHandle compiler, size_t *size);
int nvPTXCompilerGetInfoLog(nvPTXCompilerHandle compiler, char *info);

extern const struct ptxcompiler_table gpuprobe_ptxcompiler;

__attribute__((visibility("default"))) const struct ptxcompiler_table gpuprobe_ptxcompiler = {
	.get_version = nvPTXCompilerGetVersion,
	.create = nvPTXCompilerCreate,
	.destroy = nvPTXCompilerDestroy,
	.compile = nvPTXCompilerCompile,
	.get_program_size = nvPTXCompilerGetCompiledProgramSize,
	.get_program = nvPTXCompilerGetCompiledProgram,
	.get_log_size = nvPTXCompilerGetErrorLogSize,
	.get_log = nvPTXCompilerGetErrorLog,
	.get_info_size = nvPTXCompilerGetInfoLogSize,
	.get_info = nvPTXCompilerGetInfoLog,
};
