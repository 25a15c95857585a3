/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A script at work: from BEGIN to END. */

#include "ctl/base/ctl.h"
#include "options.h"
#include "script.h"

#define EXIT_LOST 3 /* --strict, and events were lost */

/* Returns the exit status of gputrace. */
int follow(struct ctl *ctl, const struct options *options, const struct script *script, FILE *out);
