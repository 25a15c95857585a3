/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attach FILE -- CMD. */

#include "ctl/base/ctl.h"

/* Attaches the object at path, runs CMD, prints what the maps hold, and detaches. parameters:
 * borrowed; of Attach. Returns the exit status of CMD, or ours. */
int attach_run(struct ctl *ctl, json_object *parameters, const char *path, char **command,
	       bool nonzero);
