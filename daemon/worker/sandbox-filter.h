/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Installs the system call filter in all threads. no_new_privs must be set. 0 or -errno. */
int sandbox_filter_install(bool read_files);
