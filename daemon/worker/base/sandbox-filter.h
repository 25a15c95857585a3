/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Installs the system call filter in all threads. no_new_privs must be set. 0 or -errno. */
int sandbox_filter_install(bool read_files, bool threads);

/*
 * The filters of run_programs: what a program may not do at all, and what it may not do to its
 * group and to processes older than its parent. `daemon`: a process that gets no signals; 0: a pid
 * namespace hides all others. `may_truncate`: something else controls which files are emptied.
 */
int sandbox_filter_install_programs(pid_t daemon, bool may_truncate);
int sandbox_filter_install_group(void);
