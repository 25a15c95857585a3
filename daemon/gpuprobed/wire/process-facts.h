/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "daemon/gpuprobed/settings/filter.h"

/*
 * Reads what /proc says about a process (struct process_facts, filter.h). With pidfd (or -1) it is
 * sure that the facts are those of the process that the pidfd names. 0, -ESRCH if it is gone,
 * -errno.
 */
int process_facts_read(struct process_facts *facts, pid_t pid, int pidfd);

/* When a process started, as in its facts. 0, -ESRCH if there is none, -errno. */
int process_start_time(pid_t pid, uint64_t *timep);

/* Reads comm again: a process may change it. Keeps the old one on failure. */
void process_facts_refresh(struct process_facts *facts);

/* Whether these are the same program in the same process: an exec changes exe. */
bool process_facts_same(const struct process_facts *a, const struct process_facts *b);

/* Whether the daemon may read what executables and libraries processes of other users have: if not,
 * no filter by exe means these. */
bool process_facts_of_all(void);
