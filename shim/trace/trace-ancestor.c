/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds out which CMD of a trace this process descends from (PATHS_TRACE_VARIABLE in
 * proto/paths.h).
 *
 * A trace of a CMD means all processes that descend of it. One whose parents are gone, as a
 * daemon's, cannot be known by them: `gpuprobectl trace` tells CMD its own number in a variable,
 * and all inherit that. It is read where the kernel put it when the program began, as the program
 * may have cleared or changed its environment since.
 */

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "proto/paths.h"
#include "tracing.h"

#define VARIABLE PATHS_TRACE_VARIABLE "="

/* Where in the environment one is. */
struct position {
	size_t matched; /* bytes of VARIABLE */
	bool elsewhere; /* in another variable */
	uint64_t number;
};

/* Returns whether that was the end of what is looked for. */
static bool take(struct position *at, char byte) {
	bool inside = at->matched == strlen(VARIABLE);

	if (!byte) {
		at->matched = 0;
		at->elsewhere = false;
		return inside;
	}
	if (at->elsewhere)
		return false;
	if (!inside)
		at->elsewhere = byte != VARIABLE[at->matched++];
	else if (byte >= '0' && byte <= '9' && at->number <= UINT32_MAX)
		at->number = at->number * 10 + (uint64_t)(byte - '0');
	else
		at->number = UINT64_C(1) << 32; /* no number of a process */
	return false;
}

uint32_t trace_ancestor_told(void) {
	int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	struct position at = { 0 };
	char bytes[512];
	bool found = false;
	ssize_t count;

	while (fd >= 0 && !found && (count = read(fd, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < count && !found; i++)
			found = take(&at, bytes[i]);
	if (fd >= 0)
		close(fd);
	return found && at.number <= UINT32_MAX ? (uint32_t)at.number : 0;
}
