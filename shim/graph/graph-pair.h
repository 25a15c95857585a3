/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Nodes of graphs that stand for one another. When an executable graph is
 * updated from another graph, the driver pairs the nodes of that with the nodes
 * it was instantiated from: nodes that no other depends on in their order, and
 * then dependencies, each node's in the order of its edges. Calls for single
 * nodes go on naming those it was instantiated from.
 */

#include <stdbool.h>
#include <stddef.h>

#include "shim/driver/driver.h"

#define GRAPH_DEPTH_MAX 8

struct graph_pair {
	driver_handle from, to;
};

/* Of two graphs and the graphs in their nodes. */
struct graph_pairs {
	struct graph_pair *list; /* by `from`; NULL: not made */
	size_t count;
};

/* All nodes of a graph, to be freed; NULL if the driver does not say, or there
 * is no memory. */
driver_handle *graph_nodes(driver_handle graph, size_t *count);

/*
 * A node's copy in a clone of its graph, or in a graph that a node of that has
 * (*inner); NULL if there is none.
 */
driver_handle graph_node_in_clone(driver_handle clone, driver_handle node, bool *inner);

/* As an update pairs them. false: the graphs are not the same, or there is no
 * memory. */
bool graph_pairs_make(struct graph_pairs *pairs, driver_handle from, driver_handle to);
driver_handle graph_pairs_find(const struct graph_pairs *pairs, driver_handle from);
void graph_pairs_deinit(struct graph_pairs *pairs);
