/* SPDX-License-Identifier: Apache-2.0 */

/* Texts of return addresses: the file that is mapped there and the offset in it. */

#include <stdio.h>
#include <string.h>

#include "session-private.h"

#define STACK_TEXT_MAX 200 /* of one address */

/* Looks all addresses up in one pass over the process's mappings; they are in the order of addresses. */
static void stack_find(FILE *maps, const uint64_t *addresses, size_t n, char (*texts)[STACK_TEXT_MAX]) {
	char line[4096 + 128], *path;
	uint64_t start, end, offset;
	int at;

	while (fgets(line, sizeof(line), maps)) {
		at = 0;
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &start, &end, &offset, &at) < 3 || !at)
			continue;
		path = line + at;
		path[strcspn(path, "\n")] = '\0';
		for (size_t i = 0; i < n; i++)
			if (addresses[i] >= start && addresses[i] < end && *path)
				snprintf(texts[i], STACK_TEXT_MAX, "%.*s+0x%lx", STACK_TEXT_MAX - 24, strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
					 addresses[i] - start + offset);
	}
}

size_t stack_describe(pid_t pid, const uint64_t *addresses, size_t n, char *text, size_t size) {
	char texts[64][STACK_TEXT_MAX] = {}, path[64];
	size_t done = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (maps) {
		stack_find(maps, addresses, n, texts);
		fclose(maps);
	}
	for (size_t i = 0; i < n; i++) {
		size_t length = strlen(texts[i]) + 1;

		/* each has its NUL, also one without a text, and those for which there is no more room */
		if (done + length + (n - i - 1) > size) {
			texts[i][0] = '\0';
			length = 1;
		}
		memcpy(text + done, texts[i], length);
		done += length;
	}
	return done;
}
