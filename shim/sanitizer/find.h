/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds NVIDIA's patching library, and sees whether another tool is in the process already. */

#include "sanitizer-abi.h"

/*
 * Loads the library at `path`, or (NULL or empty) the first one of the places where toolkits put
 * it, and fills in the table. Returns NULL, or why not: a static line. What is loaded stays.
 */
const char *find_sanitizer(const char *path, struct sanitizer *table);

/* The name of a tool that has been put into this process and takes the patching interface, or NULL.
 */
const char *find_other_tool(void);
