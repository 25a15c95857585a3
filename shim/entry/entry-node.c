/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wrappers of the driver's functions for nodes of graphs that are not instantiated (entry-node.h):
 * they choose between the probed and the bare kernel of a node.
 */

#include "entry-node.h"

#include <errno.h>
#include <string.h>

#include "shim/module/arm.h"
#include "shim/module/bare.h"
#include "shim/graph/graph-source.h"
#include "entry.h"

/* Is anything in the process probed by other code than the SASS engine's? */
static bool is_probed(void) {
	return arm_work() & ARM_LOADS;
}

/* The handle that is to be in place of the node's; true: it is another one. */
static bool choose(const struct node_kernel *kernel, size_t size, driver_handle *handle) {
	uint64_t threads = (uint64_t)kernel->block[0] * kernel->block[1] * kernel->block[2];
	driver_handle own =
		kernel->function || size < NODE_KERNEL_SIZE_2 ? kernel->function : kernel->kernel;

	*handle = threads > BARE_THREADS_ALWAYS ? bare_for_block(own, threads) : own;
	return *handle != own;
}

static void put(struct node_kernel *kernel, driver_handle handle) {
	*(kernel->function ? &kernel->function : &kernel->kernel) = handle;
}

const void *node_choose_kernel(const void *given, size_t size, struct node_kernel *copy) {
	driver_handle handle;
	int saved = errno;

	if (given && is_probed() && choose(given, size, &handle)) {
		memcpy(copy, given, size);
		put(copy, handle);
		given = copy;
	}
	errno = saved;
	return given;
}

void *node_choose_any(void *given, struct node_any *copy) {
	const struct node_any *any = given;
	driver_handle handle;
	int saved = errno;

	if (any && any->type == NODE_TYPE_KERNEL && is_probed() &&
	    choose(&any->kernel, NODE_KERNEL_SIZE_2, &handle)) {
		*copy = *any;
		put(&copy->kernel, handle);
		given = copy;
	}
	errno = saved;
	return given;
}

/*
 * What the driver says of a node: an application knows no bare kernels. Of a library's kernel it
 * tells both, the function and the kernel, and it is the latter that the runtime looks for.
 */
static void show_own(struct node_kernel *kernel, size_t size) {
	int saved = errno;

	kernel->function = bare_own_function(kernel->function);
	if (size == NODE_KERNEL_SIZE_2)
		kernel->kernel = bare_own_kernel(kernel->kernel);
	errno = saved;
}

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
#define KERNEL(name, size, handle, arguments, ...)                        \
	WRAP(name, __VA_ARGS__, const void *parameters) {                 \
		struct node_kernel copy;                                  \
                                                                          \
		parameters = node_choose_kernel(parameters, size, &copy); \
		CHANGED(name, handle, arguments);                         \
	}
#define GET_KERNEL(name, size)                                           \
	WRAP(name, driver_handle node, struct node_kernel *parameters) { \
		driver_result result;                                    \
                                                                         \
		result = REAL(name)(node, parameters);                   \
		if (!result && is_probed())                              \
			show_own(parameters, size);                      \
		return result;                                           \
	}

KERNEL(cuGraphAddKernelNode, NODE_KERNEL_SIZE_1, graph, (node, graph, nodes, count, parameters),
       driver_handle *node, driver_handle graph, const void *nodes, size_t count)
KERNEL(cuGraphAddKernelNode_v2, NODE_KERNEL_SIZE_2, graph, (node, graph, nodes, count, parameters),
       driver_handle *node, driver_handle graph, const void *nodes, size_t count)
KERNEL(cuGraphKernelNodeSetParams, NODE_KERNEL_SIZE_1, node, (node, parameters), driver_handle node)
KERNEL(cuGraphKernelNodeSetParams_v2, NODE_KERNEL_SIZE_2, node, (node, parameters),
       driver_handle node)
GET_KERNEL(cuGraphKernelNodeGetParams, NODE_KERNEL_SIZE_1)
GET_KERNEL(cuGraphKernelNodeGetParams_v2, NODE_KERNEL_SIZE_2)

/* The driver has made a node: what is in a conditional one is told now and never again. */
static void note_bodies(driver_handle node, const struct node_any *any) {
	const driver_handle *bodies = (const driver_handle *)any->space[2];

	if (any->type == NODE_TYPE_CONDITIONAL && bodies)
		graph_source_note_bodies(node, bodies, (size_t)(any->space[1] >> 32));
}

#define ADD_ANY(name, arguments, ...)                            \
	WRAP(name, __VA_ARGS__, void *parameters) {              \
		bool twins = arm_work() & ARM_TWINS;             \
		struct node_any copy;                            \
		driver_result result;                            \
                                                                 \
		parameters = node_choose_any(parameters, &copy); \
		if (twins)                                       \
			graph_source_change(graph);              \
		result = REAL(name) arguments;                   \
		if (twins) {                                     \
			if (!result)                             \
				note_bodies(*node, parameters);  \
			graph_source_change_end();               \
		}                                                \
		return result;                                   \
	}
ADD_ANY(cuGraphAddNode, (node, graph, nodes, count, parameters), driver_handle *node,
	driver_handle graph, const void *nodes, size_t count)
ADD_ANY(cuGraphAddNode_v2, (node, graph, nodes, edges, count, parameters), driver_handle *node,
	driver_handle graph, const void *nodes, const void *edges, size_t count)

WRAP(cuGraphNodeSetParams, driver_handle node, void *parameters) {
	struct node_any copy;

	parameters = node_choose_any(parameters, &copy);
	CHANGED(cuGraphNodeSetParams, node, (node, parameters));
}
