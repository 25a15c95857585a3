/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Twins in CUDA graphs. Graphs of the application always have originals. A kernel node of an
 * executable graph is given the kernel's twin (twin.h) before a launch, and the original back when
 * the twin is not wanted any more. That takes some 10 us a node, so it is done in slices: 2 ms at
 * most before a launch (250 ms before the first one), the rest before the next ones. A node for
 * which it cannot be done keeps its original, and the daemon is told why. An update gives all nodes
 * originals; a graph that is updated so often that twins would take more than 2 % of the time keeps
 * them.
 *
 * Used with ARM_TWINS (arm.h) alone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "graph-kernel.h"

struct graph_exec;
struct graph_record;

/* Before an executable graph is launched, outside of the gate; NULL: it is not known. And behind
 * the launch. */
struct graph_record *graph_twin_begin(driver_handle exec);
void graph_twin_end(struct graph_record *record);

/* number: graph_source_number(), from before the driver's call. device: the GPU may launch it. */
void graph_twin_added(driver_handle exec, driver_handle graph, uint64_t number, bool device);
/* Before it is destroyed; what is returned (or NULL) is for after that. */
struct graph_exec *graph_twin_removing(driver_handle exec);
void graph_twin_removed(struct graph_exec *removed);

/*
 * An update of it from a graph has failed. True: it had twins, which may be why; it has its
 * originals again, and the update is worth another try.
 */
bool graph_twin_update_again(driver_handle exec);
/* It was updated, or not (result). */
void graph_twin_updated(driver_handle exec, driver_handle graph, uint64_t number,
			driver_result result);
/*
 * A node is to get these parameters: if it has a twin it is given them with that, in one call.
 * False: not done, the driver is to be called.
 */
bool graph_twin_node_give(driver_handle exec, driver_handle node, const struct node_kernel *given,
			  size_t size);
/* A node has got these parameters (size: NODE_KERNEL_SIZE_1 or 2), or those of a graph. */
void graph_twin_node_set(driver_handle exec, driver_handle node, const struct node_kernel *given,
			 size_t size, uint64_t number);
void graph_twin_node_given(driver_handle exec, driver_handle node, driver_handle graph,
			   uint64_t number);

/* The application is about to destroy a node of some graph. */
void graph_twin_node_ends(driver_handle node);
/* It destroys a graph at once that executable graphs need: they get their originals back. */
void graph_twin_graph_lost(driver_handle graph);
