/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The graphs of the application, as far as twins need them (graph-twin.h).
 *
 * An executable graph is a copy of a graph, or was updated from one. What is in its nodes is read
 * from that graph, as late as possible: when an attachment means the process. So a graph that some
 * executable graph needs is not destroyed when the application says so, but later; and each change
 * that the application makes to a graph gets a number, so that nothing is read that is not what the
 * executable graph has.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/driver.h"

/* A number larger than all before. */
uint64_t graph_source_number(void);

/*
 * Around a call that changes a graph or a node, named by its handle. Nothing is read meanwhile;
 * other threads may change other graphs.
 */
void graph_source_change(driver_handle changed);
void graph_source_change_end(void);
/* The same for a node's attributes alone. */
void graph_source_change_attributes(driver_handle node);

/* Before graphs are read. False: one is being changed; try again later. */
bool graph_source_read(void);
void graph_source_read_end(void);
/* Has it been changed since that number? */
bool graph_source_is_changed(driver_handle handle, uint64_t since);
bool graph_source_attributes_changed(driver_handle node, uint64_t since);

/* An executable graph needs it; does not need it any more. False: no memory. */
bool graph_source_use(driver_handle graph);
void graph_source_unuse(driver_handle graph);

enum graph_destroy {
	GRAPH_DESTROY_NOW,
	GRAPH_DESTROY_LATER, /* it is needed: the application is told that it is done */
	GRAPH_DESTROY_AGAIN, /* the application has done so before: an error */
	GRAPH_DESTROY_LOST, /* now, though it is needed: it has user objects */
};

/* The application destroys a graph: what is to be done. */
enum graph_destroy graph_source_destroy(driver_handle graph);
/* It retains a user object. */
void graph_source_has_objects(driver_handle graph);

/* The application is about to destroy a node. */
void graph_source_node_ends(driver_handle node);

/* The graphs in a conditional node: to be noted when it is made; and how many there are. */
void graph_source_note_bodies(driver_handle node, driver_handle const *bodies, size_t count);
/* NULL: none are known. They stay as long as the node does. */
const driver_handle *graph_source_bodies(driver_handle node, size_t *count);
