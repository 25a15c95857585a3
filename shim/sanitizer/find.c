/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads NVIDIA's patching library for the sanitizer engine (toolkit.c finds it), and sees whether
 * another tool of NVIDIA's is in the process.
 */

#include "find.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/toolkit.h"

static char line[512];

static const struct toolkit_library patching = {
	.what = "NVIDIA's patching library",
	.missing = SANITIZER_LIBRARY " is not installed (CUDA toolkit: compute-sanitizer)",
	.names = (const char *const[]){ SANITIZER_LIBRARY, NULL },
	.beside =
		(const char *const[]){
			"/../compute-sanitizer", /* <toolkit>/lib64, and wheels since 13.1 */
			"/../../../compute-sanitizer", /* <toolkit>/targets/<machine>/lib */
			"", /* wheels for 13.0 */
			"/../../cuda_sanitizer_api/lib", /* wheels for 12 */
			NULL,
		},
	.below = (const char *const[]){ "/compute-sanitizer", NULL },
};

const char *find_sanitizer(const char *path, struct sanitizer *table) {
	void *library = toolkit_open(&patching, path, line, sizeof(line));
	struct sanitizer found;
	const char *missing = NULL;

	if (!library)
		return line;
#define X(field, name, arguments)                                    \
	found.field = (__typeof__(found.field))dlsym(library, name); \
	if (!found.field && !missing)                                \
		missing = name;
	SANITIZER_FUNCTIONS(X)
#undef X
	if (missing) {
		snprintf(
			line, sizeof(line),
			"NVIDIA's patching library has no %s: CUDA 12.3 is the oldest that will do",
			missing);
		return line;
	}
	*table = found;
	return NULL;
}

static int find_tool(struct dl_phdr_info *info, size_t size, void *data) {
	static const struct {
		const char *library, *tool;
	} tools[] = {
		{ "/libsanitizer-collection.so", "compute-sanitizer" },
		{ "/libInterceptorInjectionTarget.so", "compute-sanitizer or Nsight" },
		{ "/libcuda-injection.so", "Nsight Compute" },
		{ "/libToolsInjection64.so", "Nsight Systems" },
	};
	const char **tool = data;

	for (size_t n = 0; n < sizeof(tools) / sizeof(tools[0]); n++)
		if (strstr(info->dlpi_name, tools[n].library)) {
			*tool = tools[n].tool;
			return 1;
		}
	return 0;
}

const char *find_other_tool(void) {
	const char *injected = secure_getenv("CUDA_INJECTION64_PATH"), *tool = NULL;

	dl_iterate_phdr(find_tool, &tool);
	if (!tool && injected && injected[0])
		tool = "a library in CUDA_INJECTION64_PATH";
	return tool;
}
