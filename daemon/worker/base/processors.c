/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Counts the processors that this process may use (processors.h), from its affinity and the quotas
 * of its cgroups. Only the unified hierarchy is read for quotas; without it the affinity decides.
 */

#include "processors.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CGROUPS "/sys/fs/cgroup"

/* Whole processors of time that a cgroup may use, rounded up; UINT_MAX: as many as there are. */
static unsigned int quota_of(const char *path) {
	unsigned long long quota = 0, period = 0;
	char file_path[PATH_MAX + 32];
	FILE *file;

	snprintf(file_path, sizeof(file_path), CGROUPS "%s/cpu.max", path);
	file = fopen(file_path, "re");
	if (!file)
		return UINT_MAX;
	if (fscanf(file, "%llu %llu", &quota, &period) != 2 || !quota || !period ||
	    quota / period >= UINT_MAX - 1) /* "max" */
		quota = 0;
	fclose(file);
	return quota ? (unsigned int)((quota + period - 1) / period) : UINT_MAX;
}

/* The path of this process in the unified hierarchy. */
static void read_cgroup(char path[static PATH_MAX]) {
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX + 8];

	path[0] = '\0';
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "0::/", 4)) {
			line[strcspn(line, "\n")] = '\0';
			strcpy(path, line + 3);
		}
	if (file)
		fclose(file);
}

unsigned int processors_allowed(void) {
	unsigned int n = 0, quota;
	char path[PATH_MAX], *slash;
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		n = (unsigned int)CPU_COUNT(&set);
	if (!n) /* more processors than the set has room for */
		n = CPU_SETSIZE;
	read_cgroup(path);
	for (;;) {
		quota = quota_of(path);
		n = quota < n ? quota : n;
		slash = strrchr(path, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	return n;
}
