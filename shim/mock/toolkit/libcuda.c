/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A mock of the stub libcuda of a toolkit, for test-symbols.c: it has the driver's SONAME, and all
 * its functions fail.
 */

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
