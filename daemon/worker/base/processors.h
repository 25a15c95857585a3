/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How many processors this process may use: those of its affinity, and no more than the quota of
 * its cgroups. At least 1. */
unsigned int processors_allowed(void);
