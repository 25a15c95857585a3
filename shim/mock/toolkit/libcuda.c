/* SPDX-License-Identifier: Apache-2.0 */

/* As the stub of a toolkit, for test-symbols.c: it has the driver's SONAME, and nothing works. */

#define STUB_LIBRARY 34
#define STUB(name, ...)              \
	int name(__VA_ARGS__);       \
	int name(__VA_ARGS__) {      \
		return STUB_LIBRARY; \
	}

STUB(cuInit, unsigned flags)
STUB(cuCtxGetCurrent, void **context)
STUB(cuDriverGetVersion, int *version)
STUB(cuModuleUnload, void *module)
STUB(cuModuleLoad, void **module, const char *path)
STUB(cuGraphLaunch, void *exec, void *stream)
STUB(cuGraphNodeSetParams, void *node, void *parameters)
