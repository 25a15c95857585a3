/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libcuda.so.1 for test-uprobe: a few functions of each kind, with places for probes of each
 * kind.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default"), noinline))
#define DECLARE(name, ...) EXPORT int name(__VA_ARGS__)

struct ipc_handle {
	char bytes[64];
};

DECLARE(cuInit, unsigned int flags);
DECLARE(cuMemAlloc_v2, uint64_t *pointer, size_t size);
DECLARE(cuMemFree_v2, uint64_t pointer);
DECLARE(cuLaunchKernel, void *f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	unsigned int by, unsigned int bz, unsigned int shared, void *stream, void **parameters,
	void **extra);
DECLARE(cuLaunchKernelEx, const void *config, void *f, void **parameters, void **extra);
DECLARE(cuIpcOpenMemHandle_v2, uint64_t *pointer, struct ipc_handle handle, unsigned int flags);
DECLARE(cuModuleGetFunction, uint64_t *function, void *module, const char *name);
DECLARE(cuLibraryGetKernel, uint64_t *kernel, void *library, const char *name);
DECLARE(cuKernelGetFunction, uint64_t *function, uint64_t kernel);
DECLARE(cuStreamSynchronize, void *stream);
DECLARE(cuCtxSynchronize, void);
DECLARE(cuParamSetf, void *function, int offset, float value);
DECLARE(cuOccupancyMaxPotentialBlockSize, int *grid, int *block, void *function,
	void (*callback)(int), size_t shared, int limit);
DECLARE(cuFutureThing, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
DECLARE(cuGetErrorName, int error, const char **name);
DECLARE(cuEventQuery, void *event);
DECLARE(cuGetProcAddress_v2, const char *symbol, void **pointer, int version, uint64_t flags,
	int *status);

volatile unsigned int test_calls; /* the compiler keeps bodies */

int cuInit(unsigned int flags) {
	test_calls++;
	return flags ? 1 : 0;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
	test_calls++;
	if (!size)
		return 1;
	*pointer = 0x700000000000 + size;
	return 0;
}

int cuMemFree_v2(uint64_t pointer) {
	test_calls++;
	return pointer ? 0 : 1;
}

int cuLaunchKernel(void *f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream,
		   void **parameters, void **extra) {
	test_calls += gx + gy + gz + bx + by + bz + shared;
	return 0;
}

int cuLaunchKernelEx(const void *config, void *f, void **parameters, void **extra) {
	test_calls++;
	return 0;
}

int cuIpcOpenMemHandle_v2(uint64_t *pointer, struct ipc_handle handle, unsigned int flags) {
	*pointer = 0x5000 + flags + (unsigned char)handle.bytes[63];
	return 0;
}

/* A handle that depends on the name. */
static uint64_t handle_of(const char *name, uint64_t base) {
	uint64_t hash = 5381;

	while (*name)
		hash = hash * 33 + (unsigned char)*name++;
	return base + (hash & 0xffff);
}

int cuModuleGetFunction(uint64_t *function, void *module, const char *name) {
	if (!strcmp(name, "absent"))
		return 500;
	*function = handle_of(name, 0xf000000);
	return 0;
}

int cuLibraryGetKernel(uint64_t *kernel, void *library, const char *name) {
	*kernel = handle_of(name, 0xe000000);
	return 0;
}

int cuKernelGetFunction(uint64_t *function, uint64_t kernel) {
	*function = kernel + 0x1000000;
	return 0;
}

int cuStreamSynchronize(void *stream) {
	test_calls++;
	return 0;
}

/* The driver calls itself; with TEST_WAIT it takes as long as it is let. */
int cuCtxSynchronize(void) {
	int r = cuStreamSynchronize(NULL);
	char byte;

	while (getenv("TEST_WAIT") && read(STDIN_FILENO, &byte, 1) > 0)
		;
	return r;
}

int cuParamSetf(void *function, int offset, float value) {
	test_calls += (unsigned int)offset + (unsigned int)value;
	return 0;
}

int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, void (*callback)(int),
				     size_t shared, int limit) {
	callback(limit);
	*grid = 1;
	*block = 2;
	return 0;
}

int cuFutureThing(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
	test_calls++;
	return (int)(a + f);
}

int cuGetErrorName(int error, const char **name) {
	*name = "CUDA_ERROR";
	return 0;
}

/* Functions that nobody exports: one that is its own, one that goes on in an exported one. */
static __attribute__((noinline)) int hidden(uint64_t a, uint64_t b) {
	test_calls++;
	return (int)(a + b);
}

static __attribute__((noinline)) int hidden_init(unsigned int flags) {
	return cuInit(flags);
}

int cuGetProcAddress_v2(const char *symbol, void **pointer, int version, uint64_t flags,
			int *status) {
	*pointer = !strcmp(symbol, "cuHiddenThing") ? (void *)hidden
		   : !strcmp(symbol, "cuInit")      ? (void *)hidden_init
		   : !strcmp(symbol, "cuMemFree")   ? (void *)cuMemFree_v2
						    : NULL;
	return *pointer ? 0 : 500;
}

int cuEventQuery(void *event) {
	return 600;
}

#ifdef __x86_64__
/* Functions whose first instructions are what they are. */
#define BODY(name, text)                                                                    \
	__asm__(".pushsection .text\n.globl " #name "\n.type " #name                        \
		",@function\n.p2align 4\n" #name ":\n" text "\n.size " #name ", . - " #name \
		"\n.popsection\n");

BODY(cuSitePush, "push %rbp\nmov %rsp, %rbp\nxor %eax, %eax\npop %rbp\nret")
BODY(cuSiteNop5, ".byte 0x0f, 0x1f, 0x44, 0, 0\nxor %eax, %eax\nret")
BODY(cuSiteNop, "nop\nxor %eax, %eax\nret")
BODY(cuSiteEndbr, "endbr64\npush %rbx\nxor %eax, %eax\npop %rbx\nret")
BODY(cuSiteSub, "sub $8, %rsp\nxor %eax, %eax\nadd $8, %rsp\nret")
BODY(cuSiteRet, "mov $0, %eax\nret")
BODY(cuSiteJump, "jmp cuSitePush")
BODY(cuSiteTest,
     "mov test_calls@GOTPCREL(%rip), %rax\ntestl $1, (%rax)\nje 1f\n1: xor %eax, %eax\nret")
#endif
