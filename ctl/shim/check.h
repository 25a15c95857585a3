/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a library may be loaded into every program of this machine. */

#include "ctl/base/ctl.h"

#define CHECK_REASON_SIZE 512

/*
 * Looks at the library at @path as seen in the folder `root` and runs two programs with it.
 * resolved is its path there without links, if it is there. CTL_OK, or an exit status and the
 * reason in one line.
 */
enum ctl_exit check_library(int root, const char *path, char resolved[static 4096],
			    char reason[static CHECK_REASON_SIZE]);
