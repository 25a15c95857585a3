/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Executable graphs keep the machine code that their kernels had when they were instantiated. If
 * that was patched code it is gone, and the GPU faults, when the module is unpatched or patched
 * anew: while there is such a graph, patched modules stay as they are.
 */

#include <stdbool.h>

#include "driver.h"

/* Are modules patched? Set with the gate closed, or before a module's first launch. */
extern bool patch_graph_risk __attribute__((visibility("hidden")));

/* A graph was instantiated or updated, or is destroyed. */
void patch_graph_made(driver_handle exec);
void patch_graph_destroyed(driver_handle exec);

/* Is there a graph that may have patched code? */
bool patch_graph_holds(void);
