/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

/*
 * Starts processes that inherit only the descriptors meant for them.
 *
 * Why not fork from any thread: the child would have to close all other descriptors first. Some of
 * them came from other users, and closing one can take as long as its sender wants (closer.h); the
 * daemon would wait that long for the child to start. So one thread starts all processes. It has a
 * table of descriptors of its own, which never holds a descriptor that another user sent.
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
