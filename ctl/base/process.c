/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds out which process a number given as --pid means, and what a process lacks to be probed or
 * traced. It only reads /proc.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/base/ctl.h"

int ctl_check_pid(const char *what, int64_t pid) {
	char path[64], line[256];
	long long process = pid;
	FILE *file;

	if (pid > INT32_MAX) /* which no process has: pid_t is no larger */
		return ctl_fail(CTL_NOT_FOUND, "there is no process %lld", process);
	snprintf(path, sizeof(path), "/proc/%lld/status", process);
	file = fopen(path, "re");
	if (!file)
		return -1; /* whether there is one, the daemon knows: it may see more than we do */
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %lld", &process) == 1)
			break;
	fclose(file);
	return process == pid
		       ? -1
		       : ctl_fail(CTL_NOT_FOUND,
				  "%s: %lld is a thread of process %lld, whose number is wanted",
				  what, (long long)pid, process);
}

bool ctl_process_libraries(int64_t pid, struct ctl_process_libraries *libraries) {
	char path[64], *line = NULL;
	size_t n_line = 0;
	bool seen = false;
	FILE *file;

	*libraries = (struct ctl_process_libraries){};
	snprintf(path, sizeof(path), "/proc/%lld/maps", (long long)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (getline(&line, &n_line, file) > 0) {
		seen = true;
		libraries->cuda |= strstr(line, "/libcuda.so") != NULL;
		libraries->shim |= strstr(line, "/libgpuprobe-shim") != NULL;
		libraries->engine |= strstr(line, "/libgpuprobe-sass") != NULL;
	}
	free(line);
	fclose(file);
	return seen;
}

const char *ctl_process_lacks(int64_t pid) {
	struct ctl_process_libraries libraries;

	if (!ctl_process_libraries(pid, &libraries))
		return NULL;
	if (!libraries.cuda)
		return libraries.shim ? "has loaded no CUDA library so far"
				      : "has loaded no CUDA library so far, and runs without the "
					"shim, so nothing would be probed in it if it did";
	if (!libraries.shim)
		return "runs without the shim, so nothing is probed in it: start it again with "
		       "LD_PRELOAD=libgpuprobe-shim.so, or after gpuprobectl shim enable";
	return NULL;
}
