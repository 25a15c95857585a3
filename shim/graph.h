/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CUDA graphs in a process with the SASS engine. An executable graph keeps the machine code that its
 * kernels had when it was instantiated: bare, or with patches. Code with patches is gone when its
 * module is patched anew or unpatched, and a launch of it makes the GPU fault. So we keep a clone of
 * every graph that is instantiated, and while patches are others than they were, our own instance
 * of the clone is launched in place of the application's.
 *
 * Where that cannot be (a graph that allocates memory cannot be cloned) the graph is *fixed*: it is
 * launched as it is. If it has patches, they stay in all modules till it is destroyed.
 *
 * Everything is to be called inside the gate, but for what says otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/*
 * Patches are others from now on; patched: there are any. With the loader's lock held, and with the
 * gate closed if code that graphs may have is gone: then what was launched before has ended, too.
 */
void graph_patches_changed(bool patched);
/* Frees instances of ours that are used no more; the gate is closed. */
void graph_reap(void);
/* Is there a fixed graph that has patches? */
bool graph_holds_patches(void);

/* What patches were, for graph_added(): before the call that instantiates. */
uint64_t graph_patches(void);
void graph_added(driver_handle exec, driver_handle graph, unsigned long long flags,
		 uint64_t patches);

/*
 * Before the application's call that destroys an executable graph, and after it. Outside of the
 * gate.
 */
struct graph_exec *graph_removed(driver_handle exec);
void graph_remove_end(struct graph_exec *removed, driver_result result);

/* What to launch in place of an executable graph; or an error, for the application. */
driver_result graph_find(driver_handle *exec);

/*
 * Around the application's call that changes one: graph_update_begin() says whether it may be made.
 * The others are told what was changed; `set` is what does the same with the node of a graph.
 */
driver_result graph_update_begin(driver_handle exec);
void graph_updated(driver_handle exec, driver_handle graph);
void graph_node_updated(driver_handle exec, driver_handle node, const char *set,
			const void *parameters);
void graph_node_enabled(driver_handle exec, driver_handle node, unsigned enabled);
