/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wrappers of the driver's functions that change kernel nodes, or nodes of any type, of graphs that
 * are not instantiated. With twins it is noted that the graph has changed (graph-source.h).
 */

#include "shim/module/arm.h"
#include "shim/graph/graph-kernel.h"
#include "shim/graph/graph-source.h"
#include "entry.h"

/* The call changes a graph or node: with twins that is noted. */
#define CHANGED(name, handle, arguments)             \
	do {                                         \
		driver_result result_;               \
                                                     \
		if (!(arm_work() & ARM_TWINS))       \
			return REAL(name) arguments; \
		graph_source_change(handle);         \
		result_ = REAL(name) arguments;      \
		graph_source_change_end();           \
		return result_;                      \
	} while (0)
#define KERNEL(name, handle, arguments, ...)              \
	WRAP(name, __VA_ARGS__, const void *parameters) { \
		CHANGED(name, handle, arguments);         \
	}

KERNEL(cuGraphAddKernelNode, graph, (node, graph, nodes, count, parameters), driver_handle *node,
       driver_handle graph, const void *nodes, size_t count)
KERNEL(cuGraphAddKernelNode_v2, graph, (node, graph, nodes, count, parameters), driver_handle *node,
       driver_handle graph, const void *nodes, size_t count)
KERNEL(cuGraphKernelNodeSetParams, node, (node, parameters), driver_handle node)
KERNEL(cuGraphKernelNodeSetParams_v2, node, (node, parameters), driver_handle node)

/* The driver has made a node: what is in a conditional one is told now and never again. */
static void note_bodies(driver_handle node, const struct node_any *any) {
	const driver_handle *bodies = (const driver_handle *)any->space[2];

	if (any->type == NODE_TYPE_CONDITIONAL && bodies)
		graph_source_note_bodies(node, bodies, (size_t)(any->space[1] >> 32));
}

#define ADD_ANY(name, arguments, ...)                           \
	WRAP(name, __VA_ARGS__, void *parameters) {             \
		bool twins = arm_work() & ARM_TWINS;            \
		driver_result result;                           \
                                                                \
		if (twins)                                      \
			graph_source_change(graph);             \
		result = REAL(name) arguments;                  \
		if (twins) {                                    \
			if (!result)                            \
				note_bodies(*node, parameters); \
			graph_source_change_end();              \
		}                                               \
		return result;                                  \
	}
ADD_ANY(cuGraphAddNode, (node, graph, nodes, count, parameters), driver_handle *node,
	driver_handle graph, const void *nodes, size_t count)
ADD_ANY(cuGraphAddNode_v2, (node, graph, nodes, edges, count, parameters), driver_handle *node,
	driver_handle graph, const void *nodes, const void *edges, size_t count)

WRAP(cuGraphNodeSetParams, driver_handle node, void *parameters) {
	CHANGED(cuGraphNodeSetParams, node, (node, parameters));
}
