/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CPUs, whose numbers may have holes, and which come and go. */

#include <stdbool.h>
#include <stddef.h>

/* Takes a list as the kernel writes it, "0-3,5": their numbers, to be freed. 0, -EINVAL: it is
 * none, or -ENOMEM. */
int cpu_list_parse(const char *text, int **cpusp, size_t *np);

/* Those that run now; one at least. 0 or negative errno. */
int cpu_list_online(int **cpusp, size_t *np);

/* The first of them; 0 if nobody can say. */
int cpu_first_online(void);
