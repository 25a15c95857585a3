/* SPDX-License-Identifier: Apache-2.0 */

/* A mock of libgpuprobe-sass.so that has another version, for test-patching.py. */

#include <stddef.h>

#include "shim/engine/sass.h"

const struct sass_engine *gpuprobe_sass(void);
const struct sass_engine *gpuprobe_sass(void) {
	static const struct sass_engine engine = { .abi = SASS_ABI + 1 };

	return &engine;
}
