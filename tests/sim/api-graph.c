/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). Graphs. A node can only depend on nodes that are there
 * already, so the order of adding is an order of execution; edges are for pairing nodes in updates.
 * An executable graph is a copy, and so is a clone; each of its nodes remembers which one it is a
 * copy of. GPUPROBE_SIM_NO_CLONE=1: graphs cannot be cloned, as if they allocated memory.
 * GPUPROBE_SIM_REFUSE=KERNEL: a node of an executable graph does not take a kernel of that name
 * from another module than its own.
 * GPUPROBE_SIM_NODE_US=N: changing a node of an executable graph takes so long.
 * GPUPROBE_SIM_CLONES=N, GPUPROBE_SIM_INSTANCES=N: there is memory for N clones, or executable
 * graphs, and no more. GPUPROBE_SIM_DEVICE_UPDATABLE=1: every kernel node says that it is updated
 * from the device.
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api.h"

#define CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE 13

CUgraph api_graph_new(void) {
	return calloc(1, sizeof(struct CUgraph_st));
}

static void free_bodies(CUgraphNode node) {
	for (uint32_t n = 0; n < node->body_count; n++)
		api_graph_free(node->bodies[n]);
	free(node->bodies);
}

static void node_free(CUgraphNode node) {
	api_live_remove(node);
	api_graph_free(node->child);
	free_bodies(node);
	api_node_deinit(node);
	free(node);
}

static void graph_deinit(struct CUgraph_st *graph) {
	for (size_t n = 0; n < graph->count; n++)
		node_free(graph->nodes[n]);
	free(graph->nodes);
	api_user_release_all(graph);
}

void api_graph_free(CUgraph graph) {
	if (!graph)
		return;
	graph_deinit(graph);
	api_live_remove(graph);
	free(graph);
}

/* A copy with memory of its own. */
static bool copy_node(struct CUgraphNode_st *to, const struct CUgraphNode_st *from) {
	const struct sim_function *function;

	*to = *from;
	to->frozen = NULL;
	to->dependencies = NULL;
	to->dependency_count = to->dependent_count = 0;
	to->child = NULL;
	to->bodies = NULL;
	to->body_count = 0;
	if (from->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return true;
	function = from->function->function;
	to->parameters = malloc(function->parameter_bytes + 1);
	to->pointers = calloc(function->parameter_count + 1, sizeof(*to->pointers));
	if (!to->parameters || !to->pointers) {
		api_node_deinit(to);
		return false;
	}
	memcpy(to->parameters, from->parameters, function->parameter_bytes);
	for (uint32_t n = 0; n < function->parameter_count; n++)
		to->pointers[n] = to->parameters + function->parameters[n].buffer_offset;
	return true;
}

static bool depend(CUgraphNode node, const CUgraphNode *dependencies, size_t count) {
	node->dependencies = calloc(count + 1, sizeof(*node->dependencies));
	for (size_t n = 0; node->dependencies && n < count; n++) {
		node->dependencies[n] = dependencies[n];
		dependencies[n]->dependent_count++;
	}
	node->dependency_count = node->dependencies ? count : 0;
	return node->dependencies;
}

CUgraphNode api_graph_add(struct CUgraph_st *graph, const struct CUgraphNode_st *node,
			  const CUgraphNode *dependencies, size_t count) {
	CUgraphNode copy;

	if (graph->count == graph->allocated) {
		size_t allocated = graph->allocated ? graph->allocated * 2 : 16;
		CUgraphNode *nodes = realloc(graph->nodes, allocated * sizeof(*nodes));

		if (!nodes)
			return NULL;
		graph->nodes = nodes;
		graph->allocated = allocated;
	}
	copy = malloc(sizeof(*copy));
	if (!copy || !copy_node(copy, node)) {
		free(copy);
		return NULL;
	}
	copy->graph = graph;
	copy->id = api_next_id();
	if (!depend(copy, dependencies, count) || !api_live_add(copy, API_NODE)) {
		api_node_deinit(copy);
		free(copy);
		return NULL;
	}
	graph->nodes[graph->count++] = copy;
	return copy;
}

static bool copy_child(CUgraphNode node, CUgraph graph, bool executable);
static bool copy_bodies(CUgraphNode node, const struct CUgraphNode_st *from, bool executable);

/* The node that is at the same place of another graph. */
static CUgraphNode at_same_place(const struct CUgraph_st *to, CUgraph graph, CUgraphNode node) {
	size_t n = 0;

	while (graph->nodes[n] != node)
		n++;
	return to->nodes[n];
}

/* Copies all nodes. Under the lock. */
static bool copy_graph(struct CUgraph_st *to, CUgraph graph, bool executable) {
	if (!api_user_copy(to, graph))
		return false;
	for (size_t n = 0; n < graph->count; n++) {
		const CUgraphNode from = graph->nodes[n];
		CUgraphNode node,
			*dependencies = calloc(from->dependency_count + 1, sizeof(*dependencies));

		for (size_t i = 0; dependencies && i < from->dependency_count; i++)
			dependencies[i] = at_same_place(to, graph, from->dependencies[i]);
		node = !dependencies || (from->type == CU_GRAPH_NODE_TYPE_KERNEL &&
					 !api_live(from->function, API_FUNCTION))
			       ? NULL
			       : api_graph_add(to, from, dependencies, from->dependency_count);
		free(dependencies);
		if (!node)
			return false;
		node->original = from;
		node->original_id = from->id;
		if (executable && node->type == CU_GRAPH_NODE_TYPE_KERNEL && api_patchable() &&
		    !api_freeze(node))
			return false;
		if (from->child && !copy_child(node, from->child, executable))
			return false;
		if (from->bodies && !copy_bodies(node, from, executable))
			return false;
	}
	return true;
}

static bool copy_child(CUgraphNode node, CUgraph graph, bool executable) {
	node->child = api_graph_new();
	return node->child && copy_graph(node->child, graph, executable) &&
	       api_live_add(node->child, API_GRAPH);
}

bool api_graph_add_bodies(CUgraphNode node, uint32_t count) {
	node->bodies = calloc(count, sizeof(*node->bodies));
	for (uint32_t n = 0; node->bodies && n < count; n++) {
		node->bodies[n] = api_graph_new();
		if (!node->bodies[n] || !api_live_add(node->bodies[n], API_GRAPH))
			return false;
		node->body_count++;
	}
	return node->bodies;
}

static bool copy_bodies(CUgraphNode node, const struct CUgraphNode_st *from, bool executable) {
	if (!api_graph_add_bodies(node, from->body_count))
		return false;
	for (uint32_t n = 0; n < from->body_count; n++)
		if (!copy_graph(node->bodies[n], from->bodies[n], executable))
			return false;
	return true;
}

API_EXPORT CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
	CUresult r = api_initialized();
	CUgraph graph;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	graph = api_graph_new();
	api_lock();
	if (!graph || !api_live_add(graph, API_GRAPH))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	api_unlock();
	if (r == CUDA_SUCCESS)
		*phGraph = graph;
	else
		free(graph);
	return r;
}

API_EXPORT CUresult cuGraphDestroy(CUgraph hGraph) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hGraph, API_GRAPH))
		api_graph_free(hGraph);
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	api_user_end();
	return r;
}

/* Others do not depend on it any more. */
API_EXPORT CUresult cuGraphDestroyNode(CUgraphNode hNode) {
	CUresult r = api_initialized();
	struct CUgraph_st *graph;
	size_t at = 0;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	graph = api_live(hNode, API_NODE) ? hNode->graph : NULL;
	while (graph && at < graph->count && graph->nodes[at] != hNode)
		at++;
	if (!graph || at == graph->count) {
		api_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t n = 0; n < hNode->dependency_count; n++)
		hNode->dependencies[n]->dependent_count--;
	for (size_t n = 0; n < graph->count; n++) {
		CUgraphNode other = graph->nodes[n];
		size_t kept = 0;

		for (size_t i = 0; i < other->dependency_count; i++)
			if (other->dependencies[i] != hNode)
				other->dependencies[kept++] = other->dependencies[i];
		other->dependency_count = kept;
	}
	memmove(graph->nodes + at, graph->nodes + at + 1,
		(--graph->count - at) * sizeof(CUgraphNode));
	node_free(hNode);
	api_unlock();
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult check_dependencies(CUgraph graph, const CUgraphNode *dependencies, size_t count) {
	if (!api_live(graph, API_GRAPH) || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t n = 0; n < count; n++)
		if (!api_live(dependencies[n], API_NODE) || dependencies[n]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

bool api_graph_check(CUgraph graph, const CUgraphNode *dependencies, size_t count) {
	return check_dependencies(graph, dependencies, count) == CUDA_SUCCESS;
}

/* The node that parameters describe; func or, in the second version, kern. */
static CUresult node_from(struct CUgraphNode_st *node, const CUDA_KERNEL_NODE_PARAMS *params,
			  bool second) {
	const unsigned int grid[] = { params->gridDimX, params->gridDimY, params->gridDimZ };
	const unsigned int block[] = { params->blockDimX, params->blockDimY, params->blockDimZ };
	CUfunction function = params->func;

	if (!function && second)
		function = (CUfunction)(void *)params->kern;
	return api_kernel_node(node, function, grid, block, params->sharedMemBytes,
			       params->kernelParams, params->extra);
}

static CUresult add_kernel_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies,
				size_t count, const CUDA_KERNEL_NODE_PARAMS *params, bool second) {
	struct CUgraphNode_st node;
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = check_dependencies(graph, dependencies, count);
	if (r == CUDA_SUCCESS)
		r = node_from(&node, params, second);
	if (r == CUDA_SUCCESS) {
		*out = api_graph_add(graph, &node, dependencies, count);
		if (!*out)
			r = CUDA_ERROR_OUT_OF_MEMORY;
		api_node_deinit(&node);
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
					    const CUgraphNode *dependencies, size_t numDependencies,
					    const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams,
			       true);
}

/* The first version's parameters end before `kern`. */
API_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
					 const CUgraphNode *dependencies, size_t numDependencies,
					 const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
					 const CUgraphNode *dependencies, size_t numDependencies,
					 const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams,
			       false);
}

API_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
					const CUgraphNode *dependencies, size_t numDependencies) {
	const struct CUgraphNode_st node = { .type = CU_GRAPH_NODE_TYPE_EMPTY };
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphNode)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = check_dependencies(hGraph, dependencies, numDependencies);
	if (r == CUDA_SUCCESS) {
		*phGraphNode = api_graph_add(hGraph, &node, dependencies, numDependencies);
		if (!*phGraphNode)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_unlock();
	return r;
}

/* Copies the graph. */
API_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
					     const CUgraphNode *dependencies,
					     size_t numDependencies, CUgraph childGraph) {
	const struct CUgraphNode_st node = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = phGraphNode && api_live(childGraph, API_GRAPH)
		    ? check_dependencies(hGraph, dependencies, numDependencies)
		    : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		*phGraphNode = api_graph_add(hGraph, &node, dependencies, numDependencies);
		if (!*phGraphNode || !copy_child(*phGraphNode, childGraph, false))
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (phGraph && api_live(hNode, API_NODE) && hNode->child)
		*phGraph = hNode->child;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

/* Says how many and, if there is room, which; under the lock. */
static void give_nodes(const CUgraphNode *from, size_t count, CUgraphNode *nodes, size_t *room) {
	for (size_t n = 0; nodes && n < *room; n++)
		nodes[n] = n < count ? from[n] : NULL;
	if (!nodes || *room > count)
		*room = count;
}

API_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
						  void *edges, size_t *count);
API_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
						  void *edges, size_t *count) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!count || !edges != !dependencies)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(node, API_NODE))
		give_nodes(node->dependencies, node->dependency_count, dependencies, count);
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

/* How many there are, alone. */
API_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependents,
						    void *edges, size_t *count);
API_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependents,
						    void *edges, size_t *count) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!count || dependents || edges)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(node, API_NODE))
		*count = node->dependent_count;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

static bool kernel_node(CUgraphNode node) {
	return api_live(node, API_NODE) && node->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

/* Whether it is updated from the device, alone. */
API_EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void *value);
API_EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void *value) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (value && attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
	    kernel_node(node))
		*(int *)value = getenv("GPUPROBE_SIM_DEVICE_UPDATABLE") != NULL;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

static CUresult get_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params, size_t size) {
	CUDA_KERNEL_NODE_PARAMS full;
	CUresult r = api_initialized();
	CUmodule module;

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (kernel_node(node)) {
		module = node->function->module;
		full = (CUDA_KERNEL_NODE_PARAMS){
			.func = node->function,
			.gridDimX = node->grid[0],
			.gridDimY = node->grid[1],
			.gridDimZ = node->grid[2],
			.blockDimX = node->block[0],
			.blockDimY = node->block[1],
			.blockDimZ = node->block[2],
			.sharedMemBytes = node->shared,
			.kernelParams = node->pointers,
			.kern = module->library
					? &module->library
						   ->kernels[node->function - module->functions]
					: NULL,
		};
		memcpy(params, &full, size);
	} else {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
						  CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return get_params(hNode, nodeParams, sizeof(*nodeParams));
}

API_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
					       CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
					       CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return get_params(hNode, nodeParams, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
}

/* Gives a node new parameters. Under the lock. */
static CUresult set_params(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, bool second) {
	struct CUgraphNode_st fresh;
	CUresult r = node_from(&fresh, params, second);

	if (r != CUDA_SUCCESS)
		return r;
	if (node->frozen && fresh.function == node->function) {
		fresh.frozen = node->frozen; /* other parameters do not make it another kernel */
		node->frozen = NULL;
	} else if (node->frozen && !api_freeze(&fresh)) {
		api_node_deinit(&fresh);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fresh.dependencies = node->dependencies;
	fresh.dependency_count = node->dependency_count;
	fresh.dependent_count = node->dependent_count;
	node->dependencies = NULL;
	api_node_deinit(node);
	fresh.partner = node->partner;
	fresh.graph = node->graph;
	fresh.original = node->original;
	fresh.original_id = node->original_id;
	fresh.id = node->id;
	fresh.disabled = node->disabled;
	*node = fresh;
	return CUDA_SUCCESS;
}

static CUresult node_set_params(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params,
				bool second) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = kernel_node(node) ? set_params(node, params, second) : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
						  const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return node_set_params(hNode, nodeParams, true);
}

API_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
					       const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
					       const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return node_set_params(hNode, nodeParams, false);
}

API_EXPORT CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (type && api_live(hNode, API_NODE))
		*type = hNode->type;
	else
		r = CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (!numNodes || !api_live(hGraph, API_GRAPH)) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		give_nodes(hGraph->nodes, hGraph->count, nodes, numNodes);
	}
	api_unlock();
	return r;
}

/* --- executable graphs --- */

static unsigned long clones, instances;

/* Counts calls, of which a variable allows some. */
static bool is_over(unsigned long *calls, const char *variable) {
	const char *limit = getenv(variable);

	return limit && __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) > strtoul(limit, NULL, 10);
}

static bool has_conditions(const struct CUgraph_st *graph) {
	bool found = false;

	for (size_t n = 0; n < graph->count && !found; n++)
		found = graph->nodes[n]->bodies ||
			(graph->nodes[n]->child && has_conditions(graph->nodes[n]->child));
	return found;
}

API_EXPORT CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
	CUresult r = api_initialized();
	CUgraph graph;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphClone || getenv("GPUPROBE_SIM_NO_CLONE"))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_over(&clones, "GPUPROBE_SIM_CLONES"))
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph = api_graph_new();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	if (!api_live(originalGraph, API_GRAPH))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (has_conditions(originalGraph))
		r = CUDA_ERROR_NOT_SUPPORTED;
	else if (!copy_graph(graph, originalGraph, false) || !api_live_add(graph, API_GRAPH))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		*phGraphClone = graph;
	else
		api_graph_free(graph);
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
					   CUgraph hClonedGraph) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	for (size_t n = 0; phNode && api_live(hClonedGraph, API_GRAPH) && n < hClonedGraph->count;
	     n++) {
		if (hClonedGraph->nodes[n]->original != hOriginalNode)
			continue;
		*phNode = hClonedGraph->nodes[n];
		r = CUDA_SUCCESS;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
						unsigned long long flags) {
	CUresult r = api_enter();
	CUgraphExec exec;

	if (r != CUDA_SUCCESS)
		return r;
	if (!phGraphExec)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_over(&instances, "GPUPROBE_SIM_INSTANCES"))
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	if (!api_live(hGraph, API_GRAPH) || !copy_graph(&exec->graph, hGraph, true))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!api_live_add(exec, API_EXEC))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		graph_deinit(&exec->graph);
		free(exec);
	} else {
		*phGraphExec = exec;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
						 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
	CUresult r;

	if (!instantiateParams)
		return CUDA_ERROR_INVALID_VALUE;
	r = cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out =
		r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}
API_ALIAS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams);

/* The older form: a node and a log for errors. */
API_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node,
					  char *log, size_t size);
API_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node,
					  char *log, size_t size) {
	if (node)
		*node = NULL;
	if (log && size)
		log[0] = '\0';
	return cuGraphInstantiateWithFlags(exec, graph, 0);
}
API_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2);

/* The copy of a node, in children and bodies, too; NULL: there is none. */
static CUgraphNode find_copy(const struct CUgraph_st *graph, CUgraphNode original) {
	CUgraphNode found = NULL;

	for (size_t n = 0; n < graph->count && !found; n++) {
		CUgraphNode node = graph->nodes[n];

		if (node->original == original && node->original_id == original->id)
			found = node;
		else if (node->child)
			found = find_copy(node->child, original);
		for (uint32_t i = 0; i < node->body_count && !found; i++)
			found = find_copy(node->bodies[i], original);
	}
	return found;
}

/* The node of an executable graph that a call means: the graph that it was made from must be there.
 * Under the lock. */
static CUgraphNode exec_node(CUgraphExec exec, CUgraphNode node) {
	return api_live(exec, API_EXEC) && api_live(node, API_NODE) ? find_copy(&exec->graph, node)
								    : NULL;
}

static bool is_refused(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
	const char *name = getenv("GPUPROBE_SIM_REFUSE");
	CUfunction function =
		api_function(params->func ? params->func : (CUfunction)(void *)params->kern);

	return name && function && function->module != node->function->module &&
	       !strcmp(function->function->name, name);
}

static void take_time(void) {
	const char *us = getenv("GPUPROBE_SIM_NODE_US");
	struct timespec now, end;

	if (!us)
		return;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += strtol(us, NULL, 10) * 1000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static CUresult exec_set_params(CUgraphExec exec, CUgraphNode node,
				const CUDA_KERNEL_NODE_PARAMS *params, bool second) {
	CUresult r = api_enter();
	CUgraphNode copy;

	if (r != CUDA_SUCCESS)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	take_time();
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	copy = exec_node(exec, node);
	if (copy && kernel_node(copy) && is_refused(copy, params))
		r = CUDA_ERROR_NOT_SUPPORTED;
	else if (copy && kernel_node(copy))
		r = set_params(copy, params, second);
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
						      const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return exec_set_params(hGraphExec, hNode, nodeParams, true);
}

API_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						   const CUDA_KERNEL_NODE_PARAMS *nodeParams);
API_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						   const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
	return exec_set_params(hGraphExec, hNode, nodeParams, false);
}

/* By the order of edges. *different: the first that has no partner. */
static bool pair_nodes(CUgraphNode to, CUgraphNode from, CUgraphNode *different) {
	bool same = to->partner ? to->partner == from
				: to->type == from->type &&
					  to->dependency_count == from->dependency_count;

	if (!same)
		*different = from;
	if (!same || to->partner)
		return same;
	to->partner = from;
	for (size_t n = 0; n < to->dependency_count && same; n++)
		same = pair_nodes(to->dependencies[n], from->dependencies[n], different);
	return same;
}

/* Those first that nothing depends on, in their order. */
static bool pair_graphs(struct CUgraph_st *to, const struct CUgraph_st *from,
			CUgraphNode *different) {
	size_t at = 0;

	if (to->count != from->count)
		return false;
	for (size_t n = 0; n < to->count; n++)
		to->nodes[n]->partner = NULL;
	for (size_t n = 0; n < to->count; n++) {
		if (to->nodes[n]->dependent_count)
			continue;
		while (at < from->count && from->nodes[at]->dependent_count)
			at++;
		if (at == from->count || !pair_nodes(to->nodes[n], from->nodes[at++], different))
			return false;
	}
	for (size_t n = 0; n < to->count; n++)
		if (!to->nodes[n]->partner ||
		    (to->nodes[n]->child &&
		     !pair_graphs(to->nodes[n]->child, to->nodes[n]->partner->child, different)))
			return false;
	return true;
}

/* Gives nodes what their partners have. */
static CUresult take_parameters(struct CUgraph_st *graph) {
	CUresult r = CUDA_SUCCESS;

	for (size_t n = 0; r == CUDA_SUCCESS && n < graph->count; n++) {
		CUgraphNode to = graph->nodes[n], from = to->partner;
		CUDA_KERNEL_NODE_PARAMS params = {
			.func = from->function,
			.gridDimX = from->grid[0],
			.gridDimY = from->grid[1],
			.gridDimZ = from->grid[2],
			.blockDimX = from->block[0],
			.blockDimY = from->block[1],
			.blockDimZ = from->block[2],
			.sharedMemBytes = from->shared,
			.kernelParams = from->pointers,
		};

		if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
			r = set_params(to, &params, true);
			continue;
		}
		if (to->child)
			r = take_parameters(to->child);
		to->destination = from->destination;
		to->source = from->source;
		to->size = from->size;
		to->element = from->element;
		to->value = from->value;
		to->host = from->host;
		to->userdata = from->userdata;
	}
	return r;
}

/* Gives every node of an executable graph what the same of another graph has. Under the lock. */
static CUresult update(struct CUgraph_st *to, const struct CUgraph_st *graph,
		       CUgraphNode *different) {
	return pair_graphs(to, graph, different) ? take_parameters(to)
						 : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

API_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						       CUgraph childGraph) {
	CUresult r = api_enter();
	CUgraphNode copy, different;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	copy = exec_node(hGraphExec, hNode);
	r = copy && copy->child && api_live(childGraph, API_GRAPH)
		    ? update(copy->child, childGraph, &different)
		    : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphNode *different) {
	CUresult r = api_enter();

	*different = NULL;
	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = api_live(exec, API_EXEC) && api_live(graph, API_GRAPH)
		    ? update(&exec->graph, graph, different)
		    : CUDA_ERROR_INVALID_VALUE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
					 CUgraphExecUpdateResultInfo *resultInfo) {
	CUgraphNode different;
	CUresult r;

	if (!resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	r = exec_update(hGraphExec, hGraph, &different);
	*resultInfo =
		(CUgraphExecUpdateResultInfo){ .result = r == CUDA_SUCCESS
								 ? CU_GRAPH_EXEC_UPDATE_SUCCESS
								 : CU_GRAPH_EXEC_UPDATE_ERROR,
					       .errorNode = different };
	return r;
}

/* The older form. */
API_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
				      CUgraphExecUpdateResult *result);
API_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
				      CUgraphExecUpdateResult *result) {
	CUresult r;

	if (!node || !result)
		return CUDA_ERROR_INVALID_VALUE;
	r = exec_update(exec, graph, node);
	*result = r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
	return r;
}

API_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
					  unsigned int isEnabled) {
	CUresult r = api_initialized();
	CUgraphNode copy;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = CUDA_ERROR_INVALID_VALUE;
	copy = exec_node(hGraphExec, hNode);
	if (copy) {
		copy->disabled = !isEnabled;
		r = CUDA_SUCCESS;
	}
	api_unlock();
	return r;
}

/* Checks an executable graph and the stream it is for. Under the lock. */
static CUresult check_launch(CUgraphExec exec, CUstream handle, CUstream *stream) {
	if (!api_live(exec, API_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	return api_stream(handle, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult api_graph_run(const struct CUgraph_st *graph, CUstream stream) {
	CUresult r = CUDA_SUCCESS;

	for (size_t n = 0; n < graph->count; n++)
		api_condition_begin(graph->nodes[n]);
	for (size_t n = 0; r == CUDA_SUCCESS && n < graph->count; n++) {
		if (graph->nodes[n]->disabled)
			continue;
		r = api_node_run(graph->nodes[n], stream);
		if (api_enter() != CUDA_SUCCESS)
			break; /* a kernel failed: what follows does not run */
	}
	return r;
}

/* Not into a capture, which that invalidates. The nodes run without the lock: the caller keeps the
 * exec alive, as the API asks. */
API_EXPORT CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
	CUresult r = api_enter();
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = check_launch(hGraphExec, hStream, &stream);
	if (r == CUDA_SUCCESS && stream && stream->capture) {
		stream->invalidated = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	api_unlock();
	return r == CUDA_SUCCESS ? api_graph_run(&hGraphExec->graph, hStream) : r;
}
API_ALIAS(cuGraphLaunch_ptsz, cuGraphLaunch);

API_EXPORT CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
	CUresult r = api_enter();
	CUstream stream;

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	r = check_launch(hGraphExec, hStream, &stream);
	api_unlock();
	return r;
}
API_ALIAS(cuGraphUpload_ptsz, cuGraphUpload);

API_EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_lock();
	if (api_live(hGraphExec, API_EXEC)) {
		api_live_remove(hGraphExec);
		graph_deinit(&hGraphExec->graph);
		free(hGraphExec);
	} else {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	api_unlock();
	api_user_end();
	return r;
}
