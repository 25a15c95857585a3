/* SPDX-License-Identifier: Apache-2.0 */

/* Why nothing may be probed in a process, as far as one sees that from outside: the daemon hears only of programs that have the shim and load a module. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

const char *ctl_process_lacks(int64_t pid) {
	bool cuda = false, shim = false, engine = false;
	char path[64], *line = NULL;
	size_t n_line = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%lld/maps", (long long)pid);
	file = fopen(path, "re");
	if (!file)
		return NULL; /* another user's, or gone */
	while (getline(&line, &n_line, file) > 0) {
		cuda |= strstr(line, "/libcuda.so") != NULL;
		shim |= strstr(line, "/libgpuprobe-shim") != NULL;
		engine |= strstr(line, "/libgpuprobe-sass") != NULL;
	}
	free(line);
	fclose(file);
	if (!cuda) /* it may be about to begin its program */
		return NULL;
	if (!shim)
		return "runs without the shim, so nothing is probed in it: start it again with LD_PRELOAD=libgpuprobe-shim.so, or after gpuprobectl shim enable";
	if (!engine)
		return "has used CUDA before, and has no SASS engine, so modules that it has loaded are not probed: start it again, or see ENGINES in gpuprobectl(1)";
	return NULL;
}
