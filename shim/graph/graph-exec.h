/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What an executable graph has in its kernel nodes. The driver does not say it, so it is read from
 * the graph that it was instantiated from, or last updated from, and kept from calls that change
 * single nodes. Nothing is read before it is asked for. Nodes are named as the driver names them in
 * calls for executable graphs: those of the graph that was instantiated.
 *
 * One thread at a time for each struct graph_exec.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph-kernel.h"
#include "graph-pair.h"

/* Why a node, or a whole graph, has no twins. */
enum graph_reason {
	GRAPH_REASON_NONE,
	GRAPH_REASON_NOT_OURS, /* nothing is known of the kernel: nothing is said */
	GRAPH_REASON_UNREADABLE,
	GRAPH_REASON_CHANGED,
	GRAPH_REASON_UPDATED,
	GRAPH_REASON_OFTEN,
	GRAPH_REASON_DEVICE,
	GRAPH_REASON_OBJECTS,
	GRAPH_REASON_BODIES,
	GRAPH_REASON_REFUSED,
	GRAPH_REASON_STUCK,
	GRAPH_REASON_GONE, /* the kernel's module is unloaded: nothing is said */
	GRAPH_REASON_COUNT
};

struct exec_node {
	driver_handle node;
	size_t parent; /* the node that the graph of this one is in: of `inner`; SIZE_MAX: none */
	enum graph_reason reason; /* it keeps its original */
	struct kernel_copy copy;
	uint64_t number; /* when the copy, or the reason why there is none, was right */
	uint64_t attributes_number; /* the same of: */
	bool special; /* it has attributes that a twin may not be launched with */
	/* for graph-twin.c */
	struct kernel_twin twin; /* what it has in place of its kernel */
	uint64_t twin_id, twin_number; /* twin-hold.h; when it got it */
	uint64_t refused_id; /* a twin that the driver did not take */
};

struct exec_inner;
struct exec_source;

struct graph_exec {
	driver_handle graph; /* that was instantiated, */
	uint64_t number; /* and when */
	driver_handle context; /* that was current */
	enum graph_reason lost; /* nothing is known any more */
	bool listed; /* what follows is filled in */
	struct exec_node *nodes; /* by handle */
	size_t count;
	struct exec_inner *inner; /* nodes that graphs are in */
	size_t inner_count;
	bool has_conditions;
	driver_handle *graphs; /* itself, and those in its nodes */
	size_t graph_count;
	struct exec_source *sources; /* later ones win; the first one is of all nodes */
	size_t source_count;
};

/* number: graph_source_number(), from before the driver's call. NULL: no memory. */
struct graph_exec *graph_exec_new(driver_handle graph, uint64_t number);
/* The graphs that it needs may be destroyed. */
void graph_exec_free(struct graph_exec *exec);
/* Nothing is known of it from now on. */
void graph_exec_lose(struct graph_exec *exec, enum graph_reason reason);

/* Has nodes of another graph now: all, or (node) those of the graph in a node. */
void graph_exec_updated(struct graph_exec *exec, driver_handle graph, uint64_t number);
void graph_exec_given(struct graph_exec *exec, driver_handle node, driver_handle graph,
		      uint64_t number);
/* Does it need that graph? */
bool graph_exec_uses(const struct graph_exec *exec, driver_handle graph);

/* Finds the nodes; graph_source_read() holds. False: it is lost. */
bool graph_exec_list(struct graph_exec *exec);
struct exec_node *graph_exec_find(const struct graph_exec *exec, driver_handle node);
/* Is a node in the graph of another node? */
bool graph_exec_is_within(const struct graph_exec *exec, const struct exec_node *node,
			  driver_handle ancestor);

/* When the node got the parameters that are not from a call for it alone. */
uint64_t graph_exec_number(const struct graph_exec *exec, const struct exec_node *node);
/* Is all known that can be known? Else graph_exec_read(), for which graph_source_read() holds. */
bool graph_exec_is_read(const struct graph_exec *exec, const struct exec_node *node);
void graph_exec_read(struct graph_exec *exec, struct exec_node *node);
/* The application has given the node these. */
void graph_exec_set(struct exec_node *node, const struct node_kernel *given, size_t size,
		    uint64_t number);
