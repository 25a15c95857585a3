/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ready-made scripts: ctl/tools/NAME.gt. */

#include <stdbool.h>

/* Whether a tool of that name is there, and its path. A name with a / or a . is none. */
bool tool_find(char path[static 4096], const char *name);
/* Prints how it is called, and what the comment at its beginning says. Returns the exit status. */
int tool_help(const char *name, const char *path);
/* Prints all tools, a line each. */
void tool_list(void);
/* "; did you mean kernels?", or where they are listed. */
const char *tool_suggestion(const char *name);
