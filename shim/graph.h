/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CUDA graphs in a process with the SASS engine. An executable graph keeps the machine code that
 * its kernels had when it was instantiated: bare, or with patches. Code with patches is gone when
 * its module is patched anew or unpatched, and a launch of it makes the GPU fault. So we keep a
 * clone of every graph that is instantiated, and while patches are others than they were, our own
 * instance of the clone is launched in place of the application's.
 *
 * Where that cannot be (a graph that allocates memory cannot be cloned) the graph is *fixed*: it is
 * launched as it is. If it has patches, these stay in all modules till it is destroyed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* ---- for who patches, with the loader's lock held ----------------------------------- */

/*
 * Patches are others from now on; patched: there are any. If code that graphs may have is gone, the
 * gate is closed, and what was launched before has ended.
 */
void graph_patches_changed(bool patched);
/* Frees instances of ours that are used no more; the gate is closed. */
void graph_reap(void);
/* Is there a fixed graph that has patches? One that has none? */
bool graph_has_fixed(bool with_patches);

/* ---- around calls of the application; inside of the gate ---------------------------- */

/* What patches are: before a call that instantiates, for graph_added(). */
uint64_t graph_patches(void);
void graph_added(driver_handle exec, driver_handle graph, unsigned long long flags,
		 uint64_t patches);
/* Before it is destroyed. */
void graph_removed(driver_handle exec);

/* Puts what is to be launched in the place of an executable graph; or an error. */
driver_result graph_find(driver_handle *exec);

/* It was updated from a graph. */
void graph_updated(driver_handle exec, driver_handle graph);

/*
 * One of its nodes was changed. Returns the node of the clone, for which the same is to be done, or
 * NULL: nothing is. *own: our instance, if that should follow. graph_node_end() is told whether
 * both could be done.
 */
driver_handle graph_node_begin(driver_handle exec, driver_handle node, driver_handle *own);
void graph_node_end(driver_handle exec, bool node_done, bool own_done);

/* A node of it is left out of launches, or not any more; `node` is the clone's. */
bool graph_node_enabled(driver_handle exec, driver_handle node, bool enabled);
