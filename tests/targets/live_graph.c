/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Commands of live_driver.c (live_graph.h):
 *
 *   drop                      destroys the graph; the executable one stays
 *   again                     destroys it once more, which must be an error
 *   object                    gives the graph a user object
 *   objects                   how many of these were destroyed
 *   spoil N                   gives every node of the graph (not of the executable one) N blocks
 *   remove                    destroys the first node of the graph
 *   originals SLOT KERNEL     how many nodes of the graph have another kernel
 *   enclose                   captures a launch of the executable graph: what the driver answers
 *   conditional SLOT KERNEL N a graph of a node, and of another one in the body of a conditional
 *                             node, which is run if N is 1
 */

#include <dlfcn.h>
#include <string.h>

#include "live_graph.h"

#define NODES_MAX 64
#define TYPE_KERNEL 0
#define TYPE_CONDITIONAL 13
#define ASSIGN_DEFAULT 1

static int destroyed;
static CUgraph dropped;

static void *find(const char *name) {
	void *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	if (!function) {
		fprintf(stderr, "libcuda.so.1: %s is missing\n", name);
		exit(1);
	}
	return function;
}
#define FIND(name) ((__typeof__(name) *)find(#name))

static void count_destroyed(void *userdata) {
	__atomic_add_fetch((int *)userdata, 1, __ATOMIC_SEQ_CST);
}

static void add_object(CUgraph graph) {
	CUuserObject object;

	CHECK(FIND(cuUserObjectCreate)(&object, &destroyed, count_destroyed, 1, 1));
	CHECK(FIND(cuGraphRetainUserObject)(graph, object, 1, 1));
}

static size_t nodes_of(CUgraph graph, CUgraphNode nodes[NODES_MAX]) {
	size_t count = NODES_MAX;

	CHECK(driver.graph_get_nodes(graph, nodes, &count));
	return count;
}

static void spoil(CUgraph graph, unsigned blocks) {
	CUgraphNode nodes[NODES_MAX];
	size_t count = nodes_of(graph, nodes);
	CUDA_KERNEL_NODE_PARAMS params;

	for (size_t n = 0; n < count; n++) {
		CHECK(driver.graph_get_params(nodes[n], &params));
		params.gridDimX = blocks;
		CHECK(FIND(cuGraphKernelNodeSetParams_v2)(nodes[n], &params));
	}
}

/* How many kernel nodes, in graphs in nodes, too, have another function. */
static int others(CUgraph graph, CUfunction function) {
	CUgraphNode nodes[NODES_MAX];
	size_t count = nodes_of(graph, nodes);
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphNodeType type;
	CUgraph child;
	int found = 0;

	for (size_t n = 0; n < count; n++) {
		CHECK(FIND(cuGraphNodeGetType)(nodes[n], &type));
		if (type == TYPE_KERNEL) {
			CHECK(driver.graph_get_params(nodes[n], &params));
			found += params.func != function;
		} else if (driver.graph_get_child(nodes[n], &child) == CUDA_SUCCESS) {
			found += others(child, function);
		}
	}
	return found;
}

/* The launch may have made the capture invalid. */
static CUresult enclose(const struct live_graph *live) {
	CUgraph graph = NULL;
	CUresult result;

	CHECK(driver.stream_begin_capture(live->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	result = driver.graph_launch(*live->exec, live->stream);
	if (driver.stream_end_capture(live->stream, &graph) == CUDA_SUCCESS)
		CHECK(driver.graph_destroy(graph));
	return result;
}

static CUgraphNode add(const struct live_graph *live, CUgraph graph, CUgraphNode after,
		       CUfunction function) {
	CUdeviceptr data = live->data;
	void *parameters[] = { &data };
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = function,
		.gridDimX = live->blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 64,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = parameters,
	};
	CUgraphNode node;

	CHECK(driver.graph_add_kernel_node(&node, graph, after ? &after : NULL, after != NULL,
					   &params));
	return node;
}

static CUgraph conditional(const struct live_graph *live, CUfunction function, unsigned value) {
	union { /* CUgraphNodeParams, which has 256 bytes */
		struct {
			unsigned type, reserved[3];
			unsigned long long handle;
			unsigned kind, size;
			CUgraph *bodies;
			CUcontext context;
		};
		char bytes[256];
	} params = { .type = TYPE_CONDITIONAL };
	CUgraphConditionalHandle handle;
	CUgraphNode first, node;
	CUgraph graph;

	CHECK(driver.graph_create(&graph, 0));
	CHECK(FIND(cuGraphConditionalHandleCreate)(&handle, graph, live->context, value,
						   ASSIGN_DEFAULT));
	first = add(live, graph, NULL, function);
	params.handle = handle;
	params.size = 1;
	params.context = live->context;
	CHECK(FIND(cuGraphAddNode_v2)(&node, graph, &first, NULL, 1, (CUgraphNodeParams *)&params));
	add(live, params.bodies[0], NULL, function);
	return graph;
}

bool live_graph_run(const struct live_graph *live, const char *verb, int number) {
	CUgraphNode nodes[NODES_MAX];

	if (!strcmp(verb, "drop")) {
		CHECK(driver.graph_destroy(*live->graph));
		dropped = *live->graph;
		*live->graph = NULL;
	} else if (!strcmp(verb, "again")) {
		if (driver.graph_destroy(dropped) == CUDA_SUCCESS)
			return false;
	} else if (!strcmp(verb, "object")) {
		add_object(*live->graph);
	} else if (!strcmp(verb, "spoil")) {
		spoil(*live->graph, (unsigned)number);
	} else if (!strcmp(verb, "remove")) {
		nodes_of(*live->graph, nodes);
		CHECK(FIND(cuGraphDestroyNode)(nodes[0]));
	} else if (!strcmp(verb, "enclose")) {
		printf("ok %d\n", (int)enclose(live));
		return true;
	} else if (!strcmp(verb, "objects")) {
		printf("ok %d\n", __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST));
		return true;
	} else {
		return false;
	}
	puts("ok");
	return true;
}

bool live_graph_run_kernel(const struct live_graph *live, const char *verb, CUfunction function,
			   int number, CUgraph *made) {
	*made = NULL;
	if (!strcmp(verb, "originals"))
		printf("ok %d\n", others(*live->graph, function));
	else if (!strcmp(verb, "conditional"))
		*made = conditional(live, function, (unsigned)number);
	else
		return false;
	return true;
}
