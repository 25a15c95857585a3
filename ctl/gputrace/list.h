/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gputrace -l: what can be probed, and with what words. */

#include "options.h"

/* All probes, words, functions and tools. */
void list_words(void);
/* The probes that one stands for. Those of kernels are found by a script, which is given back in
 * *scriptp, from malloc(). Returns the exit status. */
int list_probe(const struct options *options, char **scriptp);
