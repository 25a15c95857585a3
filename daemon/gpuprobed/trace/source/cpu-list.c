/* SPDX-License-Identifier: Apache-2.0 */

/* Reads the kernel's lists of CPUs (cpu-list.h), for perf events, which need a CPU that runs. */

#include "cpu-list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CPUS_MAX 65536

int cpu_list_parse(const char *text, int **cpusp, size_t *np) {
	int *cpus = NULL;
	size_t n = 0;

	for (long last = -1, first; *text >= '0' && *text <= '9'; text += *text == ',') {
		char *end;
		int *grown;

		first = strtol(text, &end, 10);
		if (first <= last || first >= CPUS_MAX)
			break;
		last = *end == '-' && end[1] >= '0' && end[1] <= '9' ? strtol(end + 1, &end, 10)
								     : first;
		if (last < first || last >= CPUS_MAX)
			break;
		text = end;
		grown = realloc(cpus, (n + (size_t)(last - first + 1)) * sizeof(*cpus));
		if (!grown) {
			free(cpus);
			return -ENOMEM;
		}
		cpus = grown;
		while (first <= last)
			cpus[n++] = (int)first++;
		if (*text != ',')
			break;
	}
	if (!n || (*text && *text != '\n')) {
		free(cpus);
		return -EINVAL;
	}
	*cpusp = cpus;
	*np = n;
	return 0;
}

int cpu_list_online(int **cpusp, size_t *np) {
	FILE *file = fopen("/sys/devices/system/cpu/online", "re");
	char *line = NULL;
	size_t size = 0;
	int r;

	if (!file)
		return -errno;
	r = getline(&line, &size, file) > 0 ? cpu_list_parse(line, cpusp, np) : -EINVAL;
	free(line);
	fclose(file);
	return r;
}

int cpu_first_online(void) {
	int *cpus, cpu;
	size_t n;

	if (cpu_list_online(&cpus, &n))
		return 0;
	cpu = cpus[0];
	free(cpus);
	return cpu;
}
