/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wrappers of the driver's functions that change or destroy graphs, for graph-source.c and
 * graph-twin.c: they do something in processes with twins alone. Kernel nodes: entry-node.c.
 */

#include "shim/module/arm.h"
#include "entry.h"
#include "shim/graph/graph-source.h"
#include "shim/graph/graph-twin.h"

#define ERROR_INVALID_VALUE 1

/* NOTE: what is done before, with the lock that is given back behind the call. */
#define CHANGE(name, NOTE, arguments, ...)           \
	WRAP(name, __VA_ARGS__) {                    \
		driver_result result;                \
                                                     \
		if (!(arm_work() & ARM_TWINS))       \
			return REAL(name) arguments; \
		NOTE;                                \
		result = REAL(name) arguments;       \
		graph_source_change_end();           \
		return result;                       \
	}
#define ADD(name)                                                                         \
	CHANGE(name, graph_source_change(graph), (node, graph, nodes, count, parameters), \
	       driver_handle *node, driver_handle graph, const void *nodes, size_t count, \
	       const void *parameters)
#define ADD_IN_CONTEXT(name)                                                                       \
	CHANGE(name, graph_source_change(graph), (node, graph, nodes, count, parameters, context), \
	       driver_handle *node, driver_handle graph, const void *nodes, size_t count,          \
	       const void *parameters, driver_handle context)

ADD_IN_CONTEXT(cuGraphAddMemcpyNode)
ADD_IN_CONTEXT(cuGraphAddMemsetNode)
ADD(cuGraphAddBatchMemOpNode)
ADD(cuGraphAddChildGraphNode)
ADD(cuGraphAddEventRecordNode)
ADD(cuGraphAddEventWaitNode)
ADD(cuGraphAddExternalSemaphoresSignalNode)
ADD(cuGraphAddExternalSemaphoresWaitNode)
ADD(cuGraphAddHostNode)
ADD(cuGraphAddMemAllocNode)
CHANGE(cuGraphAddEmptyNode, graph_source_change(graph), (node, graph, nodes, count),
       driver_handle *node, driver_handle graph, const void *nodes, size_t count)
CHANGE(cuGraphAddMemFreeNode, graph_source_change(graph), (node, graph, nodes, count, address),
       driver_handle *node, driver_handle graph, const void *nodes, size_t count,
       driver_pointer address)

#define EDGES(name)                                                                             \
	CHANGE(name, graph_source_change(graph), (graph, from, to, count), driver_handle graph, \
	       const void *from, const void *to, size_t count)
#define EDGES_WITH_DATA(name)                                                           \
	CHANGE(name, graph_source_change(graph), (graph, from, to, data, count),        \
	       driver_handle graph, const void *from, const void *to, const void *data, \
	       size_t count)
EDGES(cuGraphAddDependencies)
EDGES(cuGraphRemoveDependencies)
EDGES_WITH_DATA(cuGraphAddDependencies_v2)
EDGES_WITH_DATA(cuGraphRemoveDependencies_v2)

CHANGE(cuGraphKernelNodeSetAttribute, graph_source_change_attributes(node),
       (node, attribute, value), driver_handle node, int attribute, const void *value)
CHANGE(cuGraphKernelNodeCopyAttributes, graph_source_change_attributes(to), (to, from),
       driver_handle to, driver_handle from)

static void node_ends(driver_handle node) {
	graph_twin_node_ends(node);
	graph_source_node_ends(node);
	graph_source_change(node);
}
CHANGE(cuGraphDestroyNode, node_ends(node), (node), driver_handle node)

WRAP(cuGraphDestroy, driver_handle graph) {
	if (!(arm_work() & ARM_TWINS))
		return REAL(cuGraphDestroy)(graph);
	switch (graph_source_destroy(graph)) {
	case GRAPH_DESTROY_LATER:
		return 0;
	case GRAPH_DESTROY_AGAIN:
		return ERROR_INVALID_VALUE;
	case GRAPH_DESTROY_LOST:
		graph_twin_graph_lost(graph);
		break;
	case GRAPH_DESTROY_NOW:
		break;
	}
	return REAL(cuGraphDestroy)(graph);
}

WRAP(cuGraphRetainUserObject, driver_handle graph, driver_handle object, unsigned count,
     unsigned flags) {
	driver_result result;

	result = REAL(cuGraphRetainUserObject)(graph, object, count, flags);
	if (!result && (arm_work() & ARM_TWINS))
		graph_source_has_objects(graph);
	return result;
}
