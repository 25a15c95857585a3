/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds a file that belongs to gpuprobectl: beside its own executable (a build folder), else at the
 * path where it is installed. It only reads.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/base/ctl.h"

bool ctl_find_file(char path[static 4096], const char *installed, const char *beside) {
	char self[4000];
	ssize_t n;

	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(path, 4096, "%s/%s", self, beside);
		if (!access(path, R_OK))
			return true;
		snprintf(path, 4096, "%s/../%s", self, beside); /* gputrace lies deeper there */
		if (!access(path, R_OK))
			return true;
	}
	strncpy(path, installed, 4095)[4095] = '\0';
	return !access(path, R_OK);
}
