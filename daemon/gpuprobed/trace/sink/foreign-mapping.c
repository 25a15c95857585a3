/* SPDX-License-Identifier: Apache-2.0 */

/* Reads what a process has mapped as code (foreign.h), from its /proc/PID/maps. */

#include "foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int foreign_each_mapping(pid_t pid, foreign_mapping_fn fn, void *userdata) {
	struct foreign_mapping mapping;
	char *text, *save = NULL, mode[5];
	size_t size;
	int at;

	text = foreign_read(pid, "maps", FOREIGN_MAPS_MAX, &size);
	if (!text)
		return -errno;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		at = 0;
		if (sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu %n", &mapping.start, &mapping.end,
			   mode, &mapping.offset, &mapping.inode, &at) < 5 ||
		    !at || mode[2] != 'x')
			continue;
		mapping.path = line + at;
		if (!fn(userdata, &mapping))
			break;
	}
	free(text);
	return 0;
}
