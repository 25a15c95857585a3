/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

/*
 * Starts processes that have no descriptor of this process but the few that are meant for them.
 *
 * A process that is made with the descriptors of this one closes, at its start, all that are not
 * for it. Strangers send us descriptors, and a close may wait as long as the sender wants
 * (closer.h): so long the new process would not start, nor would whoever waits for its start go on.
 * So a thread with a table of descriptors of its own makes them, in which nothing of strangers ever
 * was.
 */
struct spawner;

/* To be called before this process receives descriptors. 0 or -errno. */
int spawner_new(struct spawner **spawnerp);
/* Ends the thread. Returns NULL. */
struct spawner *spawner_free(struct spawner *spawner);

/*
 * Starts the file @path (no search) with these arguments and environment, both ended by NULL; in a
 * session of its own, in /, with no signal blocked or ignored. Its descriptors: 0 and 1 are
 * /dev/null, 2 is ours, 3 is @fd, which stays open here. It is a child of this process. 0 or
 * -errno: it does not run.
 */
int spawner_start(struct spawner *spawner, const char *path, char *const *arguments,
		  char *const *environment, int fd, pid_t *pidp);
