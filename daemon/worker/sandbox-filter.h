/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Installs the system call filter in all threads. no_new_privs must be set. 0 or -errno. */
int sandbox_filter_install(bool read_files);

/* The filters of run_programs: what a program may not do, and what it may not do with its group. */
int sandbox_filter_install_programs(void);
int sandbox_filter_install_group(void);
