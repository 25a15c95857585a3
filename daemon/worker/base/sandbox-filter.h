/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Installs the system call filter in all threads. no_new_privs must be set. 0 or -errno. */
int sandbox_filter_install(bool read_files, bool threads);

/*
 * The filters of run_programs: what a program may not do, and what it may not do with its group and
 * to who was there before its parent. `daemon`: gets no signals; 0: there is a pid namespace,
 * nobody is seen. `may_truncate`: something else sees to which files are made empty.
 */
int sandbox_filter_install_programs(pid_t daemon, bool may_truncate);
int sandbox_filter_install_group(void);
