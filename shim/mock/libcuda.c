/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libcuda.so.1 for tests of the shim's entry points and for the benchmark of a launch: every
 * function only remembers who was called (mock_last), and two forms of one function are different
 * functions, as in the real driver.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char *mock_last;
const char *mock_last = "";

#define MOCK(name, ...)                \
	EXPORT int name(__VA_ARGS__);  \
	EXPORT int name(__VA_ARGS__) { \
		mock_last = #name;     \
		return 0;              \
	}

MOCK(cuInit, unsigned flags)
MOCK(cuDriverGetVersion, int *version)
MOCK(cuLibraryUnload, void *library)
MOCK(cuModuleUnload, void *module)
MOCK(cuModuleLoadData, void **module, const void *image)
MOCK(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned s, void *h, void **p, void **e)
MOCK(cuLaunchKernel_ptsz, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned s, void *h, void **p, void **e)
MOCK(cuLaunchKernelEx, const void *c, void *f, void **p, void **e)
MOCK(cuLaunchKernelEx_ptsz, const void *c, void *f, void **p, void **e)
MOCK(cuGraphLaunch, void *g, void *s)
MOCK(cuGraphLaunch_ptsz, void *g, void *s)
MOCK(cuGraphNodeSetParams, void *n, void *p)
MOCK(cuGraphInstantiate_v2, void **e, void *g, void **n, char *t, size_t z)
MOCK(cuGraphInstantiateWithFlags, void **e, void *g, unsigned long long f)
MOCK(cuGraphExecUpdate, void *e, void *g, void **n, int *r)
MOCK(cuGraphExecUpdate_v2, void *e, void *g, void *r)
MOCK(cuCtxDestroy, void *c)
MOCK(cuCtxDestroy_v2, void *c)

EXPORT int cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags,
			       int *status);

static const struct {
	const char *name;
	void *function, *per_thread;
} functions[] = {
	{ "cuInit", cuInit, cuInit },
	{ "cuDriverGetVersion", cuDriverGetVersion, cuDriverGetVersion },
	{ "cuModuleUnload", cuModuleUnload, cuModuleUnload },
	{ "cuLaunchKernel", cuLaunchKernel, cuLaunchKernel_ptsz },
	{ "cuLaunchKernelEx", cuLaunchKernelEx, cuLaunchKernelEx_ptsz },
	{ "cuGraphLaunch", cuGraphLaunch, cuGraphLaunch_ptsz },
	{ "cuCtxDestroy", cuCtxDestroy_v2, cuCtxDestroy_v2 },
};

/* The empty name is legal and finds nothing; 500 for what is not there, as the driver answers. */
static int find(const char *symbol, void **found, int version, uint64_t flags) {
	*found = NULL;
	if (!*symbol)
		return 0;
	if (!strcmp(symbol, "cuGetProcAddress")) {
		*found = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
		return 0;
	}
	if (!strcmp(symbol, "cuGraphInstantiate")) {
		*found = version >= 12000 ? (void *)cuGraphInstantiateWithFlags
					  : (void *)cuGraphInstantiate_v2;
		return 0;
	}
	if (!strcmp(symbol, "cuGraphExecUpdate")) {
		*found =
			version >= 12000 ? (void *)cuGraphExecUpdate_v2 : (void *)cuGraphExecUpdate;
		return 0;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (!strcmp(functions[i].name, symbol)) {
			*found = flags & 2 ? functions[i].per_thread : functions[i].function;
			return 0;
		}
	}
	return 500;
}

int cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags) {
	mock_last = "cuGetProcAddress";
	return find(symbol, found, version, flags);
}

int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags,
			int *status) {
	int result = find(symbol, found, version, flags);

	mock_last = "cuGetProcAddress_v2";
	if (status)
		*status = result ? 1 : 0;
	return result;
}
